//! Response times in little memory: a sparse histogram with buckets of a 256th of a power of two.
//!
//! A bucket is found from the bits of the number. No logarithm is taken, so the same times are in the same buckets on
//! every machine.

use std::time::Duration;

/// A set of response times. Quantiles are exact to a fifth of a per cent; the mean is exact.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Responses {
    /// Bucket and count, by growing bucket; only buckets that have something in them.
    buckets: Vec<(u16, u32)>,
    count: u64,
    sum: f64,
}

/// Buckets to a power of two, as a power of two.
const FINENESS: u32 = 8;

/// The bits of 1.0, up to those that a bucket looks at.
const ONE: u64 = 1023 << FINENESS;

impl Responses {
    /// Adds a response time.
    pub fn add(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        self.count += 1;
        self.sum += seconds;
        self.put(bucket(took), 1);
    }

    /// Adds all of another set.
    pub fn merge(&mut self, other: &Responses) {
        self.count += other.count;
        self.sum += other.sum;
        let mut merged = Vec::with_capacity(self.buckets.len() + other.buckets.len());
        let (mut mine, mut theirs) = (self.buckets.iter().peekable(), other.buckets.iter().peekable());
        while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
            let (a, b) = (**a, **b);
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

    /// Number of response times.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Mean, seconds; `None` of nothing.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
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

    fn put(&mut self, bucket: u16, count: u32) {
        match self.buckets.binary_search_by_key(&bucket, |entry| entry.0) {
            Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(count),
            Err(at) => self.buckets.insert(at, (bucket, count)),
        }
    }
}

/// The exponent and the first bits of the fraction of the nanoseconds, as one number.
fn bucket(took: Duration) -> u16 {
    let nanos = took.as_nanos().clamp(1, u128::from(u64::MAX)) as u64;
    ((nanos as f64).to_bits() >> (52 - FINENESS)).wrapping_sub(ONE) as u16
}

/// Half way between a bucket's edges, seconds.
fn middle(bucket: u16) -> f64 {
    f64::from_bits((u64::from(bucket) + ONE) << (52 - FINENESS) | 1 << (51 - FINENESS)) * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(times: &[f64]) -> Responses {
        let mut set = Responses::default();
        times.iter().for_each(|&time| set.add(Duration::from_secs_f64(time)));
        set
    }

    #[test]
    fn nothing_has_no_quantile() {
        assert_eq!((of(&[]).quantile(0.95), of(&[]).mean(), of(&[]).count()), (None, None, 0));
    }

    proptest! {
        #[test]
        fn quantiles_are_near_those_of_the_sorted_list(times in prop::collection::vec(1e-5f64..100.0, 1..200), q in 0.0f64..1.0) {
            let mut sorted = times.clone();
            sorted.sort_by(f64::total_cmp);
            let rank = ((q * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len());
            let found = of(&times).quantile(q).unwrap();
            prop_assert!((found / sorted[rank - 1] - 1.0).abs() < 0.003, "{found} for {}", sorted[rank - 1]);
        }

        #[test]
        fn merging_is_adding_one_by_one(a in prop::collection::vec(1e-5f64..9.0, 0..50), b in prop::collection::vec(1e-5f64..9.0, 0..50)) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let whole = of(&[a, b].concat());
            prop_assert_eq!(&merged.buckets, &whole.buckets);
            prop_assert_eq!(merged.count, whole.count);
            prop_assert!((merged.sum - whole.sum).abs() < 1e-9);
        }
    }
}
