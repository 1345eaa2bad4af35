//! Threshold policing: a share per class, computed ahead of time (Cataclysm, section 3.3).
//!
//! *Intuition.* A doorman who counts nobody. Every so often the office works out from the last rates which tickets can
//! be let in and tells him: gold always, silver one in three, bronze not now. Per guest he needs one look and one coin.
//!
//! *Applied.* Every `period`, from smoothed arrival rates `lambda_j` (beyond the guarantees) and mean costs `s_j`:
//! classes above `i` pass, class `i` passes with probability `p`, classes below are refused, where
//!
//! ```text
//! sum_{j<=i} lambda_j s_j >= U - G        p lambda_i s_i + sum_{j<i} lambda_j s_j < U - G
//! G = sum_j min_rate_j s_j                U = processors x target_utilisation
//! ```
//!
//! *Awkward cases.* Between two computations the table is stale: a surge inside a period gets in unhindered (the
//! paper's figure 5 shows it). So the table is corrected by observation (`drain`): `U` loses the work of the requests
//! in flight beyond what the target allows, spread over a period, and gains what is missing to it; a large pile
//! brings the next computation forward. Rates and costs may be wrong, so they alone refuse no request: as long as no
//! pile shows, every class passes. A guarantee that is not used up does not hold its share back: the paper counts it
//! in full.

use core::time::Duration;
use serde::{Deserialize, Serialize};

use super::{AdmissionPolicy, Context, PolicyState, require};
use crate::facts::Facts;
use crate::learned::Kept;
use crate::policer::Share;
use crate::request::ClassId;
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;
use crate::units::Seconds;

/// Settings of the policy `threshold`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Time between computations. The paper: 15 s; shorter follows surges faster.
    pub period: Seconds,
    /// Share of the servers' capacity to fill, more than 0 and at most 1.
    pub target_utilisation: f64,
    /// Whether the table follows what is in flight, too, and not only rates and costs.
    pub drain: bool,
    /// Instead of all this: every class passes with this probability. For measurements.
    pub fixed: Option<f64>,
}

impl Default for Config {
    fn default() -> Self {
        Config { period: Seconds(1.0), target_utilisation: 0.95, drain: true, fixed: None }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let period = self.period.0;
        require((0.01..=3600.0).contains(&period), "threshold", "period", "must lie between 10ms and 1h")?;
        let share = |x: f64| x > 0.0 && x <= 1.0;
        require(
            share(self.target_utilisation),
            "threshold",
            "target_utilisation",
            "must be more than 0 and at most 1",
        )?;
        require(self.fixed.is_none_or(|p| (0.0..=1.0).contains(&p)), "threshold", "fixed", "must lie between 0 and 1")
    }

    pub(super) fn build(&self, setup: &Setup) -> Threshold {
        Threshold {
            classes: setup.classes.len(),
            config: self.clone(),
            period: self.period.duration(),
            next: Timestamp::ZERO,
            surged: false,
            idle_since: None,
            at: None,
            is_recalled: false,
        }
    }
}

/// Work in flight that can be answered in this share of the target is no backlog.
const BACKLOG_SHARE: f64 = 0.3;
/// What is at work may take this share of the target while costs are not known for sure.
const UNSURE_SHARE: f64 = 0.8;

/// No class is refused before this share of what fits is in flight.
const PILE_SHARE: f64 = 0.5;
/// So long with less than this share of what fits in flight ends an overload.
const IDLE_TIME: Duration = Duration::from_millis(400);
const IDLE_SHARE: f64 = 0.05;
/// A backlog this many times what fits is a surge: the table is computed anew at once.
const SURGE: f64 = 1.0;

/// State of the policy `threshold`.
#[derive(Debug)]
pub struct Threshold {
    config: Config,
    classes: usize,
    period: Duration,
    next: Timestamp,
    /// The table in force was computed on a surge.
    surged: bool,
    /// The first tick of those with next to nothing in flight. A time and no count: a driver that slept ticks once.
    idle_since: Option<Timestamp>,
    /// The threshold in force; `None`: every class passes.
    at: Option<(ClassId, f64)>,
    /// It was in force elsewhere, and is not published yet.
    is_recalled: bool,
}

impl AdmissionPolicy for Threshold {
    fn on_tick(&mut self, cx: &mut Context<'_>) {
        let idle = self.in_flight(cx) <= IDLE_SHARE * self.fits(cx);
        self.idle_since = if idle { self.idle_since.or(Some(cx.now)) } else { None };
        // Half a second next to no work: whatever the smoothed rates say, there is no overload.
        if self.is_idle(cx) && self.at.is_some() && self.config.drain {
            self.put(cx, None);
        }
        let backlog = if self.config.drain { self.backlog(cx) } else { 0.0 };
        let surge = backlog > SURGE * self.fits(cx);
        // A table made for a pile must not outlast it.
        let relief = self.surged && backlog <= 0.0;
        if core::mem::take(&mut self.is_recalled) {
            self.put(cx, self.at);
        }
        if cx.now < self.next && !surge && !relief {
            return;
        }
        self.surged = surge;
        self.next = cx.now + self.period;
        match self.config.fixed {
            Some(share) => cx.class_ids().for_each(|class| cx.publish(class, Share::Admit(share))),
            None => self.recompute(cx),
        }
    }

    fn describe(&self, state: &mut PolicyState) {
        state.active = "threshold";
        state.threshold = self.at.map(|(class, share)| (class.0, share));
    }

    fn keep(&self, now: Timestamp, kept: &mut Kept) {
        keep(now, kept, self.at, self.next);
        kept.put("surged", f64::from(u8::from(self.surged)));
    }

    /// With a fixed share there is nothing to go on with.
    fn recall(&mut self, now: Timestamp, kept: &Kept) {
        if self.config.fixed.is_none() {
            (self.at, self.next) = recalled(now, kept, self.period, self.classes);
            self.surged = kept.get("surged") == Some(1.0);
            self.is_recalled = true;
        }
    }
}

impl Threshold {
    /// Makes the next tick compute, whatever the period says.
    pub(super) fn expire(&mut self) {
        self.next = Timestamp::ZERO;
    }

    fn recompute(&mut self, cx: &mut Context<'_>) {
        let calm = self.at.is_none() && self.in_flight(cx) < PILE_SHARE * self.fits(cx);
        let at = if self.is_idle(cx) || (calm && self.config.drain) { None } else { self.threshold(cx) };
        self.put(cx, at);
    }

    fn is_idle(&self, cx: &Context<'_>) -> bool {
        self.idle_since.is_some_and(|since| cx.now.since(since) >= IDLE_TIME)
    }

    /// Puts a threshold in force.
    fn put(&mut self, cx: &mut Context<'_>, at: Option<(ClassId, f64)>) {
        for (class, share) in shares(cx, at) {
            cx.publish(class, share);
        }
        if moved(self.at, at) {
            let (class, admit) = at.unwrap_or((ClassId(cx.classes.len() as u8 - 1), 1.0));
            cx.say(Facts::new("threshold-set").with("class", class).with("admit", admit));
        }
        self.at = at;
    }

    /// The first class that does not fit whole, and the share of it that does.
    fn threshold(&self, cx: &Context<'_>) -> Option<(ClassId, f64)> {
        let full = cx.load.own_processors() * self.config.target_utilisation;
        let backlog = if self.config.drain { self.backlog(cx) } else { 0.0 };
        at(cx, full - backlog / self.period.as_secs_f64())
    }

    /// Seconds of work in flight that are no backlog: what can be answered in a part of the target, and what the
    /// processors are at. While costs may hold the time that requests held each other up, the latter would call any
    /// pile work in hand: then no more than what is answered within the target.
    fn fits(&self, cx: &Context<'_>) -> f64 {
        let target = cx.target / cx.calibration.factor();
        let sure = cx.load.idle_processors >= cx.load.processors;
        let at_work = cx.costs.mean().unwrap_or(0.0) * 1.5;
        let at_work = if sure { at_work } else { at_work.min(target * UNSURE_SHARE) };
        cx.load.processors * at_work.max(target * BACKLOG_SHARE)
    }

    /// Seconds of work in flight beyond that; negative while more would fit.
    fn backlog(&self, cx: &Context<'_>) -> f64 {
        self.in_flight(cx) - self.fits(cx)
    }

    /// Seconds of work in flight.
    fn in_flight(&self, cx: &Context<'_>) -> f64 {
        cx.load.in_flight as f64 * cx.costs.mean().unwrap_or(0.0)
    }
}

/// The first class that does not fit whole, and the share of it that does, where requests may bring `usable` seconds of
/// work per second, guaranteed ones included (U).
pub(super) fn at(cx: &Context<'_>, usable: f64) -> Option<(ClassId, f64)> {
    // Nothing completed yet: nothing is known, and nothing can be computed.
    cx.costs.mean()?;
    let guaranteed: f64 = cx.classes.iter().enumerate().map(|(i, c)| c.min_rate * cx.costs.class_mean(i)).sum();
    let mut left = (usable - guaranteed).max(0.0);
    for class in cx.class_ids() {
        let demand = cx.classes[class.index()].excess.get() * cx.costs.class_mean(class.index());
        if demand > left {
            return Some((class, (left / demand).clamp(0.0, 1.0)));
        }
        left -= demand;
    }
    None
}

/// Puts away the threshold that is in force, and when the next one is computed.
pub(super) fn keep(now: Timestamp, kept: &mut Kept, at: Option<(ClassId, f64)>, next: Timestamp) {
    kept.put("threshold_due", next.seconds_since(now));
    if let Some((class, share)) = at {
        kept.of_class_mut(class.index()).put("threshold", share);
    }
}

/// The threshold that was in force among so many classes, and when the next one is computed. If its class is no more,
/// that is now.
pub(super) fn recalled(
    now: Timestamp,
    kept: &Kept,
    period: Duration,
    classes: usize,
) -> (Option<(ClassId, f64)>, Timestamp) {
    let share = |class: usize| Some((class, kept.of_class(class).get("threshold")?.clamp(0.0, 1.0)));
    let at = (0..classes).find_map(share).map(|(class, share)| (ClassId(class as u8), share));
    let due = if at.is_some() { kept.between("threshold_due", (0.0, period.as_secs_f64()), 0.0) } else { 0.0 };
    (at, now + Duration::from_secs_f64(due))
}

/// What a threshold lets in of each class; without one everything.
pub(super) fn shares(cx: &Context<'_>, at: Option<(ClassId, f64)>) -> impl Iterator<Item = (ClassId, Share)> + use<> {
    cx.class_ids().map(move |class| match at {
        Some((threshold, _)) if class > threshold => (class, Share::Admit(0.0)),
        Some((threshold, share)) if class == threshold => (class, Share::Admit(share)),
        _ => (class, Share::Admit(1.0)),
    })
}

fn moved(from: Option<(ClassId, f64)>, to: Option<(ClassId, f64)>) -> bool {
    match (from, to) {
        (Some((a, p)), Some((b, q))) => a != b || (p - q).abs() > 0.05,
        (a, b) => a.is_some() != b.is_some(),
    }
}
