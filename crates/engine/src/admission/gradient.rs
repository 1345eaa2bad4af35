//! A limit on requests in flight from the ratio of the least to the current response time, the least measured at times.
//!
//! *Intuition.* A swimming pool that now and then lets in three swimmers only and takes their time. From then on it
//! knows how fast a lane can be swum, and lets in as many as still swim nearly so fast.
//!
//! *Applied.* Every `min_rtt_interval` (and up to `jitter` of it later) the limit is pinned to `min_concurrency` until
//! `min_rtt_requests` requests that were started meanwhile have been answered; the `percentile` of their response times
//! is minRTT, and the old limit returns. In between, each `update_interval` with an answer gives sampleRTT, by the same
//! percentile, and
//!
//! ```text
//! gradient = clamp(minRTT (1 + buffer) / sampleRTT, 0.5, 2)
//! limit = clamp(gradient x limit + sqrt(gradient x limit), min_concurrency, max_concurrency)
//! ```
//!
//! Five updates in a row at `min_concurrency` start a measurement at once: minRTT must be wrong. What does not fit
//! below the limit is refused; no request waits. It knows no classes.
//!
//! *Awkward cases.* While it measures, nearly everything is refused: at 60 s and 50 requests that is a gap per minute,
//! the longer the slower requests are. A measurement while the servers are slow, or still drain what was let in before,
//! gives a minRTT under which nothing looks slow. Where requests differ in size, the percentile varies by chance.
//! Without load the limit grows to its maximum, since sampleRTT is then minRTT, and the first second of a crowd is
//! admitted. It knows no target. `fixed_min_rtt` replaces the measurements, and then it has a target of a kind.
//!
//! *Applied here.* Failures give no sample: Envoy takes any complete answer, but here a failure may also be a server
//! that was not reached. The time that a slow client reads does not count.
//!
//! *Source.* Envoy, HTTP filter `adaptive_concurrency`, gradient controller. The two intervals have no default there;
//! its documentation uses these.

use core::time::Duration;
use serde::{Deserialize, Serialize};

use super::limit::{MOST, admit_below, is_reached};
use super::{Admission, AdmissionPolicy, Arrival, Context, Ended, PolicyState, require};
use crate::decision::End;
use crate::estimate::DecayedHistogram;
use crate::learned::Kept;
use crate::rng::Rng;
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;
use crate::units::Seconds;

/// Settings; the defaults are those of the source.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Which percentile of response times is compared, 0 to 1.
    pub percentile: f64,
    /// Time between updates of the limit.
    pub update_interval: Seconds,
    /// Largest limit, requests in flight.
    pub max_concurrency: u32,
    /// Least limit, and the limit while minRTT is measured.
    pub min_concurrency: u32,
    /// Time between measurements of minRTT.
    pub min_rtt_interval: Seconds,
    /// Answers that a measurement takes.
    pub min_rtt_requests: u32,
    /// A measurement is put off by up to this share of the interval, so that several sentries do not measure at once.
    pub jitter: f64,
    /// What sampleRTT may exceed minRTT by, as a share of it.
    pub buffer: f64,
    /// minRTT, if it is not to be measured.
    pub fixed_min_rtt: Option<Seconds>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            percentile: 0.5,
            update_interval: Seconds(0.1),
            max_concurrency: 1000,
            min_concurrency: 3,
            min_rtt_interval: Seconds(60.0),
            min_rtt_requests: 50,
            jitter: 0.15,
            buffer: 0.25,
            fixed_min_rtt: None,
        }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let wrong = |holds, key, problem| require(holds, "gradient", key, problem);
        let share = |x: f64| (0.0..=1.0).contains(&x);
        let time = |x: Seconds, least: f64| (least..=86_400.0).contains(&x.0);
        wrong(share(self.percentile), "percentile", "must lie between 0 and 1")?;
        wrong(time(self.update_interval, 0.001), "update_interval", "must lie between 1ms and 1d")?;
        wrong((1..=MOST).contains(&self.min_concurrency), "min_concurrency", "must lie between 1 and 1000000")?;
        let range = self.min_concurrency..=MOST;
        let what = "must lie between `min_concurrency` and 1000000";
        wrong(range.contains(&self.max_concurrency), "max_concurrency", what)?;
        wrong(time(self.min_rtt_interval, 0.001), "min_rtt_interval", "must lie between 1ms and 1d")?;
        wrong(self.min_rtt_requests >= 1, "min_rtt_requests", "must be at least 1")?;
        wrong(share(self.jitter), "jitter", "must lie between 0 and 1")?;
        wrong((0.0..=100.0).contains(&self.buffer), "buffer", "must lie between 0 and 100")?;
        let fixed = self.fixed_min_rtt.is_none_or(|rtt| time(rtt, 1e-6));
        wrong(fixed, "fixed_min_rtt", "must lie between 1us and 1d")
    }

    pub(super) fn build(&self, _setup: &Setup) -> Gradient {
        Gradient {
            config: self.clone(),
            limit: self.min_concurrency,
            samples: DecayedHistogram::new(f64::INFINITY),
            count: 0,
            min_rtt: self.fixed_min_rtt.map(|rtt| rtt.0),
            phase: Phase::New,
            next_update: Timestamp::ZERO,
            at_least: 0,
        }
    }
}

/// So many updates in a row at the least limit start a measurement.
const AT_LEAST: u32 = 5;
/// Shorter response times are taken for this, seconds.
const LEAST_RTT: f64 = 1e-6;

/// State of the policy `gradient`.
#[derive(Debug)]
pub struct Gradient {
    config: Config,
    limit: u32,
    /// Response times since the last update, or since the measurement began, seconds.
    samples: DecayedHistogram,
    count: u32,
    /// Seconds; `None` before the first measurement.
    min_rtt: Option<f64>,
    phase: Phase,
    next_update: Timestamp,
    /// Updates in a row at the least limit.
    at_least: u32,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// It does not know the time yet.
    New,
    /// It measures minRTT from requests started after `since`, and returns to `limit` then.
    Measuring { since: Timestamp, limit: u32 },
    /// It updates the limit; `next` measurement.
    Following { next: Timestamp },
}

impl AdmissionPolicy for Gradient {
    fn on_arrival(&mut self, cx: &mut Context<'_>, _arrival: &Arrival) -> Admission {
        admit_below(f64::from(self.limit), cx)
    }

    fn is_full(&self, cx: &Context<'_>) -> bool {
        is_reached(f64::from(self.limit), cx)
    }

    fn on_outcome(&mut self, cx: &mut Context<'_>, ended: &Ended) {
        if ended.end == End::Failed {
            return;
        }
        match self.phase {
            Phase::Measuring { since, .. } if ended.started < since => return,
            _ => self.take(cx.now, ended.service_time),
        }
        if let Phase::Measuring { limit, .. } = self.phase
            && self.count >= self.config.min_rtt_requests
        {
            self.min_rtt = self.digest();
            self.limit = limit;
            self.follow(cx.now, cx.rng);
        }
    }

    fn on_tick(&mut self, cx: &mut Context<'_>) {
        if !matches!(self.phase, Phase::New) {
            return;
        }
        match self.min_rtt {
            Some(_) => self.follow(cx.now, cx.rng),
            None => self.measure(cx.now),
        }
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        let Phase::Following { next } = self.phase else { return };
        if next <= cx.now {
            return self.measure(cx.now);
        }
        if self.next_update <= cx.now {
            self.next_update = cx.now + self.config.update_interval.duration();
            self.update(cx.now);
        }
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Following { next } => Some(next.min(self.next_update)),
            Phase::New | Phase::Measuring { .. } => None,
        }
    }

    fn describe(&self, state: &mut PolicyState) {
        state.limit = Some(f64::from(self.limit));
        state.active = match self.phase {
            Phase::Following { .. } => "following",
            Phase::New | Phase::Measuring { .. } => "measuring",
        };
        state.more.push(("min_rtt".into(), self.min_rtt.unwrap_or(0.0)));
    }

    fn keep(&self, now: Timestamp, kept: &mut Kept) {
        kept.put("min_rtt", self.min_rtt.unwrap_or(f64::NAN));
        match self.phase {
            Phase::New => {}
            Phase::Measuring { limit, .. } => kept.put("limit", limit.into()),
            Phase::Following { next } => {
                kept.put("limit", self.limit.into());
                kept.put("measures_in", next.seconds_since(now));
            }
        }
    }

    /// A measurement that was under way begins anew.
    fn recall(&mut self, now: Timestamp, kept: &Kept) {
        let Config { min_concurrency, max_concurrency, fixed_min_rtt, min_rtt_interval, .. } = &self.config;
        let Some(limit) = kept.get("limit") else { return };
        self.limit = limit.clamp((*min_concurrency).into(), (*max_concurrency).into()) as u32;
        let known = kept.get("min_rtt").map(|rtt| rtt.clamp(LEAST_RTT, 86_400.0));
        self.min_rtt = fixed_min_rtt.map(|rtt| rtt.0).or(known);
        match kept.get("measures_in").filter(|_| self.min_rtt.is_some()) {
            Some(left) => {
                // Two intervals: the jitter is at most one of them.
                let left = Duration::from_secs_f64(left.clamp(0.0, 2.0 * min_rtt_interval.0));
                self.phase = Phase::Following { next: now + left };
                self.next_update = now + self.config.update_interval.duration();
            }
            None => self.measure(now),
        }
    }
}

impl Gradient {
    fn take(&mut self, now: Timestamp, seconds: f64) {
        self.samples.record(now, seconds);
        self.count += 1;
    }

    /// The percentile of the samples, which are gone then.
    fn digest(&mut self) -> Option<f64> {
        let value = self.samples.quantile(self.config.percentile);
        self.samples.clear();
        self.count = 0;
        value.map(|seconds| seconds.max(LEAST_RTT))
    }

    fn measure(&mut self, now: Timestamp) {
        self.phase = Phase::Measuring { since: now, limit: self.limit };
        self.limit = self.config.min_concurrency;
        self.at_least = 0;
        self.digest();
    }

    fn follow(&mut self, now: Timestamp, rng: &mut Rng) {
        let next = match self.config.fixed_min_rtt {
            Some(_) => Timestamp::MAX,
            None => now + self.put_off(rng),
        };
        self.phase = Phase::Following { next };
        self.next_update = now + self.config.update_interval.duration();
    }

    fn put_off(&self, rng: &mut Rng) -> Duration {
        Seconds(self.config.min_rtt_interval.0 * (1.0 + self.config.jitter * rng.next_f64())).duration()
    }

    fn update(&mut self, now: Timestamp) {
        let (Some(sample), Some(min_rtt)) = (self.digest(), self.min_rtt) else { return };
        let next = self.limit_for(min_rtt, sample);
        let least = self.config.min_concurrency;
        self.at_least = if self.limit == least && next == least { self.at_least + 1 } else { 0 };
        self.limit = next;
        if self.at_least >= AT_LEAST && self.config.fixed_min_rtt.is_none() {
            self.measure(now);
        }
    }

    fn limit_for(&self, min_rtt: f64, sample: f64) -> u32 {
        let gradient = (min_rtt * (1.0 + self.config.buffer) / sample).clamp(0.5, 2.0);
        let limit = f64::from(self.limit) * gradient;
        ((limit + libm::sqrt(limit)) as u32).clamp(self.config.min_concurrency, self.config.max_concurrency)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use crate::admission::testing::{Bench, answered};

    fn bench(settings: &str) -> Bench {
        Bench::new(&alloc::format!(r#"{{ "policy": "gradient" {settings} }}"#))
    }

    /// Answers `count` requests after `ms` each, one at a time.
    fn serve(bench: &mut Bench, count: usize, ms: u64) {
        for _ in 0..count {
            let ticket = bench.arrive(0).expect("one at a time fits any limit");
            bench.advance(ms);
            bench.complete(ticket, answered(ms));
        }
    }

    #[test]
    fn the_first_limit_is_the_least_until_fifty_answers_are_there() {
        let mut bench = bench("");
        let flying: Vec<_> = (0..3).map(|_| bench.arrive(0).expect("below the limit")).collect();
        assert_eq!(bench.arrive(0), None);
        flying.into_iter().for_each(|ticket| bench.complete(ticket, answered(10)));
        serve(&mut bench, 46, 10);
        assert_eq!(bench.state().active, "measuring");
        serve(&mut bench, 1, 10);
        assert_eq!((bench.state().active, bench.state().limit), ("following", Some(3.0)));
        // 3 x 1.25 and a root of it: 5.68; 5 x 1.25 and a root: 8.75.
        serve(&mut bench, 10, 10);
        assert_eq!(bench.state().limit, Some(5.0));
        serve(&mut bench, 10, 10);
        assert_eq!(bench.state().limit, Some(8.0));
    }

    #[test]
    fn slower_answers_shrink_the_limit_by_half_at_most() {
        let mut bench = bench(r#", "fixed_min_rtt": "10ms", "min_concurrency": 1"#);
        serve(&mut bench, 200, 10);
        let before = bench.state().limit.expect("it has a limit");
        assert!(before > 100.0, "{before}");
        bench.advance(99);
        serve(&mut bench, 1, 1000);
        bench.advance(100);
        let after = bench.state().limit.expect("it has a limit");
        assert_eq!(after, (before / 2.0 + (before / 2.0).sqrt()).floor());
    }

    #[test]
    fn a_measurement_comes_each_minute_and_puts_the_limit_back() {
        let mut bench = bench("");
        serve(&mut bench, 50 + 6900, 10);
        let limits: Vec<f64> = bench.limits().to_vec();
        let pins = limits.windows(2).filter(|pair| pair[1] == 3.0 && pair[0] > 3.0).count();
        assert_eq!(pins, 1, "69.5 s hold one measurement, put off by at most 9 s");
        assert!(bench.state().limit.expect("it has a limit") > 100.0);
    }

    #[test]
    fn five_updates_at_the_least_limit_start_a_measurement() {
        let mut bench = bench("");
        serve(&mut bench, 50, 10);
        // Ten times slower than minRTT: after a while the limit is at its least.
        serve(&mut bench, 20, 100);
        assert_eq!(bench.state().active, "measuring");
    }
}
