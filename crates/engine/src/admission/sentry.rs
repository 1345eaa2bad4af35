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

pub(super) mod relieved;

use serde::{Deserialize, Serialize};

use super::batch::{self, Batch};
use super::{AdmissionPolicy, Context, threshold};
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;
use crate::units::Seconds;
use relieved::{Careful, LATE_LEAST, Relief, Relieved};

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
        let Relief { threshold, high, low, hold } = Relief::default();
        Config { batch: batch::Config::default(), threshold, high, low, hold }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        self.batch.check()?;
        self.relief().check("sentry")
    }

    pub(super) fn build(&self, setup: &Setup) -> Relieved<Batch> {
        self.relief().of(self.batch.build(setup), setup)
    }

    fn relief(&self) -> Relief {
        Relief { threshold: self.threshold.clone(), high: self.high, low: self.low, hold: self.hold }
    }
}

impl Careful for Batch {
    const NAME: &'static str = "batch";

    /// By more than a class's whole delay.
    fn is_late(&self, now: Timestamp) -> bool {
        self.due().any(|(at, delay)| now.since(at) > delay.max(LATE_LEAST))
    }

    /// One last round over everything.
    fn finish(&mut self, cx: &mut Context<'_>) {
        self.make_all_due(cx.now);
        self.on_timeout(cx);
    }
}
