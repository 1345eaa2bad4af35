//! What a scenario says of what a server can hold.

use serde::{Deserialize, Serialize};

/// How many requests of a kind a server can have in flight: what `switch` admission and partitions count by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaxConn {
    /// The kind's name.
    pub name: String,
    /// The request types of this kind.
    pub requests: Vec<String>,
    /// In flight at a server while it answers within the target.
    pub within_target: f64,
    /// In flight at its breaking point.
    pub most: f64,
}
