//! A bucket in logical partitions, one for each class: larger ones for more important classes.
//!
//! What a class does not ask for is lent, for one sample, to the most important of those that ask for more than theirs.
//! Each keeps a tenth of its part meanwhile, so that whoever comes back finds something.

use alloc::vec::Vec;
use core::time::Duration;

use crate::bucket::TokenBucket;
use crate::request::ClassId;
use crate::time::Timestamp;

/// A class keeps this share of its part, whatever it asked for.
const KEPT: f64 = 0.1;
/// It keeps what it asked for and so much more.
const SLACK: f64 = 1.25;

/// Token buckets of the classes, which together have a rate.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    shares: Vec<f64>,
    depth: f64,
    buckets: Vec<TokenBucket>,
    rates: Vec<f64>,
    asked: Vec<u32>,
}

impl Parts {
    /// `shares` of each class sum to 1; `depth` requests at once, of all together.
    pub(super) fn new(shares: &[f64], depth: f64) -> Parts {
        Parts {
            shares: shares.to_vec(),
            depth,
            buckets: Vec::new(),
            rates: Vec::new(),
            asked: alloc::vec![0; shares.len()],
        }
    }

    /// The rate of all together from now on; `None`: no bucket.
    pub(super) fn set(&mut self, now: Timestamp, rate: Option<f64>, seconds: f64) {
        let asked: Vec<f64> = self.asked.iter().map(|&asked| f64::from(asked) / seconds).collect();
        self.asked.fill(0);
        let Some(rate) = rate else {
            self.buckets.clear();
            return self.rates.clear();
        };
        self.rates = divide(rate, &self.shares, &asked);
        let depth = |share: f64| (self.depth * share).max(1.0);
        if self.buckets.is_empty() {
            let bucket = |(rate, share): (&f64, &f64)| TokenBucket::new(*rate, depth(*share));
            self.buckets = self.rates.iter().zip(&self.shares).map(bucket).collect();
            return;
        }
        for ((bucket, rate), share) in self.buckets.iter_mut().zip(&self.rates).zip(&self.shares) {
            bucket.adjust(now, *rate, depth(*share));
        }
    }

    /// A request of `class` wants in. How long until there is a token; at once where there is no bucket.
    pub(super) fn ask(&mut self, now: Timestamp, class: ClassId) -> Duration {
        let at = self.at(class);
        self.asked[at] = self.asked[at].saturating_add(1);
        self.buckets.get(at).map_or(Duration::ZERO, |bucket| bucket.wait(now).unwrap_or(Duration::MAX))
    }

    /// Takes the token of a request that found one.
    pub(super) fn take(&mut self, now: Timestamp, class: ClassId) {
        let at = self.at(class);
        if let Some(bucket) = self.buckets.get_mut(at) {
            bucket.conforms(now);
        }
    }

    /// Requests that wanted in since the rate was set.
    pub(super) fn asked(&self) -> u32 {
        self.asked.iter().fold(0, |sum, asked| sum.saturating_add(*asked))
    }

    /// Requests per second, by class.
    pub(super) fn rates(&self) -> &[f64] {
        &self.rates
    }

    fn at(&self, class: ClassId) -> usize {
        class.index().min(self.shares.len() - 1)
    }
}

/// Each class's part of a rate, of which they asked for so much.
fn divide(rate: f64, shares: &[f64], asked: &[f64]) -> Vec<f64> {
    let own: Vec<f64> = shares.iter().map(|share| rate * share).collect();
    let kept = |(own, asked): (&f64, &f64)| own.min((asked * SLACK).max(own * KEPT));
    let mut parts: Vec<f64> = own.iter().zip(asked).map(kept).collect();
    let mut spare = rate - parts.iter().sum::<f64>();
    for (part, asked) in parts.iter_mut().zip(asked) {
        let more = (asked * SLACK - *part).clamp(0.0, spare.max(0.0));
        *part += more;
        spare -= more;
    }
    // Nobody asks for the rest: it is its owners' again.
    let lent: f64 = own.iter().zip(&parts).map(|(own, part)| (own - part).max(0.0)).sum();
    if lent > 0.0 && spare > 0.0 {
        for (part, own) in parts.iter_mut().zip(&own) {
            *part += (own - *part).max(0.0) / lent * spare.min(lent);
        }
    }
    parts
}

/// Shares of `classes` classes: each has twice that of the next; or those given, as far as they go, in proportion.
pub(super) fn shares(given: &[f64], classes: usize) -> Vec<f64> {
    let weight = |class: usize| match given.get(class) {
        Some(share) => *share,
        None if given.is_empty() => (0..classes - 1 - class).fold(1.0, |weight: f64, _| (weight * 2.0).min(1e9)),
        None => given.last().copied().unwrap_or(1.0),
    };
    let weights: Vec<f64> = (0..classes).map(weight).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn passed(parts: &mut Parts, class: u8, at: impl Iterator<Item = u64>) -> usize {
        let mut take = |ms: u64| {
            let now = Timestamp::from_millis(ms);
            let has = parts.ask(now, ClassId(class)).is_zero();
            if has {
                parts.take(now, ClassId(class));
            }
            has
        };
        at.filter(|ms| take(*ms)).count()
    }

    #[test]
    fn a_more_important_class_has_twice_as_much() {
        assert_eq!(shares(&[], 3), [4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0]);
        assert_eq!(shares(&[3.0, 1.0], 3), [0.6, 0.2, 0.2]);
        assert_eq!(divide(70.0, &shares(&[], 3), &[100.0, 100.0, 100.0]), [40.0, 20.0, 10.0]);
    }

    #[test]
    fn what_a_class_leaves_goes_to_the_most_important_that_wants_more() {
        let parts = divide(100.0, &[0.5, 0.3, 0.2], &[0.0, 20.0, 500.0]);
        assert!((parts[0] - 5.0).abs() < 1e-9 && (parts[1] - 25.0).abs() < 1e-9, "{parts:?}");
        assert!((parts[2] - 70.0).abs() < 1e-9, "{parts:?}");
        let both = divide(100.0, &[0.2, 0.2, 0.6], &[80.0, 80.0, 0.0]);
        assert!(both[0] > both[1] && both[1] >= 20.0 - 1e-9, "{both:?}");
    }

    #[test]
    fn buckets_let_depth_through_at_once_and_then_their_rates() {
        let mut parts = Parts::new(&[1.0], 5.0);
        assert_eq!(passed(&mut parts, 0, [0; 1000].into_iter()), 1000, "no rate, no bucket");
        parts.set(Timestamp::ZERO, Some(10.0), 1.0);
        assert_eq!(passed(&mut parts, 0, [0; 100].into_iter()), 5);
        assert_eq!(passed(&mut parts, 0, 1..=4000), 40);
        parts.set(Timestamp::from_millis(4000), Some(20.0), 4.0);
        assert_eq!(passed(&mut parts, 0, [4000; 100].into_iter()), 0, "a change of rate does not refill");
        parts.set(Timestamp::from_millis(4000), None, 1.0);
        assert_eq!(passed(&mut parts, 0, [4000; 100].into_iter()), 100);
    }

    proptest! {
        #[test]
        fn parts_sum_to_the_rate(
            rate in 1.0f64..1e5, given in prop::collection::vec(0.01f64..10.0, 0..4), classes in 1usize..6,
            asked in prop::collection::vec(0.0f64..1e4, 6),
        ) {
            let shares = shares(&given, classes);
            prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            let parts = divide(rate, &shares, &asked[..classes]);
            prop_assert!((parts.iter().sum::<f64>() / rate - 1.0).abs() < 1e-6, "{parts:?}");
            for ((part, share), asked) in parts.iter().zip(&shares).zip(&asked) {
                let own = rate * share;
                let due = own.min((asked * SLACK).max(own * KEPT));
                prop_assert!(*part >= due * (1.0 - 1e-9), "{part} is less than {due}");
            }
        }
    }
}
