//! What is to happen: events by time, ties in the order in which they were planned.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use tidegate_engine::Timestamp;

/// A queue of events. Events of one instant come out in the order in which they went in.
#[derive(Debug)]
pub(crate) struct Agenda<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    planned: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Timestamp,
    order: u64,
    event: E,
}

impl<E> Agenda<E> {
    pub(crate) fn new() -> Self {
        Agenda { heap: BinaryHeap::new(), planned: 0 }
    }

    pub(crate) fn plan(&mut self, at: Timestamp, event: E) {
        self.planned += 1;
        self.heap.push(Reverse(Entry { at, order: self.planned, event }));
    }

    pub(crate) fn next(&mut self) -> Option<(Timestamp, E)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}

impl<E> Entry<E> {
    fn key(&self) -> (Timestamp, u64) {
        (self.at, self.order)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_come_out_in_the_order_they_went_in() {
        let mut agenda = Agenda::new();
        let soon = Timestamp::from_millis(1);
        for name in ["b", "c", "d"] {
            agenda.plan(soon, name);
        }
        agenda.plan(Timestamp::ZERO, "a");
        let order: Vec<&str> = std::iter::from_fn(|| agenda.next().map(|(_, name)| name)).collect();
        assert_eq!(order, ["a", "b", "c", "d"]);
    }
}
