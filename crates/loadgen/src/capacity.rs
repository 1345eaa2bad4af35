//! Measures the capacity of a service by raising the load step by step until the service misses its target, and no
//! further.
//!
//! *Intuition.* To find out how much a shelf bears, add one book at a time and look at it each time; stop when it
//! bends.
//!
//! *Applied.* Closed loop: `c` clients that ask, wait and ask again, `c` doubled until the 95th percentile is beyond
//! the target and more clients bring no more answers; the largest `c` within the target is found by halving the
//! interval. Open loop: a rate, stepped up in the same way; the highest rate within the target is found likewise. A
//! step that is far beyond the target, or fails often, is cut short, and the service is left alone until it answers as
//! it did before. The *knee* is where throughput over response time is highest (Kleinrock's power).
//!
//! *Awkward cases.* A closed loop begins with `c` requests at once and ends with `c` unanswered: throughput counts what
//! was begun after the first `c`. A step with few answers says little about a 95th percentile, so a step that breaks
//! the target is tried once more before it counts. What is answered late after a cut belongs to nobody.
//!
//! *Source.* Closed loop for `n_app`: Gandhi et al., SOFTScale (2012), section 3.1.

mod find;
mod step;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::PlanError;
use crate::health::BUSY;
use crate::report::Quantiles;
use crate::run::LoadError;
use crate::users::UsersError;

pub use find::{Found, find};
pub use step::{closed, open, settle};

/// One kind of request that is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Name of the kind of request.
    pub name: String,
    /// Where it goes, `http://host:port/path`; nowhere else is anything sent.
    pub url: String,
    /// Header fields of each request.
    pub headers: Vec<(String, String)>,
}

/// How far to go, and how long to look.
#[derive(Debug, Clone, PartialEq)]
pub struct Bounds {
    /// The 95th percentile must not be above this.
    pub target: Duration,
    /// How long each step lasts.
    pub step: Duration,
    /// Requests in flight at most.
    pub most_in_flight: u32,
    /// Requests per second at most.
    pub most_rate: f64,
    /// Seed of arrivals.
    pub seed: u64,
    /// Kinds of load to measure with.
    pub loops: Loops,
}

/// Which loops are run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Loops {
    /// Clients that wait, then rates.
    #[default]
    Both,
    /// Closed loop: clients that wait for their answers.
    Closed,
    /// Open loop: requests at a rate.
    Open,
}

/// What came of one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Clients that waited for their answers; `None` in an open loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// Requests offered per second.
    pub offered: f64,
    /// Requests answered well, per second.
    pub answered: f64,
    /// Share of the requests that failed or were refused.
    pub failed: f64,
    /// Response times, seconds.
    pub latency: Quantiles,
    /// It was cut short: far beyond the target, or failing.
    pub cut: bool,
    /// Share of a processor that the generator's thread used.
    #[serde(default)]
    pub generator: f64,
}

impl Step {
    /// Whether the target was held, and nothing to speak of failed.
    pub fn holds(&self, target: Duration) -> bool {
        !self.cut && self.latency.count > 0 && self.failed <= FAILURES && self.latency.p95 <= target.as_secs_f64()
    }

    /// Whether the generator had nothing to spare: the service may hold more than this shows.
    pub fn is_generators(&self) -> bool {
        self.generator > BUSY
    }
}

/// Share of failures that is not a failure of the service.
const FAILURES: f64 = 0.01;

/// Why nothing can be measured.
#[derive(Debug, thiserror::Error)]
pub enum CapacityError {
    /// The load cannot be sent.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The URL or a header field makes no sense.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The URL or a header field makes no sense.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// The service does not hold the target with a single request at a time.
    #[error(
        "{url} does not hold the target with one request at a time: p95 {p95:.3} s, {failed:.0} % failed; \
             set a longer --target, or look at the service"
    )]
    TooSlow {
        /// URL of the failing service.
        url: String,
        /// Seconds.
        p95: f64,
        /// Share of failed requests, per cent.
        failed: f64,
    },
    /// It did not recover.
    #[error(
        "{url} has not recovered {waited:?} after a step beyond what it holds; look at the service before going on"
    )]
    NotRecovered {
        /// URL of the failing service.
        url: String,
        /// How long was waited.
        waited: Duration,
    },
}
