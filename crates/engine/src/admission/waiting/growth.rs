//! Growing while nothing slows down.
//!
//! *Intuition.* Whoever comes to a new shop with many parcels hands in a few, then twice as many, and again, as long as
//! half of each lot is done as quickly as half of the first.
//!
//! *Applied.* While it is not known how many requests keep the servers busy, there are up to twice as many places, and
//! again as soon as half of those that began with that many have ended, if they took no longer for it than half of
//! those before. The first that end of many are the small ones, and who began before there were more says nothing of
//! more; the time until half of a cohort has ended is free of both. That they take longer is known as soon as that time
//! is over, whether half have ended or not: so there are never more than twice as many places as were seen to slow
//! nobody down.
//!
//! *Source.* The slow start of TCP (V. Jacobson, SIGCOMM 1988).

use crate::estimate::Average;
use crate::time::Timestamp;

/// So many say whether requests slow each other down.
const FEW: f64 = 8.0;
/// A cohort is those that begin within so many seconds, or this part of the time until half of one have ended.
const SHORTEST: f64 = 0.002;
const PART: f64 = 0.25;
/// They slow each other down when they take so many times what they took before, and what a few can be off.
const SLOWED: f64 = 1.3;
const OFF: f64 = 1.5;
/// So many are remembered.
const MEMORY: f64 = 200.0;

/// Those that began together, and what they took until half had ended.
#[derive(Debug, Default)]
pub(super) struct Growth {
    from: Timestamp,
    /// The last of them began then.
    to: Timestamp,
    begun: f64,
    ended: f64,
    /// Seconds until half had ended.
    half: Option<f64>,
    /// The same, of those that did not slow each other down.
    before: Average,
}

impl Growth {
    /// Another cohort begins.
    pub(super) fn anew(&mut self, now: Timestamp) {
        *self = Growth { from: now, to: now, before: self.before, ..Growth::default() };
    }

    /// So many requests began.
    pub(super) fn begin(&mut self, now: Timestamp, count: f64) {
        let span = SHORTEST.max(PART * self.before.get().unwrap_or(0.0));
        if self.begun < FEW || now.seconds_since(self.from) <= span {
            (self.begun, self.to) = (self.begun + count, now);
        }
    }

    /// One ended that began at a time.
    pub(super) fn end(&mut self, now: Timestamp, began: Timestamp) {
        if began < self.from || began > self.to {
            return;
        }
        self.ended += 1.0;
        if self.half.is_none() && self.begun >= FEW && 2.0 * self.ended >= self.begun {
            self.half = Some(self.age(now));
        }
    }

    /// Whether those that began of late take no longer than those before. `None`: that is not to be seen yet.
    pub(super) fn look(&mut self, now: Timestamp) -> Option<bool> {
        if self.begun < FEW {
            return None;
        }
        let before = self.before.get();
        let bound = before.map_or(f64::INFINITY, |before| before * (SLOWED + OFF / libm::sqrt(self.begun)));
        let Some(half) = self.half else {
            return (self.age(now) > bound).then_some(false);
        };
        if half <= bound {
            self.before.update(half, self.begun, MEMORY);
        }
        Some(half <= bound)
    }

    /// Since when those are there that began of late.
    pub(super) fn since(&self) -> Option<Timestamp> {
        (self.begun > 0.0).then_some(self.from)
    }

    /// How long ago they began, on average.
    fn age(&self, now: Timestamp) -> f64 {
        now.seconds_since(self.from) - self.to.seconds_since(self.from) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    /// What is to be seen of twenty that begin at `from` and end one after the other until `to`, then and when a third
    /// of the time is over.
    fn seen(growth: &mut Growth, from: u64, to: u64) -> [Option<bool>; 2] {
        growth.anew(ms(from));
        growth.begin(ms(from), 20.0);
        let mut early = None;
        for at in 1..=20 {
            let now = ms(from + (to - from) * at / 20);
            growth.end(now, ms(from));
            if at == 6 {
                early = growth.look(now);
            }
        }
        [early, growth.look(ms(to))]
    }

    #[test]
    fn slower_is_told_from_as_fast_as_before() {
        let mut growth = Growth::default();
        assert_eq!(growth.look(ms(0)), None);
        assert_eq!(seen(&mut growth, 1000, 2000), [None, Some(true)]);
        assert_eq!(seen(&mut growth, 3000, 4100), [None, Some(true)]);
        assert_eq!(seen(&mut growth, 5000, 7500), [None, Some(false)]);
        assert_eq!(seen(&mut growth, 8000, 13_000), [Some(false), Some(false)], "before half have ended");
        assert_eq!(seen(&mut growth, 14_000, 15_000), [None, Some(true)]);
    }

    #[test]
    fn who_began_before_says_nothing() {
        let mut growth = Growth::default();
        seen(&mut growth, 1000, 2000);
        growth.anew(ms(3000));
        growth.begin(ms(3000), 20.0);
        (0..20).for_each(|at| growth.end(ms(3000 + at), ms(2900)));
        assert_eq!(growth.look(ms(3100)), None);
    }
}
