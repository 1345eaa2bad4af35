//! Estimate of the time that connections wait until the server accepts them.
//!
//! The kernel tells how many wait, not how long. Little's law: the last of `L` waits `L / mu`, where `mu` is how many
//! the server accepts per second, that is, what arrived less by how much the queue grew. Both are averaged over a
//! second or so. While nothing is accepted at all the wait is as long as that lasts, at least.

/// Averages forget with this time constant, seconds.
const TAU: f64 = 1.0;
/// Below this many accepted per second, nothing is.
const STANDSTILL: f64 = 0.1;
/// No wait is longer, seconds.
const LONGEST: f64 = 60.0;

/// The state of the estimate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    length: Option<f64>,
    mean_length: f64,
    accepted: f64,
    standing: f64,
}

impl Waiting {
    /// `length` connections wait now, and `arrived` came per second in the last `seconds`. The wait, seconds.
    pub(crate) fn update(&mut self, length: f64, arrived: Option<f64>, seconds: f64) -> Option<f64> {
        let before = self.length.replace(length);
        let (Some(before), Some(arrived)) = (before, arrived) else {
            self.mean_length = length;
            return (length == 0.0).then_some(0.0);
        };
        if seconds <= 0.0 {
            return None;
        }
        let accepted = (arrived - (length - before) / seconds).max(0.0);
        let gain = 1.0 - (-seconds / TAU).exp();
        self.mean_length += gain * (length - self.mean_length);
        self.accepted += gain * (accepted - self.accepted);
        self.standing = if length > 0.0 && accepted < STANDSTILL { self.standing + seconds } else { 0.0 };
        if length == 0.0 {
            return Some(0.0);
        }
        let wait = if self.accepted > STANDSTILL { self.mean_length / self.accepted } else { self.standing };
        Some(wait.max(self.standing).min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(waiting: &mut Waiting, samples: usize, length: impl Fn(usize) -> f64, arrived: f64) -> f64 {
        (0..samples).map(|i| waiting.update(length(i), Some(arrived), 0.1)).last().flatten().expect("measured")
    }

    #[test]
    fn a_steady_queue_obeys_littles_law() {
        let wait = run(&mut Waiting::default(), 100, |_| 20.0, 50.0);
        assert!((wait - 0.4).abs() < 0.01, "{wait}");
    }

    #[test]
    fn a_growing_queue_counts_what_is_accepted_not_what_arrives() {
        // 100/s arrive, 60/s are accepted.
        let wait = run(&mut Waiting::default(), 100, |i| 4.0 * i as f64, 100.0);
        assert!((4.5..7.0).contains(&wait), "{wait}");
    }

    #[test]
    fn an_empty_queue_is_no_wait_and_a_standstill_grows() {
        let mut waiting = Waiting::default();
        assert_eq!(waiting.update(0.0, None, 0.1), Some(0.0));
        assert_eq!(run(&mut waiting, 50, |_| 0.0, 70.0), 0.0);
        let mut waiting = Waiting::default();
        let (early, late) = (run(&mut waiting, 20, |_| 5.0, 0.0), run(&mut waiting, 100, |_| 5.0, 0.0));
        assert!(early > 1.0 && late > 10.0, "{early}, {late}");
        assert!(run(&mut waiting, 10_000, |_| 5.0, 0.0) <= LONGEST);
        assert_eq!(waiting.update(0.0, Some(50.0), 0.1), Some(0.0), "gone at once");
    }
}
