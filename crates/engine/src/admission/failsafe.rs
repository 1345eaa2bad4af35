//! A limit of Vegas' kind, before it a queue, and by its length a threshold over priorities.
//!
//! *Intuition.* A surgery that takes as many patients at a time as it can treat without keeping them. When the waiting
//! room is twice as full as that, the nurse looks at who came of late, and sends the less urgent away: none of them
//! yet, all of them when it is three times as full.
//!
//! *Limit.* A window ends after `min_window`, with `min_samples` ends at least. The `quantile` of its times at the
//! servers, a median of five such and a short mean over these give the recent time; a mean of about `baseline_age`
//! recent ones is the baseline. With limit `L`, `ceil(L (1 - baseline / recent))` requests queue at the servers. With
//! `l` = max(1, floor(log10 L)): more than `6 l` queueing take `l` away, fewer than `3 l` add it. It also shrinks,
//! where it was reached, if throughput (what is in flight over the recent time) went down over the last
//! `correlation_window` windows as more was in flight, or times went up and throughput hardly. The limit is never more
//! than `max_limit_factor` times the most in flight.
//!
//! *Queue.* What does not fit waits, first come first served. A request has a level: a hundred of them are a class,
//! and within its class it is drawn. Each `calibration` the length of the queue gives a rate of rejection, from 0 at
//! `initial_rejection_factor` limits to 1 at `max_rejection_factor` limits; the threshold is the level below which
//! that share of the last `recent_levels` requests was that came while the limit was reached. While it is reached,
//! requests below the threshold are refused, and all that find the queue at its longest.
//!
//! *Awkward cases.* The limit knows no target: it is that of the surgery, and the queue before it takes two to three
//! times as long again as the servers. The threshold looks at the queue once in a `calibration`: what comes in between
//! fills it up to its longest, and who is let in then is who comes first, whatever its class. The baseline follows: an
//! overload that lasts is normal after some ten windows but for the correlations. A window has fifty ends at least: at
//! ten a second the limit moves once in five seconds, by one.
//!
//! *Applied here.* (1) Cinnamon, of Uber, which the source follows, has a PID controller for the rate of rejection,
//! with gains that are not published; the source has the straight line above, and so has this policy. (2) In the
//! source the caller says how often it calibrates; a second is ours. (3) It lets requests wait until their callers
//! give up; here the longest wait is `max_wait`, the SLA's target if that is not set. (4) It has five priorities; here
//! there are as many as classes. (5) Its digest of quantiles is a histogram of steps of 4 % here. Failures count as
//! answers do, as there.
//!
//! *Source.* failsafe-go, `adaptivelimiter` with `BuildPrioritized`, and `priority` (5759a5e). It follows Uber's
//! Cinnamon and its auto-tuner, and Netflix's VegasLimit.

mod levels;
mod limiter;
mod statistics;

use core::time::Duration;
use serde::{Deserialize, Serialize};

use super::limit::MOST;
use super::{Admission, AdmissionPolicy, Arrival, Context, Ended, PolicyState, require};
use crate::decision::Reason;
use crate::learned::Kept;
use crate::request::ClassId;
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;
use crate::units::Seconds;
use levels::Levels;
use limiter::Limiter;

/// Settings; the defaults are those of the source, but for `calibration` and `max_wait`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The limit at the start, requests in flight.
    pub initial_limit: u32,
    /// Least limit.
    pub min_limit: u32,
    /// Largest limit.
    pub max_limit: u32,
    /// Largest limit as a multiple of the most requests in flight in a window, 1 or more.
    pub max_limit_factor: f64,
    /// Shortest time between two moves of the limit.
    pub min_window: Seconds,
    /// Longest, where requests take long.
    pub max_window: Seconds,
    /// Requests that must have ended in between.
    pub min_samples: u32,
    /// Which quantile of their times counts, more than 0 and less than 1.
    pub quantile: f64,
    /// Moves that the baseline remembers.
    pub baseline_age: u32,
    /// Moves that correlations look back.
    pub correlation_window: u32,
    /// From how long a queue on requests are refused, in limits.
    pub initial_rejection_factor: f64,
    /// From how long a queue on all are, in limits.
    pub max_rejection_factor: f64,
    /// How often the threshold is set.
    pub calibration: Seconds,
    /// How many requests it is set by.
    pub recent_levels: u32,
    /// Longest wait. `None`: the SLA's target.
    pub max_wait: Option<Seconds>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            initial_limit: 20,
            min_limit: 1,
            max_limit: 200,
            max_limit_factor: 5.0,
            min_window: Seconds(1.0),
            max_window: Seconds(30.0),
            min_samples: 50,
            quantile: 0.9,
            baseline_age: 10,
            correlation_window: 50,
            initial_rejection_factor: 2.0,
            max_rejection_factor: 3.0,
            calibration: Seconds(1.0),
            recent_levels: 1000,
            max_wait: None,
        }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let wrong = |holds, key, problem| require(holds, "failsafe", key, problem);
        wrong((1..=MOST).contains(&self.min_limit), "min_limit", "must lie between 1 and 1000000")?;
        let range = self.min_limit..=MOST;
        wrong(range.contains(&self.max_limit), "max_limit", "must lie between `min_limit` and 1000000")?;
        let range = self.min_limit..=self.max_limit;
        wrong(range.contains(&self.initial_limit), "initial_limit", "must lie between `min_limit` and `max_limit`")?;
        wrong((1.0..=1e6).contains(&self.max_limit_factor), "max_limit_factor", "must lie between 1 and 1000000")?;
        wrong((0.1..=3600.0).contains(&self.min_window.0), "min_window", "must lie between 100ms and 1h")?;
        let range = self.min_window.0..=3600.0;
        wrong(range.contains(&self.max_window.0), "max_window", "must lie between `min_window` and 1h")?;
        wrong(self.min_samples >= 1, "min_samples", "must be at least 1")?;
        wrong(self.quantile > 0.0 && self.quantile < 1.0, "quantile", "must be more than 0 and less than 1")?;
        wrong((1..=100_000).contains(&self.baseline_age), "baseline_age", "must lie between 1 and 100000")?;
        let pairs = self.correlation_window;
        wrong((10..=100_000).contains(&pairs), "correlation_window", "must lie between 10 and 100000")?;
        let first = self.initial_rejection_factor;
        wrong((1.0..=1e6).contains(&first), "initial_rejection_factor", "must lie between 1 and 1000000")?;
        let problem = "must lie between `initial_rejection_factor` and 1000000";
        wrong((first..=1e6).contains(&self.max_rejection_factor), "max_rejection_factor", problem)?;
        wrong((0.1..=3600.0).contains(&self.calibration.0), "calibration", "must lie between 100ms and 1h")?;
        let recent = self.recent_levels;
        wrong((1..=1_000_000).contains(&recent), "recent_levels", "must lie between 1 and 1000000")?;
        let wait = self.max_wait.as_ref().is_none_or(|wait| (0.001..=3600.0).contains(&wait.0));
        wrong(wait, "max_wait", "must lie between 1ms and 1h")
    }

    pub(super) fn build(&self, setup: &Setup) -> Failsafe {
        Failsafe {
            limiter: Limiter::new(self),
            levels: Levels::new(setup.classes.len(), self.recent_levels as usize),
            config: self.clone(),
            threshold: 0,
            calibrates: None,
            expiry: None,
        }
    }
}

/// State of the policy `failsafe`.
#[derive(Debug)]
pub struct Failsafe {
    config: Config,
    limiter: Limiter,
    levels: Levels,
    /// While the limit is reached, lower levels are refused.
    threshold: usize,
    /// When it is set anew.
    calibrates: Option<Timestamp>,
    /// When the first waiting request will have waited too long, as of the last look.
    expiry: Option<Timestamp>,
}

impl AdmissionPolicy for Failsafe {
    fn on_arrival(&mut self, cx: &mut Context<'_>, arrival: &Arrival) -> Admission {
        if self.room(cx) > 0 {
            return Admission::Admit;
        }
        if self.queued(cx) >= self.longest() {
            return Admission::refuse(cx.load.refusal(Reason::QueueFull));
        }
        let level = self.levels.draw(arrival.request.class, cx.rng);
        if level < self.threshold {
            return Admission::refuse(cx.load.refusal(Reason::Threshold));
        }
        self.levels.record(level);
        if cx.shadow {
            return Admission::Admit;
        }
        let expires = cx.now + self.patience(cx);
        self.expiry = Some(self.expiry.map_or(expires, |first| first.min(expires)));
        Admission::Wait { bucket: 0 }
    }

    fn is_full(&self, cx: &Context<'_>) -> bool {
        self.room(cx) == 0 && self.queued(cx) >= self.longest()
    }

    fn on_outcome(&mut self, cx: &mut Context<'_>, ended: &Ended) {
        // With it, as many as may be were in flight.
        let full = cx.load.in_flight + 1 >= self.limiter.limit as usize;
        let seconds = ended.service_time;
        self.limiter.learn(&self.config, cx.now, seconds, ended.in_flight_at_start, full);
    }

    fn on_completion(&mut self, cx: &mut Context<'_>) {
        while self.room(cx) > 0 {
            let Some(class) = oldest(cx) else { return };
            cx.start(class, 0, 1);
        }
    }

    fn on_tick(&mut self, cx: &mut Context<'_>) {
        let calibrates = *self.calibrates.get_or_insert(cx.now + self.config.calibration.duration());
        if calibrates <= cx.now {
            self.calibrates = Some(cx.now + self.config.calibration.duration());
            let rate = self.rejection_rate(self.queued(cx));
            self.threshold = if rate > 0.0 { self.levels.at(rate) } else { 0 };
        }
        // A server may have come up.
        self.on_completion(cx);
    }

    /// Who waited under another policy waits on, no longer than any other.
    fn on_takeover(&mut self, cx: &mut Context<'_>) {
        self.expiry = self.first_expiry(cx);
        self.on_completion(cx);
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        let patience = self.patience(cx);
        for class in cx.class_ids() {
            while cx.waiting_since(class, 0).is_some_and(|since| since + patience <= cx.now) {
                cx.refuse(class, 0, 1, cx.load.refusal(Reason::QueueTimeout), None);
            }
        }
        self.expiry = self.first_expiry(cx);
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        self.expiry
    }

    fn describe(&self, state: &mut PolicyState) {
        state.limit = Some(self.limiter.limit);
        state.threshold = Some(self.levels.stands_at(self.threshold));
        let Limiter { recent, baseline, .. } = &self.limiter;
        state.more.extend([("recent".into(), recent.value()), ("baseline".into(), baseline.value())]);
    }

    fn keep(&self, _now: Timestamp, kept: &mut Kept) {
        kept.put("limit", self.limiter.limit);
        kept.put("recent", self.limiter.recent.value());
        kept.put("baseline", self.limiter.baseline.value());
        let (class, share) = self.levels.stands_at(self.threshold);
        kept.of_class_mut(class.into()).put("threshold", share);
    }

    fn recall(&mut self, _now: Timestamp, kept: &Kept) {
        let Limiter { limit, recent, baseline, .. } = &mut self.limiter;
        *limit = kept.between("limit", (self.config.min_limit.into(), self.config.max_limit.into()), *limit);
        for (name, mean) in [("recent", recent), ("baseline", baseline)] {
            if let Some(value) = kept.get(name).filter(|value| *value > 0.0) {
                mean.set(value.min(1e6));
            }
        }
        let share = |class: usize| Some((class, kept.of_class(class).get("threshold")?));
        if let Some((class, share)) = (0..self.levels.classes()).find_map(share) {
            self.threshold = self.levels.threshold(class, share);
        }
    }
}

impl Failsafe {
    fn room(&self, cx: &Context<'_>) -> usize {
        (self.limiter.limit as usize).saturating_sub(cx.load.in_flight).min(cx.load.free)
    }

    /// Requests that wait. In shadow mode nobody does: those beyond the limit stand for them.
    fn queued(&self, cx: &Context<'_>) -> usize {
        match cx.shadow {
            true => cx.load.in_flight.saturating_sub(self.limiter.limit as usize),
            false => cx.waiting_in_all(),
        }
    }

    /// The longest queue.
    fn longest(&self) -> usize {
        (libm::floor(self.limiter.limit) * self.config.max_rejection_factor) as usize
    }

    fn rejection_rate(&self, queued: usize) -> f64 {
        let first = (libm::floor(self.limiter.limit) * self.config.initial_rejection_factor) as usize;
        let last = self.longest();
        match queued {
            queued if queued < first => 0.0,
            queued if queued >= last => 1.0,
            queued => (queued - first) as f64 / (last - first) as f64,
        }
    }

    fn patience(&self, cx: &Context<'_>) -> Duration {
        let seconds = self.config.max_wait.as_ref().map_or(cx.target, |wait| wait.0);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX).max(Duration::from_millis(1))
    }

    fn first_expiry(&self, cx: &Context<'_>) -> Option<Timestamp> {
        Some(cx.waiting_since(oldest(cx)?, 0)? + self.patience(cx))
    }
}

/// The class whose first has waited longest.
fn oldest(cx: &Context<'_>) -> Option<ClassId> {
    let since = |class: ClassId| Some((cx.waiting_since(class, 0)?, class));
    cx.class_ids().filter_map(since).min_by_key(|(since, _)| *since).map(|(_, class)| class)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use crate::admission::testing::{Bench, answered};
    use crate::{Decision, Reason, Ticket};

    /// Four in flight.
    fn full() -> (Bench, Vec<Ticket>) {
        let mut bench =
            Bench::new(r#"{ "policy": "failsafe", "initial_limit": 4, "max_limit": 4, "max_wait": "20s" }"#);
        let flying = (0..4).map(|_| bench.arrive(2).expect("there is a place")).collect();
        (bench, flying)
    }

    fn reason(bench: &mut Bench, class: u8) -> Option<Reason> {
        match bench.decide(class) {
            Decision::Reject(rejection) => Some(rejection.reason),
            Decision::Enqueue { .. } => None,
            other => panic!("there is no place: {other:?}"),
        }
    }

    #[test]
    fn the_queue_is_three_limits_long_at_most_and_the_first_goes_first() {
        let (mut bench, flying) = full();
        let first = bench.wait(2);
        bench.advance(1);
        for _ in 0..11 {
            bench.wait(0);
        }
        assert_eq!(reason(&mut bench, 0), Some(Reason::QueueFull));
        bench.complete(flying[0], answered(10));
        assert_eq!(bench.started, [first]);
    }

    #[test]
    fn between_two_and_three_limits_the_less_important_are_refused() {
        let (mut bench, _flying) = full();
        for class in [2, 1, 0, 2, 1, 0, 2, 1, 0, 2] {
            bench.wait(class);
        }
        bench.advance(1000);
        // Ten wait: halfway from 8 to 12. The fifth of ten levels, from below, is of silver.
        let (class, _) = bench.state().threshold.expect("it has one");
        assert_eq!(class, 1);
        assert_eq!(reason(&mut bench, 2), Some(Reason::Threshold));
        assert_eq!(reason(&mut bench, 0), None);
    }

    #[test]
    fn who_waits_too_long_is_refused() {
        let (mut bench, _flying) = full();
        let patient = bench.wait(0);
        bench.advance(19_999);
        assert_eq!(bench.refused, []);
        bench.advance(1);
        assert_eq!(bench.refused, [(patient, Reason::QueueTimeout)]);
    }
}
