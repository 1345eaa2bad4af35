//! Room for what is seldom needed: a pointer while it is empty.

use std::cell::Cell;

/// Room for what a connection seldom needs.
pub(crate) struct Slot<T>(Cell<Option<Box<T>>>);

impl<T> Slot<T> {
    /// Empties it.
    pub(crate) fn take(&self) -> Option<Box<T>> {
        self.0.take()
    }

    /// Whether it is full.
    pub(crate) fn is_some(&self) -> bool {
        let inside = self.0.take();
        let is_some = inside.is_some();
        self.0.set(inside);
        is_some
    }

    /// Fills it.
    pub(crate) fn put(&self, value: Box<T>) {
        self.0.set(Some(value));
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Slot(Cell::new(None))
    }
}

impl<T> std::fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}
