//! What a server does about a request whose client has left.

use serde::{Deserialize, Serialize};

/// What a server does when the connection of a request that it works on is closed from the other side. In files:
/// `works-on`, `stops` or `hangs-up`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Abandoned {
    /// It does not notice: it finishes the work, and answers nobody. What most servers do.
    #[default]
    WorksOn,
    /// It notices, gives the work up and closes its side.
    Stops,
    /// It closes its side, and finishes the work all the same: from outside it looks as if it had stopped.
    HangsUp,
}
