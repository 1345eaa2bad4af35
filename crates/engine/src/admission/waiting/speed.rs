//! How fast servers work: seconds that a processor needs for a unit of work.
//!
//! *Intuition.* Whoever divides the hours that all tills were open by the customers who left knows how long one takes,
//! also while nobody has left for a while: those hours count already.
//!
//! *Applied.* The time that processors were in use, over the work completed meanwhile. Both fade with every completion,
//! and only then: a server that stops makes the number grow while nothing ends. The mean of the response times would
//! stay as it was, and at the start it would be that of the smallest.

/// So many completions are remembered, or as many as are in service: in less than a stay who completes is chance.
const MEMORY: f64 = 40.0;
const MEMORY_STAYS: f64 = 1.5;

/// Time in use, and what was done in it.
#[derive(Debug, Default)]
pub(super) struct Speed {
    seconds: f64,
    work: f64,
    completions: f64,
    /// Of completed requests: their times, and what these would have been alone at a processor.
    stays: f64,
    times: f64,
}

impl Speed {
    /// As it was elsewhere: see [`Speed::sums`].
    pub(super) fn of_sums([seconds, work, completions, stays, times]: [f64; 5]) -> Speed {
        Speed { seconds, work, completions, stays, times }
    }

    /// All that it knows.
    pub(super) fn sums(&self) -> [f64; 5] {
        [self.seconds, self.work, self.completions, self.stays, self.times]
    }

    /// So many processors were in use for so long.
    pub(super) fn pass(&mut self, in_use: f64, seconds: f64) {
        self.seconds += in_use * seconds;
    }

    /// Work of this relative cost is done, after `seconds` among `crowd` for each processor, and
    /// `in_service` in all.
    pub(super) fn complete(&mut self, cost: f64, seconds: f64, crowd: f64, in_service: f64) {
        let keep = 1.0 - 1.0 / MEMORY.max(MEMORY_STAYS * in_service);
        self.seconds *= keep;
        self.work = self.work * keep + cost;
        self.completions = self.completions * keep + 1.0;
        self.stays = self.stays * keep + seconds;
        self.times = self.times * keep + seconds / crowd;
    }

    /// Seconds of a processor for a unit of relative cost; `None`: nothing was completed yet.
    pub(super) fn seconds_per_cost(&self) -> Option<f64> {
        (self.work > 0.0 && self.seconds > 0.0).then(|| self.seconds / self.work)
    }

    /// The same by those that were completed alone: what was begun of late tells nothing yet.
    pub(super) fn seconds_by_completed(&self) -> Option<f64> {
        (self.work > 0.0).then(|| self.times / self.work)
    }

    /// Seconds at a server of what completes, on average; 0 when nothing did.
    pub(super) fn stay(&self) -> f64 {
        if self.completions > 0.0 { self.stays / self.completions } else { 0.0 }
    }

    /// Relative cost of what completes, on average.
    pub(super) fn cost(&self) -> f64 {
        if self.completions > 0.0 { self.work / self.completions } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_stops_is_noticed_before_anything_completes() {
        let mut speed = Speed::default();
        assert_eq!(speed.seconds_per_cost(), None);
        for _ in 0..200 {
            speed.pass(4.0, 0.01);
            speed.complete(2.0, 0.04, 1.0, 4.0);
        }
        let before = speed.seconds_per_cost().expect("it is known");
        assert!((before - 0.02).abs() < 1e-3 && (speed.cost() - 2.0).abs() < 1e-6, "{before}");
        speed.pass(4.0, 0.4);
        assert!(speed.seconds_per_cost().expect("it is known") > 1.9 * before);
    }
}
