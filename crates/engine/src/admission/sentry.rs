//! Batch policing that becomes threshold policing when the sentry itself runs short (Cataclysm, section 3.3, end).
//!
//! *Intuition.* A customs office that opens every case while it can, and goes over to random samples when the queue in
//! front of it becomes the problem.
//!
//! *Applied.* Batch, until the sentry's own processors are busier than `high`; then threshold, until they have stayed
//! below `low` for `hold`. Each switch is an event with the measurement that decided it.
//!
//! *Awkward cases.* A policer round that cannot finish inside its period is the same shortage seen from inside: when a
//! round starts late by more than a class's whole delay, several times in a row, the switch happens too. Requests
//! that wait at the switch are tested once more and then admitted or refused, so none is left in a queue that is no
//! longer served.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::batch::{self, Batch};
use super::threshold::{self, Threshold};
use super::{Admission, AdmissionPolicy, Arrival, Context, Ended, PolicyState, require};
use crate::decision::Reason;
use crate::facts::Facts;
use crate::learned::Kept;
use crate::policer::Share;
use crate::report::LoadReport;
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;
use crate::units::Seconds;

/// Settings of the policy `sentry`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Settings of batch policing.
    pub batch: batch::Config,
    /// Settings of threshold policing.
    pub threshold: threshold::Config,
    /// Above this share of the sentry's processors: threshold.
    pub high: f64,
    /// Below this share, for `hold`: batch again.
    pub low: f64,
    /// How long the sentry must have stayed below `low`.
    pub hold: Seconds,
}

impl Default for Config {
    fn default() -> Self {
        let (batch, threshold) = (batch::Config::default(), threshold::Config::default());
        Config { batch, threshold, high: 0.8, low: 0.5, hold: Seconds(30.0) }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        self.batch.check()?;
        self.threshold.check()?;
        require(self.low >= 0.0 && self.low < self.high, "sentry", "low", "must be less than `high`")?;
        require(self.high <= 1.0, "sentry", "high", "must be at most 1")
    }

    pub(super) fn build(&self, setup: &Setup) -> Sentry {
        Sentry {
            batch: self.batch.build(setup),
            threshold: self.threshold.build(setup),
            high: self.high,
            low: self.low,
            hold: self.hold.duration(),
            in_threshold: false,
            calm_since: None,
            late_rounds: 0,
        }
    }
}

/// Rounds in a row that start a whole period late before batch counts as overloaded.
const LATE_ROUNDS: u32 = 5;

/// Timers are about this coarse: less is not late.
const LATE_LEAST: Duration = Duration::from_millis(10);

/// State of the policy `sentry`.
#[derive(Debug)]
pub struct Sentry {
    batch: Batch,
    threshold: Threshold,
    high: f64,
    low: f64,
    hold: Duration,
    in_threshold: bool,
    /// Since when the sentry's load has been below `low`.
    calm_since: Option<Timestamp>,
    late_rounds: u32,
}

impl AdmissionPolicy for Sentry {
    fn on_arrival(&mut self, cx: &mut Context<'_>, arrival: &Arrival) -> Admission {
        match self.in_threshold {
            // Classified by a table that was published a moment later.
            true => Admission::Admit,
            false => self.batch.on_arrival(cx, arrival),
        }
    }

    fn on_outcome(&mut self, cx: &mut Context<'_>, ended: &Ended) {
        self.batch.on_outcome(cx, ended);
    }

    fn on_takeover(&mut self, cx: &mut Context<'_>) {
        self.batch.on_takeover(cx);
    }

    fn on_tick(&mut self, cx: &mut Context<'_>) {
        if self.in_threshold {
            self.threshold.on_tick(cx);
        } else {
            self.batch.on_tick(cx);
        }
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        let late = self.is_late(cx.now);
        self.batch.on_timeout(cx);
        self.late_rounds = if late { self.late_rounds + 1 } else { 0 };
        if self.late_rounds >= LATE_ROUNDS {
            self.switch_to_threshold(cx, format!("{LATE_ROUNDS} policing rounds in a row began a whole period late"));
        }
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        self.batch.next_timeout()
    }

    fn on_report(&mut self, cx: &mut Context<'_>, report: &LoadReport) {
        let LoadReport::SentryCpu(cpu) = *report else { return };
        if cpu >= self.low {
            self.calm_since = None;
        } else if self.calm_since.is_none() {
            self.calm_since = Some(cx.now);
        }
        if cpu > self.high {
            self.switch_to_threshold(cx, format!("the sentry's processors are {:.0} % busy", cpu * 100.0));
        }
        let calm = self.calm_since.is_some_and(|since| cx.now.since(since) >= self.hold);
        if self.in_threshold && calm {
            self.switch_back(cx, format!("the sentry's processors are {:.0} % busy", cpu * 100.0));
        }
    }

    fn buckets(&self) -> usize {
        self.batch.buckets()
    }

    fn describe(&self, state: &mut PolicyState) {
        match self.in_threshold {
            true => self.threshold.describe(state),
            false => self.batch.describe(state),
        }
    }

    fn keep(&self, now: Timestamp, kept: &mut Kept) {
        self.batch.keep(now, kept);
        self.threshold.keep(now, kept);
        kept.put("in_threshold", f64::from(u8::from(self.in_threshold)));
    }

    fn recall(&mut self, now: Timestamp, kept: &Kept) {
        self.batch.recall(now, kept);
        self.threshold.recall(now, kept);
        self.in_threshold = kept.get("in_threshold") == Some(1.0);
    }
}

impl Sentry {
    /// Whether a round that is due now is late by more than a class's whole delay.
    fn is_late(&self, now: Timestamp) -> bool {
        self.batch.due().any(|(at, delay)| now.since(at) > delay.max(LATE_LEAST))
    }

    fn switch_to_threshold(&mut self, cx: &mut Context<'_>, reason: String) {
        if core::mem::replace(&mut self.in_threshold, true) {
            return;
        }
        // One last round over everything.
        self.batch.make_all_due(cx.now);
        self.batch.on_timeout(cx);
        for class in cx.class_ids() {
            cx.refuse_class(class, Reason::Threshold);
        }
        self.threshold.expire();
        self.threshold.on_tick(cx);
        self.late_rounds = 0;
        cx.say(switched("batch", "threshold", reason));
    }

    fn switch_back(&mut self, cx: &mut Context<'_>, reason: String) {
        self.in_threshold = false;
        for class in cx.class_ids() {
            cx.publish(class, Share::Ask);
        }
        cx.say(switched("threshold", "batch", reason));
    }
}

/// The event of a change between the parts; `reason`: the measurement that decided it.
fn switched(from: &'static str, to: &'static str, reason: String) -> Facts {
    Facts::new("policy-switched").with("from", from).with("to", to).with("reason", reason)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::Decision;
    use crate::admission::testing::Bench;

    #[test]
    fn the_threshold_decides_while_the_sentry_is_busy_and_nobody_waits_on() {
        let mut bench = Bench::new(r#"{"policy": "sentry"}"#);
        let mut waiting = Vec::new();
        for _ in 0..20 {
            if let Decision::Enqueue { ticket } = bench.decide(2) {
                waiting.push(ticket);
            }
        }
        assert_eq!(bench.state().active, "batch");
        bench.report(LoadReport::SentryCpu(0.9));
        assert_eq!(bench.state().active, "threshold");
        bench.refused.iter().for_each(|(ticket, _)| waiting.retain(|waits| waits != ticket));
        bench.started.iter().for_each(|ticket| waiting.retain(|waits| waits != ticket));
        assert!(waiting.is_empty(), "{waiting:?} wait on");
        bench.report(LoadReport::SentryCpu(0.2));
        bench.advance(29_000);
        bench.report(LoadReport::SentryCpu(0.2));
        assert_eq!(bench.state().active, "threshold", "not calm for long enough");
        bench.advance(2000);
        bench.report(LoadReport::SentryCpu(0.2));
        assert_eq!(bench.state().active, "batch");
    }
}
