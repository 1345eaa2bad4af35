//! The budget of late answers: what an SLA on a percentile leaves to chance.
//!
//! *Intuition.* Who promises that nineteen of twenty letters arrive tomorrow, and delivered all of them for days, need
//! not send people away in a short rush: some of what is taken on will be late, and that was allowed for.
//!
//! *Applied.* Of every answer in time, [`SPENT`] of the share that the SLA permits to be late is saved, for [`WINDOW`];
//! every late answer costs one. While what is saved covers what is in flight, the test lets in what is *likely* in time
//! ([`Calibration::likely`](crate::estimate::Calibration::likely)), and not only what is in time as surely as the SLA
//! asks of all requests together.
//!
//! *Awkward cases.* Under lasting overload the servers are busy either way, and late answers would only be waste: so
//! the less is saved the more often the application is full. Whether an answer is late shows when it is there; until
//! then what is in flight counts as late as often as a likely one. Of n classes, each may spend 1/n less than the next
//! more important one: when a rush becomes an overload, less important requests must not leave the others with servers
//! that are fuller than their limit.

use super::super::{Context, Ended};
use crate::decision::End;
use crate::estimate::LIKELY;
use crate::learned::Kept;
use crate::sla::Statistic;

/// The part of the permitted share of late answers that is spent; some are late by themselves.
const SPENT: f64 = 0.4;
/// How long an answer counts, seconds: also over stretches this short the percentile is to hold.
const WINDOW: f64 = 4.0;
/// So many count however old they are: of fewer a percentile says nothing.
const FEW: f64 = 200.0;

/// What is saved.
#[derive(Debug)]
pub(super) struct Budget {
    /// Share of answers that may be late; 0 where the SLA says nothing of single ones.
    permitted: f64,
    /// Answers in the window.
    answers: f64,
    /// Late answers in hand; below 0 when there were too many.
    saved: f64,
}

impl Budget {
    pub(super) fn new(statistic: Statistic) -> Self {
        let permitted = statistic.quantile().map_or(0.0, |quantile| 1.0 - quantile);
        Budget { permitted, answers: 0.0, saved: 0.0 }
    }

    /// A request ended, of an application that is full at this share of instants.
    pub(super) fn record(&mut self, cx: &Context<'_>, ended: &Ended, full: f64) {
        let is_late = match ended.end {
            End::Answered => ended.response_time > cx.target,
            End::TimedOut => true,
            End::Failed => return,
        };
        self.answers += 1.0;
        let change = SPENT * self.permitted * (1.0 - full) - f64::from(u8::from(is_late));
        self.saved = (self.saved + change).clamp(-self.most(), self.most());
    }

    /// `elapsed` seconds went by.
    pub(super) fn fade(&mut self, elapsed: f64) {
        let lasting = self.answers.min(FEW);
        self.answers = (self.answers * libm::exp(-elapsed / WINDOW)).max(lasting);
        self.saved = self.saved.min(self.most());
    }

    /// Whether so many requests in flight may be late as often as one that is just likely in time.
    /// The share `kept` of what can be saved is not for it.
    pub(super) fn covers(&self, in_flight: usize, kept: f64) -> bool {
        self.saved > LIKELY * self.permitted * in_flight as f64 + kept * self.most()
    }

    pub(super) fn keep(&self, kept: &mut Kept) {
        kept.put("answers", self.answers);
        kept.put("late_saved", self.saved);
    }

    pub(super) fn recall(&mut self, kept: &Kept) {
        self.answers = kept.between("answers", (0.0, 1e12), 0.0);
        self.saved = kept.between("late_saved", (-self.most(), self.most()), 0.0);
    }

    fn most(&self) -> f64 {
        SPENT * self.permitted * self.answers
    }
}
