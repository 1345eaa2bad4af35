//! Entries in order of time, or an error.
//!
//! Servers log a request when it is answered and with the time of its arrival, so access logs are a little out of order
//! by nature. A window of time, bounded in entries too, puts them right; what comes later than that is an error.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use super::error::Flaw;
use super::instant::Instant;
use super::{Entry, What};

/// Entries that are held back at most, whatever the window.
const MOST: usize = 65_536;

/// Puts entries in order.
pub(super) struct Order {
    window: Duration,
    held: BinaryHeap<Reverse<Held>>,
    pushed: u64,
    newest: Option<Instant>,
    given: Option<Instant>,
}

struct Held {
    order: u64,
    entry: Entry,
}

impl Order {
    pub(super) fn new(window: Duration) -> Order {
        Order { window, held: BinaryHeap::new(), pushed: 0, newest: None, given: None }
    }

    /// Takes an entry.
    pub(super) fn push(&mut self, entry: Entry) -> Result<(), Flaw> {
        if let Some(given) = self.given {
            let counts = matches!(entry.what, What::Count(_));
            if counts && entry.at == given {
                return Err(Flaw::Duplicate(entry.at.to_string()));
            }
            if entry.at < given {
                let (at, before) = (entry.at.to_string(), given.to_string());
                return Err(Flaw::Order { at, before, sortable: !counts });
            }
        }
        self.newest = self.newest.max(Some(entry.at));
        self.pushed += 1;
        self.held.push(Reverse(Held { order: self.pushed, entry }));
        Ok(())
    }

    /// The next entry that nothing earlier can come before. At the end (`over`) all are.
    pub(super) fn pop(&mut self, over: bool) -> Option<Entry> {
        let Reverse(first) = self.held.peek()?;
        let newest = self.newest?;
        let ripe = over || self.held.len() > MOST || newest.since(first.entry.at) >= self.window;
        if !ripe {
            return None;
        }
        let Reverse(held) = self.held.pop()?;
        self.given = Some(held.entry.at);
        Some(held.entry)
    }
}

impl Held {
    fn key(&self) -> (Instant, u64) {
        (self.entry.at, self.order)
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}
