//! Keeps what was learned in a file, for the next start.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_sentry::Process;
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{info, warn};

/// How often it is written: so much is lost in a crash.
const EVERY: Duration = Duration::from_secs(60);

/// A file that is written now and then.
#[derive(Debug)]
pub(super) struct Keeper {
    path: PathBuf,
    turns: Interval,
    /// A write under way.
    writing: Option<JoinHandle<io::Result<()>>>,
    is_failing: bool,
}

impl Keeper {
    /// Writes to `path`, for the first time at once: whether it can is known then. In a runtime.
    pub(super) fn new(path: PathBuf) -> Keeper {
        let mut turns = interval(EVERY);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Keeper { path, turns, writing: None, is_failing: false }
    }

    /// When it is time to write. What came of the last time is said meanwhile.
    pub(super) async fn turn(&mut self) {
        if let Some(writing) = &mut self.writing {
            let written = writing.await;
            self.writing = None;
            self.tell(written.unwrap_or_else(|error| Err(io::Error::other(error))));
        }
        self.turns.tick().await;
    }

    /// Writes what the process knows now.
    pub(super) fn write(&mut self, process: &Process) {
        let (state, path) = (process.state(), self.path.clone());
        self.writing = Some(tokio::task::spawn_blocking(move || state.save(&path)));
    }

    /// Writes what the process knows at its end, and waits until that is done.
    pub(super) async fn close(mut self, process: &Process) {
        if let Some(writing) = self.writing.take() {
            // The one that follows says how it goes.
            let _ = writing.await;
        }
        self.write(process);
        if let Some(writing) = self.writing.take() {
            self.tell(writing.await.unwrap_or_else(|error| Err(io::Error::other(error))));
        }
    }

    /// Says what is new.
    fn tell(&mut self, written: io::Result<()>) {
        let path = self.path.display();
        let is_failing = written.is_err();
        match written {
            Ok(()) if self.is_failing => info!(target: "tidegate", "the state can be written to {path} again"),
            Err(error) if !self.is_failing => {
                warn!(
                    target: "tidegate",
                    "the state cannot be written to {path}: {error}; what is learned is lost when this process ends. \
                     Give --state a file in a folder that this user may write to"
                );
            }
            _ => {}
        }
        self.is_failing = is_failing;
    }
}
