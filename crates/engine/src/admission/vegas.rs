//! A limit on requests in flight that keeps a short queue at the servers.
//!
//! *Intuition.* Of the cars on a road, those that would still be there if it were empty are driving; the rest stands in
//! a queue. If the trip takes twice as long as on the empty road, half of them stand.
//!
//! *Applied.* With limit `L`, a response time `rtt` and the least one seen `rtt_0`, `ceil(L (1 - rtt_0 / rtt))`
//! requests queue. With `l` = max(1, floor(log10 L)): up to `l` queueing adds `beta l`, fewer than `alpha l` adds
//! `l`, more than `beta l` takes `l` away, and so does a time-out. An answer to a request that was started while the
//! limit was less than half used changes nothing. After about `probe_multiplier` times `L` answers (times a random
//! 0.5 to 1) the next response time becomes `rtt_0`, whatever it is. What does not fit below the limit is refused; no
//! request waits. It knows no classes.
//!
//! *Awkward cases.* Each answer moves the limit by itself, so requests of different sizes look like a queue: `rtt_0`
//! is that of the smallest, and the limit sinks until it holds a few expensive ones. A probe under load makes the
//! loaded time the new `rtt_0` and the limit grows, until a lucky short answer undoes that; the probes come too
//! seldom at a high limit and too often at a low one. It knows no target.
//!
//! *Source.* Netflix concurrency-limits, `VegasLimit` behind a `SimpleLimiter`, after Brakmo and Peterson's TCP Vegas.

use serde::{Deserialize, Serialize};

use super::limit::{MOST, admit_below, is_reached};
use super::{Admission, AdmissionPolicy, Arrival, Context, Ended, PolicyState, require};
use crate::decision::End;
use crate::learned::Kept;
use crate::rng::Rng;
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;

/// Settings; the defaults are those of the source.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The limit at the start, requests in flight.
    pub initial_limit: u32,
    /// Largest limit.
    pub max_limit: u32,
    /// A queue shorter than this times log10 of the limit lets the limit grow.
    pub alpha: u32,
    /// A queue longer than this times log10 of the limit makes it shrink.
    pub beta: u32,
    /// How much of a step is taken, more than 0 and at most 1.
    pub smoothing: f64,
    /// Answers between two probes of the time without load, in limits.
    pub probe_multiplier: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config { initial_limit: 20, max_limit: 1000, alpha: 3, beta: 6, smoothing: 1.0, probe_multiplier: 30 }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let wrong = |holds, key, problem| require(holds, "vegas", key, problem);
        wrong((1..=MOST).contains(&self.max_limit), "max_limit", "must lie between 1 and 1000000")?;
        let range = 1..=self.max_limit;
        wrong(range.contains(&self.initial_limit), "initial_limit", "must lie between 1 and `max_limit`")?;
        wrong((1..=1000).contains(&self.alpha), "alpha", "must lie between 1 and 1000")?;
        wrong((self.alpha..=1000).contains(&self.beta), "beta", "must lie between `alpha` and 1000")?;
        wrong(self.smoothing > 0.0 && self.smoothing <= 1.0, "smoothing", "must be more than 0 and at most 1")?;
        wrong(self.probe_multiplier >= 1, "probe_multiplier", "must be at least 1")
    }

    pub(super) fn build(&self, _setup: &Setup) -> Vegas {
        let limit = f64::from(self.initial_limit);
        Vegas { config: self.clone(), limit, without_load: None, answers: 0, jitter: None }
    }
}

/// State of the policy `vegas`.
#[derive(Debug)]
pub struct Vegas {
    config: Config,
    limit: f64,
    /// Seconds.
    without_load: Option<f64>,
    /// Since the last probe.
    answers: u64,
    /// Drawn anew after each probe, 0.5 to 1.
    jitter: Option<f64>,
}

impl AdmissionPolicy for Vegas {
    fn on_arrival(&mut self, cx: &mut Context<'_>, _arrival: &Arrival) -> Admission {
        admit_below(self.limit, cx)
    }

    fn is_full(&self, cx: &Context<'_>) -> bool {
        is_reached(self.limit, cx)
    }

    fn on_outcome(&mut self, cx: &mut Context<'_>, ended: &Ended) {
        let dropped = match ended.end {
            End::Failed => return,
            End::TimedOut => true,
            End::Answered => false,
        };
        self.learn(cx.rng, ended.service_time, ended.in_flight_at_start, dropped);
    }

    fn describe(&self, state: &mut PolicyState) {
        state.limit = Some(self.limit);
        state.more.push(("time_without_load".into(), self.without_load.unwrap_or(0.0)));
    }

    fn keep(&self, _now: Timestamp, kept: &mut Kept) {
        kept.put("limit", self.limit);
        kept.put("time_without_load", self.without_load.unwrap_or(f64::NAN));
    }

    fn recall(&mut self, _now: Timestamp, kept: &Kept) {
        self.without_load = kept.get("time_without_load").filter(|seconds| *seconds > 0.0);
        self.limit = kept.between("limit", (1.0, self.config.max_limit.into()), self.limit);
    }
}

impl Vegas {
    fn learn(&mut self, rng: &mut Rng, seconds: f64, in_flight: usize, dropped: bool) {
        if seconds <= 0.0 {
            return;
        }
        self.answers += 1;
        let jitter = *self.jitter.get_or_insert_with(|| 0.5 + rng.next_f64() / 2.0);
        if jitter * f64::from(self.config.probe_multiplier) * self.limit <= self.answers as f64 {
            (self.answers, self.jitter, self.without_load) = (0, None, Some(seconds));
            return;
        }
        match self.without_load {
            Some(least) if seconds >= least => self.step(least / seconds, in_flight, dropped),
            _ => self.without_load = Some(seconds),
        }
    }

    /// `served`: the share of the limit that is being served and does not queue.
    fn step(&mut self, served: f64, in_flight: usize, dropped: bool) {
        let step = log10(self.limit);
        let (alpha, beta) = (f64::from(self.config.alpha) * step, f64::from(self.config.beta) * step);
        let queue = libm::ceil(self.limit * (1.0 - served));
        let change = if dropped {
            -step
        } else if (in_flight as f64) * 2.0 < self.limit {
            return;
        } else if queue <= step {
            beta
        } else if queue < alpha {
            step
        } else if queue > beta {
            -step
        } else {
            return;
        };
        let next = (self.limit + change).clamp(1.0, f64::from(self.config.max_limit));
        self.limit += (next - self.limit) * self.config.smoothing;
    }
}

/// In whole numbers, at least 1.
fn log10(limit: f64) -> f64 {
    libm::floor(libm::log10(libm::floor(limit))).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(limit: f64) -> Vegas {
        let jitter = Some(1.0);
        Vegas { config: Config::default(), limit, without_load: Some(0.1), answers: 0, jitter }
    }

    fn after(limit: f64, seconds: f64, in_flight: usize, dropped: bool) -> f64 {
        let mut policy = policy(limit);
        policy.learn(&mut Rng::new(1), seconds, in_flight, dropped);
        policy.limit
    }

    #[test]
    fn steps_by_the_length_of_the_queue() {
        assert_eq!(after(20.0, 0.1, 20, false), 26.0, "no queue");
        assert_eq!(after(20.0, 0.11, 20, false), 21.0, "two queue");
        assert_eq!(after(20.0, 0.13, 20, false), 20.0, "five queue");
        assert_eq!(after(20.0, 0.2, 20, false), 19.0, "ten queue");
        assert_eq!(after(20.0, 0.1, 9, false), 20.0, "less than half used");
        assert_eq!(after(20.0, 0.1, 9, true), 19.0, "a time-out");
        assert_eq!(after(200.0, 0.4, 200, false), 198.0, "steps grow with the limit");
        assert_eq!(after(1.0, 9.0, 1, true), 1.0);
        assert_eq!(after(1.0, 9.0, 1, false), 7.0, "a queue of one is none");
        assert_eq!(after(1000.0, 0.1, 1000, false), 1000.0);
    }

    #[test]
    fn a_shorter_time_and_a_probe_set_the_time_without_load() {
        let mut policy = policy(20.0);
        let mut rng = Rng::new(1);
        policy.learn(&mut rng, 0.05, 20, false);
        assert_eq!((policy.limit, policy.without_load), (20.0, Some(0.05)));
        // 30 limits of 20, of which one answer is past; less than half used, so that the limit stays.
        (0..598).for_each(|_| policy.learn(&mut rng, 0.4, 1, false));
        assert_eq!(policy.without_load, Some(0.05));
        policy.learn(&mut rng, 0.4, 1, false);
        assert_eq!(policy.without_load, Some(0.4), "the probe takes what it finds");
    }
}
