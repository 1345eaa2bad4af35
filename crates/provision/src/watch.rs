//! Observations of one application: its recent offered load, and the capacity of its servers.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::capacity::{Arrivals, MOST_VARIATION, Replica, mean_bound};
use super::forecast::{Basis, Forecast, Forecaster, Seasonal};
use tidegate_engine::{Sla, Timestamp};

/// One application, as its provisioner needs it.
#[derive(Clone, Debug)]
pub struct ApplicationSetup {
    /// Name of the application.
    pub name: String,
    /// Its response-time target.
    pub sla: Sla,
    /// What an answer within the target is worth, per class, most important first.
    pub revenues: Vec<f64>,
    /// It has at least so many servers.
    pub min_servers: u32,
    /// It has at most so many.
    pub max_servers: u32,
    /// It begins with so many, which serve already.
    pub servers: u32,
    /// It has at most so many sentries; it begins with one.
    pub max_sentries: u32,
    /// A server of its, when known; else it is learned from reports.
    pub replica: Option<Replica>,
}

/// What the sentries of an application saw since the last report.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ApplicationReport {
    /// Requests that arrived, per class, most important first: before anything was refused.
    pub offered: Vec<u64>,
    /// Requests of these that were refused.
    pub refused: u64,
    /// Mean share of the serving servers' processors in use, 0 to 1.
    pub busy: f64,
    /// Mean inherent service time, seconds, once known.
    pub mean_service: Option<f64>,
    /// Coefficient of variation of inherent service times, once known.
    #[serde(default)]
    pub service_variation: Option<f64>,
    /// Coefficient of variation of the time between arrivals, once known.
    #[serde(default)]
    pub arrival_variation: Option<f64>,
    /// Effective processors of a server, once known.
    pub processors: Option<f64>,
}

/// What is known of an application: the inputs of decisions about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Offered over the last minute, requests per second; `None` when nothing was reported.
    pub offered: Option<f64>,
    /// Share of it refused.
    pub refused: f64,
    /// Mean use of the serving servers' processors over the last minute, 0 to 1.
    pub busy: Option<f64>,
    /// Mean inherent service time, seconds, once known.
    pub mean_service: Option<f64>,
    /// Coefficient of variation of service times that is counted with: measured, or that of exponential ones.
    pub service_variation: Option<f64>,
    /// The same of the time between arrivals: measured, or that of Poisson ones.
    pub arrival_variation: Option<f64>,
    /// Effective processors of a server, once known.
    pub processors: Option<f64>,
    /// The highest rate foreseen for the next half hour, requests per second.
    pub foreseen: f64,
    /// What that stands on.
    pub basis: Basis,
}

/// One application.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) setup: ApplicationSetup,
    pub(super) forecaster: alloc::boxed::Box<dyn Forecaster>,
    /// Newest last; as far back as anybody looks.
    periods: VecDeque<Period>,
    mean_service: Option<f64>,
    variations: Variations,
    processors: Option<f64>,
    last_report: Timestamp,
}

/// Coefficients of variation as they were last reported.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
struct Variations {
    service: Option<f64>,
    arrivals: Option<f64>,
}

/// What is kept of an application.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct WatchedState {
    /// The forecaster's past, where it is the one that comes along.
    past: Option<Seasonal>,
    periods: VecDeque<Period>,
    mean_service: Option<f64>,
    #[serde(default)]
    variations: Variations,
    processors: Option<f64>,
    last_report: Timestamp,
}

/// Between two reports.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Period {
    until: Timestamp,
    seconds: f64,
    offered: Vec<u64>,
    refused: u64,
    busy: f64,
}

/// Reports are kept for so long.
const KEPT: Duration = Duration::from_secs(3600);

impl Watched {
    pub(super) fn new(setup: ApplicationSetup, forecaster: alloc::boxed::Box<dyn Forecaster>) -> Watched {
        Watched {
            setup,
            forecaster,
            periods: VecDeque::new(),
            mean_service: None,
            variations: Variations::default(),
            processors: None,
            last_report: Timestamp::ZERO,
        }
    }

    /// Takes a report. One of no time at all, or with another number of classes, is left out.
    pub(super) fn hear(&mut self, now: Timestamp, report: &ApplicationReport) {
        let seconds = now.seconds_since(self.last_report);
        if seconds <= 0.0 || report.offered.len() != self.setup.revenues.len() {
            return;
        }
        self.last_report = now;
        let total = all(&report.offered);
        self.forecaster.observe(now, total as f64 / seconds);
        let fine = |value: &f64| value.is_finite() && *value > 0.0;
        self.mean_service = report.mean_service.filter(fine).or(self.mean_service);
        self.processors = report.processors.filter(fine).or(self.processors);
        let spread = |value: Option<f64>| value.filter(|value| *value >= 0.0).map(|value| value.min(MOST_VARIATION));
        self.variations.service = spread(report.service_variation).or(self.variations.service);
        self.variations.arrivals = spread(report.arrival_variation).or(self.variations.arrivals);
        let busy = if report.busy.is_finite() { report.busy.clamp(0.0, 1.0) } else { 0.0 };
        let refused = report.refused.min(total);
        self.periods.push_back(Period { until: now, seconds, offered: report.offered.clone(), refused, busy });
        while self.periods.front().is_some_and(|period| now.since(period.until) > KEPT) {
            self.periods.pop_front();
        }
    }

    /// Nothing is known of the time since the last report.
    pub(super) fn skip(&mut self, now: Timestamp) {
        self.last_report = self.last_report.max(now);
    }

    pub(super) fn state(&self) -> WatchedState {
        WatchedState {
            past: self.forecaster.seasonal().cloned(),
            periods: self.periods.clone(),
            mean_service: self.mean_service,
            variations: self.variations,
            processors: self.processors,
            last_report: self.last_report,
        }
    }

    /// What was kept; periods with another number of classes are left out.
    pub(super) fn restore(&mut self, state: WatchedState) {
        if let Some(past) = state.past {
            let past = match self.forecaster.seasonal() {
                Some(mine) => mine.going_on(past),
                None => past,
            };
            self.forecaster = alloc::boxed::Box::new(past);
        }
        let classes = self.setup.revenues.len();
        self.periods = state.periods.into_iter().filter(|period| period.offered.len() == classes).collect();
        (self.mean_service, self.processors) = (state.mean_service, state.processors);
        self.variations = state.variations;
        self.last_report = state.last_report;
    }

    /// The measurements that decisions stand on.
    pub(super) fn measured(&self, now: Timestamp) -> Measured {
        let minute = Duration::from_secs(60);
        let foreseen = self.forecast(now, now + Duration::from_secs(1800));
        Measured {
            offered: self.rate(now, minute),
            refused: self.drop_share(now, minute),
            busy: self.busy(now, minute),
            mean_service: self.replica().map(|replica| replica.mean_service),
            service_variation: self.replica().map(|replica| replica.service_variation()),
            arrival_variation: self.replica().map(|replica| replica.arrival_variation()),
            processors: self.replica().map(|replica| replica.processors),
            foreseen: foreseen.expected,
            basis: foreseen.basis,
        }
    }

    /// Takes what was observed before the first report.
    pub(super) fn learn(&mut self, at: Timestamp, rate: f64) {
        self.forecaster.observe(at, rate);
        self.last_report = self.last_report.max(at);
    }

    /// Offered rate over the last `time`, requests per second; `None` before the first report.
    pub(super) fn rate(&self, now: Timestamp, time: Duration) -> Option<f64> {
        self.rate_between(now - time, now)
    }

    /// Offered rate of the reports that came after `from` and until `to`.
    pub(super) fn rate_between(&self, from: Timestamp, to: Timestamp) -> Option<f64> {
        let (mut count, mut seconds) = (0, 0.0);
        for period in self.within(from, to) {
            count = u64::saturating_add(count, all(&period.offered));
            seconds += period.seconds;
        }
        (seconds > 0.0).then(|| count as f64 / seconds)
    }

    /// The highest rate of any report in the last `time`.
    pub(super) fn peak(&self, now: Timestamp, time: Duration) -> f64 {
        let rate = |period: &Period| all(&period.offered) as f64 / period.seconds;
        self.within(now - time, now).map(rate).fold(0.0, f64::max)
    }

    /// Share of the requests refused over the last `time`.
    pub(super) fn drop_share(&self, now: Timestamp, time: Duration) -> f64 {
        let (mut offered, mut refused) = (0, 0_u64);
        for period in self.within(now - time, now) {
            offered = u64::saturating_add(offered, all(&period.offered));
            refused = refused.saturating_add(period.refused);
        }
        if offered > 0 { refused as f64 / offered as f64 } else { 0.0 }
    }

    /// Mean use of the servers over the last `time`; `None` before the first report.
    pub(super) fn busy(&self, now: Timestamp, time: Duration) -> Option<f64> {
        let (mut busy, mut seconds) = (0.0, 0.0);
        for period in self.within(now - time, now) {
            busy += period.busy * period.seconds;
            seconds += period.seconds;
        }
        (seconds > 0.0).then(|| busy / seconds)
    }

    /// A total rate divided among the classes as over the last `time`.
    pub(super) fn by_class(&self, now: Timestamp, time: Duration, total: f64) -> Vec<f64> {
        let classes = self.setup.revenues.len();
        let mut counts = alloc::vec![0u64; classes];
        for period in self.within(now - time, now) {
            counts.iter_mut().zip(&period.offered).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        }
        let sum = all(&counts);
        let share = |count: &u64| if sum > 0 { *count as f64 / sum as f64 } else { 1.0 / classes as f64 };
        counts.iter().map(|count| share(count) * total).collect()
    }

    pub(super) fn forecast(&self, from: Timestamp, to: Timestamp) -> Forecast {
        self.forecaster.forecast(from, to)
    }

    /// A server of this application; `None` until its service time is known.
    pub(super) fn replica(&self) -> Option<Replica> {
        let learned = || {
            let Variations { service, arrivals } = self.variations;
            Some(Replica::measured(self.mean_service?, service, arrivals, self.processors.unwrap_or(1.0)))
        };
        // Who says what a request costs says nothing of how they come.
        let arrivals = self.variations.arrivals.map(Arrivals::Variation);
        let given = |replica: Replica| Replica { arrivals: arrivals.unwrap_or(replica.arrivals), ..replica };
        self.setup.replica.map(given).or_else(learned)
    }

    /// The bound on the mean response time under a ceiling of the target.
    pub(super) fn bound(&self, ceiling: Duration) -> f64 {
        let statistic = self.setup.sla.statistic();
        self.replica().map_or(mean_bound(statistic, ceiling), |replica| replica.mean_bound(statistic, ceiling))
    }

    fn within(&self, from: Timestamp, to: Timestamp) -> impl Iterator<Item = &Period> {
        self.periods.iter().rev().skip_while(move |period| period.until > to).take_while(move |p| p.until > from)
    }
}

/// Counts come from outside: too large ones must not wrap around.
fn all(counts: &[u64]) -> u64 {
    counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
}
