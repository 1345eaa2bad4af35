//! Results of a stream of requests, second by second.
//!
//! Everything is kept by the second in which a request *arrived*, so that two runs of the same load can be compared
//! and a request is counted once: `offered = admitted + refused + failed`. Memory grows with the length of the run, not
//! with the number of requests.

mod responses;

use std::time::Duration;

use serde::Serialize;

pub use responses::Responses;

/// Requests by the second of their arrival.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Course {
    seconds: Vec<Second>,
}

/// Requests that arrived in one second (or longer), and what became of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Second {
    /// Requests that arrived.
    pub offered: u64,
    /// Requests refused.
    pub refused: u64,
    /// Requests that got neither an answer in time nor a refusal.
    pub failed: u64,
    /// Requests answered within the target.
    pub good: u64,
    /// Response times of the requests answered.
    pub responses: Responses,
}

/// One second in numbers, as reports have it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Row {
    /// Requests that arrived.
    pub offered: u64,
    /// Requests answered.
    pub admitted: u64,
    /// Requests refused.
    pub refused: u64,
    /// Requests that got neither.
    pub failed: u64,
    /// Requests answered within the target.
    pub good: u64,
    /// Median response time of the admitted, seconds.
    pub p50: Option<f64>,
    /// 95th percentile of the response time of the admitted, seconds.
    pub p95: Option<f64>,
}

impl Course {
    /// Counts a request that arrived.
    pub fn offered(&mut self, at: Duration) {
        self.at(at).offered += 1;
    }

    /// The request that arrived at `at` was refused.
    pub fn refused(&mut self, at: Duration) {
        self.at(at).refused += 1;
    }

    /// The request that arrived at `at` got neither an answer in time nor a refusal.
    pub fn failed(&mut self, at: Duration) {
        self.at(at).failed += 1;
    }

    /// The request that arrived at `at` was answered after `took`.
    pub fn answered(&mut self, at: Duration, took: Duration, target: Duration) {
        let second = self.at(at);
        second.good += u64::from(took <= target);
        second.responses.add(took);
    }

    /// Puts a second together that was counted elsewhere.
    pub fn set(&mut self, second: usize, value: Second) {
        *self.at(Duration::from_secs(second as u64)) = value;
    }

    /// The results of each second.
    pub fn seconds(&self) -> &[Second] {
        &self.seconds
    }

    /// The sum over the seconds from `from` to `to`; parts of seconds at the ends count as whole ones.
    pub fn span(&self, from: Duration, to: Duration) -> Second {
        let end = (to.as_secs_f64().ceil() as usize).min(self.seconds.len());
        let start = (from.as_secs() as usize).min(end);
        let mut sum = Second::default();
        self.seconds[start..end].iter().for_each(|second| sum.add(second));
        sum
    }

    /// The sum over all of it.
    pub fn total(&self) -> Second {
        self.span(Duration::ZERO, Duration::from_secs(self.seconds.len() as u64))
    }

    /// Adds another course, second by second.
    pub fn add(&mut self, other: &Course) {
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize_with(other.seconds.len(), Second::default);
        }
        self.seconds.iter_mut().zip(&other.seconds).for_each(|(sum, second)| sum.add(second));
    }

    fn at(&mut self, at: Duration) -> &mut Second {
        let index = at.as_secs() as usize;
        if self.seconds.len() <= index {
            self.seconds.resize_with(index + 1, Second::default);
        }
        &mut self.seconds[index]
    }
}

impl Second {
    /// Requests answered.
    pub fn admitted(&self) -> u64 {
        self.responses.count()
    }

    /// The numbers of a report.
    pub fn row(&self) -> Row {
        Row {
            offered: self.offered,
            admitted: self.admitted(),
            refused: self.refused,
            failed: self.failed,
            good: self.good,
            p50: self.responses.quantile(0.50),
            p95: self.responses.quantile(0.95),
        }
    }

    fn add(&mut self, other: &Second) {
        self.offered += other.offered;
        self.refused += other.refused;
        self.failed += other.failed;
        self.good += other.good;
        self.responses.merge(&other.responses);
    }
}
