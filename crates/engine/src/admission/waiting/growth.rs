//! Growing while nothing slows down.
//!
//! *Intuition.* Whoever comes to a new shop with many parcels hands in a few, then twice as many, and again, as long as
//! each is done as quickly as the first.
//!
//! *Applied.* While it is not known how many requests keep the servers busy, there are up to twice as many places a
//! stay later, as long as requests take no longer than those did after which there became more. The first of many are
//! the small ones; so what the first took is what all were in service together, over those that ended.
//!
//! *Source.* The slow start of TCP (V. Jacobson, SIGCOMM 1988).

use crate::estimate::Average;

/// So many answers say whether requests slow each other down.
const FEW: f64 = 8.0;
/// They do when they take so many times what they took before, and what a few can be off.
const SLOWED: f64 = 1.3;
const OFF: f64 = 1.5;
/// So many are remembered.
const MEMORY: f64 = 200.0;

/// Times at the servers.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Of answers since the last look: their times, number, and what was in service meanwhile.
    sum: f64,
    count: f64,
    exposure: f64,
    /// What requests take that do not slow each other down.
    before: Average,
}

impl Growth {
    /// So many were in service for so long.
    pub(super) fn pass(&mut self, in_service: f64, seconds: f64) {
        self.exposure += in_service * seconds;
    }

    /// A request took so long.
    pub(super) fn complete(&mut self, seconds: f64) {
        self.sum += seconds;
        self.count += 1.0;
    }

    /// Whether requests that were answered since the last look took no longer than those before. `None`: too few were.
    pub(super) fn look(&mut self) -> Option<bool> {
        if self.count < FEW {
            return None;
        }
        let (mean, count, whole) = (self.sum / self.count, self.count, self.exposure / self.count);
        (self.sum, self.count, self.exposure) = (0.0, 0.0, 0.0);
        let Some(before) = self.before.get() else {
            self.before.update(mean.max(whole), count, MEMORY);
            return Some(true);
        };
        let is_as_fast = mean <= before * (SLOWED + OFF / libm::sqrt(count));
        if is_as_fast {
            self.before.update(mean, count, MEMORY);
        }
        Some(is_as_fast)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slower_is_told_from_as_fast_as_before() {
        let mut growth = Growth::default();
        assert_eq!(growth.look(), None);
        let mut of = |time: f64| {
            (0..20).for_each(|_| growth.complete(time));
            growth.look()
        };
        assert_eq!([of(1.0), of(1.1), of(0.9), of(2.0), of(1.0)], [true, true, true, false, true].map(Some));
    }

    #[test]
    fn the_first_that_end_are_not_taken_for_all() {
        let mut growth = Growth::default();
        growth.pass(40.0, 0.2);
        (0..10).for_each(|_| growth.complete(0.2));
        assert_eq!(growth.look(), Some(true));
        (0..40).for_each(|_| growth.complete(0.8));
        assert_eq!(growth.look(), Some(true), "40 were in service for 0.2 s, ten ended: 0.8 s each");
    }
}
