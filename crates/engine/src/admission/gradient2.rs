//! A limit on requests in flight from the ratio of the long to the short mean response time.
//!
//! *Intuition.* A cook who knows how long a dish usually takes. When dishes take longer than that and half as long
//! again, too many are on the stove; when they do not, there is room for a few more.
//!
//! *Applied.* Each window gives the mean response time, the short one. The long one is an exponential mean of the short
//! ones over `long_window` windows; where it is more than twice the short one it loses 5 % a window, so that a past
//! overload does not stay the measure. Then, unless the limit was less than half used:
//!
//! ```text
//! gradient = clamp(rtt_tolerance x long / short, 0.5, 1)
//! limit = (1 - smoothing) limit + smoothing (gradient x limit + queue_size)
//! ```
//!
//! What does not fit below the limit is refused; no request waits. It knows no classes.
//!
//! *Awkward cases.* The measure is the past: under an overload that lasts, the long mean becomes the overloaded one and
//! the limit grows until it is at `max_limit`, for `queue_size` always adds. The first windows after a start in the
//! middle of an overload are the measure. It never goes below `min_limit`, which may be far more than the servers can
//! do in time. Time-outs count only as long response times, failures not at all. It knows no target.
//!
//! *Source.* Netflix concurrency-limits, `Gradient2Limit` inside a `WindowedLimit`, behind a `SimpleLimiter`.

use serde::{Deserialize, Serialize};

use super::limit::{MOST, Sample, Window, admit_below, is_reached};
use super::{Admission, AdmissionPolicy, Arrival, Context, Ended, PolicyState, require};
use crate::decision::End;
use crate::learned::Kept;
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;
use crate::units::Seconds;

/// Settings; the defaults are those of the source.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The limit at the start, requests in flight.
    pub initial_limit: u32,
    /// Least limit.
    pub min_limit: u32,
    /// Largest limit.
    pub max_limit: u32,
    /// How much of a step is taken, more than 0 and at most 1.
    pub smoothing: f64,
    /// Requests that may queue: what the limit grows by when nothing is slow.
    pub queue_size: u32,
    /// By how much the short mean may exceed the long one unpunished, 1 or more.
    pub rtt_tolerance: f64,
    /// Windows in the long mean.
    pub long_window: u32,
    /// Length of a window.
    pub window: Seconds,
    /// A window with fewer answers is thrown away.
    pub window_samples: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            initial_limit: 20,
            min_limit: 20,
            max_limit: 200,
            smoothing: 0.2,
            queue_size: 4,
            rtt_tolerance: 1.5,
            long_window: 600,
            window: Seconds(1.0),
            window_samples: 10,
        }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let wrong = |holds, key, problem| require(holds, "gradient2", key, problem);
        wrong((1..=MOST).contains(&self.min_limit), "min_limit", "must lie between 1 and 1000000")?;
        let range = self.min_limit..=MOST;
        wrong(range.contains(&self.max_limit), "max_limit", "must lie between `min_limit` and 1000000")?;
        let range = self.min_limit..=self.max_limit;
        wrong(range.contains(&self.initial_limit), "initial_limit", "must lie between `min_limit` and `max_limit`")?;
        wrong(self.smoothing > 0.0 && self.smoothing <= 1.0, "smoothing", "must be more than 0 and at most 1")?;
        wrong(self.queue_size <= MOST, "queue_size", "must be at most 1000000")?;
        let tolerance = self.rtt_tolerance;
        wrong((1.0..=1000.0).contains(&tolerance), "rtt_tolerance", "must lie between 1 and 1000")?;
        wrong(self.long_window >= 1, "long_window", "must be at least 1")?;
        wrong((0.1..=3600.0).contains(&self.window.0), "window", "must lie between 100ms and 1h")?;
        wrong(self.window_samples >= 1, "window_samples", "must be at least 1")
    }

    pub(super) fn build(&self, _setup: &Setup) -> Gradient2 {
        let limit = f64::from(self.initial_limit);
        Gradient2 { config: self.clone(), limit, window: Window::default(), short: 0.0, long: 0.0, windows: 0 }
    }
}

/// The long mean starts as the plain mean of so many windows.
const WARM_UP: u32 = 10;
/// Shorter response times say nothing, seconds.
const LEAST: f64 = 100e-6;

/// State of the policy `gradient2`.
#[derive(Debug)]
pub struct Gradient2 {
    config: Config,
    limit: f64,
    window: Window,
    /// Means, seconds.
    short: f64,
    long: f64,
    /// In the long mean, up to the warm-up.
    windows: u32,
}

impl AdmissionPolicy for Gradient2 {
    fn on_arrival(&mut self, cx: &mut Context<'_>, _arrival: &Arrival) -> Admission {
        admit_below(self.limit, cx)
    }

    fn is_full(&self, cx: &Context<'_>) -> bool {
        is_reached(self.limit, cx)
    }

    fn on_outcome(&mut self, cx: &mut Context<'_>, ended: &Ended) {
        if ended.end == End::Failed || ended.service_time < LEAST {
            return;
        }
        let (length, least) = (self.config.window.0, self.config.window_samples);
        let in_flight = ended.in_flight_at_start;
        if let Some(sample) = self.window.add(cx.now, ended.service_time, in_flight, length, least) {
            self.learn(sample);
        }
    }

    fn describe(&self, state: &mut PolicyState) {
        state.limit = Some(self.limit);
        state.more.extend([("short_mean".into(), self.short), ("long_mean".into(), self.long)]);
    }

    fn keep(&self, _now: Timestamp, kept: &mut Kept) {
        kept.put("limit", self.limit);
        kept.put("short_mean", self.short);
        kept.put("long_mean", self.long);
        kept.put("windows", self.windows.into());
    }

    fn recall(&mut self, _now: Timestamp, kept: &Kept) {
        self.short = kept.between("short_mean", (0.0, 1e6), self.short);
        self.long = kept.between("long_mean", (0.0, 1e6), self.long);
        self.windows = kept.between("windows", (0.0, 1e9), 0.0) as u32;
        self.limit = kept.between("limit", (self.config.min_limit.into(), self.config.max_limit.into()), self.limit);
    }
}

impl Gradient2 {
    /// The limit on requests in flight.
    pub(super) fn limit(&self) -> f64 {
        self.limit
    }

    fn learn(&mut self, sample: Sample) {
        self.short = sample.mean;
        if self.windows < WARM_UP {
            self.windows += 1;
            self.long += (sample.mean - self.long) / f64::from(self.windows);
        } else {
            self.long += (sample.mean - self.long) * 2.0 / (f64::from(self.config.long_window) + 1.0);
        }
        let ratio = self.long / sample.mean;
        if ratio > 2.0 {
            self.long *= 0.95;
        }
        if (sample.most_in_flight as f64) < self.limit / 2.0 {
            return;
        }
        let gradient = (self.config.rtt_tolerance * ratio).clamp(0.5, 1.0);
        let next = self.limit * gradient + f64::from(self.config.queue_size);
        let smoothed = self.limit + (next - self.limit) * self.config.smoothing;
        self.limit = smoothed.clamp(f64::from(self.config.min_limit), f64::from(self.config.max_limit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(limit: f64) -> Gradient2 {
        let config = Config { initial_limit: limit as u32, ..Config::default() };
        let window = Window::default();
        Gradient2 { limit, config, window, short: 0.0, long: 0.0, windows: 0 }
    }

    fn feed(policy: &mut Gradient2, times: usize, mean: f64) {
        (0..times).for_each(|_| policy.learn(Sample { mean, most_in_flight: 1000 }));
    }

    #[test]
    fn grows_by_the_queue_while_nothing_is_slow_and_only_when_used() {
        let mut policy = policy(20.0);
        feed(&mut policy, 1, 0.1);
        assert!((policy.limit - 20.8).abs() < 1e-9, "a fifth of four: {}", policy.limit);
        policy.learn(Sample { mean: 0.1, most_in_flight: 10 });
        assert!((policy.limit - 20.8).abs() < 1e-9, "less than half used: {}", policy.limit);
        feed(&mut policy, 1000, 0.1);
        assert_eq!(policy.limit, 200.0);
    }

    #[test]
    fn shrinks_when_slower_than_tolerated_and_not_below_its_floor() {
        let mut policy = policy(200.0);
        feed(&mut policy, 50, 0.1);
        feed(&mut policy, 1, 0.14);
        assert_eq!(policy.limit, 200.0, "tolerated");
        feed(&mut policy, 1, 0.3);
        let gradient: f64 = 1.5 * policy.long / 0.3;
        assert!((0.5..0.52).contains(&gradient), "{gradient}");
        assert!((policy.limit - (160.0 + 0.2 * (200.0 * gradient + 4.0))).abs() < 1e-9, "{}", policy.limit);
        feed(&mut policy, 40, 3.0);
        assert_eq!(policy.limit, 20.0);
    }

    #[test]
    fn an_overload_that_lasts_becomes_the_measure() {
        let mut policy = policy(20.0);
        feed(&mut policy, 50, 0.1);
        feed(&mut policy, 2000, 1.0);
        assert_eq!(policy.limit, 200.0, "the weakness that its users report");
        feed(&mut policy, 14, 0.1);
        assert!(policy.long < 0.5, "a past overload is soon forgotten: {}", policy.long);
    }
}
