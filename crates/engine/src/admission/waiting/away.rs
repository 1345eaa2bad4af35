//! How long requests hold their places after their servers are done: what answers take on their way.
//!
//! Where a link is narrower than the servers are fast, most answers queue there, and a place that is held is no place:
//! that counts as if the servers took it. A client that reads slowly holds its own place only, and says nothing of what
//! the next one will take.

/// So many are remembered.
const MEMORY: f64 = 200.0;
/// One counts up to so many times what they take on average, and up to so many seconds in any case. So less than one
/// in four count for nothing, however slow.
const MOST: f64 = 4.0;
const LEAST: f64 = 0.001;

/// What answers take on their way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Away {
    /// Seconds, on average.
    mean: f64,
}

impl Away {
    /// As it was elsewhere: see [`Away::mean`].
    pub(super) fn of_mean(mean: f64) -> Away {
        Away { mean }
    }

    /// All that it knows: seconds, on average.
    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    /// One ended after `served` seconds at its server and `held` with a place; what it took as far as that says
    /// anything of others, seconds.
    pub(super) fn take(&mut self, served: f64, held: f64) -> f64 {
        let away = (held - served).clamp(0.0, MOST * self.mean + LEAST);
        self.mean += (away - self.mean) / MEMORY;
        served + away
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_most_wait_for_counts_and_a_few_slow_clients_do_not() {
        let mut away = Away::default();
        let few = (0..2000).map(|at| away.take(0.04, if at % 6 == 0 { 10.0 } else { 0.04 })).fold(0.0, f64::max);
        assert!(few < 0.05, "{few}");
        let most = (0..2000).map(|_| away.take(0.04, 0.5)).last();
        assert!(most.is_some_and(|took| took > 0.49), "{most:?}");
    }
}
