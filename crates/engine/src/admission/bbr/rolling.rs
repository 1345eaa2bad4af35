//! A window that moves along in buckets: what was answered in each, and how long it took.

use alloc::vec::Vec;

use crate::time::Timestamp;

/// Where nothing was answered, an answer takes this, milliseconds: much, so that nobody is refused for it.
const UNKNOWN: f64 = 1000.0;

/// Answers of the last buckets.
#[derive(Debug)]
pub(super) struct Rolling {
    buckets: Vec<Bucket>,
    /// Length of a bucket, seconds.
    length: f64,
    /// Number of the present bucket since the driver's origin.
    present: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    answers: u32,
    /// Their response times, each rounded up, milliseconds.
    time: f64,
}

impl Rolling {
    pub(super) fn new(window: f64, buckets: usize) -> Rolling {
        Rolling { buckets: alloc::vec![Bucket::default(); buckets], length: window / buckets as f64, present: 0 }
    }

    /// An answer that took so many seconds.
    pub(super) fn add(&mut self, now: Timestamp, seconds: f64) {
        self.advance(now);
        let at = self.at(self.present);
        self.buckets[at].answers += 1;
        self.buckets[at].time += libm::ceil(seconds * 1e3);
    }

    /// How many fit in: the most answers of a bucket as a rate, times the shortest mean response time of one. The
    /// present bucket is not over and does not count.
    pub(super) fn fits(&mut self, now: Timestamp) -> f64 {
        self.advance(now);
        let present = self.at(self.present);
        let over = || self.buckets.iter().enumerate().filter(|(at, _)| *at != present).map(|(_, bucket)| bucket);
        let most = over().map(|bucket| bucket.answers).fold(1, u32::max);
        let means = over().filter(|bucket| bucket.answers > 0).map(|bucket| bucket.time / f64::from(bucket.answers));
        let shortest = means.map(libm::round).fold(UNKNOWN, f64::min);
        (f64::from(most) / self.length * shortest * 1e-3).max(1.0)
    }

    fn advance(&mut self, now: Timestamp) {
        let present = (now.as_secs_f64() / self.length) as u64;
        let passed = present.saturating_sub(self.present).min(self.buckets.len() as u64);
        for number in (0..passed).map(|back| present - back) {
            let at = self.at(number);
            self.buckets[at] = Bucket::default();
        }
        self.present = self.present.max(present);
    }

    fn at(&self, number: u64) -> usize {
        (number % self.buckets.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_rate_and_the_best_time_need_not_be_of_the_same_bucket() {
        let mut rolling = Rolling::new(1.0, 10);
        let at = Timestamp::from_millis;
        assert_eq!(rolling.fits(at(0)), 10.0, "nobody knows: one in a bucket, and a second each");
        (0..8).for_each(|i| rolling.add(at(110 + i), 0.2));
        assert_eq!(rolling.fits(at(150)), 10.0, "the bucket is not over");
        assert_eq!(rolling.fits(at(210)), 80.0 * 0.2);
        rolling.add(at(220), 0.0301);
        rolling.add(at(221), 0.0501);
        // 31 and 51 ms.
        assert!((rolling.fits(at(310)) - 80.0 * 0.041).abs() < 1e-9);
        assert!((rolling.fits(at(1150)) - 1.0).abs() < 1e-9, "the eight are a window ago: 20/s of 41 ms");
        assert_eq!(rolling.fits(at(60_000)), 10.0, "all are");
    }
}
