//! Late answers in hand: the SLA bounds a percentile, so some may be late.
//!
//! *Intuition.* A doctor who may keep one patient in twenty waiting too long calls, in a rush, also those who will
//! perhaps be too late: nobody else would be called in their place, once the rush is over.
//!
//! *Applied.* Every answer saves a part of the share that may be late; every late one costs one; what was promised to
//! requests that may be late is set aside until they end. While overload lasts, somebody who will be in time is always
//! there, and nothing is saved.
//!
//! *Awkward cases.* Of n classes each may use 1/n less than the next more important one, as in the policy `batch`.

/// Of the share that may be late, so much is spent; some are late by themselves.
const SPENT: f64 = 0.8;
/// How long an answer counts, seconds: also over stretches this short the percentile is to hold.
const WINDOW: f64 = 4.0;
/// So many count however old they are: of fewer a percentile says nothing.
const FEW: f64 = 200.0;

/// What is saved.
#[derive(Debug)]
pub(super) struct Late {
    /// Share of answers that may be late; 0 where the SLA says nothing of single ones.
    permitted: f64,
    /// Answers in the window.
    answers: f64,
    /// Late answers in hand; below 0 when there were too many.
    saved: f64,
    /// Of these, promised to requests under way.
    promised: f64,
}

impl Late {
    pub(super) fn new(permitted: f64) -> Late {
        Late { permitted, answers: 0.0, saved: 0.0, promised: 0.0 }
    }

    /// A request ended, with so many more under way; `standing`: how lasting the overload is, 0 to 1.
    pub(super) fn record(&mut self, is_late: bool, under_way: usize, standing: f64) {
        self.answers += 1.0;
        let change = SPENT * self.permitted * (1.0 - standing) - f64::from(u8::from(is_late));
        self.saved = (self.saved + change).clamp(-self.most(), self.most());
        self.promised -= self.promised / (under_way + 1) as f64;
    }

    /// `elapsed` seconds went by.
    pub(super) fn fade(&mut self, elapsed: f64, under_way: usize) {
        let lasting = self.answers.min(FEW);
        self.answers = (self.answers * libm::exp(-elapsed / WINDOW)).max(lasting);
        self.saved = self.saved.min(self.most());
        if under_way == 0 {
            self.promised = 0.0;
        }
    }

    /// Whether one more may be late with this probability. The share `kept` of what can be saved is not for it.
    pub(super) fn covers(&self, probability: f64, kept: f64) -> bool {
        self.saved - self.promised >= probability + kept * self.most()
    }

    /// One that may be late with this probability is under way.
    pub(super) fn promise(&mut self, probability: f64) {
        self.promised += probability;
    }

    /// Whether there were no more late answers than there may be.
    pub(super) fn is_kept(&self) -> bool {
        self.saved >= 0.0
    }

    /// Answers in the window, and late ones in hand.
    pub(super) fn saved(&self) -> (f64, f64) {
        (self.answers, self.saved)
    }

    /// As they were elsewhere.
    pub(super) fn set_saved(&mut self, answers: f64, saved: f64) {
        self.answers = answers;
        self.saved = saved.clamp(-self.most(), self.most());
    }

    fn most(&self) -> f64 {
        SPENT * self.permitted * self.answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_in_calm_is_spent_in_a_rush_and_not_twice() {
        let mut late = Late::new(0.05);
        assert!(!late.covers(0.5, 0.0));
        (0..100).for_each(|_| late.record(false, 0, 0.0));
        assert!(late.covers(3.9, 0.0) && !late.covers(4.1, 0.0) && !late.covers(3.9, 0.3));
        late.promise(3.0);
        assert!(!late.covers(1.1, 0.0));
        late.record(true, 0, 0.0);
        assert!(late.covers(3.0, 0.0) && !late.covers(3.1, 0.0), "what was promised is gone with what ended");
    }

    #[test]
    fn a_standing_queue_saves_nothing() {
        let mut late = Late::new(0.05);
        (0..100).for_each(|_| late.record(false, 0, 1.0));
        assert!(!late.covers(0.1, 0.0) && late.is_kept());
        late.record(true, 0, 1.0);
        assert!(!late.is_kept());
    }
}
