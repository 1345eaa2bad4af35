//! Response times in bounded memory: buckets of a 256th of a power of two, found from the bits of the number.
//!
//! No logarithm is taken, so the same times are in the same buckets on every machine.

use std::time::Duration;

/// A set of response times. Quantiles are exact to 0.2 %.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Bucket and count, by growing bucket; only buckets that have something in them.
    buckets: Vec<(u16, u32)>,
    count: u64,
}

/// A histogram that is being filled: one number for each bucket.
#[derive(Debug)]
pub(super) struct Tally {
    counts: Vec<u32>,
    least: usize,
    most: usize,
}

/// Buckets to a power of two, as a power of two.
const FINENESS: u32 = 8;
/// The last bucket holds everything above 2^44 ns: almost five hours.
const BUCKETS: usize = 44 << FINENESS;
/// The bits of 1.0.
const ONE: u64 = 1023 << FINENESS;

impl Histogram {
    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The response time, seconds, that the share `q` does not exceed (nearest rank); `None` of nothing.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let found = self.buckets.iter().find(|(_, count)| {
            seen += u64::from(*count);
            seen >= rank
        });
        found.map(|(bucket, _)| middle(*bucket))
    }

    /// Adds all of another set.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        self.count += other.count;
        let mut merged = Vec::with_capacity(self.buckets.len() + other.buckets.len());
        let (mut mine, mut theirs) = (self.buckets.iter().peekable(), other.buckets.iter().peekable());
        while let (Some(&&a), Some(&&b)) = (mine.peek(), theirs.peek()) {
            if a.0 <= b.0 {
                mine.next();
            }
            if b.0 <= a.0 {
                theirs.next();
            }
            merged.push(match a.0.cmp(&b.0) {
                std::cmp::Ordering::Less => a,
                std::cmp::Ordering::Greater => b,
                std::cmp::Ordering::Equal => (a.0, a.1.saturating_add(b.1)),
            });
        }
        merged.extend(mine.chain(theirs));
        self.buckets = merged;
    }
}

impl Default for Tally {
    fn default() -> Self {
        Tally { counts: vec![0; BUCKETS], least: BUCKETS, most: 0 }
    }
}

impl Tally {
    pub(super) fn add(&mut self, took: Duration) {
        let bucket = bucket(took.as_nanos() as u64);
        self.counts[bucket] += 1;
        self.least = self.least.min(bucket);
        self.most = self.most.max(bucket + 1);
    }

    /// What is in it; it is empty afterwards.
    pub(super) fn take(&mut self) -> Histogram {
        let mut histogram = Histogram::default();
        for bucket in self.least..self.most {
            let count = std::mem::take(&mut self.counts[bucket]);
            if count > 0 {
                histogram.count += u64::from(count);
                histogram.buckets.push((bucket as u16, count));
            }
        }
        (self.least, self.most) = (BUCKETS, 0);
        histogram.buckets.shrink_to_fit();
        histogram
    }
}

/// The exponent and the first bits of the fraction, as one number.
fn bucket(nanos: u64) -> usize {
    let bits = (nanos.max(1) as f64).to_bits() >> (52 - FINENESS);
    ((bits - ONE) as usize).min(BUCKETS - 1)
}

/// Half way between a bucket's edges, seconds.
fn middle(bucket: u16) -> f64 {
    let bits = (u64::from(bucket) + ONE) << (52 - FINENESS) | 1 << (51 - FINENESS);
    f64::from_bits(bits) * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(times: &[u64]) -> Histogram {
        let mut tally = Tally::default();
        times.iter().for_each(|&time| tally.add(Duration::from_nanos(time)));
        tally.take()
    }

    proptest! {
        #[test]
        fn quantiles_are_near_those_of_the_sorted_list(times in prop::collection::vec(1000u64..100_000_000_000, 1..200), q in 0.0f64..1.0) {
            let mut sorted = times.clone();
            sorted.sort_unstable();
            let rank = ((q * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len());
            let found = of(&times).quantile(q).unwrap() * 1e9 / sorted[rank - 1] as f64;
            prop_assert!((found - 1.0).abs() < 0.002, "{found}");
        }

        #[test]
        fn merging_is_adding_one_by_one(a in prop::collection::vec(1u64..9_000_000, 0..50), b in prop::collection::vec(1u64..9_000_000, 0..50)) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            prop_assert_eq!(merged, of(&[a, b].concat()));
        }
    }
}
