//! A limit on requests in flight that grows by one and shrinks by a tenth.
//!
//! *Intuition.* TCP before it measured delay: as long as nothing is lost, send a little more; when something is, send
//! clearly less.
//!
//! *Applied.* A request that a time-out ended, or that took longer than `timeout`, multiplies the limit by
//! `backoff_ratio`. Any other answer adds one, if the limit was at least half used when the request was started. What
//! does not fit below the limit is refused at once; no request waits. It knows no classes.
//!
//! *Awkward cases.* The signal is the time-out alone: as long as answers come within it the limit grows to `max_limit`,
//! however slow they are, so that with the published 5 s it protects from collapse and not a response-time target.
//! Every late answer counts, and late answers come in packs: the limit falls by far more than a tenth per overload,
//! then climbs by one per answer. Failures other than time-outs say nothing about load and are left out, as Netflix's
//! `onIgnore` does.
//!
//! *Source.* Netflix concurrency-limits, `AIMDLimit` behind a `SimpleLimiter`.

use serde::{Deserialize, Serialize};

use super::limit::{MOST, admit_below, is_reached};
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
    /// What a late answer multiplies the limit by, 0.5 to less than 1.
    pub backoff_ratio: f64,
    /// An answer that takes longer is late.
    pub timeout: Seconds,
}

impl Default for Config {
    fn default() -> Self {
        Config { initial_limit: 20, min_limit: 20, max_limit: 200, backoff_ratio: 0.9, timeout: Seconds(5.0) }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let wrong = |holds, key, problem| require(holds, "aimd-limit", key, problem);
        wrong((1..=MOST).contains(&self.min_limit), "min_limit", "must lie between 1 and 1000000")?;
        let range = self.min_limit..=MOST;
        wrong(range.contains(&self.max_limit), "max_limit", "must lie between `min_limit` and 1000000")?;
        let range = self.min_limit..=self.max_limit;
        wrong(range.contains(&self.initial_limit), "initial_limit", "must lie between `min_limit` and `max_limit`")?;
        wrong((0.5..1.0).contains(&self.backoff_ratio), "backoff_ratio", "must be at least 0.5 and less than 1")?;
        let timeout = self.timeout.0;
        wrong(timeout.is_finite() && timeout > 0.0, "timeout", "must be more than zero")
    }

    pub(super) fn build(&self, _setup: &Setup) -> AimdLimit {
        AimdLimit { limit: self.initial_limit, config: self.clone() }
    }
}

/// State of the policy `aimd-limit`.
#[derive(Debug)]
pub struct AimdLimit {
    config: Config,
    limit: u32,
}

impl AdmissionPolicy for AimdLimit {
    fn on_arrival(&mut self, cx: &mut Context<'_>, _arrival: &Arrival) -> Admission {
        admit_below(f64::from(self.limit), cx)
    }

    fn is_full(&self, cx: &Context<'_>) -> bool {
        is_reached(f64::from(self.limit), cx)
    }

    fn on_outcome(&mut self, _cx: &mut Context<'_>, ended: &Ended) {
        self.learn(ended.end, ended.service_time, ended.in_flight_at_start);
    }

    fn describe(&self, state: &mut PolicyState) {
        state.limit = Some(f64::from(self.limit));
    }

    fn keep(&self, _now: Timestamp, kept: &mut Kept) {
        kept.put("limit", self.limit.into());
    }

    fn recall(&mut self, _now: Timestamp, kept: &Kept) {
        self.limit =
            kept.between("limit", (self.config.min_limit.into(), self.config.max_limit.into()), self.limit.into())
                as u32;
    }
}

impl AimdLimit {
    fn learn(&mut self, end: End, seconds: f64, in_flight: usize) {
        let limit = self.limit;
        let next = match end {
            End::Failed => return,
            End::TimedOut => self.backed_off(),
            End::Answered if seconds > self.config.timeout.0 => self.backed_off(),
            End::Answered if in_flight * 2 >= limit as usize => limit + 1,
            End::Answered => limit,
        };
        self.limit = next.clamp(self.config.min_limit, self.config.max_limit);
    }

    fn backed_off(&self) -> u32 {
        (f64::from(self.limit) * self.config.backoff_ratio) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> AimdLimit {
        AimdLimit { limit: 20, config: Config::default() }
    }

    #[test]
    fn adds_one_per_answer_while_half_used_and_stays_in_bounds() {
        let mut policy = policy();
        policy.learn(End::Answered, 0.1, 9);
        assert_eq!(policy.limit, 20, "less than half used");
        policy.learn(End::Answered, 0.1, 10);
        assert_eq!(policy.limit, 21);
        (0..1000).for_each(|_| policy.learn(End::Answered, 4.9, 200));
        assert_eq!(policy.limit, 200);
    }

    #[test]
    fn takes_a_tenth_away_per_time_out_and_per_late_answer() {
        let mut policy = AimdLimit { limit: 100, ..policy() };
        policy.learn(End::TimedOut, 1.0, 1);
        assert_eq!(policy.limit, 90);
        policy.learn(End::Answered, 5.1, 1);
        assert_eq!(policy.limit, 81);
        policy.learn(End::Failed, 60.0, 100);
        assert_eq!(policy.limit, 81, "a failure says nothing about load");
        (0..100).for_each(|_| policy.learn(End::TimedOut, 1.0, 1));
        assert_eq!(policy.limit, 20);
    }
}
