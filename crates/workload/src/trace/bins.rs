//! Requests and work by equal stretches of time.

use std::time::Duration;

use super::instant::Instant;

/// Adds up what comes in each stretch of time. Stretches begin at multiples of their width.
#[derive(Debug, Clone)]
pub struct Bins {
    width: i64,
    open: Option<Bin>,
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bin {
    /// Instant at which the interval begins.
    pub begin: Instant,
    /// Number of requests in the interval.
    pub requests: f64,
    /// Work of these requests, seconds.
    pub work: f64,
    /// Stretches without any request between the one before and this one.
    pub empty_before: u64,
}

impl Bins {
    /// Stretches of that width, at least a nanosecond.
    pub fn new(width: Duration) -> Bins {
        Bins { width: i64::try_from(width.as_nanos()).unwrap_or(i64::MAX).max(1), open: None }
    }

    /// Adds requests at an instant that is not before the last one. Gives the stretch that this closes, if it does.
    pub fn add(&mut self, at: Instant, requests: f64, work: f64) -> Option<Bin> {
        let begin = Instant::from_nanos(at.as_nanos().div_euclid(self.width).saturating_mul(self.width));
        match &mut self.open {
            Some(open) if open.begin >= begin => {
                open.requests += requests;
                open.work += work;
                None
            }
            open => {
                let gap = |open: &Bin| begin.as_nanos().saturating_sub(open.begin.as_nanos()) / self.width - 1;
                let empty_before = open.as_ref().map_or(0, |open| u64::try_from(gap(open)).unwrap_or(0));
                open.replace(Bin { begin, requests, work, empty_before })
            }
        }
    }

    /// Ends the last interval and returns it.
    pub fn close(&mut self) -> Option<Bin> {
        self.open.take()
    }
}
