//! A histogram over many orders of magnitude that forgets.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::f64::consts::SQRT_2;

use crate::time::Timestamp;

/// Buckets per factor of two: values are known to about 4 %.
const PER_OCTAVE: f64 = 16.0;
/// The smallest value told apart, seconds (or whatever the unit is).
const LEAST: f64 = 1e-6;
/// 2^34 x LEAST: about 17,000 s.
const BUCKETS: usize = 34 * 16;

/// Powers of 2^(1/16), from 1 to 2: where the buckets of an octave begin, and where the last ends.
#[rustfmt::skip]
const EDGES: [f64; 17] = [
    1.0, 1.044_273_782_427_413_8, 1.090_507_732_665_257_7, 1.138_788_634_756_691_6, 1.189_207_115_002_721,
    1.241_857_812_073_484, 1.296_839_554_651_009_6, 1.354_255_546_936_892_7, SQRT_2,
    1.476_826_145_939_499_3, 1.542_210_825_407_940_7, 1.610_490_331_949_254_3, 1.681_792_830_507_429,
    1.756_252_160_373_299_5, 1.834_008_086_409_342_4, 1.915_206_561_397_147_4, 2.0,
];
/// So close to an edge the logarithm's rounding may decide.
const NEAR: f64 = 1e-12;

/// A 64th of the fractions from 1 to 2.
#[derive(Clone, Copy)]
struct Cell {
    /// The bucket of the octave at its beginning.
    part: usize,
    /// Where the next one begins: the buckets are wider, so there is no other in it.
    edge: f64,
}

const CELLS: [Cell; 64] = {
    let mut cells = [Cell { part: 0, edge: EDGES[1] }; 64];
    let mut at = 1;
    while at < 64 {
        let part = cells[at - 1].part;
        let part = if EDGES[part + 1] <= 1.0 + at as f64 / 64.0 { part + 1 } else { part };
        cells[at] = Cell { part, edge: EDGES[part + 1] };
        at += 1;
    }
    cells
};

/// Counts of positive values in logarithmic buckets; old counts fade with a half-life.
///
/// Instead of shrinking every bucket as time passes, new values weigh more: one addition per record, and a rescaling
/// pass once in many half-lives.
#[derive(Clone, Debug)]
pub struct DecayedHistogram {
    half_life: f64,
    /// The time at which a value weighs 1.
    epoch: Timestamp,
    counts: Box<[f32; BUCKETS]>,
    total: f64,
    sum: f64,
}

/// A histogram as it was: what is in its buckets.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct KeptHistogram {
    counts: Vec<(u16, f32)>,
    sum: f64,
}

impl KeptHistogram {
    /// What is in its buckets, by their number.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.counts.iter().map(|(at, count)| (usize::from(*at), f64::from(*count)))
    }

    /// With this in its buckets; what is none is left out.
    pub(crate) fn of_buckets(buckets: impl Iterator<Item = (usize, f64)>) -> KeptHistogram {
        let counts: Vec<(u16, f32)> = buckets.map(|(at, count)| (at as u16, count.clamp(0.0, 1e12) as f32)).collect();
        let sum = counts.iter().map(|(at, count)| middle(usize::from(*at)) * f64::from(*count)).sum();
        KeptHistogram { counts, sum }
    }
}

impl DecayedHistogram {
    /// How many buckets there are.
    pub(crate) const fn buckets() -> usize {
        BUCKETS
    }

    /// A histogram whose counts halve every `half_life` seconds (infinite: never).
    pub fn new(half_life: f64) -> Self {
        DecayedHistogram { half_life, epoch: Timestamp::ZERO, counts: Box::new([0.0; BUCKETS]), total: 0.0, sum: 0.0 }
    }

    /// Counts a value at the given time.
    pub fn record(&mut self, now: Timestamp, value: f64) {
        self.record_weighted(now, value, 1.0);
    }

    /// Counts `value` as `weight` values.
    pub fn record_weighted(&mut self, now: Timestamp, value: f64, weight: f64) {
        let weight = weight * self.growth(now);
        self.add(value, weight);
    }

    /// Counts a value here, and one in another histogram of the same half-life.
    pub(crate) fn record_both(&mut self, now: Timestamp, value: f64, other: &mut DecayedHistogram, its: f64) {
        let weight = self.growth(now);
        self.add(value, weight);
        // Mostly they have the same age, too.
        let is_twin = (self.epoch, self.half_life) == (other.epoch, other.half_life);
        let weight = if is_twin { weight } else { other.growth(now) };
        other.add(its, weight);
    }

    fn add(&mut self, value: f64, weight: f64) {
        if !(0.0..f64::INFINITY).contains(&value) {
            return self.add_nonsense(weight);
        }
        self.counts[bucket(value)] += weight as f32;
        self.total += weight;
        self.sum += weight * value;
    }

    /// What is no value counts as the least one.
    #[cold]
    fn add_nonsense(&mut self, weight: f64) {
        self.counts[0] += weight as f32;
        self.total += weight;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.counts.fill(0.0);
        (self.total, self.sum) = (0.0, 0.0);
    }

    /// The value below which the share `q` (0 to 1) lies; `None` when nothing was recorded.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let [value] = self.quantiles([q]);
        value
    }

    /// The same of several shares.
    pub fn quantiles<const N: usize>(&self, shares: [f64; N]) -> [Option<f64>; N] {
        if self.total <= 0.0 {
            return [None; N];
        }
        let counted: f64 = self.counts.iter().map(|&c| f64::from(c)).sum();
        shares.map(|share| {
            let rank = share.clamp(0.0, 1.0) * counted;
            let mut below = 0.0;
            let is_there = |(_, count): &(usize, &f32)| {
                below += f64::from(**count);
                **count > 0.0 && below >= rank
            };
            self.counts.iter().enumerate().find(is_there).map(|(at, _)| middle(at))
        })
    }

    /// The mean; `None` when nothing was recorded.
    pub fn mean(&self) -> Option<f64> {
        (self.total > 0.0).then(|| self.sum / self.total)
    }

    /// How many values it stands on at `now`, faded ones counted in part.
    pub fn weight(&self, now: Timestamp) -> f64 {
        self.total * libm::exp2(-self.age(now))
    }

    /// The buckets in use: middle value and share of the total (shares sum to 1).
    pub fn shares(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let total = self.total.max(f64::MIN_POSITIVE);
        let used = self.counts.iter().enumerate().filter(|(_, count)| **count > 0.0);
        used.map(move |(index, &count)| (middle(index), f64::from(count) / total))
    }

    /// What there is to keep at `now`.
    pub(crate) fn keep(&self, now: Timestamp) -> KeptHistogram {
        let fade = libm::exp2(-self.age(now));
        let used = self.counts.iter().enumerate().filter(|(_, count)| **count > 0.0);
        KeptHistogram {
            counts: used.map(|(at, count)| (at as u16, (f64::from(*count) * fade) as f32)).collect(),
            sum: self.sum * fade,
        }
    }

    /// Begins at `now` with what was recorded elsewhere.
    pub(crate) fn recall(&mut self, now: Timestamp, kept: &KeptHistogram) {
        self.clear();
        self.epoch = now;
        for &(at, count) in kept.counts.iter().filter(|(at, count)| usize::from(*at) < BUCKETS && *count > 0.0) {
            self.counts[usize::from(at)] = count;
            self.total += f64::from(count);
        }
        self.sum = kept.sum.max(0.0);
    }

    /// Half-lives since the epoch.
    fn age(&self, now: Timestamp) -> f64 {
        now.seconds_since(self.epoch) / self.half_life
    }

    /// What a value recorded now weighs, relative to the epoch.
    fn growth(&mut self, now: Timestamp) -> f64 {
        let age = self.age(now);
        if age < 40.0 {
            return libm::exp2(age);
        }
        // Before f32 runs out of range: make now the epoch.
        let shrink = libm::exp2(-age);
        self.counts.iter_mut().for_each(|count| *count *= shrink as f32);
        self.total *= shrink;
        self.sum *= shrink;
        self.epoch = now;
        1.0
    }
}

/// Every request asks several times, so no logarithm is taken where none is needed: the exponent names the octave, the
/// fraction the part of it.
fn bucket(value: f64) -> usize {
    if value <= LEAST {
        return 0;
    }
    let bits = (value / LEAST).to_bits();
    let octave = (bits >> 52) as usize - 1023;
    let fraction = f64::from_bits(bits << 12 >> 12 | 1f64.to_bits());
    let cell = CELLS[(bits >> 46) as usize & 63];
    let is_doubtful = (fraction - cell.edge).abs() <= NEAR;
    let part = cell.part + usize::from(fraction >= cell.edge);
    let at = if is_doubtful { bucket_by_logarithm(value) } else { octave * 16 + part };
    at.min(BUCKETS - 1)
}

#[cold]
fn bucket_by_logarithm(value: f64) -> usize {
    (libm::log2(value / LEAST) * PER_OCTAVE) as usize
}

fn middle(index: usize) -> f64 {
    LEAST * libm::exp2((index as f64 + 0.5) / PER_OCTAVE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn old_values_fade_and_very_old_ones_vanish() {
        let mut histogram = DecayedHistogram::new(1.0);
        (0..100).for_each(|_| histogram.record(Timestamp::ZERO, 1.0));
        let later = Timestamp::from_secs_f64(2.0);
        assert!((histogram.weight(later) - 25.0).abs() < 1e-6);
        (0..100).for_each(|_| histogram.record(later, 2.0));
        let share = histogram.shares().next().map(|(_, share)| share);
        assert!((share.unwrap() - 0.2).abs() < 1e-3);
        let much_later = Timestamp::from_secs_f64(1e4);
        histogram.record(much_later, 3.0);
        assert!((histogram.mean().unwrap() - 3.0).abs() < 1e-6);
        assert!((histogram.weight(much_later) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn nothing_recorded_says_nothing() {
        let histogram = DecayedHistogram::new(1.0);
        assert_eq!(histogram.quantile(0.5), None);
        assert_eq!(histogram.mean(), None);
    }

    #[test]
    fn hostile_values_are_taken_as_the_nearest_sane_ones() {
        let mut histogram = DecayedHistogram::new(f64::INFINITY);
        for value in [f64::NAN, -1.0, 0.0, 1e300, f64::INFINITY] {
            histogram.record(Timestamp::ZERO, value);
        }
        assert!(histogram.quantile(1.0).unwrap().is_finite());
    }

    #[test]
    fn edges_are_where_the_logarithm_has_them() {
        for at in 0..BUCKETS {
            let edge = LEAST * libm::exp2(at as f64 / PER_OCTAVE);
            for away in [-1e-3, -1e-10, -3e-12, -1e-12, -2e-16, 0.0, 2e-16, 1e-12, 3e-12, 1e-10, 1e-3] {
                let value = edge * (1.0 + away);
                let expected = if value <= LEAST { 0 } else { bucket_by_logarithm(value).min(BUCKETS - 1) };
                assert_eq!(bucket(value), expected, "{value}");
            }
        }
    }

    proptest! {
        #[test]
        fn values_are_where_the_logarithm_has_them(exponent in -1000.0f64..1000.0) {
            let value = libm::exp2(exponent / 10.0);
            let expected = if value <= LEAST { 0 } else { bucket_by_logarithm(value).min(BUCKETS - 1) };
            prop_assert_eq!(bucket(value), expected);
        }

        #[test]
        fn quantiles_are_within_a_bucket_of_the_truth(mut values in prop::collection::vec(1e-5f64..1e3, 1..200), q in 0.0f64..1.0) {
            let mut histogram = DecayedHistogram::new(f64::INFINITY);
            values.iter().for_each(|&v| histogram.record(Timestamp::ZERO, v));
            values.sort_by(f64::total_cmp);
            let rank = (q * values.len() as f64).ceil().max(1.0) as usize - 1;
            let estimate = histogram.quantile(q).unwrap();
            // A tie in rank arithmetic may pick the neighbour: accept either.
            let near = |truth: f64| (estimate / truth).ln().abs() < 0.05;
            prop_assert!(near(values[rank]) || near(values[(rank + 1).min(values.len() - 1)]), "{estimate} {}", values[rank]);
        }
    }
}
