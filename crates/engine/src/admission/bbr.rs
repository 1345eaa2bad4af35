//! While processors are busy, no more in flight than what was answered best at most and fastest.
//!
//! *Intuition.* A shopkeeper who does not count his customers until he sweats. Then he remembers the best minute of
//! the last hour, and how long a customer took when the shop was empty: so many are in the shop when it runs at its
//! best. Whoever comes beyond that is sent away, until he has not sweated for a while.
//!
//! *Applied.* A window of `buckets` buckets counts answers and their response times. The most answers of a bucket as a
//! rate, times the shortest mean response time of a bucket, are what fits in (at least one). The use of the processors
//! is smoothed: each `cpu_interval` it keeps `cpu_smoothing` of its value. At `cpu_threshold` or more, and for
//! `cool_off` after that if somebody was refused meanwhile, a request is refused if both the requests in flight and
//! their smoothed number (each end of a request keeps `flying_smoothing` of it) are more than
//!
//! ```text
//! most answers of a bucket / its length x shortest mean x share,
//! share = (1 - use) / (1 - cpu_threshold), from least_share to 1
//! ```
//!
//! No request waits. It knows no classes.
//!
//! *Awkward cases.* A tenth of a second with few answers has many by chance, and another one is fast by chance: their
//! product is what no server holds. The use is smoothed over five seconds: so long an overload goes on before anything
//! is done, and so long all is refused but `least_share` after it is over, which makes a saw-tooth. Where something
//! else than processors is short it does nothing at all. It knows no target.
//!
//! *Applied here.* (1) The sources run on the server, and read its processors. Here the use is the mean of what nuclei
//! report of servers (the signal `cpu`), over those that take requests. While no server has reported any, what stands
//! for it is the requests in service over the processors that the servers seem to have, at most 1: what servers use
//! that work on nothing but processors. (2) The sources' numbers are of one server, these of all together. (3) Only
//! answers count as passes; failures and time-outs end, and teach nothing, as with go-zero.
//!
//! *Source.* go-zero, `core/load/adaptiveshedder.go` and `core/stat/usage.go` (11f21098), whose defaults these are. It
//! is named BBR in go-kratos/aegis (`ratelimit/bbr`, e0742c6), which is had by `window = "10s"`, `buckets = 100`,
//! `cpu_threshold = 0.8`, `cpu_interval = "500ms"`, `flying_smoothing = 0.0`, `least_share = 1.0`. Both are after
//! Alibaba's Sentinel, whose test has the load average instead of the use, and no default.

mod rolling;

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::limit::MOST;
use super::{Admission, AdmissionPolicy, Arrival, Context, Ended, PolicyState, require};
use crate::decision::{End, Reason};
use crate::demands::Demands;
use crate::learned::Kept;
use crate::report::LoadReport;
use crate::request::ServerId;
use crate::setup::{Setup, SetupError};
use crate::signal::Signal;
use crate::time::Timestamp;
use crate::units::Seconds;
use rolling::Rolling;

/// Settings; the defaults are those of the source.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Length of the window.
    pub window: Seconds,
    /// Buckets in it.
    pub buckets: u32,
    /// From which use of the processors on requests may be refused, 0 or more and less than 1.
    pub cpu_threshold: f64,
    /// How often the use is taken.
    pub cpu_interval: Seconds,
    /// How much of the smoothed use is kept each time, 0 to less than 1.
    pub cpu_smoothing: f64,
    /// How much of the smoothed number in flight the end of a request keeps, 0 to less than 1; 0: only the number
    /// itself counts.
    pub flying_smoothing: f64,
    /// What is let in of what fits when the processors have nothing left, more than 0 and at most 1.
    pub least_share: f64,
    /// How long after the processors were busy requests may be refused.
    pub cool_off: Seconds,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            window: Seconds(5.0),
            buckets: 50,
            cpu_threshold: 0.9,
            cpu_interval: Seconds(0.25),
            cpu_smoothing: 0.95,
            flying_smoothing: 0.9,
            least_share: 0.1,
            cool_off: Seconds(1.0),
        }
    }
}

impl Config {
    pub(super) fn demands(&self) -> Demands {
        Demands { signals: true, ..Demands::default() }
    }

    pub(super) fn check(&self) -> Result<(), SetupError> {
        let wrong = |holds, key, problem| require(holds, "bbr", key, problem);
        wrong((0.1..=3600.0).contains(&self.window.0), "window", "must lie between 100ms and 1h")?;
        wrong((2..=1000).contains(&self.buckets), "buckets", "must lie between 2 and 1000")?;
        wrong((0.0..1.0).contains(&self.cpu_threshold), "cpu_threshold", "must be 0 or more and less than 1")?;
        wrong((0.1..=60.0).contains(&self.cpu_interval.0), "cpu_interval", "must lie between 100ms and 60s")?;
        wrong((0.0..1.0).contains(&self.cpu_smoothing), "cpu_smoothing", "must be 0 or more and less than 1")?;
        wrong((0.0..1.0).contains(&self.flying_smoothing), "flying_smoothing", "must be 0 or more and less than 1")?;
        let least = self.least_share;
        wrong(least > 0.0 && least <= 1.0, "least_share", "must be more than 0 and at most 1")?;
        wrong((0.0..=3600.0).contains(&self.cool_off.0), "cool_off", "must be at most 1h")
    }

    pub(super) fn build(&self, _setup: &Setup) -> Bbr {
        Bbr {
            rolling: Rolling::new(self.window.0, self.buckets as usize),
            config: self.clone(),
            flying: 0.0,
            reported: Vec::new(),
            cpu: 0.0,
            taken: None,
            busy: None,
            has_refused: false,
            limit: None,
        }
    }
}

/// State of the policy `bbr`.
#[derive(Debug)]
pub struct Bbr {
    config: Config,
    rolling: Rolling,
    /// Requests in flight, smoothed.
    flying: f64,
    /// Use of each server's processors as last reported, 0 to 1.
    reported: Vec<(ServerId, f64)>,
    /// Use of the processors, smoothed, 0 to 1.
    cpu: f64,
    /// When it was taken last.
    taken: Option<Timestamp>,
    /// When the processors were last busy.
    busy: Option<Timestamp>,
    /// Whether somebody was refused since they were last idle.
    has_refused: bool,
    /// What the last request was judged by; `None`: by nothing.
    limit: Option<f64>,
}

impl AdmissionPolicy for Bbr {
    fn on_arrival(&mut self, cx: &mut Context<'_>, _arrival: &Arrival) -> Admission {
        self.limit = self.is_hot(cx.now).then(|| (self.rolling.fits(cx.now) * self.share()).min(MOST.into()));
        let Some(limit) = self.limit else { return Admission::Admit };
        let lags = self.config.flying_smoothing > 0.0 && self.flying <= limit;
        if !lags && cx.load.in_flight as f64 > limit {
            self.has_refused = true;
            return Admission::refuse(cx.load.refusal(Reason::ConcurrencyLimit));
        }
        Admission::Admit
    }

    fn on_outcome(&mut self, cx: &mut Context<'_>, ended: &Ended) {
        if ended.end == End::Answered {
            self.rolling.add(cx.now, ended.service_time);
        }
    }

    fn on_completion(&mut self, cx: &mut Context<'_>) {
        let kept = self.config.flying_smoothing;
        self.flying = self.flying * kept + cx.load.in_flight as f64 * (1.0 - kept);
    }

    fn on_tick(&mut self, cx: &mut Context<'_>) {
        let interval = self.config.cpu_interval.duration();
        if self.taken.is_some_and(|taken| taken + interval > cx.now) {
            return;
        }
        self.taken = Some(cx.now);
        let now = match self.reported.len() {
            0 => cx.load.in_service() / cx.load.processors.max(1.0),
            // One that is down reports that it does nothing.
            servers => {
                let sum: f64 = self.reported.iter().map(|(_, cpu)| cpu).sum();
                sum / servers.min(cx.load.servers).max(1) as f64
            }
        };
        let kept = self.config.cpu_smoothing;
        self.cpu = self.cpu * kept + now.min(1.0) * (1.0 - kept);
    }

    fn on_report(&mut self, _cx: &mut Context<'_>, report: &LoadReport) {
        match *report {
            LoadReport::Signal { server: Some(server), signal: Signal::Cpu, value } if value >= 0.0 => {
                let used = (value / 100.0).min(1.0);
                match self.reported.iter_mut().find(|(of, _)| *of == server) {
                    Some((_, cpu)) => *cpu = used,
                    None => self.reported.push((server, used)),
                }
            }
            LoadReport::Silent(server) => self.reported.retain(|(of, _)| *of != server),
            _ => {}
        }
    }

    /// Servers may be others now; whoever is there reports again.
    fn on_setup(&mut self, _setup: &Setup) {
        self.reported.clear();
    }

    fn describe(&self, state: &mut PolicyState) {
        state.limit = self.limit;
        state.more.extend([("cpu".into(), self.cpu), ("flying".into(), self.flying)]);
    }

    fn keep(&self, _now: Timestamp, kept: &mut Kept) {
        kept.put("cpu", self.cpu);
        kept.put("flying", self.flying);
    }

    fn recall(&mut self, _now: Timestamp, kept: &Kept) {
        self.cpu = kept.between("cpu", (0.0, 1.0), self.cpu);
        self.flying = kept.between("flying", (0.0, 1e9), self.flying);
    }
}

impl Bbr {
    /// Whether the processors are busy, or were within the time to cool off and somebody was refused.
    fn is_hot(&mut self, now: Timestamp) -> bool {
        if self.cpu >= self.config.cpu_threshold {
            self.busy = Some(now);
            return true;
        }
        let cools = self.busy.is_some_and(|busy| now.seconds_since(busy) < self.config.cool_off.0);
        self.has_refused &= cools;
        self.has_refused
    }

    fn share(&self) -> f64 {
        let left = (1.0 - self.cpu) / (1.0 - self.config.cpu_threshold);
        left.clamp(self.config.least_share, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ticket;
    use crate::admission::testing::{Bench, answered};

    /// So many requests, each answered after 50 ms, ten at a time: 200/s.
    fn serve(bench: &mut Bench, rounds: usize) {
        for _ in 0..rounds {
            let flying: Vec<Ticket> = (0..10).filter_map(|i| bench.arrive(i % 3)).collect();
            bench.advance(50);
            flying.iter().for_each(|ticket| bench.complete(*ticket, answered(50)));
        }
    }

    fn cpu(bench: &mut Bench, percent: f64) {
        bench.report(LoadReport::Signal { server: Some(ServerId(0)), signal: Signal::Cpu, value: percent });
    }

    /// How many of a thousand get in that come at once.
    fn admitted(bench: &mut Bench) -> usize {
        let flying: Vec<Ticket> = (0..1000).filter_map(|i| bench.arrive((i % 3) as u8)).collect();
        flying.iter().for_each(|ticket| bench.cancel(*ticket));
        flying.len()
    }

    #[test]
    fn refuses_nobody_while_processors_are_idle() {
        let mut bench = Bench::new(r#"{ "policy": "bbr" }"#);
        cpu(&mut bench, 50.0);
        serve(&mut bench, 200);
        assert_eq!(admitted(&mut bench), 1000);
    }

    #[test]
    fn holds_what_fits_while_they_are_busy_and_a_part_of_it_when_nothing_is_left() {
        let kratos = r#"{ "policy": "bbr", "cpu_smoothing": 0.0, "flying_smoothing": 0.0, "least_share": 1.0 }"#;
        let mut bench = Bench::new(kratos);
        cpu(&mut bench, 95.0);
        serve(&mut bench, 100);
        // 20 in 100 ms are 200/s, times 50 ms.
        let count = admitted(&mut bench);
        assert_eq!(bench.state().limit, Some(10.0), "{:?}", bench.state());
        assert_eq!(count, 11, "who finds no more than ten is let in");

        let mut bench = Bench::new(r#"{ "policy": "bbr", "cpu_smoothing": 0.0 }"#);
        cpu(&mut bench, 50.0);
        serve(&mut bench, 40);
        cpu(&mut bench, 96.0);
        bench.advance(300);
        assert_eq!(admitted(&mut bench), 1000, "their smoothed number is small");
        let limit = bench.state().limit.expect("it is busy");
        assert!((limit - 4.0).abs() < 1e-6, "two fifths of what fits: {limit}");
    }

    #[test]
    fn goes_on_for_a_second_after_it_refused_somebody() {
        let kratos = r#"{ "policy": "bbr", "cpu_smoothing": 0.0, "flying_smoothing": 0.0, "least_share": 1.0 }"#;
        let mut bench = Bench::new(kratos);
        cpu(&mut bench, 95.0);
        serve(&mut bench, 100);
        assert_eq!(admitted(&mut bench), 11);
        cpu(&mut bench, 10.0);
        bench.advance(500);
        assert_eq!(admitted(&mut bench), 11, "still hot");
        bench.advance(600);
        assert_eq!(admitted(&mut bench), 1000);
    }

    #[test]
    fn without_reports_what_is_in_service_stands_for_the_use() {
        let mut bench = Bench::new(r#"{ "policy": "bbr", "cpu_smoothing": 0.0 }"#);
        let used = |bench: &Bench| bench.state().more.iter().find(|(name, _)| name == "cpu").map(|(_, cpu)| *cpu);
        bench.advance(300);
        assert_eq!(used(&bench), Some(0.0));
        for _ in 0..100 {
            bench.decide(0);
        }
        bench.advance(300);
        assert_eq!(used(&bench), Some(1.0));
        cpu(&mut bench, 30.0);
        bench.advance(300);
        assert_eq!(used(&bench), Some(0.3), "a report goes before it");
        bench.report(LoadReport::Silent(ServerId(0)));
        bench.advance(300);
        assert_eq!(used(&bench), Some(1.0), "until nobody reports");
    }
}
