//! Thread-local tag of the stage that works on this thread, so that a waiting sender learns whose handler panicked.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Names of the stages there are, by tag.
static NAMES: Mutex<BTreeMap<u64, Arc<str>>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// Zero: none.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// A number for a stage, unique in the process while the stage exists.
pub(crate) struct Tag(u64);

impl Tag {
    pub(crate) fn new(name: Arc<str>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        NAMES.lock().unwrap_or_else(PoisonError::into_inner).insert(id, name);
        Tag(id)
    }

    pub(crate) fn id(&self) -> u64 {
        self.0
    }
}

impl Drop for Tag {
    fn drop(&mut self) {
        NAMES.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// Says which stage works on this thread from now on; which one did before.
pub(crate) fn set_current(id: u64) -> u64 {
    CURRENT.replace(id)
}

/// The name of the stage that works on this thread.
pub(crate) fn current() -> Option<Arc<str>> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner).get(&CURRENT.get()).cloned()
}
