//! A limit on requests in flight from the highest rate and the least response time that were seen.
//!
//! *Intuition.* A pipe holds what flows through it in the time that a drop takes from end to end. Who knows the widest
//! flow and the shortest way knows how much fits in, and pours a little more to see whether it grows wider.
//!
//! *Applied.* A window ends with `max_samples` answers, or after `window` if it has `min_samples` by then; one with
//! fewer is thrown away. Its mean response time moves `min_latency` down by `smoothing` of the difference, never up;
//! its rate of answers becomes `max_qps` if it is higher, else moves that down by a tenth of `smoothing` of the
//! difference. Then, by Little's law,
//!
//! ```text
//! limit = max_qps x min_latency x (1 + explore)
//! ```
//!
//! `explore` rises by `explore_step`, up to `max_explore`, while answers are not slower than `min_latency x (1 +
//! min_explore)` or the rate is more than that below `max_qps`; else it falls, down to `min_explore`. Some
//! `remeasure_interval` (a random half to all of it) after the last time the limit is cut to `remeasure_ratio` of what
//! the pipe holds, answers are ignored for two response times, and the mean of the next window becomes `min_latency`,
//! whatever it is. Failures, time-outs among them, make answers look slower: their time, times `fail_punish_ratio`, is
//! shared out among the successes; a window without a success halves the limit. What does not fit below the limit is
//! refused; no request waits. It knows no classes.
//!
//! *Awkward cases.* Below a hundred answers a second no window has enough of them, and the limit is what it was at the
//! start. The rate of a window with few answers is a matter of chance, and the highest stays for long: `max_qps` is
//! too high, and so is the limit. A limit of nine tenths of a long queue is a queue: what is measured then is no time
//! without load, and from one remeasurement to the next the limit grows where a queue costs no rate. It never goes
//! below `min_limit`. It knows no target.
//!
//! *Applied here.* The source's `min_limit` is the number of its worker threads, 9 by default. Its documents have the
//! limit as `max_qps x ((2 + explore) x min_latency - latency)`; its code has the formula above, and so has this
//! policy. The threshold below which errors are not punished, off by default there, is left out.
//!
//! *Source.* Apache brpc, `auto_concurrency_limiter.cpp` (71871ee9) with its flags' defaults, and
//! `docs/cn/auto_concurrency_limiter.md`.

use serde::{Deserialize, Serialize};

use super::limit::{MOST, admit_below, is_reached};
use super::{Admission, AdmissionPolicy, Arrival, Context, Ended, PolicyState, require};
use crate::decision::End;
use crate::learned::Kept;
use crate::rng::Rng;
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
    /// Longest window.
    pub window: Seconds,
    /// A window with fewer answers is thrown away.
    pub min_samples: u32,
    /// A window with so many answers is over.
    pub max_samples: u32,
    /// Of answers that come closer to each other than this, one is a sample.
    pub sampling_interval: Seconds,
    /// Longest time from one measurement of the time without load to the next; the shortest is half of it.
    pub remeasure_interval: Seconds,
    /// What the limit is cut to before that, as a part of what the servers hold, more than 0 and at most 1.
    pub remeasure_ratio: f64,
    /// How much of a shorter response time is taken at once, more than 0 and at most 1.
    pub smoothing: f64,
    /// How much the times of failures count, 0: not at all.
    pub fail_punish_ratio: f64,
    /// By how much more than they hold the servers are tried with at most.
    pub max_explore: f64,
    /// The same, when they seem full; also by how much an answer may be slower unpunished.
    pub min_explore: f64,
    /// How much a window moves that.
    pub explore_step: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            initial_limit: 40,
            min_limit: 9,
            window: Seconds(1.0),
            min_samples: 100,
            max_samples: 200,
            sampling_interval: Seconds(0.0001),
            remeasure_interval: Seconds(50.0),
            remeasure_ratio: 0.9,
            smoothing: 0.1,
            fail_punish_ratio: 1.0,
            max_explore: 0.3,
            min_explore: 0.06,
            explore_step: 0.02,
        }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let wrong = |holds, key, problem| require(holds, "brpc", key, problem);
        wrong((1..=MOST).contains(&self.min_limit), "min_limit", "must lie between 1 and 1000000")?;
        let range = self.min_limit..=MOST;
        wrong(range.contains(&self.initial_limit), "initial_limit", "must lie between `min_limit` and 1000000")?;
        wrong((0.1..=3600.0).contains(&self.window.0), "window", "must lie between 100ms and 1h")?;
        wrong(self.min_samples >= 1, "min_samples", "must be at least 1")?;
        wrong(self.max_samples >= self.min_samples, "max_samples", "must be at least `min_samples`")?;
        let interval = self.sampling_interval.0;
        wrong((0.0..=1.0).contains(&interval), "sampling_interval", "must be at most 1s")?;
        let interval = self.remeasure_interval.0;
        wrong((0.1..=86_400.0).contains(&interval), "remeasure_interval", "must lie between 100ms and 24h")?;
        let ratio = self.remeasure_ratio;
        wrong(ratio > 0.0 && ratio <= 1.0, "remeasure_ratio", "must be more than 0 and at most 1")?;
        wrong(self.smoothing > 0.0 && self.smoothing <= 1.0, "smoothing", "must be more than 0 and at most 1")?;
        wrong((0.0..=1000.0).contains(&self.fail_punish_ratio), "fail_punish_ratio", "must lie between 0 and 1000")?;
        let least = self.min_explore;
        wrong(least > 0.0 && least <= 100.0, "min_explore", "must be more than 0 and at most 100")?;
        let range = least..=100.0;
        wrong(range.contains(&self.max_explore), "max_explore", "must lie between `min_explore` and 100")?;
        let step = self.explore_step;
        wrong(step > 0.0 && step <= self.max_explore, "explore_step", "must be more than 0 and at most `max_explore`")
    }

    pub(super) fn build(&self, _setup: &Setup) -> Brpc {
        Brpc {
            limit: self.initial_limit,
            explore: self.max_explore,
            config: self.clone(),
            min_latency: None,
            max_qps: 0.0,
            window: None,
            sampled: None,
            remeasures: None,
            ignores: None,
        }
    }
}

/// State of the policy `brpc`.
#[derive(Debug)]
pub struct Brpc {
    config: Config,
    limit: u32,
    /// By how much more than they hold the servers are tried with.
    explore: f64,
    /// The response time without load, seconds; `None`: the next window's.
    min_latency: Option<f64>,
    /// Answers per second, the highest of late.
    max_qps: f64,
    window: Option<Window>,
    /// When the last sample was taken.
    sampled: Option<Timestamp>,
    /// When the time without load is measured anew.
    remeasures: Option<Timestamp>,
    /// Samples before this time are ignored: the servers have yet to empty.
    ignores: Option<Timestamp>,
}

/// Samples since the last window ended.
#[derive(Clone, Copy, Debug)]
struct Window {
    since: Timestamp,
    /// Successes, those that are no samples too.
    answered: u32,
    succeeded: u32,
    failed: u32,
    /// Sums of response times, seconds.
    succeeded_time: f64,
    failed_time: f64,
}

impl AdmissionPolicy for Brpc {
    fn on_arrival(&mut self, cx: &mut Context<'_>, _arrival: &Arrival) -> Admission {
        admit_below(f64::from(self.limit), cx)
    }

    fn is_full(&self, cx: &Context<'_>) -> bool {
        is_reached(f64::from(self.limit), cx)
    }

    fn on_outcome(&mut self, cx: &mut Context<'_>, ended: &Ended) {
        self.learn(cx.now, ended.end == End::Answered, ended.service_time, cx.rng);
    }

    fn describe(&self, state: &mut PolicyState) {
        state.limit = Some(f64::from(self.limit));
        let latency = self.min_latency.unwrap_or(0.0);
        state.more.extend([("min_latency".into(), latency), ("max_qps".into(), self.max_qps)]);
        state.more.push(("explore".into(), self.explore));
    }

    fn keep(&self, _now: Timestamp, kept: &mut Kept) {
        kept.put("limit", self.limit.into());
        kept.put("max_qps", self.max_qps);
        kept.put("explore", self.explore);
        if let Some(latency) = self.min_latency {
            kept.put("min_latency", latency);
        }
    }

    fn recall(&mut self, _now: Timestamp, kept: &Kept) {
        self.limit = kept.between("limit", (self.config.min_limit.into(), MOST.into()), self.limit.into()) as u32;
        self.max_qps = kept.between("max_qps", (0.0, 1e9), self.max_qps);
        self.explore = kept.between("explore", (self.config.min_explore, self.config.max_explore), self.explore);
        self.min_latency = kept.get("min_latency").map(|latency| latency.clamp(1e-6, 1e6)).or(self.min_latency);
    }
}

impl Brpc {
    fn learn(&mut self, now: Timestamp, success: bool, seconds: f64, rng: &mut Rng) {
        let window = self.window.get_or_insert(Window::at(now));
        window.answered += u32::from(success);
        let interval = self.config.sampling_interval.0;
        if self.sampled.is_some_and(|last| now.seconds_since(last) < interval) {
            return;
        }
        self.sampled = Some(now);
        self.remeasures.get_or_insert_with(|| self.config.next_remeasurement(now, rng));
        if let Some(until) = self.ignores {
            if until > now {
                return;
            }
            (self.min_latency, self.ignores) = (None, None);
            self.remeasures = Some(self.config.next_remeasurement(now, rng));
            *window = Window::at(now);
        }
        window.add(success, seconds, self.config.fail_punish_ratio > 0.0);
        let (samples, age) = (window.succeeded + window.failed, now.seconds_since(window.since));
        let is_over = age >= self.config.window.0;
        if samples >= self.config.min_samples && (is_over || samples >= self.config.max_samples) {
            let window = core::mem::replace(window, Window::at(now));
            self.close(now, &window, age);
        } else if is_over && samples < self.config.min_samples {
            *window = Window::at(now);
        }
    }

    /// A window of so many seconds is over.
    fn close(&mut self, now: Timestamp, window: &Window, age: f64) {
        if window.succeeded == 0 {
            self.set_limit(f64::from(self.limit / 2));
            return;
        }
        let time = window.succeeded_time + window.failed_time * self.config.fail_punish_ratio;
        let latency = (time / f64::from(window.succeeded)).max(1e-6);
        let qps = f64::from(window.answered) / age.max(1e-3);
        let smoothing = self.config.smoothing;
        let before = self.min_latency.unwrap_or(latency);
        let min_latency = before + (latency - before).min(0.0) * smoothing;
        self.min_latency = Some(min_latency);
        self.max_qps = if qps >= self.max_qps { qps } else { self.max_qps + (qps - self.max_qps) * smoothing / 10.0 };
        let holds = self.max_qps * min_latency;
        if self.remeasures.is_some_and(|at| at <= now) {
            self.ignores = Some(Timestamp::from_secs_f64(now.as_secs_f64() + 2.0 * latency.min(3600.0)));
            self.set_limit(libm::ceil(holds * self.config.remeasure_ratio));
            return;
        }
        let (least, most) = (self.config.min_explore, self.config.max_explore);
        let has_room = latency <= min_latency * (1.0 + least) || qps <= self.max_qps / (1.0 + least);
        let step = if has_room { self.config.explore_step } else { -self.config.explore_step };
        self.explore = (self.explore + step).clamp(least, most);
        self.set_limit(holds * (1.0 + self.explore));
    }

    fn set_limit(&mut self, limit: f64) {
        self.limit = (limit as u32).clamp(self.config.min_limit, MOST);
    }
}

impl Config {
    fn next_remeasurement(&self, now: Timestamp, rng: &mut Rng) -> Timestamp {
        let after = self.remeasure_interval.0 / 2.0 * (1.0 + rng.next_f64());
        Timestamp::from_secs_f64(now.as_secs_f64() + after)
    }
}

impl Window {
    const fn at(since: Timestamp) -> Window {
        Window { since, answered: 0, succeeded: 0, failed: 0, succeeded_time: 0.0, failed_time: 0.0 }
    }

    fn add(&mut self, success: bool, seconds: f64, punishes: bool) {
        if success {
            self.succeeded += 1;
            self.succeeded_time += seconds;
        } else if punishes {
            self.failed += 1;
            self.failed_time += seconds;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Course {
        policy: Brpc,
        now: f64,
        rng: Rng,
    }

    impl Course {
        fn new(config: Config) -> Course {
            let sla =
                crate::Sla::constant(crate::Statistic::P95, core::time::Duration::from_secs(1)).expect("it is some");
            let setup = Setup::simple("brpc", sla, [crate::ServerSetup::new("one")]);
            Course { policy: config.build(&setup), now: 0.0, rng: Rng::new(1) }
        }

        /// So many answers of so many seconds, at this rate per second.
        fn answers(&mut self, count: u32, seconds: f64, rate: f64) -> &mut Course {
            self.ends(count, true, seconds, rate)
        }

        fn ends(&mut self, count: u32, success: bool, seconds: f64, rate: f64) -> &mut Course {
            for _ in 0..count {
                self.now += 1.0 / rate;
                self.policy.learn(Timestamp::from_secs_f64(self.now), success, seconds, &mut self.rng);
            }
            self
        }
    }

    #[test]
    fn holds_what_flows_through_and_a_third_more_while_nothing_is_slow() {
        let mut course = Course::new(Config::default());
        course.answers(199, 0.1, 1000.0);
        assert_eq!(course.policy.limit, 40, "the window is not over");
        course.answers(1, 0.1, 1000.0);
        // 200 within 199 ms.
        assert!((129..=131).contains(&course.policy.limit), "{}", course.policy.limit);
        course.answers(2000, 0.1, 500.0);
        assert!(
            (1.0..1.01).contains(&(course.policy.max_qps / 950.0)),
            "it goes down slowly: {}",
            course.policy.max_qps
        );
        course.answers(2000, 0.05, 2000.0);
        let latency = course.policy.min_latency.expect("it was measured");
        assert!((0.06..0.08).contains(&latency), "by a tenth of the difference a window: {latency}");
    }

    #[test]
    fn explores_less_when_answers_are_slower_at_the_highest_rate() {
        let mut course = Course::new(Config::default());
        course.answers(200, 0.1, 1000.0).answers(20 * 200, 0.2, 1000.0);
        assert_eq!(course.policy.explore, 0.06);
        assert!((105..=107).contains(&course.policy.limit), "{}", course.policy.limit);
        course.answers(200, 0.2, 500.0);
        assert!((course.policy.explore - 0.08).abs() < 1e-9, "the rate leaves room");
    }

    #[test]
    fn a_window_with_few_answers_is_thrown_away() {
        let mut course = Course::new(Config::default());
        course.answers(1000, 0.5, 90.0);
        assert_eq!((course.policy.limit, course.policy.min_latency), (40, None));
    }

    #[test]
    fn measures_the_time_without_load_anew_after_it_has_cut_the_limit() {
        let mut course = Course::new(Config { remeasure_interval: Seconds(2.0), ..Config::default() });
        course.answers(200, 0.1, 1000.0);
        while course.policy.ignores.is_none() && course.now < 4.0 {
            course.answers(1, 0.3, 1000.0);
        }
        // ceil(0.9 x 1000/s x 0.1 s)
        assert!((1.0..2.3).contains(&course.now), "{}", course.now);
        assert!((90..=92).contains(&course.policy.limit), "{}", course.policy.limit);
        course.answers(590, 9.0, 1000.0);
        assert!(course.policy.min_latency < Some(0.11), "two response times are ignored");
        course.answers(300, 0.4, 1000.0);
        assert!(course.policy.min_latency > Some(0.39), "{:?}", course.policy.min_latency);
    }

    #[test]
    fn failures_make_answers_slower_and_alone_halve_the_limit() {
        let mut course = Course::new(Config::default());
        course.ends(200, false, 1.0, 1000.0);
        assert_eq!(course.policy.limit, 20);
        course.ends(600, false, 1.0, 1000.0);
        assert_eq!(course.policy.limit, 9);
        course.answers(100, 0.1, 1000.0).ends(100, false, 0.2, 1000.0);
        assert!((course.policy.min_latency.expect("it was measured") - 0.3).abs() < 1e-9);
        let mut course = Course::new(Config { fail_punish_ratio: 0.0, ..Config::default() });
        course.ends(1000, false, 1.0, 1000.0);
        assert_eq!(course.policy.limit, 40, "or not at all");
    }
}
