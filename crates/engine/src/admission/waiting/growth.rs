//! Growing while nothing slows down.
//!
//! *Intuition.* Whoever comes to a new shop with many parcels hands in a few, then twice as many, and again, as long as
//! half of each lot is done as quickly as half of those before.
//!
//! *Applied.* While it is not known how many requests keep the servers busy, there are up to twice as many places, and
//! again as soon as half of those that began with that many have ended, if they took no longer for it than half of
//! those before. The first that end of many are the small ones, and who began before there were more says nothing of
//! more; the time until half of a lot has ended is free of both. That they take longer is known as soon as that time
//! is over, whether half have ended or not: so there are never more than twice as many places as were seen to slow
//! nobody down.
//!
//! How quickly half of a few end is half chance. So all lots of late are compared, by what they would take at `k`
//! processors: with `n_i` in service while half of lot `i` took `t_i`, and `m` solved for,
//!
//! ```text
//! ln L(k) = - 1/2 sum (ln t_i - max(0, ln n_i / k) - ln m)^2 / v_i        v_i = 2 / begun_i + 0.2^2
//! ```
//!
//! The last took longer when some `k` below its `n` is that much likelier than no `k`, as counts of completions
//! ([`Busy`](super::busy::Busy)) leave room for. If every `k` of half its `n` is much less likely, it surely did not,
//! whatever the counts say, which are late where servers are fast.
//!
//! *Source.* The slow start of TCP (V. Jacobson, SIGCOMM 1988); the comparison is ours.

use alloc::vec::Vec;

use crate::time::Timestamp;

/// So many say whether requests slow each other down.
const FEW: usize = 8;
/// A lot is those that begin within so many seconds, or this part of the time until half of the last have ended.
const SHORTEST: f64 = 0.002;
const PART: f64 = 0.25;
/// So many lots are remembered.
const LOTS: usize = 16;
/// The variance of the logarithm of the median of exponential times, times their number; and what it is off whatever
/// their number.
const CHANCE: f64 = 2.0;
const OFF: f64 = 0.2 * 0.2;
/// The least odds, as a logarithm, that there are more processors than are in use: with less, who seems slower is. With
/// -1.5, in sixteen starts of 256 processors and 500 ms a tenth of a load of 0.6 was refused, with this a 25th (both
/// while four times the rate was foreseen at a start).
const LEAST_ODDS: f64 = -2.5;
/// So much likelier, as a logarithm, is enough, whatever the odds.
const EVIDENT: f64 = 3.0;
/// The factor that must be ruled out for that, as a logarithm: a little less than twice.
const APART: f64 = 0.6;
/// Times below this, seconds, are not told apart.
const SOONEST: f64 = 1e-6;

/// What is seen of those that began of late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// They take longer than those before.
    Slower,
    /// They do not seem to.
    AsFast,
    /// They would take longer if half as many processors were all there are, and do not.
    SurelyAsFast,
}

/// Those that began together, and what they took until half had ended.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// When the first of them and the last began.
    from: Timestamp,
    to: Timestamp,
    begun: usize,
    /// Seconds that those took which have ended.
    times: Vec<f64>,
    /// Those before: a ring, and how many were ever put there.
    lots: [Lot; LOTS],
    seen: usize,
    /// The next is those that begin within so many seconds, if that is no shorter than [`SHORTEST`].
    span: f64,
}

/// What was seen of those that began together.
#[derive(Clone, Copy, Debug, Default)]
struct Lot {
    /// Logarithm of how many were in service at a server.
    among: f64,
    /// Logarithm of the seconds in which half ended.
    half: f64,
    /// One over the variance of that.
    weight: f64,
}

impl Growth {
    /// Another lot begins.
    pub(super) fn anew(&mut self) {
        self.begun = 0;
        self.times.clear();
    }

    /// A request began.
    pub(super) fn begin(&mut self, now: Timestamp) {
        if self.begun == 0 {
            (self.from, self.to) = (now, now);
        }
        if self.begun < FEW || now.seconds_since(self.from) <= SHORTEST.max(self.span) {
            (self.begun, self.to) = (self.begun + 1, now);
        }
    }

    /// One ended that began at a time.
    pub(super) fn end(&mut self, now: Timestamp, began: Timestamp) {
        if self.begun > 0 && began >= self.from && began <= self.to {
            self.times.push(now.seconds_since(began));
        }
    }

    /// How fast those are that began of late, with `among` in service at a server meanwhile, when `beyond` is how
    /// likely there are more processors than that. `None`: that is not to be seen yet.
    pub(super) fn look(&mut self, now: Timestamp, among: f64, beyond: f64) -> Option<Pace> {
        if self.begun < FEW {
            return None;
        }
        let odds = libm::log(beyond.max(f64::MIN_POSITIVE) / (1.0 - beyond).max(f64::MIN_POSITIVE));
        let enough = (odds - LEAST_ODDS).clamp(0.0, EVIDENT);
        let age = now.seconds_since(self.to);
        // Whoever is not back yet may be among the faster half, unless it is as old as that took.
        let half = self.half().filter(|half| *half <= age);
        let seconds = half.unwrap_or(age).max(SOONEST);
        let lot = Lot {
            among: libm::log(among.max(1.0)),
            half: libm::log(seconds),
            weight: 1.0 / (CHANCE / self.begun as f64 + OFF),
        };
        let is_slower = self.evidence(lot, 0.0).is_some_and(|evidence| evidence > enough);
        if half.is_none() && !is_slower {
            return None;
        }
        let is_sure = self.evidence(lot, APART).is_some_and(|evidence| evidence < -EVIDENT);
        self.lots[self.seen % LOTS] = lot;
        self.seen += 1;
        self.span = PART * seconds;
        Some(match (is_slower, is_sure) {
            (true, _) => Pace::Slower,
            (false, true) => Pace::SurelyAsFast,
            (false, false) => Pace::AsFast,
        })
    }

    /// Since when those are there that began of late.
    pub(super) fn since(&self) -> Option<Timestamp> {
        (self.begun > 0).then_some(self.from)
    }

    /// How much likelier fewer processors are than the last lot had in service, by this factor (of e) at least, than
    /// more: a logarithm. `None`: no lot was among as few.
    fn evidence(&self, last: Lot, fewer: f64) -> Option<f64> {
        let known = &self.lots[..self.seen.min(LOTS)];
        let all = || known.iter().copied().chain([last]);
        let fit = |ln_processors: f64| {
            let alone = |lot: &Lot| lot.half - (lot.among - ln_processors).max(0.0);
            let weight: f64 = all().map(|lot| lot.weight).sum();
            let mean = all().map(|lot| lot.weight * alone(&lot)).sum::<f64>() / weight;
            -0.5 * all().map(|lot| lot.weight * (alone(&lot) - mean) * (alone(&lot) - mean)).sum::<f64>()
        };
        let more = fit(f64::INFINITY);
        let among_fewer = known.iter().filter(|lot| lot.among < last.among - fewer);
        among_fewer.map(|lot| fit(lot.among) - more).max_by(f64::total_cmp)
    }

    /// Seconds that the faster half took at most, so far.
    fn half(&mut self) -> Option<f64> {
        let rank = self.begun.div_ceil(2) - 1;
        let is_half = rank < self.times.len();
        is_half.then(|| *self.times.select_nth_unstable_by(rank, f64::total_cmp).1)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    /// What is to be seen of so many that begin at `from` and end one after the other until `to`, then and when a third
    /// of the time is over; it is as likely as not that there are more processors.
    fn seen(growth: &mut Growth, count: u64, from: u64, to: u64) -> [Option<Pace>; 2] {
        growth.anew();
        (0..count).for_each(|_| growth.begin(ms(from)));
        let mut early = None;
        for at in 1..=count {
            let now = ms(from + (to - from) * at / count);
            growth.end(now, ms(from));
            if at == count / 3 {
                early = growth.look(now, count as f64, 0.5);
            }
        }
        [early, growth.look(ms(to), count as f64, 0.5)]
    }

    #[test]
    fn slower_is_told_from_as_fast_as_before() {
        let mut growth = Growth::default();
        assert_eq!(growth.look(ms(0), 1.0, 0.5), None);
        assert_eq!(seen(&mut growth, 20, 1000, 2000), [None, Some(Pace::AsFast)]);
        assert_eq!(seen(&mut growth, 40, 3000, 4100), [None, Some(Pace::AsFast)]);
        assert_eq!(seen(&mut growth, 160, 5000, 6000), [None, Some(Pace::SurelyAsFast)]);
        assert_eq!(seen(&mut growth, 320, 8000, 11_000)[1], Some(Pace::Slower));
        assert_eq!(seen(&mut growth, 640, 12_000, 22_000)[0], Some(Pace::Slower), "before half have ended");
    }

    #[test]
    fn a_first_lot_that_was_quick_by_chance_is_not_believed_for_long() {
        let mut growth = Growth::default();
        seen(&mut growth, 8, 1000, 1300);
        for turn in 1..12 {
            seen(&mut growth, 20, 2000 * turn, 2000 * turn + 1000);
        }
        assert_eq!(seen(&mut growth, 40, 30_000, 31_000)[1], Some(Pace::AsFast));
    }

    #[test]
    fn what_counts_say_is_weighed() {
        let look = |beyond: f64| {
            let mut growth = Growth::default();
            seen(&mut growth, 20, 1000, 2000);
            growth.anew();
            (0..40).for_each(|_| growth.begin(ms(3000)));
            (0..20).for_each(|_| growth.end(ms(3900), ms(3000)));
            growth.look(ms(3900), 40.0, beyond)
        };
        assert_eq!([look(0.9), look(0.02)], [Some(Pace::AsFast), Some(Pace::Slower)]);
    }

    #[test]
    fn who_began_before_says_nothing() {
        let mut growth = Growth::default();
        seen(&mut growth, 20, 1000, 2000);
        growth.anew();
        (0..20).for_each(|_| growth.begin(ms(3000)));
        (0..20).for_each(|at| growth.end(ms(3000 + at), ms(2900)));
        assert_eq!(growth.look(ms(3100), 20.0, 0.5), None);
    }

    #[test]
    fn the_time_before_the_first_request_is_not_its_own() {
        let mut growth = Growth::default();
        // Nothing comes for a minute, then eight one after the other, of 50 ms each.
        let begun = |at: u64| ms(60_000 + 100 * at);
        for at in 0..8 {
            growth.begin(begun(at));
            growth.end(begun(at) + Duration::from_millis(50), begun(at));
        }
        assert_eq!(growth.look(begun(8), 1.0, 0.5), Some(Pace::AsFast));
        assert_eq!(seen(&mut growth, 40, 62_000, 63_000)[1], Some(Pace::Slower), "ten times as long");
    }
}
