//! How long a server takes with so many requests in flight.

use core::time::Duration;

use crate::time::Timestamp;

/// The latest answers of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    latest: [Answer; LATEST],
    count: usize,
}

/// With how many in flight it came, and after how many seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Answer {
    at: Timestamp,
    in_flight: u32,
    seconds: f64,
}

/// So many are kept; the median is of so many of them.
const LATEST: usize = 16;
const NEAREST: usize = 5;
/// What came earlier says nothing of now: a server that was slow would get nothing, and stay slow for all time.
const AGE: Duration = Duration::from_secs(1);

impl Times {
    pub(super) fn add(&mut self, at: Timestamp, in_flight: u32, seconds: f64) {
        self.latest[self.count % LATEST] = Answer { at, in_flight, seconds };
        self.count += 1;
    }

    /// The median of those that came of late with the most similar number in flight, seconds; 0 when none did.
    pub(super) fn with(&self, in_flight: u32, now: Timestamp) -> f64 {
        let mut known = self.latest;
        let known = &mut known[..self.count.min(LATEST)];
        known.sort_unstable_by_key(|answer| (now.since(answer.at) > AGE, answer.in_flight.abs_diff(in_flight)));
        let late = known.partition_point(|answer| now.since(answer.at) <= AGE);
        let known = &mut known[..late];
        let nearest = known.len().min(NEAREST);
        let nearest = &mut known[..nearest];
        nearest.sort_unstable_by(|a, b| a.seconds.total_cmp(&b.seconds));
        nearest.get(nearest.len() / 2).map_or(0.0, |answer| answer.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_of_those_with_about_as_many_in_flight_of_late() {
        let (at, now) = (Timestamp::from_millis(100), Timestamp::from_millis(900));
        let mut times = Times::default();
        assert_eq!(times.with(3, now), 0.0);
        for seconds in [0.1, 0.3, 0.2, 0.5, 0.4] {
            times.add(at, 2, seconds);
            times.add(at, 20, 10.0 * seconds);
        }
        assert_eq!((times.with(1, now), times.with(30, now)), (0.3, 3.0));
        times.add(now, 20, 7.0);
        assert_eq!(times.with(2, Timestamp::from_millis(1200)), 7.0, "the others are too old");
        assert_eq!(times.with(2, Timestamp::from_millis(2000)), 0.0, "all are");
        (0..LATEST).for_each(|_| times.add(now, 2, 8.0));
        assert_eq!(times.with(20, now), 8.0, "earlier ones are gone");
    }
}
