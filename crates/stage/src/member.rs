//! A stage as its graph sees it, whatever its events are.

use tidegate_engine::{ClassId, Timestamp};

use crate::refused::Refusal;
use crate::snapshot::StageSnapshot;

/// What the governor does with a stage.
pub(crate) trait Member: Send + Sync {
    /// Runs the controller if it is due, and adjusts batches and workers.
    fn look(&self, now: Timestamp) -> Look;
    /// Asks whether the stage would take an event, at an entry; see [`reserve`](crate::stage::Stage::reserve).
    fn reserve(&self, class: ClassId) -> Result<(), Refusal>;
    /// Nothing waits and nobody works; with the number of events that were taken so far.
    fn is_quiet(&self) -> (bool, u64);
    /// Events waiting or being worked on.
    fn pending(&self) -> usize;
    /// Wakes everybody who waits: the graph has stopped. Events that wait are dropped.
    fn stop(&self);
    /// Events that came here, by entry.
    fn by_entry(&self) -> Vec<u64>;
    /// The stage as it is now.
    fn snapshot(&self) -> StageSnapshot;
}

/// What the governor learns by looking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// So many workers more are wanted.
    pub(crate) grow: usize,
    /// Nothing will change until an event comes or `timeout`.
    pub(crate) is_still: bool,
    pub(crate) timeout: Timestamp,
    /// Somebody was refused within the last second.
    pub(crate) refuses: bool,
}
