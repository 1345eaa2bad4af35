//! Token buckets, as the generic cell rate algorithm: one word of state, and the time passed in.
//!
//! A bucket of rate `r` and depth `b` lets through `b` requests at once and `r` per second on average. Instead of
//! counting tokens it keeps the theoretical arrival time (TAT) of the next request of a perfectly even stream:
//! a request conforms when it is not more than `(b - 1) / r` ahead of that.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;

use crate::time::Timestamp;

/// The largest span kept, so that sums of two never overflow.
const SPAN_MAX: f64 = (u64::MAX / 4) as f64;

/// A bucket's rate and depth, in the form the test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    /// Nanoseconds one request takes from the bucket.
    step: u64,
    /// How far ahead of the even stream a request may come, nanoseconds.
    tolerance: u64,
}

impl Shape {
    /// `None` when the rate lets nothing through.
    fn new(rate: f64, depth: f64) -> Option<Shape> {
        if rate.is_nan() || rate <= 0.0 {
            return None;
        }
        let step = (1e9 / rate).clamp(1.0, SPAN_MAX);
        let tolerance = (step * (depth.max(1.0) - 1.0)).min(SPAN_MAX);
        Some(Shape { step: step as u64, tolerance: tolerance as u64 })
    }

    /// The bucket's next state if a request at `now` conforms to state `tat`.
    fn take(self, tat: u64, now: u64) -> Option<u64> {
        let tat = tat.max(now);
        (tat - now <= self.tolerance).then(|| tat.saturating_add(self.step))
    }
}

/// A token bucket for one owner. A rate of zero lets nothing through.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    shape: Option<Shape>,
    tat: u64,
}

impl TokenBucket {
    /// A full bucket: `rate` requests per second, at most `depth` (1 or more) at once.
    pub fn new(rate: f64, depth: f64) -> Self {
        TokenBucket { shape: Shape::new(rate, depth), tat: 0 }
    }

    /// Takes one token if there is one.
    pub fn conforms(&mut self, now: Timestamp) -> bool {
        match self.shape.and_then(|shape| shape.take(self.tat, now.as_nanos())) {
            Some(tat) => {
                self.tat = tat;
                true
            }
            None => false,
        }
    }

    /// Changes the rate and depth from `now` on: the bucket keeps as many tokens as it holds, so that a token which was
    /// far off at the old rate is as far off as the new one says.
    pub fn adjust(&mut self, now: Timestamp, rate: f64, depth: f64) {
        let new = Shape::new(rate, depth);
        if let (Some(old), Some(new)) = (self.shape, new) {
            let missing = self.tat.saturating_sub(now.as_nanos()) as f64 / old.step as f64;
            self.tat = now.as_nanos().saturating_add((missing * new.step as f64) as u64);
        }
        self.shape = new;
    }

    /// How far ahead of its even stream it is, seconds: 0 when it is full.
    pub(crate) fn ahead(&self, now: Timestamp) -> f64 {
        self.tat.saturating_sub(now.as_nanos()) as f64 * 1e-9
    }

    /// Is as far ahead as another was.
    pub(crate) fn set_ahead(&mut self, now: Timestamp, seconds: f64) {
        let ahead = Duration::from_secs_f64(seconds.clamp(0.0, 3600.0));
        self.tat = now.as_nanos().saturating_add(ahead.as_nanos() as u64);
    }

    /// How long until there is a token, if nobody else takes it; `None` at a rate of zero.
    pub fn wait(&self, now: Timestamp) -> Option<Duration> {
        let earliest = self.tat.saturating_sub(self.shape?.tolerance);
        Some(Duration::from_nanos(earliest.saturating_sub(now.as_nanos())))
    }

    /// Changes the rate and depth; what was taken stays taken, so a change never refills the bucket.
    pub fn set(&mut self, rate: f64, depth: f64) {
        self.shape = Shape::new(rate, depth);
    }
}

/// A token bucket that several threads share without a lock.
#[derive(Debug)]
pub struct SharedBucket {
    /// As in [`Shape`]; a step of 0 lets nothing through.
    step: AtomicU64,
    tolerance: AtomicU64,
    tat: AtomicU64,
}

impl SharedBucket {
    /// A full bucket: `rate` requests per second, at most `depth` (1 or more) at once.
    pub fn new(rate: f64, depth: f64) -> Self {
        SharedBucket::of(Shape::new(rate, depth), 0)
    }

    fn of(shape: Option<Shape>, tat: u64) -> Self {
        let Shape { step, tolerance } = shape.unwrap_or(Shape { step: 0, tolerance: 0 });
        SharedBucket { step: step.into(), tolerance: tolerance.into(), tat: tat.into() }
    }

    /// Takes one token if there is one.
    pub fn conforms(&self, now: Timestamp) -> bool {
        // Relaxed, here and below: no word guards anything but itself.
        let shape = Shape { step: self.step.load(Relaxed), tolerance: self.tolerance.load(Relaxed) };
        if shape.step == 0 {
            return false;
        }
        let next = |tat| shape.take(tat, now.as_nanos());
        self.tat.fetch_update(Relaxed, Relaxed, next).is_ok()
    }

    /// Changes the rate and depth; what was taken stays taken, so a change never refills the bucket.
    pub fn set(&self, rate: f64, depth: f64) {
        let Shape { step, tolerance } = Shape::new(rate, depth).unwrap_or(Shape { step: 0, tolerance: 0 });
        self.step.store(step, Relaxed);
        self.tolerance.store(tolerance, Relaxed);
    }

    /// A bucket of another shape that remembers what was taken from this one.
    pub fn reshaped(&self, rate: f64, depth: f64) -> Self {
        SharedBucket::of(Shape::new(rate, depth), self.tat.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn passed(bucket: &SharedBucket, offers: impl Iterator<Item = u64>) -> u64 {
        offers.filter(|&nanos| bucket.conforms(Timestamp::from_nanos(nanos))).count() as u64
    }

    #[test]
    fn passes_depth_at_once_then_the_rate() {
        let bucket = SharedBucket::new(100.0, 20.0);
        assert_eq!(passed(&bucket, (0..100).map(|_| 0)), 20);
        // Four seconds at ten times the rate: rate x time, the burst is gone.
        assert_eq!(passed(&bucket, (1..=4000).map(|i| i * 1_000_000)), 400);
    }

    #[test]
    fn zero_and_nan_rates_let_nothing_through() {
        for rate in [0.0, -1.0, f64::NAN] {
            assert!(!TokenBucket::new(rate, 5.0).conforms(Timestamp::ZERO));
        }
        assert!(TokenBucket::new(f64::INFINITY, 1.0).conforms(Timestamp::ZERO));
    }

    #[test]
    fn a_change_of_rate_does_not_refill() {
        let (mut bucket, shared) = (TokenBucket::new(1.0, 1.0), SharedBucket::new(1.0, 1.0));
        assert!(bucket.conforms(Timestamp::ZERO) && shared.conforms(Timestamp::ZERO));
        bucket.set(1.0, 1.0);
        shared.set(1.0, 1.0);
        assert!(!bucket.conforms(Timestamp::from_millis(999)) && !shared.conforms(Timestamp::from_millis(999)));
        assert!(bucket.conforms(Timestamp::from_millis(1000)) && shared.conforms(Timestamp::from_millis(1000)));
    }

    #[test]
    fn a_shared_bucket_goes_on_at_its_new_rate() {
        let bucket = SharedBucket::new(100.0, 1.0);
        assert_eq!(passed(&bucket, (0..1000).map(|i| i * 1_000_000)), 100);
        bucket.set(10.0, 1.0);
        assert_eq!(passed(&bucket, (1000..2000).map(|i| i * 1_000_000)), 10);
        bucket.set(0.0, 1.0);
        assert_eq!(passed(&bucket, (2000..3000).map(|i| i * 1_000_000)), 0);
    }

    #[test]
    fn an_adjusted_bucket_keeps_its_tokens_and_waits_at_the_new_rate() {
        let mut bucket = TokenBucket::new(0.05, 1.0);
        assert_eq!(bucket.wait(Timestamp::ZERO), Some(Duration::ZERO));
        assert!(bucket.conforms(Timestamp::ZERO));
        assert_eq!(bucket.wait(Timestamp::ZERO), Some(Duration::from_secs(20)));
        // Half a token is there after ten seconds; the other half takes half a second at 1/s.
        let later = Timestamp::from_millis(10_000);
        bucket.adjust(later, 1.0, 1.0);
        assert_eq!(bucket.wait(later), Some(Duration::from_millis(500)));
        bucket.adjust(later, 0.0, 1.0);
        assert_eq!(bucket.wait(later), None);
    }

    proptest! {
        #[test]
        fn never_more_than_depth_plus_rate_times_time(
            rate in 0.1f64..1e5, depth in 1.0f64..50.0, gaps in prop::collection::vec(0u64..50_000_000, 1..300),
        ) {
            let (mut bucket, shared) = (TokenBucket::new(rate, depth), SharedBucket::new(rate, depth));
            let mut now = Timestamp::ZERO;
            let mut through = 0u32;
            for gap in gaps {
                now = now + core::time::Duration::from_nanos(gap);
                let conforms = bucket.conforms(now);
                prop_assert_eq!(conforms, shared.conforms(now));
                through += u32::from(conforms);
                let most = depth + rate * now.as_secs_f64() * (1.0 + 1e-6) + 1e-6;
                prop_assert!(f64::from(through) <= most + 1.0, "{through} > {most}");
            }
        }
    }
}
