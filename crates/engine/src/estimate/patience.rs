//! Patience: for how long clients wait that do not say so.
//!
//! *Intuition.* A baker who sees people walk out of the queue after ten minutes need not ask how long they have. He
//! tells the next one who would wait for twelve. Of those who only look in and leave at once he takes no notice: they
//! are gone before their turn, and cost him nothing.
//!
//! *Applied.* A client that leaves at age `a` waits no longer than `a`; one that is answered, or refused, at age `a`
//! would have waited longer, nobody knows how much. The product-limit estimate takes both for what they say: of those
//! that are still there at `a` the share `d / (n + 3)` leaves, with `d` that left at this age and `n` that came to it;
//! the three are clients nobody saw, that stay. What counts is who leaves while it is served, and so in vain: of those
//! that are there when their turn comes, the share that is there when they are answered. Counts fade.
//!
//! *Awkward cases.* Clients that leave at once say nothing of those that are still there later, and those that were
//! served at once nothing of those that had to wait: they are not counted. Once nobody is kept
//! waiting for so long, nobody leaves either, and the estimate fades: then some are kept waiting again, and it is found
//! anew, or that it has changed. Where many more leave at once than ever before, a connection broke or a program ended,
//! and nobody lost patience: of those only twice as many are counted as in any moment of late. A request that says its
//! own deadline leaves by that, and says nothing of others. Who leaves while its answer arrives was answered.
//!
//! *Source.* Kaplan and Meier, Nonparametric Estimation from Incomplete Observations, 1958; its use is ours.

/// Ages are told apart from here on, seconds; younger ones are of the first bucket.
const LEAST: f64 = 1e-3;
/// Buckets per factor of two, and octaves: up to two minutes.
const PER_OCTAVE: usize = 8;
const OCTAVES: usize = 17;
const BUCKETS: usize = OCTAVES * PER_OCTAVE;
/// Counts halve in so many seconds.
const HALF_LIFE: f64 = 30.0;
/// When so little is left of all counts, nothing is known.
const LITTLE: f64 = 0.01;
/// Of a single count nothing is left then: numbers so small that they lose digits are slow.
const NOTHING: f32 = 1e-9;
/// So many that stay are assumed at every age: a few who leave say nothing.
const PRIOR: f64 = 3.0;
/// And of those that are answered in the bucket in which others leave, this part for longer than these.
const LATER: f64 = 0.1;
/// Fewer have not been seen.
const FEW: f64 = 3.0;
/// A smaller share of all does not speak for them.
const SHARE: f64 = 0.02;
/// As many may always leave in the same moment, from one refresh to the next.
const AT_ONCE: f64 = 32.0;
/// Where others leave, the next moment so many times as many may.
const MORE: f64 = 2.0;
/// When so many of those that are there may be more patient than anybody was kept waiting, it is worth finding out.
const REST: f64 = 0.15;
/// Fewer that pass an age are nearly none.
const NONE: f64 = 0.1;

/// How long the clients of a class wait, by what was seen.
#[derive(Clone, Debug)]
pub struct Patience {
    left: [f32; BUCKETS],
    stayed: [f32; BUCKETS],
    /// Those that left.
    leavers: f64,
    /// All that were counted.
    counted: f64,
    /// Left since the last refresh, and how many of them are counted.
    leaving: f64,
    believed: f64,
    /// As of the last refresh, while any have left: of those that came, how many were there at the beginning of a
    /// bucket, and the share that would be if nobody was answered or refused.
    there: [f32; BUCKETS],
    staying: [f32; BUCKETS],
}

impl Patience {
    pub(crate) const fn new() -> Patience {
        let none = [0.0; BUCKETS];
        Patience {
            left: none,
            stayed: none,
            leavers: 0.0,
            counted: 0.0,
            leaving: 0.0,
            believed: AT_ONCE,
            there: none,
            staying: [1.0; BUCKETS],
        }
    }

    /// A client left at this age, seconds.
    pub(crate) fn leave(&mut self, age: f64) {
        self.leaving += 1.0;
        if self.leaving > self.believed {
            return;
        }
        self.left[bucket(age)] += 1.0;
        self.leavers += 1.0;
        self.counted += 1.0;
    }

    /// A client was answered or refused at this age, seconds.
    pub(crate) fn stay(&mut self, age: f64) {
        self.stayed[bucket(age)] += 1.0;
        self.counted += 1.0;
    }

    /// `elapsed` seconds went by.
    pub(crate) fn refresh(&mut self, elapsed: f64) {
        if self.counted == 0.0 {
            return;
        }
        let part = libm::exp2(-elapsed / HALF_LIFE);
        let more = MORE * core::mem::take(&mut self.leaving).min(self.believed);
        self.believed = (self.believed * part).max(more).max(AT_ONCE);
        self.leavers *= part;
        self.counted *= part;
        if self.counted < LITTLE {
            *self = Patience::new();
            return;
        }
        for count in self.left.iter_mut().chain(&mut self.stayed) {
            let faded = *count * part as f32;
            *count = if faded > NOTHING { faded } else { 0.0 };
        }
        if self.is_unknown() {
            self.staying = [1.0; BUCKETS];
            self.there = [0.0; BUCKETS];
            return;
        }
        let mut there: f64 = self.left.iter().chain(&self.stayed).map(|count| f64::from(*count)).sum();
        let mut staying = 1.0;
        for at in 0..BUCKETS {
            let (left, stayed) = (f64::from(self.left[at]), f64::from(self.stayed[at]));
            (self.there[at], self.staying[at]) = (there as f32, staying as f32);
            // Clients of one kind leave at one age: most of whom were answered in its bucket were so before.
            let later = (there - stayed).max(left) + PRIOR.max(LATER * stayed);
            staying *= 1.0 - left / later;
            there = (there - left - stayed).max(0.0);
        }
    }

    /// Whether a turn is worth having that begins at this age and lasts `stay` seconds: of those that are there then
    /// the share that stays until it is over is this share of what it is of those that come, or more. Or it is not
    /// known: enough of those that are there would wait for longer than anybody was kept waiting.
    pub(crate) fn is_worth_it(&self, age: f64, stay: f64, share: f64) -> bool {
        if self.is_unknown() {
            return true;
        }
        let now = self.share_at(age).max(f64::MIN_POSITIVE);
        self.share_at(age + stay) / now >= share * self.share_at(stay) || self.share_at(f64::INFINITY) / now >= REST
    }

    /// Up to which age, seconds, turns are worth having that last `stay` seconds: at every later one at which enough
    /// were seen they were not. Infinite when there is no such age.
    pub(crate) fn latest_turn(&self, stay: f64, share: f64) -> f64 {
        if self.is_unknown() {
            return f64::INFINITY;
        }
        let enough = self.enough();
        let seen = (0..BUCKETS).rev().filter(|at| f64::from(self.there[*at]) >= enough).map(edge);
        seen.take_while(|age| !self.is_worth_it(*age, stay, share)).last().unwrap_or(f64::INFINITY)
    }

    /// The age that nearly none passes of those that are there at half of it, seconds; infinite when there is none, or
    /// it is not known.
    pub(crate) fn end(&self) -> f64 {
        if self.is_unknown() {
            return f64::INFINITY;
        }
        let enough = self.enough();
        let is_seen = |at: &usize| f64::from(self.there[*at]) >= enough;
        let Some(last) = (0..BUCKETS).rev().find(is_seen) else { return f64::INFINITY };
        let (end, half) = (edge(last + 1), edge(last.saturating_sub(PER_OCTAVE)));
        if self.share_at(end) < NONE * self.share_at(half) { end } else { f64::INFINITY }
    }

    /// Of so many is known what they do.
    fn enough(&self) -> f64 {
        FEW.max(SHARE * f64::from(self.there[0]))
    }

    fn is_unknown(&self) -> bool {
        self.leavers < FEW
    }

    /// The share that is there at this age, between the beginnings of buckets in proportion.
    fn share_at(&self, age: f64) -> f64 {
        let at = bucket(age);
        let [here, next] = [at, at + 1].map(|at| f64::from(self.staying[at.min(BUCKETS - 1)]));
        let part = (age - edge(at)) / (edge(at + 1) - edge(at));
        here + (next - here) * part.clamp(0.0, 1.0)
    }
}

/// The parts of an octave are equally wide.
fn bucket(age: f64) -> usize {
    if age < LEAST {
        return 0;
    }
    let bits = (age / LEAST).to_bits();
    let octave = (bits >> 52) as usize - 1023;
    let part = (bits >> (52 - PER_OCTAVE.trailing_zeros())) as usize % PER_OCTAVE;
    (octave * PER_OCTAVE + part).min(BUCKETS - 1)
}

/// Where a bucket begins, seconds.
fn edge(at: usize) -> f64 {
    let part = (at % PER_OCTAVE) as f64 / PER_OCTAVE as f64;
    LEAST * libm::exp2((at / PER_OCTAVE) as f64) * (1.0 + part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of clients that came to be so old, one after the other, some left and the others were answered.
    fn seen(left: &[(u32, f64)], stayed: &[(u32, f64)]) -> Patience {
        let mut patience = Patience::new();
        for (count, age) in left {
            (0..*count).for_each(|_| {
                patience.leave(*age);
                patience.refresh(0.0);
            });
        }
        stayed.iter().for_each(|(count, age)| (0..*count).for_each(|_| patience.stay(*age)));
        patience.refresh(0.0);
        patience
    }

    #[test]
    fn a_bucket_begins_at_its_edge() {
        for at in 0..BUCKETS {
            assert_eq!(bucket(edge(at) * (1.0 + 1e-9)), at);
        }
        assert_eq!((bucket(0.0), bucket(1e9)), (0, BUCKETS - 1));
    }

    /// Whoever was answered sooner does not tell.
    #[test]
    fn when_all_leave_at_an_age_turns_must_be_over_by_then() {
        let patience = seen(&[(200, 0.2)], &[(400, 0.05), (100, 0.15)]);
        let latest = patience.latest_turn(0.02, 0.9);
        assert!((0.16..=0.18).contains(&latest), "{latest}");
        assert!((0.2..0.225).contains(&patience.end()), "{}", patience.end());
        assert!(patience.is_worth_it(0.1, 0.02, 0.9) && !patience.is_worth_it(0.19, 0.02, 0.1));
    }

    #[test]
    fn who_leaves_at_once_says_nothing_of_who_is_there_later() {
        let patience = seen(&[(2000, 0.005)], &[(200, 0.4)]);
        assert_eq!((patience.latest_turn(0.02, 0.9), patience.end()), (f64::INFINITY, f64::INFINITY));
        assert!(patience.is_worth_it(0.0, 0.02, 0.9) && patience.is_worth_it(0.05, 0.3, 0.9));
    }

    /// Those of one bucket.
    #[test]
    fn few_who_leave_at_an_age_at_which_many_are_answered_say_nothing() {
        let patience = seen(&[(30, 0.2)], &[(1000, 0.205)]);
        assert_eq!((patience.latest_turn(0.02, 0.9), patience.end()), (f64::INFINITY, f64::INFINITY));
    }

    /// A program that had ten thousand connections ends, and most of its requests have been waiting for a while.
    #[test]
    fn who_is_cut_off_with_all_others_has_not_lost_patience() {
        let mut patience = seen(&[], &[(20_000, 0.2)]);
        for _ in 0..3 {
            (0..3_000).for_each(|_| patience.leave(0.25));
            patience.refresh(0.1);
        }
        assert_eq!((patience.latest_turn(0.02, 0.9), patience.end()), (f64::INFINITY, f64::INFINITY));
        // Where they go on leaving they did.
        for _ in 0..20 {
            (0..3_000).for_each(|_| patience.leave(0.25));
            patience.refresh(0.1);
        }
        assert!(patience.latest_turn(0.02, 0.9) <= 0.25, "{}", patience.latest_turn(0.02, 0.9));
    }

    /// Half leave at 200 ms, and nobody has been kept waiting for longer.
    #[test]
    fn what_is_not_known_is_found_out() {
        let half = seen(&[(100, 0.2)], &[(100, 0.21)]);
        assert!(half.is_worth_it(0.19, 0.02, 0.9) && half.latest_turn(0.02, 0.9).is_infinite());
        let few = seen(&[(180, 0.2)], &[(20, 0.4)]);
        assert!(!few.is_worth_it(0.19, 0.02, 0.9) && few.is_worth_it(0.25, 0.02, 0.9));
        assert!(few.latest_turn(0.02, 0.9).is_infinite());
    }

    #[test]
    fn a_few_who_leave_are_not_minded_and_many_are_forgotten() {
        assert_eq!(seen(&[(2, 0.1)], &[(1000, 0.05)]).latest_turn(0.02, 0.9), f64::INFINITY);
        let mut patience = seen(&[(100, 0.1)], &[(1000, 0.05)]);
        assert!(patience.latest_turn(0.02, 0.9) <= 0.1);
        patience.refresh(6.0 * HALF_LIFE);
        assert_eq!(patience.latest_turn(0.02, 0.9), f64::INFINITY);
        assert!(patience.counted > 10.0 && patience.left.iter().sum::<f32>() > 1.0);
        patience.refresh(20.0 * HALF_LIFE);
        assert!(patience.counted == 0.0 && patience.left.iter().chain(&patience.stayed).all(|count| *count == 0.0));
    }
}
