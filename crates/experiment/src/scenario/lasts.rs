//! Requests that are open without being work: streams and long polls.

use serde::{Deserialize, Serialize};
use tidegate_workload::ServiceTime;

use super::yes;

/// How a request is open besides its time on a core.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lasts {
    /// Before its answer, or after its first byte.
    pub kind: LastsAs,
    /// For how long.
    pub time: ServiceTime,
    /// Whether the sentry is told: of a poll by a rule, of a stream by its content type.
    #[serde(default = "yes")]
    pub told: bool,
}

/// What it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LastsAs {
    /// Its answer begins after its time on a core, and goes on.
    Stream,
    /// Its answer comes after its time on a core and a wait for news.
    Poll,
}
