//! Budget of processor time for the search for processes.

use std::time::{Duration, Instant};

/// Part of a processor in the long run.
const PART: f64 = 0.002;
/// What may be used at once, seconds: looking through all processes for the first time takes some milliseconds.
const MOST: f64 = 0.05;

/// What is left.
#[derive(Debug)]
pub(super) struct Allowance {
    /// Seconds of processor time; less than 0 when the last look took more than there was.
    left: f64,
    at: Option<Instant>,
}

impl Allowance {
    pub(super) fn new() -> Allowance {
        Allowance { left: MOST, at: None }
    }

    /// Whether anything is left.
    pub(super) fn is_left(&mut self, now: Instant) -> bool {
        let passed = self.at.replace(now).map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.left = (self.left + PART * passed.as_secs_f64()).min(MOST);
        self.left > 0.0
    }

    /// So much processor time was used.
    pub(super) fn spend(&mut self, now: Instant, used: Duration) {
        self.is_left(now);
        self.left -= used.as_secs_f64();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_comes_back_in_time_and_no_more_is_saved_up() {
        let (mut allowance, start) = (Allowance::new(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        allowance.spend(start, Duration::from_millis(40));
        assert!(allowance.is_left(start));
        allowance.spend(start, Duration::from_millis(30));
        assert!(!allowance.is_left(at(9)), "20 ms too much are 10 s");
        assert!(allowance.is_left(at(11)));
        allowance.spend(at(1000), Duration::from_millis(51));
        assert!(!allowance.is_left(at(1000)), "no more than 50 ms were saved up");
    }

    #[test]
    fn in_the_long_run_it_is_a_part_of_the_time() {
        let (mut allowance, start, cost) = (Allowance::new(), Instant::now(), Duration::from_millis(7));
        let mut used = Duration::ZERO;
        for tenth in 0..10_000 {
            let now = start + Duration::from_millis(100 * tenth);
            if allowance.is_left(now) {
                allowance.spend(now, cost);
                used += cost;
            }
        }
        assert!((1.9..2.1).contains(&used.as_secs_f64()), "{used:?} in 1,000 s");
    }
}
