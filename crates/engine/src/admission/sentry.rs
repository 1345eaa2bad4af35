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
        Config {
            batch: batch::Config::default(),
            threshold: threshold::Config::default(),
            high: 0.8,
            low: 0.5,
            hold: Seconds(30.0),
        }
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
            config: self.clone(),
            in_threshold: false,
            calm_since: None,
            late_rounds: 0,
        }
    }
}

/// Rounds in a row that start a whole period late before the policer counts as overloaded.
const LATE_ROUNDS: u32 = 5;

/// Timers are about this coarse: less is not late.
const LATE_LEAST: Duration = Duration::from_millis(10);

/// State of the policy `sentry`.
#[derive(Debug)]
pub struct Sentry {
    batch: Batch,
    threshold: Threshold,
    config: Config,
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
        let late = self.batch.lateness(cx.now);
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
        if cpu >= self.config.low {
            self.calm_since = None;
        } else if self.calm_since.is_none() {
            self.calm_since = Some(cx.now);
        }
        if cpu > self.config.high {
            self.switch_to_threshold(cx, format!("the sentry's processors are {:.0} % busy", cpu * 100.0));
        }
        let calm = self.calm_since.is_some_and(|since| cx.now.since(since) >= self.config.hold.duration());
        if self.in_threshold && calm {
            self.switch_to_batch(cx, format!("the sentry's processors are {:.0} % busy", cpu * 100.0));
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
    fn switch_to_threshold(&mut self, cx: &mut Context<'_>, reason: String) {
        if core::mem::replace(&mut self.in_threshold, true) {
            return;
        }
        self.batch.finish(cx);
        self.threshold.expire();
        self.threshold.on_tick(cx);
        self.late_rounds = 0;
        cx.say(switched("batch", "threshold", reason));
    }

    fn switch_to_batch(&mut self, cx: &mut Context<'_>, reason: String) {
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

impl Batch {
    /// Whether a round that is due now is late by more than its class's whole delay.
    fn lateness(&self, now: Timestamp) -> bool {
        self.due().any(|(at, delay)| now.since(at) > delay.max(LATE_LEAST))
    }

    /// One last round over everything, and what does not pass is refused.
    fn finish(&mut self, cx: &mut Context<'_>) {
        self.make_all_due(cx.now);
        self.on_timeout(cx);
        for class in cx.class_ids() {
            cx.refuse_class(class, Reason::Threshold);
        }
    }
}
