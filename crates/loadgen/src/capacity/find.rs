//! The search: steps up to the breaking point and back to the last load that holds.

use serde::{Deserialize, Serialize};

use super::step::{closed, open, settle};
use super::{Bounds, CapacityError, FAILURES, Loops, Step, Target};

/// The last step of an open loop is so many times longer, and so many targets long at least; how often it is tried.
const LONGER: u32 = 3;
const TARGETS: u32 = 25;
const TRIES: u32 = 8;
/// More clients that bring less than this are enough.
const GAIN: f64 = 1.03;
/// With less than this share of its capacity a service is beyond its breaking point.
const WHOLE: f64 = 0.9;
/// The highest rate is found to within this share.
const FINE: f64 = 0.04;
/// Rates that are tried between the first and the highest, for the curve: shares of what the closed loop answered.
const SHARES: [f64; 5] = [0.25, 0.5, 0.7, 0.85, 0.95];
/// A first rate where nothing is known, per second.
const FIRST_RATE: f64 = 1.0;

/// Result of a search for the capacity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The kind of request.
    pub name: String,
    /// Where it was sent.
    pub url: String,
    /// What the 95th percentile had to hold, seconds.
    pub target: f64,
    /// The most that was answered, requests per second.
    pub capacity: f64,
    /// The highest rate within the target, requests per second; of the open loop where there was one.
    pub rate_in_target: f64,
    /// The most requests in flight within the target; `None` without a closed loop.
    pub max_conn: Option<u32>,
    /// Requests in flight at the breaking point: the most, of those tried, with which it still did all that it can and
    /// answered everybody, if late. `None` without a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// `max_conn` is the bound that was given, not what the service holds.
    pub is_bound: bool,
    /// `rate_in_target` is the bound that was given.
    #[serde(default)]
    pub rate_is_bound: bool,
    /// The capacity is the generator's: it had nothing to spare when most was answered.
    #[serde(default)]
    pub is_generators: bool,
    /// Where throughput over response time is highest: requests per second, and mean response time there, seconds.
    pub knee: (f64, f64),
    /// The 95th percentile near 90 % of the capacity, seconds: what can be promised without wasting much.
    pub suggested_target: f64,
    /// Mean response time of a request that is alone: its cost, seconds.
    pub cost: f64,
    /// Every step, in the order in which they were run.
    pub steps: Vec<Step>,
}

/// Measures one kind of request. `each` hears of every step as it ends.
///
/// # Errors
/// When the service does not hold the target at all, does not recover, or load cannot be sent.
pub fn find(target: &Target, bounds: &Bounds, mut each: impl FnMut(&Step)) -> Result<Found, CapacityError> {
    let mut search = Search { target, bounds, steps: Vec::new(), each: &mut each };
    let first = search.run(Load::Clients(1))?;
    if !first.holds(bounds.target) {
        let (p95, failed) = (first.latency.p95, first.failed * 100.0);
        return Err(CapacityError::TooSlow { url: target.url.clone(), p95, failed });
    }
    let max_conn = if bounds.loops == Loops::Open { None } else { Some(search.clients()?) };
    let rate = if bounds.loops == Loops::Closed { None } else { Some(search.rates()?) };
    let steps = search.steps;
    Ok(sum_up(target, bounds, max_conn, rate, steps))
}

/// What a step offers.
#[derive(Debug, Clone, Copy)]
enum Load {
    Clients(u32),
    Rate(f64),
}

struct Search<'a> {
    target: &'a Target,
    bounds: &'a Bounds,
    steps: Vec<Step>,
    each: &'a mut dyn FnMut(&Step),
}

impl Search<'_> {
    /// The most clients within the target. Goes on beyond it until more clients bring no more answers.
    fn clients(&mut self) -> Result<u32, CapacityError> {
        let most = self.bounds.most_in_flight.max(1);
        let (mut good, mut bad, mut best) = (1, None, self.steps[0].answered);
        let mut clients = 1;
        while clients < most {
            clients = (clients * 2).min(most);
            let step = self.try_twice(Load::Clients(clients), bad.is_some())?;
            let holds = step.holds(self.bounds.target);
            if holds && bad.is_none() {
                good = clients;
            } else {
                bad = bad.or(Some(clients));
            }
            let gained = step.answered > best * GAIN;
            best = best.max(step.answered);
            if step.cut || bad.is_some() && !gained {
                break;
            }
        }
        if let Some(mut bad) = bad {
            while bad - good > 1 {
                let middle = good + (bad - good) / 2;
                if self.try_twice(Load::Clients(middle), false)?.holds(self.bounds.target) {
                    good = middle;
                } else {
                    bad = middle;
                }
            }
        }
        Ok(good)
    }

    /// The curve, and the highest rate within the target.
    fn rates(&mut self) -> Result<f64, CapacityError> {
        let most = self.bounds.most_rate;
        let known = self.steps.iter().filter(|step| !step.cut).map(|step| step.answered).fold(0.0, f64::max);
        let mut good = 0.0;
        let mut bad = None;
        if self.steps.len() > 1 {
            for share in SHARES {
                if good >= most {
                    break;
                }
                let rate = (known * share).min(most);
                if self.try_twice(Load::Rate(rate), false)?.holds(self.bounds.target) {
                    good = rate;
                } else {
                    bad = Some(rate);
                    break;
                }
            }
        }
        let mut rate = if good > 0.0 { good * 1.1 } else { FIRST_RATE };
        while bad.is_none() && good < most {
            rate = rate.min(most);
            if self.try_twice(Load::Rate(rate), false)?.holds(self.bounds.target) {
                good = rate;
            } else {
                bad = Some(rate);
            }
            // After a closed loop the end is near; without one nothing is known.
            rate *= if self.bounds.loops == Loops::Both { 1.1 } else { 1.5 };
        }
        let mut bad = bad.unwrap_or(good);
        while bad - good > FINE * bad {
            let middle = (good + bad) / 2.0;
            if self.try_twice(Load::Rate(middle), false)?.holds(self.bounds.target) {
                good = middle;
            } else {
                bad = middle;
            }
        }
        self.confirm(good)
    }

    /// A rate a little beyond what is held looks well for a while, as the queue only begins to grow: a longer step
    /// shows it. The highest rate, from `rate` down, that holds for so long.
    fn confirm(&mut self, mut rate: f64) -> Result<f64, CapacityError> {
        let step = self.bounds.step.saturating_mul(LONGER).max(self.bounds.target.saturating_mul(TARGETS));
        let long = Bounds { step, ..self.bounds.clone() };
        for _ in 0..TRIES {
            let step = open(self.target, &long, rate)?;
            (self.each)(&step);
            let (holds, cut, answered) = (step.holds(long.target), step.cut, step.answered);
            self.steps.push(step);
            if cut {
                settle(self.target, self.bounds, &self.steps[0])?;
            }
            if holds {
                return Ok(answered);
            }
            rate *= 1.0 - FINE;
        }
        Ok(rate)
    }

    /// A step that breaks the target is tried once more, unless it was cut, or that is known already: chance breaks it
    /// too.
    fn try_twice(&mut self, load: Load, is_broken: bool) -> Result<Step, CapacityError> {
        let step = self.run(load)?;
        if step.holds(self.bounds.target) || step.cut || is_broken {
            return Ok(step);
        }
        self.run(load)
    }

    fn run(&mut self, load: Load) -> Result<Step, CapacityError> {
        let step = match load {
            Load::Clients(clients) => closed(self.target, self.bounds, clients)?,
            Load::Rate(rate) => open(self.target, self.bounds, rate)?,
        };
        (self.each)(&step);
        self.steps.push(step.clone());
        if step.cut {
            settle(self.target, self.bounds, &self.steps[0])?;
        }
        Ok(step)
    }
}

fn sum_up(target: &Target, bounds: &Bounds, max_conn: Option<u32>, rate: Option<f64>, steps: Vec<Step>) -> Found {
    let whole = || steps.iter().filter(|step| !step.cut && step.latency.count > 0);
    let holding = || whole().filter(|step| step.holds(bounds.target));
    let highest = |steps: &mut dyn Iterator<Item = &Step>| steps.map(|step| step.answered).fold(0.0, f64::max);
    // A rate beyond what is held is answered late, after its step: that is no capacity.
    let closed = highest(&mut whole().filter(|step| step.in_flight.is_some()));
    let capacity = closed.max(rate.unwrap_or(0.0));
    let is_generators = whole().any(|step| step.is_generators() && step.answered >= capacity);
    // Arrivals are random: at the bound about as much is answered.
    let rate_is_bound = rate.is_some_and(|rate| rate >= bounds.most_rate * (1.0 - FINE));
    let rate_in_target = rate.unwrap_or_else(|| highest(&mut holding()));
    let power = |step: &&Step| step.answered / step.latency.mean.max(1e-9);
    let knee = holding().max_by(|a, b| power(a).total_cmp(&power(b)));
    let near = holding().min_by(|a, b| {
        let distance = |step: &Step| (step.answered - 0.9 * capacity).abs();
        distance(a).total_cmp(&distance(b))
    });
    let unbroken = whole().filter(|step| step.failed <= FAILURES && step.answered >= WHOLE * capacity);
    let most = unbroken.filter_map(|step| step.in_flight).max();
    Found {
        name: target.name.clone(),
        url: target.url.clone(),
        target: bounds.target.as_secs_f64(),
        capacity,
        rate_in_target,
        max_conn,
        most: max_conn.map(|within| within.max(most.unwrap_or(0))),
        is_bound: max_conn.is_some_and(|most| most >= bounds.most_in_flight),
        rate_is_bound,
        is_generators,
        knee: knee.map_or((0.0, 0.0), |step| (step.answered, step.latency.mean)),
        suggested_target: near.map_or(0.0, |step| step.latency.p95),
        cost: steps[0].latency.mean,
        steps,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::Quantiles;

    fn given(loops: Loops) -> (Target, Bounds) {
        let target = Target { name: "page".into(), url: "http://a:1/".into(), headers: Vec::new() };
        let (half, second) = (Duration::from_millis(500), Duration::from_secs(1));
        (target, Bounds { target: half, step: second, most_in_flight: 64, most_rate: 1e3, seed: 1, loops })
    }

    fn step(in_flight: Option<u32>, answered: f64, mean: f64, p95: f64) -> Step {
        let latency = Quantiles { count: 100, mean, p95, ..Quantiles::default() };
        Step { in_flight, offered: answered, answered, failed: 0.0, latency, cut: false, generator: 0.3 }
    }

    #[test]
    fn bounds_and_a_busy_generator_are_told() {
        let (target, bounds) = given(Loops::Both);
        let busy = |generator| Step { generator, ..step(Some(4), 990.0, 0.004, 0.01) };
        let found = |generator, rate| {
            let steps = vec![step(Some(1), 300.0, 0.003, 0.01), busy(generator), step(None, rate, 0.004, 0.01)];
            let found = sum_up(&target, &bounds, Some(4), Some(rate), steps);
            (found.is_generators, found.rate_is_bound)
        };
        assert_eq!(found(0.97, 900.0), (true, false));
        assert_eq!(found(0.5, 985.0), (false, true));
    }

    #[test]
    fn what_is_found_follows_from_the_steps() {
        let (target, bounds) = given(Loops::Both);
        let steps = vec![
            step(Some(1), 10.0, 0.1, 0.12),
            step(Some(4), 38.0, 0.105, 0.15),
            step(Some(16), 40.0, 0.4, 0.6),
            step(None, 36.0, 0.2, 0.4),
            step(None, 60.0, 3.0, 9.0),
        ];
        let found = sum_up(&target, &bounds, Some(13), Some(36.0), steps);
        assert_eq!((found.capacity, found.rate_in_target, found.cost), (40.0, 36.0, 0.1));
        assert_eq!((found.knee, found.suggested_target, found.is_bound), ((38.0, 0.105), 0.4, false));
        assert_eq!((found.max_conn, found.most), (Some(13), Some(16)), "late, but whole");
    }

    #[test]
    fn the_breaking_point_is_where_answers_fail_or_become_fewer() {
        let (target, bounds) = given(Loops::Closed);
        let base = [step(Some(1), 10.0, 0.1, 0.12), step(Some(8), 40.0, 0.2, 0.4), step(Some(16), 40.0, 0.4, 0.6)];
        let most = |last: Step| {
            let steps = base.iter().cloned().chain([last]).collect();
            sum_up(&target, &bounds, Some(13), None, steps).most
        };
        assert_eq!(most(step(Some(32), 39.5, 0.8, 1.2)), Some(32));
        assert_eq!(most(step(Some(32), 35.0, 0.8, 1.2)), Some(16), "fewer");
        assert_eq!(most(Step { failed: 0.1, ..step(Some(32), 40.0, 0.8, 1.2) }), Some(16), "failing");
        assert_eq!(most(Step { cut: true, ..step(Some(32), 40.0, 0.8, 1.2) }), Some(16), "far too late");
        let none = sum_up(&target, &bounds, None, Some(20.0), vec![step(None, 20.0, 0.2, 0.4)]).most;
        assert_eq!(none, None);
    }
}
