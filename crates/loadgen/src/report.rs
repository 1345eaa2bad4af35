//! Report of a run: plain numbers that serialise to JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The result of a run. All durations are seconds, all rates per second of the time in which requests were sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Seed of the run.
    pub seed: u64,
    /// How long requests were sent, seconds: the planned duration, or less when stopped.
    pub sent_for: f64,
    /// Response time within which an answer is goodput, seconds.
    pub target: Option<f64>,
    /// Whether the run was stopped before its end.
    pub stopped: bool,
    /// Results by class, in the order of the plan.
    pub classes: Vec<ClassReport>,
    /// All classes together.
    pub total: ClassReport,
    /// How the generator itself did.
    pub generator: GeneratorReport,
    /// Reasons not to trust the figures, in words. Empty when all is well.
    pub warnings: Vec<String>,
}

/// What became of the requests of one class.
///
/// `offered = admitted + refused + other + errors + not_sent + unfinished`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ClassReport {
    /// Name of the class; `total` for all.
    pub class: String,
    /// Requests that the plan scheduled.
    pub offered: u64,
    /// Requests whose head was given to a connection.
    pub sent: u64,
    /// Requests that a limit of the generator held back.
    pub not_sent: NotSent,
    /// Complete answers by status of HTTP; those of gRPC are in `grpc_status`.
    pub status: BTreeMap<u16, u64>,
    /// Complete answers of gRPC by its status.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub grpc_status: BTreeMap<u8, u64>,
    /// Complete answers with a 2xx or 3xx status, or gRPC's `OK`.
    pub admitted: u64,
    /// Complete answers with 503 or gRPC's `UNAVAILABLE`, and whatever else a sentry refuses with.
    pub refused: u64,
    /// Those of them that carry `Tidegate-Decision: rejected`: refused by a sentry rather than by a server.
    pub refused_by_sentry: u64,
    /// Complete answers with any other status.
    pub other: u64,
    /// Requests without a complete answer, by what went wrong.
    pub errors: BTreeMap<ErrorKind, u64>,
    /// Requests given up because the run was stopped.
    pub unfinished: u64,
    /// Admitted requests answered within the target.
    pub good: u64,
    /// Bytes of response bodies.
    pub bytes: u64,
    /// `offered` per second.
    pub offered_per_s: f64,
    /// `admitted` per second of sending. It counts late answers too: a server that answers everybody far too late shows
    /// more than its capacity here, and the truth in `goodput_per_s`.
    pub admitted_per_s: f64,
    /// `good` per second.
    pub goodput_per_s: f64,
    /// Response times of admitted requests.
    pub latency: Quantiles,
    /// Response times of refusals.
    pub refusal_latency: Quantiles,
    /// How long everyone waited who was not refused, those included who gave up or got an error: no survivors' bias.
    pub waiting: Quantiles,
    /// The course of the run, by the second in which a request was scheduled.
    pub seconds: Vec<Second>,
    /// Response times of the admitted, seconds, by the second in which they were scheduled. Too many for the JSON form.
    #[serde(skip)]
    pub responses: Vec<Vec<f32>>,
}

/// Requests held back by the generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NotSent {
    /// Too many were outstanding.
    pub outstanding_limit: u64,
    /// No connection came free, or could be opened within the limit, before the timeout.
    pub connection_limit: u64,
}

/// Why a request has no complete answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// No connection could be made.
    Connect,
    /// The client's patience ended.
    Timeout,
    /// The connection was reset.
    Reset,
    /// The connection was closed before the answer was complete.
    Closed,
    /// The server reset the stream (`RST_STREAM` of HTTP/2).
    StreamReset,
    /// The server reset the stream and said that it had done nothing about it (`REFUSED_STREAM`).
    StreamRefused,
    /// The server closed the connection to all its streams for a reason (`GOAWAY` of HTTP/2 with an error).
    GoneAway,
    /// The answer was not HTTP, or not of the version spoken.
    Protocol,
    /// This machine had no port or no open file left for a connection: the service was not asked.
    LocalLimit,
}

/// Requests scheduled in one second, and what became of them; and what was answered in it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Second {
    /// Requests that were scheduled.
    pub offered: u64,
    /// Answered with 2xx or 3xx.
    pub admitted: u64,
    /// Requests answered with status 503.
    pub refused: u64,
    /// Anything else: errors, other statuses, not sent.
    pub failed: u64,
    /// Admitted within the target.
    pub good: u64,
    /// 95th percentile of the response time of the admitted, seconds.
    pub p95: Option<f64>,
    /// Answers with 2xx or 3xx that came in this second, whenever they were asked for: the throughput.
    #[serde(default)]
    pub answered: u64,
    /// Their mean response time, seconds.
    #[serde(default)]
    pub answered_mean: Option<f64>,
}

/// Quantiles of a set of durations, seconds. All zero when `count` is.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Quantiles {
    /// Number of values.
    pub count: u64,
    /// Mean of the values, seconds.
    pub mean: f64,
    /// Median of the values, seconds.
    pub p50: f64,
    /// 90th percentile of the values, seconds.
    pub p90: f64,
    /// 95th percentile of the values, seconds.
    pub p95: f64,
    /// 99th percentile of the values, seconds.
    pub p99: f64,
    /// Largest value, seconds.
    pub max: f64,
}

/// How the generator itself did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GeneratorReport {
    /// From the scheduled instant of a request to the instant at which the generator took it in hand.
    pub lateness: Quantiles,
    /// Share of one processor used by the generator's thread, over the whole run.
    pub cpu: f64,
    /// The highest share in any second.
    pub cpu_peak: f64,
    /// Connections opened.
    pub connections_opened: u64,
    /// Requests that had to wait because every connection was busy.
    pub connection_waits: u64,
}

impl Report {
    /// What to say of a generator that was too late for its figures to be judged; see [`GeneratorReport::disturbance`].
    pub fn disturbance(&self) -> Option<String> {
        self.generator.disturbance()
    }
}

impl GeneratorReport {
    /// The line by which a test says that its machine was disturbed: when 1 % of the requests were taken in hand more
    /// than 20 ms after their scheduled instant. `None` when the generator kept to its schedule.
    ///
    /// The line begins with `disturbed: `, which `cargo xtask test` looks for in what a measurement prints.
    pub fn disturbance(&self) -> Option<String> {
        let late = self.lateness.p99;
        (late > DISTURBED).then(|| format!("disturbed: the generator was {:.0} ms late (p99)", late * 1e3))
    }
}

impl ClassReport {
    /// All errors together.
    pub fn errors_total(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Share of the offered requests that were admitted, 0 to 1; 1 when none was offered.
    pub fn admitted_share(&self) -> f64 {
        if self.offered == 0 { 1.0 } else { self.admitted as f64 / self.offered as f64 }
    }
}

impl NotSent {
    /// Both reasons together.
    pub fn total(self) -> u64 {
        self.outstanding_limit + self.connection_limit
    }
}

impl Quantiles {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Quantiles {
        if histogram.is_empty() {
            return Quantiles::default();
        }
        let at = |q: f64| histogram.value_at_quantile(q) as f64 / 1e6;
        Quantiles {
            count: histogram.len(),
            mean: histogram.mean() / 1e6,
            p50: at(0.50),
            p90: at(0.90),
            p95: at(0.95),
            p99: at(0.99),
            max: histogram.max() as f64 / 1e6,
        }
    }
}

/// A histogram of microseconds, up to a day, with three significant digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 86_400_000_000, 3).expect("the bounds are those the library allows")
}

/// Adds a duration, counting nothing as less than a microsecond.
pub(crate) fn add(histogram: &mut Histogram<u64>, duration: Duration) {
    histogram.saturating_record((duration.as_micros() as u64).max(1));
}

/// Lateness of the 99th percentile, seconds, beyond which a measurement is not judged.
const DISTURBED: f64 = 20e-3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_generator_says_by_how_much() {
        let late = |p99| GeneratorReport { lateness: Quantiles { p99, ..Quantiles::default() }, ..Default::default() };
        assert_eq!(late(0.020).disturbance(), None);
        assert_eq!(late(0.0351).disturbance().unwrap(), "disturbed: the generator was 35 ms late (p99)");
    }

    #[test]
    fn quantiles_of_a_known_set() {
        let mut histogram = histogram();
        (1..=100u64).for_each(|ms| add(&mut histogram, Duration::from_millis(ms)));
        let q = Quantiles::of(&histogram);
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.002;
        assert!(near(q.p50, 0.050) && near(q.p95, 0.095) && near(q.max, 0.100) && near(q.mean, 0.0505), "{q:?}");
        assert_eq!(q.count, 100);
    }

    #[test]
    fn nothing_recorded_is_all_zero() {
        assert_eq!(Quantiles::of(&histogram()), Quantiles::default());
    }
}
