//! How a server divides its processors, or another resource its units, among what is to be done.

use serde::{Deserialize, Serialize};

/// How a resource is divided among its jobs. In files: `ps` or `fifo`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Discipline {
    /// All jobs at once, in equal parts; a job uses at most one unit (one processor). What an operating system
    /// approximates.
    #[default]
    #[serde(rename = "ps")]
    ProcessorSharing,
    /// First come, first served, one job a unit.
    Fifo,
}
