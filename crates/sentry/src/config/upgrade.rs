//! Handing over to a successor: what it means.

use std::path::PathBuf;
use std::time::Duration;

/// How a process hands over to its successor. Timeout and spread take effect on reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// The Unix socket at which it is asked to; `None`: where the service manager gives a folder, if it does.
    pub socket: Option<PathBuf>,
    /// How long a successor may take to be ready.
    pub timeout: Duration,
    /// Over how long connections are told to end.
    pub spread: Duration,
}

impl Default for Upgrade {
    fn default() -> Self {
        Upgrade { socket: None, timeout: Duration::from_secs(60), spread: Duration::from_secs(10) }
    }
}
