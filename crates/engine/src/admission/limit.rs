//! Shared code of policies with a moving limit on requests in flight and no queue.

use super::{Admission, Context};
use crate::decision::Reason;
use crate::time::Timestamp;

/// Lets a request in while fewer than `limit` are in flight.
pub(super) fn admit_below(limit: f64, cx: &Context<'_>) -> Admission {
    if !is_reached(limit, cx) {
        return Admission::Admit;
    }
    Admission::refuse(cx.load.refusal(Reason::ConcurrencyLimit))
}

/// Whether `limit` or more are in flight.
pub(super) fn is_reached(limit: f64, cx: &Context<'_>) -> bool {
    cx.load.in_flight >= limit as usize
}

/// How often a limit on requests in flight may be stated at most: so that nothing overflows.
pub(super) const MOST: u32 = 1_000_000;

/// Netflix's sampling window (`WindowedLimit` over an `AverageSampleWindow`): the mean of what ended in it.
///
/// A window closes with the first request that ends after its time; one with too few requests is thrown away.
#[derive(Debug, Default)]
pub(super) struct Window {
    closes: Timestamp,
    sum: f64,
    count: u32,
    most_in_flight: usize,
}

/// What a window saw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Mean response time, seconds.
    pub(super) mean: f64,
    /// Most requests in flight when one of them was started.
    pub(super) most_in_flight: usize,
}

impl Window {
    /// Takes a response time, seconds; the sample, when the window of `length` seconds is over and saw `least`
    /// requests.
    pub(super) fn add(
        &mut self,
        now: Timestamp,
        seconds: f64,
        in_flight: usize,
        length: f64,
        least: u32,
    ) -> Option<Sample> {
        self.sum += seconds;
        self.count += 1;
        self.most_in_flight = self.most_in_flight.max(in_flight);
        if now <= self.closes {
            return None;
        }
        let length = core::time::Duration::try_from_secs_f64(length).unwrap_or_default();
        let closed = core::mem::replace(self, Window { closes: now + length, ..Window::default() });
        let sample = Sample { mean: closed.sum / f64::from(closed.count), most_in_flight: closed.most_in_flight };
        (closed.count >= least).then_some(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_gives_its_mean_once_and_is_thrown_away_when_it_saw_too_little() {
        let mut window = Window::default();
        let mut add = |ms: u64, seconds, in_flight| window.add(Timestamp::from_millis(ms), seconds, in_flight, 1.0, 3);
        assert_eq!(add(1, 0.5, 7), None, "one request is too few");
        assert_eq!(add(100, 0.125, 1), None);
        assert_eq!(add(1000, 0.375, 4), None, "not over yet");
        assert_eq!(add(1002, 0.25, 2), Some(Sample { mean: 0.25, most_in_flight: 4 }));
        assert_eq!(add(2003, 0.2, 2), None, "the next one saw one request");
    }
}
