//! Threshold policing as it was published, and no more (Cataclysm, section 3.3).
//!
//! *Intuition.* The doorman of [`threshold`], whose office looks at its figures every quarter of a
//! minute and never out of the window.
//!
//! *Applied.* Every `period`, from smoothed arrival rates `lambda_j` (beyond the guarantees) and mean costs `s_j`:
//! classes above `i` pass, class `i` passes with probability `p`, classes below are refused, where
//!
//! ```text
//! sum_{j<=i} lambda_j s_j >= U - G        p lambda_i s_i + sum_{j<i} lambda_j s_j < U - G
//! G = sum_j min_rate_j s_j                U = the servers' processors
//! ```
//!
//! *Awkward cases.* A surge gets in unhindered until the next computation, and what piled up by then is not looked at:
//! the table admits what the servers can do, so a pile stays until fewer requests come. A rate or a cost that is wrong
//! refuses requests although servers are idle. It is here to be compared with.
//!
//! *Source.* Urgaonkar and Shenoy, "Cataclysm: policing extreme overloads in Internet applications", 2008.

use core::time::Duration;
use serde::{Deserialize, Serialize};

use super::threshold::{self, shares};
use super::{AdmissionPolicy, Context, PolicyState, require};
use crate::learned::Kept;
use crate::request::ClassId;
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;
use crate::units::Seconds;

/// Settings.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Time between computations.
    pub period: Seconds,
}

impl Default for Config {
    fn default() -> Self {
        Config { period: Seconds(15.0) }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let within = (0.01..=3600.0).contains(&self.period.0);
        require(within, "cataclysm-threshold", "period", "must lie between 10ms and 1h")
    }

    pub(super) fn build(&self, setup: &Setup) -> CataclysmThreshold {
        CataclysmThreshold {
            period: self.period.duration(),
            next: Timestamp::ZERO,
            at: None,
            classes: setup.classes.len(),
            is_recalled: false,
        }
    }
}

/// State of the policy `cataclysm-threshold`.
#[derive(Debug)]
pub struct CataclysmThreshold {
    period: Duration,
    next: Timestamp,
    /// The threshold in force; `None`: every class passes.
    at: Option<(ClassId, f64)>,
    classes: usize,
    /// It was in force elsewhere, and is not published yet.
    is_recalled: bool,
}

impl AdmissionPolicy for CataclysmThreshold {
    fn on_tick(&mut self, cx: &mut Context<'_>) {
        let is_recalled = core::mem::take(&mut self.is_recalled);
        if cx.now >= self.next {
            self.next = cx.now + self.period;
            self.at = threshold::at(cx, cx.load.own_processors());
        } else if !is_recalled {
            return;
        }
        for (class, share) in shares(cx, self.at) {
            cx.publish(class, share);
        }
    }

    fn describe(&self, state: &mut PolicyState) {
        state.active = "cataclysm-threshold";
        state.threshold = self.at.map(|(class, share)| (class.0, share));
    }

    fn keep(&self, now: Timestamp, kept: &mut Kept) {
        threshold::keep(now, kept, self.at, self.next);
    }

    fn recall(&mut self, now: Timestamp, kept: &Kept) {
        (self.at, self.next) = threshold::recalled(now, kept, self.period, self.classes);
        self.is_recalled = true;
    }
}
