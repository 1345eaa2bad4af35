//! What services tell those that call them.

use serde::{Deserialize, Serialize};

/// What the services of a scenario tell those that call them, in an arm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cooperation {
    /// That a request was refused: callers let in what passes.
    #[default]
    Refusals,
    /// Nothing: each sentry decides by its own servers.
    None,
    /// Only the first service has a sentry.
    Edge,
}
