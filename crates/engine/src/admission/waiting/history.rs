//! How many were in service on average since a time.

use crate::time::Timestamp;

/// So many points are kept, at least a part of a stay from each other.
const POINTS: usize = 128;
const APART: f64 = 1.0 / 16.0;

/// The sum of what was in service over time, at some points of it.
#[derive(Debug)]
pub(super) struct History {
    points: [(Timestamp, f64); POINTS],
    /// The newest.
    last: usize,
    /// Request-seconds up to now.
    area: f64,
}

impl History {
    pub(super) fn new() -> History {
        History::from(Timestamp::ZERO)
    }

    /// One that begins at a time, with nothing in service before.
    pub(super) fn from(origin: Timestamp) -> History {
        History { points: [(origin, 0.0); POINTS], last: 0, area: 0.0 }
    }

    /// So many were in service for `seconds` up to now; a request is there for `stay` seconds.
    pub(super) fn pass(&mut self, now: Timestamp, in_service: f64, seconds: f64, stay: f64) {
        self.area += in_service * seconds;
        if now.seconds_since(self.points[self.last].0) >= APART * stay {
            self.last = (self.last + 1) % POINTS;
            self.points[self.last] = (now, self.area);
        }
    }

    /// How many were in service on average from a time until now; `None`: no time went by.
    pub(super) fn since(&self, from: Timestamp, now: Timestamp) -> Option<f64> {
        let seconds = now.seconds_since(from);
        (seconds > 0.0).then(|| (self.area - self.at(from, now)) / seconds)
    }

    /// The same, of the time that is remembered: eight stays. What was before counts as nothing in [`History::since`].
    pub(super) fn of_late(&self, from: Timestamp, now: Timestamp) -> Option<f64> {
        self.since(from.max(self.back(POINTS - 1).0), now)
    }

    /// How many were in service on average between two times, both of them past.
    pub(super) fn between(&self, from: Timestamp, to: Timestamp, now: Timestamp) -> f64 {
        let seconds = to.seconds_since(from);
        if seconds > 0.0 { (self.at(to, now) - self.at(from, now)) / seconds } else { 0.0 }
    }

    /// Request-seconds up to a time: on the line between the points around it.
    fn at(&self, time: Timestamp, now: Timestamp) -> f64 {
        let (mut low, mut high) = (0, POINTS);
        // Points are in order from the newest back; those that were never written are at the origin.
        while low < high {
            let middle = (low + high) / 2;
            if self.back(middle).0 > time { low = middle + 1 } else { high = middle }
        }
        let later = if low > 0 { self.back(low - 1) } else { (now, self.area) };
        let earlier = if low < POINTS { self.back(low) } else { self.back(POINTS - 1) };
        let span = later.0.seconds_since(earlier.0);
        if span <= 0.0 || time <= earlier.0 {
            return earlier.1;
        }
        earlier.1 + (later.1 - earlier.1) * time.seconds_since(earlier.0) / span
    }

    fn back(&self, steps: usize) -> (Timestamp, f64) {
        self.points[(self.last + POINTS - steps) % POINTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_that_of_the_time_since() {
        let mut history = History::new();
        // Four for the first two seconds, then eight.
        for ms in (10..=4000).step_by(10) {
            let in_service = if ms <= 2000 { 4.0 } else { 8.0 };
            history.pass(Timestamp::from_millis(ms), in_service, 0.01, 1.0);
        }
        let mean = |from| history.since(Timestamp::from_millis(from), Timestamp::from_millis(4000));
        for (from, expected) in [(3000, 8.0), (2000, 8.0), (1000, 20.0 / 3.0), (0, 6.0)] {
            let mean = mean(from).expect("time went by");
            assert!((mean - expected).abs() < 0.3, "{from}: {mean}");
        }
        assert_eq!(mean(4000), None);
    }

    #[test]
    fn what_is_forgotten_is_not_taken_for_nothing() {
        let mut history = History::new();
        // Sixteen points in each stay of 5 ms, so that 40 ms are remembered.
        for us in (100..=1_000_000).step_by(100) {
            history.pass(Timestamp::from_nanos(us * 1000), 8.0, 1e-4, 0.005);
        }
        let mean = history.of_late(Timestamp::from_millis(900), Timestamp::from_millis(1000)).expect("time went by");
        assert!((mean - 8.0).abs() < 1e-6, "{mean}");
    }
}
