//! From an outcome to the numbers that a scenario makes demands on.

mod interval;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tidegate_sim::Provision;
use tidegate_workload::{Course, Second};

use crate::outcome::{Connections, Outcome, StreamOutcome};
use crate::scenario::{Arm, Class, Expect, Load, Mark, Metric, Scenario, Span};

pub(crate) use interval::judge;

/// One expectation, measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// What it shows, in words.
    pub what: String,
    /// What it is evidence of, where the scenario says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// The sentence or figure of the paper that it is about.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// Why its bounds are not the paper's, or why the paper's policy misses the claim.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub because: String,
    /// The class, load or request type it is about, or `all`.
    pub subject: String,
    /// What was measured.
    pub metric: Metric,
    /// When.
    pub over: Span,
    /// What is demanded.
    pub bound: String,
    /// What was measured; `None` when there was nothing to measure, which never passes.
    pub measured: Option<f64>,
    /// Of several seeds taken together, where the mean lies with 95 % confidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// Whether it is as demanded.
    pub pass: bool,
}

/// Measures an outcome.
#[derive(Debug, Clone, Copy)]
pub struct Measure<'a> {
    scenario: &'a Scenario,
    outcome: &'a Outcome,
    /// What came of the arms, by name, for expectations that compare them.
    arms: &'a [(&'a str, &'a Outcome)],
}

impl<'a> Measure<'a> {
    /// A measure of what came of `scenario`.
    pub fn new(scenario: &'a Scenario, outcome: &'a Outcome) -> Measure<'a> {
        Measure { scenario, outcome, arms: &[] }
    }

    /// The same beside what came of other arms with the same seed, by name.
    #[must_use]
    pub fn beside(self, arms: &'a [(&'a str, &'a Outcome)]) -> Measure<'a> {
        Measure { arms, ..self }
    }

    /// Every expectation about `arm`, in the order of the scenario.
    pub fn checks(&self, arm: &Arm) -> Vec<Check> {
        arm.expectations(self.scenario).map(|expect| self.check(expect)).collect()
    }

    /// One expectation.
    pub fn check(&self, expect: &Expect) -> Check {
        let times = |other: Option<f64>| {
            self.metric(expect).zip(other).and_then(|(now, other)| (other > 0.0).then(|| now / other))
        };
        let there = |arm: &String| {
            let other = self.arms.iter().find(|(name, _)| name == arm);
            other.and_then(|(_, outcome)| Measure { outcome, ..*self }.metric(expect))
        };
        let measured = match (expect.relative_to, &expect.relative_to_arm, &expect.minus_arm) {
            (None, None, None) => self.metric(expect),
            (Some(before), ..) => times(self.metric(&Expect { over: before, ..expect.clone() })),
            (None, Some(arm), _) => times(there(arm)),
            (None, None, Some(arm)) => self.metric(expect).zip(there(arm)).map(|(now, other)| now - other),
        };
        Check {
            what: expect.what.clone(),
            mark: expect.mark,
            claim: expect.claim.clone(),
            because: expect.because.clone(),
            subject: expect.subject().to_owned(),
            metric: expect.metric,
            over: expect.over,
            bound: expect.bound(),
            measured,
            interval: None,
            pass: measured.is_some_and(|measured| expect.allows(measured)),
        }
    }

    /// The value of a metric; `None` when there is nothing to measure.
    fn metric(&self, expect: &Expect) -> Option<f64> {
        let course = match (&expect.load, &expect.request) {
            (Some(load), _) => self.outcome.load(load),
            (_, Some(request)) => self.outcome.request(request),
            _ => self.outcome.class(expect.class.as_deref()),
        };
        let Span { from, to } = expect.over;
        let sum = course.span(from, to);
        let all = || self.outcome.class(None).span(from, to);
        // Whole seconds are what was summed up.
        let seconds = to.as_secs_f64().ceil() - from.as_secs_f64().floor();
        let rate = |count: u64| Some(count as f64 / seconds);
        match expect.metric {
            Metric::AdmittedShare => share(sum.admitted(), sum.offered),
            Metric::RefusedShare => share(sum.refused, sum.offered),
            Metric::FailedShare => share(sum.failed, sum.offered),
            Metric::PartOfAdmitted => share(sum.admitted(), all().admitted()),
            Metric::PartOfRefused => share(sum.refused, all().refused),
            Metric::OfferedRate => rate(sum.offered),
            Metric::AdmittedRate => rate(sum.admitted()),
            Metric::RefusedRate => rate(sum.refused),
            Metric::GoodputRate => rate(sum.good),
            Metric::RevenueRate => Some(self.revenue(expect) / seconds),
            Metric::GoodputWork => Some(self.good_work(expect) / seconds),
            Metric::Mean => sum.responses.mean(),
            Metric::P50 => sum.responses.quantile(0.50),
            Metric::P90 => sum.responses.quantile(0.90),
            Metric::P95 => sum.responses.quantile(0.95),
            Metric::P99 => sum.responses.quantile(0.99),
            Metric::P90WorstWindow => worst(&course, expect, 0.90),
            Metric::P95WorstWindow => worst(&course, expect, 0.95),
            Metric::P95WindowsOver => self.windows_over(&course, expect),
            Metric::InFlight => self.in_flight(expect),
            Metric::AtWorkMost => self.at_work(expect),
            Metric::ServersLeast => self.servers(expect).min().map(|count| count as f64),
            Metric::ServersMost => self.servers(expect).max().map(|count| count as f64),
            Metric::ServersUsual => self.usual(expect),
            Metric::ServersChanges => {
                let counts: Vec<usize> = self.servers(expect).collect();
                let changes = counts.windows(2).filter(|pair| pair[0] != pair[1]).count();
                (!counts.is_empty()).then_some(changes as f64)
            }
            Metric::Servers => self.provisioned(expect, |second| second.servers),
            Metric::Sentries => self.provisioned(expect, |second| second.sentries),
            Metric::Ceiling => self.provisioned(expect, |second| second.ceiling),
            Metric::SentryCpu => self.provisioned(expect, |second| second.sentry_cpu),
            Metric::SentrySpread => self.provisioned(expect, |second| second.sentry_spread),
            Metric::RateLeast => self.rates(expect).into_iter().flatten().reduce(f64::min),
            Metric::RateLast => self.rates(expect).iter().filter_map(|rates| rates.last().copied()).reduce(f64::min),
            Metric::RateFall => self.steps(expect).map(|(before, after)| before - after).reduce(f64::max),
            Metric::RateRise => self.steps(expect).map(|(before, after)| after - before).reduce(f64::max),
            Metric::RateFallMean => self
                .steps(expect)
                .map(|(before, after)| before - after)
                .reduce(|a, b| a + b)
                .map(|fell| fell / self.steps(expect).count() as f64),
            Metric::RateRiseToFall => {
                let most = |of: fn((f64, f64)) -> f64| self.steps(expect).map(of).reduce(f64::max);
                let (rise, fall) = (most(|(before, after)| after - before)?, most(|(before, after)| before - after)?);
                (fall > 0.0).then(|| rise / fall)
            }
            Metric::LimitedShare => self.limited_share(expect),
            Metric::RateChangeTime => self.change_time(expect),
            Metric::TurnedAway => {
                let first = self.connections(expect).next()?.turned_away;
                self.connections(expect).last().map(|last| last.turned_away - first)
            }
            Metric::RefusalCost => self.outcome.refusal_cost,
            Metric::Power => self.outcome.joules.map(|joules| joules / self.scenario.duration.as_secs_f64()),
        }
    }

    /// Mean service time of what was answered within the target, seconds, by load: each has its mix.
    fn good_work(&self, expect: &Expect) -> f64 {
        let loads = self.scenario.loads.iter().filter(|load| match (&expect.load, &expect.class) {
            (Some(name), _) => load.label() == name,
            (_, class) => class.as_ref().is_none_or(|class| load.class == *class),
        });
        let of_one = |load: &Load| {
            let mean =
                |name: &String| self.scenario.request_index(name).map(|at| self.scenario.requests[at].service.mean());
            let work: f64 = load.requests.iter().filter_map(|(name, weight)| Some(weight * mean(name)?)).sum();
            work / load.requests.values().sum::<f64>()
        };
        let good = |load: &Load| self.outcome.load(load.label()).span(expect.over.from, expect.over.to).good;
        loads.map(|load| good(load) as f64 * of_one(load)).sum()
    }

    /// What the application that the expectation is about is offered at an instant.
    fn offered_at(&self, expect: &Expect, at: Duration) -> f64 {
        let application = self.application(expect);
        let loads = self.scenario.loads.iter().filter(|load| self.scenario.application_of(&load.class) == application);
        loads.map(|load| load.rate.rate_at(at).per_second()).sum()
    }

    /// The mean over the span, of the application that the expectation is about.
    fn provisioned(&self, expect: &Expect, of: impl Fn(&Provision) -> f64) -> Option<f64> {
        let seconds = &self.outcome.provisioned.get(self.application(expect))?.seconds;
        let to = (expect.over.to.as_secs_f64().ceil() as usize).min(seconds.len());
        let span = seconds.get(expect.over.from.as_secs() as usize..to)?;
        (!span.is_empty()).then(|| span.iter().map(of).sum::<f64>() / span.len() as f64)
    }

    fn application(&self, expect: &Expect) -> usize {
        let loads = || self.scenario.loads.iter().find(|load| Some(load.label()) == expect.load.as_deref());
        let class = expect.class.as_deref().or_else(|| loads().map(|load| load.class.as_str()));
        class.map_or(0, |class| self.scenario.application_of(class))
    }

    /// What was in flight, on average over the seconds.
    fn in_flight(&self, expect: &Expect) -> Option<f64> {
        let is_about = |stream: &(usize, &StreamOutcome)| match (&expect.load, &expect.class) {
            (Some(load), _) => stream.1.name == *load,
            (_, class) => class.as_ref().is_none_or(|class| stream.1.class == *class),
        };
        let streams: Vec<usize> = self.outcome.streams.iter().enumerate().filter(is_about).map(|(at, _)| at).collect();
        let sum = |second: &Vec<u32>| streams.iter().filter_map(|&at| second.get(at)).sum::<u32>();
        let Span { from, to } = expect.over;
        let seconds =
            self.outcome.in_flight.iter().take(to.as_secs_f64().ceil() as usize).skip(from.as_secs() as usize);
        let sums: Vec<u32> = seconds.map(sum).collect();
        share(sums.iter().map(|&sum| u64::from(sum)).sum(), sums.len() as u64)
    }

    /// The most at work at one server in any of the seconds.
    fn at_work(&self, expect: &Expect) -> Option<f64> {
        let Span { from, to } = expect.over;
        let seconds = self.outcome.at_work.iter().take(to.as_secs_f64().ceil() as usize).skip(from.as_secs() as usize);
        seconds.max().map(|&most| f64::from(most))
    }

    /// The servers of the class, second by second.
    fn servers(&self, expect: &Expect) -> impl Iterator<Item = usize> {
        let class = expect.class.as_ref().and_then(|class| self.scenario.class_index(class));
        let Span { from, to } = expect.over;
        let seconds = self.outcome.partitions.iter().skip(from.as_secs() as usize);
        let seconds = seconds.take((to.as_secs_f64().ceil() - from.as_secs_f64().floor()) as usize);
        // Classes beyond the last partition share it.
        seconds.filter_map(move |sizes| sizes.get(class?.min(sizes.len().saturating_sub(1))).copied())
    }

    /// The number of servers that the class had in most of the seconds.
    fn usual(&self, expect: &Expect) -> Option<f64> {
        let mut seconds: BTreeMap<usize, usize> = BTreeMap::new();
        self.servers(expect).for_each(|count| *seconds.entry(count).or_default() += 1);
        let usual = seconds.into_iter().max_by_key(|(count, seconds)| (*seconds, Reverse(*count)));
        usual.map(|(count, _)| count as f64)
    }

    /// What the answers within the target are worth, of all classes or of the expectation's.
    fn revenue(&self, expect: &Expect) -> f64 {
        let Span { from, to } = expect.over;
        let of_streams = |class: &Class| -> u64 {
            let is_about = |stream: &&StreamOutcome| match (&expect.load, &expect.class) {
                (Some(load), _) => stream.name == *load,
                (_, wanted) => wanted.as_ref().is_none_or(|wanted| *wanted == class.name),
            };
            let streams = self.outcome.streams.iter().filter(|stream| stream.class == class.name).filter(is_about);
            streams.map(|stream| stream.course.span(from, to).good).sum()
        };
        self.scenario.classes.iter().map(|class| class.revenue * of_streams(class) as f64).sum()
    }

    /// The rates of the resource's controllers, each second by second.
    fn rates(&self, expect: &Expect) -> Vec<Vec<f64>> {
        let resource = expect.resource.as_deref().unwrap_or_default();
        let Span { from, to } = expect.over;
        let mut controllers: Vec<(&str, Vec<f64>)> = Vec::new();
        for control in &self.outcome.controls {
            let at = Duration::from_secs(control.second);
            let is_its = control.request.split(" at ").next() == Some(resource);
            let Some(rate) = control.rate.filter(|_| is_its && at >= from && at < to) else { continue };
            match controllers.iter_mut().find(|(name, _)| *name == control.request) {
                Some((_, rates)) => rates.push(rate),
                None => controllers.push((&control.request, vec![rate])),
            }
        }
        controllers.into_iter().map(|(_, rates)| rates).collect()
    }

    /// In how many of the seconds the resource's controllers limit anything.
    fn limited_share(&self, expect: &Expect) -> Option<f64> {
        let is_its = |name: &str| name.split(" at ").next() == expect.resource.as_deref();
        let Span { from, to } = expect.over;
        let seconds = self.outcome.controls.iter().filter(|control| {
            let at = Duration::from_secs(control.second);
            is_its(&control.request) && at >= from && at < to
        });
        share(seconds.clone().filter(|control| control.rate.is_some()).count() as u64, seconds.count() as u64)
    }

    fn connections(&self, expect: &Expect) -> impl Iterator<Item = &'a Connections> {
        let Span { from, to } = expect.over;
        let within = move |at: &&Connections| (from..to).contains(&Duration::from_secs(at.second));
        self.outcome.connections.iter().filter(within)
    }

    /// The median over the changes: one that is seen twice is one.
    fn change_time(&self, expect: &Expect) -> Option<f64> {
        let mut took: Vec<f64> = self.connections(expect).filter_map(|at| at.change).collect();
        took.dedup();
        took.sort_by(f64::total_cmp);
        took.get(took.len() / 2).copied()
    }

    /// Each rate with the one a second later.
    fn steps(&self, expect: &Expect) -> impl Iterator<Item = (f64, f64)> {
        let pairs = |rates: Vec<f64>| rates.windows(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>();
        self.rates(expect).into_iter().flat_map(pairs)
    }

    fn windows_over(&self, course: &Course, expect: &Expect) -> Option<f64> {
        let (mut over, mut counted) = (0u64, 0u64);
        for (from, sum) in windows(course, expect) {
            let target = self.scenario.target(self.offered_at(expect, from)).as_secs_f64();
            let Some(p95) = p95(&sum) else { continue };
            counted += 1;
            over += u64::from(p95 > target);
        }
        share(over, counted)
    }
}

/// The windows of an expectation's span, the last one perhaps shorter: beginning and sum.
fn windows<'c>(course: &'c Course, expect: &Expect) -> impl Iterator<Item = (Duration, Second)> + 'c {
    let (Span { from, to }, window) = (expect.over, expect.window);
    let starts =
        std::iter::successors(Some(from), move |start| Some(*start + window)).take_while(move |start| *start < to);
    starts.map(move |start| (start, course.span(start, (start + window).min(to))))
}

/// The highest quantile of any window.
fn worst(course: &Course, expect: &Expect, q: f64) -> Option<f64> {
    windows(course, expect).filter_map(|(_, sum)| sum.responses.quantile(q)).reduce(f64::max)
}

fn p95(sum: &Second) -> Option<f64> {
    sum.responses.quantile(0.95)
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests;
