//! Requests that come again: which ids were seen lately.
//!
//! A table of fixed size that all workers share, made when the first request with an id comes. Four entries a set, the
//! oldest makes place: what does not fit is forgotten sooner, and its repetition is taken for a first try. Entries are
//! single words, so there is no lock; of two threads at one entry the later wins, and a repetition is missed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_engine::Timestamp;

/// A request that comes again within this time is a retry.
const WINDOW: Duration = Duration::from_secs(30);
/// Half a megabyte in all.
const SETS: usize = 1 << 14;
const WAYS: usize = 4;
/// Time is kept in quarters of a second, in so many bits: it wraps after 48 days.
const TICK: Duration = Duration::from_millis(250);
const TIME_BITS: u32 = 24;

/// The ids of requests that came lately.
#[derive(Debug, Default)]
pub(crate) struct Repeats(OnceLock<Box<[AtomicU64]>>);

impl Repeats {
    /// Whether the request of this key came within the last half minute. From now on it has.
    pub(crate) fn has_come(&self, now: Timestamp, key: u64) -> bool {
        let all = self.0.get_or_init(|| (0..SETS * WAYS).map(|_| AtomicU64::new(0)).collect());
        let at = (key as usize % SETS) * WAYS;
        let set = &all[at..at + WAYS];
        let time = ticks(now);
        // 0 is an empty entry.
        let name = (key >> TIME_BITS).max(1);
        let word = name << TIME_BITS | time;
        let age = |entry: u64| time.wrapping_sub(entry) & ((1 << TIME_BITS) - 1);
        if let Some(own) = set.iter().find(|entry| entry.load(Relaxed) >> TIME_BITS == name) {
            let before = own.swap(word, Relaxed);
            return before >> TIME_BITS == name && age(before) <= ticks(Timestamp::ZERO + WINDOW);
        }
        let oldest = set.iter().max_by_key(|entry| match entry.load(Relaxed) {
            0 => u64::MAX,
            entry => age(entry),
        });
        if let Some(entry) = oldest {
            entry.store(word, Relaxed);
        }
        false
    }
}

fn ticks(at: Timestamp) -> u64 {
    (at.as_nanos() / TICK.as_nanos() as u64) & ((1 << TIME_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(i: u64) -> u64 {
        i.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    #[test]
    fn what_came_lately_has_come_and_what_came_long_ago_has_not() {
        let repeats = Repeats::default();
        let at = |seconds| Timestamp::from_secs_f64(seconds);
        assert!(!repeats.has_come(at(5.0), key(1)) && !repeats.has_come(at(5.0), key(2)));
        assert!(repeats.has_come(at(5.0), key(1)) && repeats.has_come(at(30.0), key(1)));
        assert!(repeats.has_come(at(59.0), key(1)), "every try counts anew");
        assert!(!repeats.has_come(at(59.0), key(2)));
        assert!(repeats.has_come(at(60.0), key(2)));
    }

    /// Memory is bounded: a flood of ids makes it forget, but not what is in use.
    #[test]
    fn a_flood_pushes_out_the_oldest_first() {
        let repeats = Repeats::default();
        let now = Timestamp::from_secs_f64(10.0);
        let all = (SETS * WAYS) as u64;
        (0..all / 4).for_each(|i| assert!(!repeats.has_come(now, key(i)), "{i}"));
        let kept = (0..all / 4).filter(|&i| repeats.has_come(now, key(i))).count() as u64;
        assert!(kept > all / 4 * 95 / 100, "{kept}");
        let later = now + Duration::from_secs(1);
        for i in 0..4 * all {
            repeats.has_come(later, key(1_000_000 + i));
        }
        let kept = (0..all / 4).filter(|&i| repeats.has_come(later, key(i))).count() as u64;
        assert!(kept < all / 4 / 10, "{kept}");
    }
}
