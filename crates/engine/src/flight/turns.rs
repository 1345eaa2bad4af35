//! Turns inside a class queue: tenants within their fair share before those above it, of each the first tries before
//! retries; and until when each may wait.
//!
//! Every bucket of a policy is four lists of [`Waiting`](super::Waiting), one for each turn. Policies need not know:
//! who is let in is the first of the first list in which anybody waits, who has waited longest is the oldest of the
//! heads.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use super::Traffic;
use super::table::State;
use super::waiting::Queue;
use crate::request::{ClassId, Request, Ticket};
use crate::time::Timestamp;

/// Whose turn it is, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// First tries of tenants within their fair share.
    First,
    /// Their retries.
    Again,
    /// First tries of tenants above their share.
    FirstAbove,
    /// Retries of these.
    AgainAbove,
}

impl Turn {
    /// All, in order.
    pub(crate) const ALL: [Turn; 4] = [Turn::First, Turn::Again, Turn::FirstAbove, Turn::AgainAbove];
    /// Those of tenants within their share.
    pub(crate) const WITHIN: [Turn; 2] = [Turn::First, Turn::Again];
    /// Those of first tries, and of retries.
    pub(crate) const FIRST_TRIES: [Turn; 2] = [Turn::First, Turn::FirstAbove];
    pub(crate) const RETRIES: [Turn; 2] = [Turn::Again, Turn::AgainAbove];

    pub(crate) fn of(is_above: bool, is_retry: bool) -> Turn {
        match (is_above, is_retry) {
            (false, false) => Turn::First,
            (false, true) => Turn::Again,
            (true, false) => Turn::FirstAbove,
            (true, true) => Turn::AgainAbove,
        }
    }

    /// Whether it is that of tenants above their share.
    pub(crate) fn is_above(self) -> bool {
        matches!(self, Turn::FirstAbove | Turn::AgainAbove)
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// Until when requests may wait that have a deadline; some of them may be gone.
#[derive(Debug, Default)]
pub(crate) struct Overdue(BinaryHeap<Reverse<(Timestamp, Ticket)>>);

/// So many entries of requests that are gone are kept beside those that wait.
const STALE_LEAST: usize = 64;

impl Traffic {
    /// Requests that wait in a bucket for this turn.
    pub(crate) fn waiting_at(&self, class: ClassId, bucket: usize, turn: Turn) -> usize {
        self.waiting.queue_len(self.waiting.queue(class, bucket, turn)) as usize
    }

    /// First tries that wait in a bucket.
    pub(crate) fn first_tries(&self, class: ClassId, bucket: usize) -> usize {
        Turn::FIRST_TRIES.map(|turn| self.waiting_at(class, bucket, turn)).iter().sum()
    }

    /// The first of a bucket at the first of these turns for which anybody waits. It waits no longer.
    pub(crate) fn pop_next(&mut self, class: ClassId, bucket: usize, turns: &[Turn]) -> Option<u32> {
        turns.iter().find_map(|turn| {
            let queue = self.waiting.queue(class, bucket, *turn);
            self.waiting.pop(&mut self.flights, queue)
        })
    }

    /// The last of a bucket at the first turn for which anybody waits. It waits no longer.
    pub(crate) fn pop_newest(&mut self, class: ClassId, bucket: usize) -> Option<u32> {
        let queues = self.waiting.queues(class, bucket);
        queues.into_iter().find_map(|queue| self.waiting.pop_last(&mut self.flights, queue))
    }

    /// The one of a bucket that has waited longest. It waits no longer.
    pub(crate) fn pop_oldest(&mut self, class: ClassId, bucket: usize) -> Option<u32> {
        let (_, queue) = self.oldest(class, bucket)?;
        self.waiting.pop(&mut self.flights, queue)
    }

    /// The newest of a class's last turn for which anybody waits of tenants above their share. It waits no longer.
    pub(crate) fn pop_displaced(&mut self, class: ClassId) -> Option<u32> {
        let buckets = self.waiting.buckets();
        let places = [Turn::AgainAbove, Turn::FirstAbove].into_iter();
        let mut places = places.flat_map(|turn| (0..buckets).map(move |bucket| (turn, bucket)));
        places.find_map(|(turn, bucket)| {
            let queue = self.waiting.queue(class, bucket, turn);
            self.waiting.pop_last(&mut self.flights, queue)
        })
    }

    /// Since when the one of a bucket waits that has waited longest.
    pub(crate) fn waiting_since(&self, class: ClassId, bucket: usize) -> Option<Timestamp> {
        self.oldest(class, bucket).map(|(since, _)| since)
    }

    /// The one of a bucket that has waited longest.
    pub(crate) fn oldest_request(&self, class: ClassId, bucket: usize) -> Option<Request> {
        let (_, queue) = self.oldest(class, bucket)?;
        self.flights.request(self.waiting.first(queue)?)
    }

    /// Since when the one of a bucket waits that is let in first from its newest end.
    pub(crate) fn newest_since(&self, class: ClassId, bucket: usize) -> Option<Timestamp> {
        let slot = self.waiting.queues(class, bucket).into_iter().find_map(|queue| self.waiting.last(queue))?;
        Some(self.flights.arrived(slot))
    }

    fn oldest(&self, class: ClassId, bucket: usize) -> Option<(Timestamp, Queue)> {
        let first = |queue| Some((self.flights.arrived(self.waiting.first(queue)?), queue));
        self.waiting.queues(class, bucket).into_iter().filter_map(first).min_by_key(|(since, _)| *since)
    }

    /// A waiting request is overdue from `at` on.
    pub(crate) fn wait_until(&mut self, ticket: Ticket, at: Timestamp) {
        if self.overdue.0.len() > 2 * self.waiting.len() + STALE_LEAST {
            let flights = &self.flights;
            self.overdue.0.retain(|Reverse((_, ticket))| {
                matches!(flights.get(*ticket).map(|flight| flight.state), Some(State::Waiting { .. }))
            });
        }
        self.overdue.0.push(Reverse((at, ticket)));
    }

    /// When the first waiting request may be overdue.
    pub(crate) fn next_overdue(&self) -> Option<Timestamp> {
        self.overdue.0.peek().map(|Reverse((at, _))| *at)
    }

    /// A request that is overdue by `now`, by its slot; each once. It waits no longer.
    pub(crate) fn pop_overdue(&mut self, now: Timestamp) -> Option<u32> {
        while let Some(&Reverse((at, ticket))) = self.overdue.0.peek()
            && at <= now
        {
            self.overdue.0.pop();
            let Some(flight) = self.flights.get(ticket).copied() else { continue };
            if let State::Waiting { bucket, .. } = flight.state {
                let queue = self.waiting.queue(flight.request.class, bucket, flight.turn());
                self.waiting.unlink(&mut self.flights, queue, ticket.slot);
                return Some(ticket.slot);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::Flight;
    use super::*;
    use crate::estimate::Mark;
    use crate::request::{Request, ServerId};

    const CLASS: ClassId = ClassId(0);

    /// Requests that came one after the other, the last turn first.
    fn waiting() -> (Traffic, [u32; 4]) {
        let mut traffic = Traffic::new(1, 2);
        let mut slots = [0; 4];
        for (at, turn) in Turn::ALL.into_iter().enumerate().rev() {
            let is_retry = matches!(turn, Turn::Again | Turn::AgainAbove);
            let now = Timestamp::from_millis(10 - at as u64);
            let flight = Flight {
                request: Request { class: CLASS, is_retry, deadline: Some(now), ..Request::default() },
                state: State::Waiting { bucket: 1, is_over: turn.is_above() },
                arrived: now,
                started: now,
                first_byte: Timestamp::MAX,
                mark: Mark::default(),
                cost: 0.0,
                in_flight: 0,
                shadow: false,
                is_cancelled: false,
                hangs: false,
                level: 0,
            };
            assert_eq!(flight.turn(), turn);
            let ticket = traffic.enqueue(flight);
            traffic.wait_until(ticket, now);
            slots[at] = ticket.slot;
        }
        (traffic, slots)
    }

    #[test]
    fn within_their_share_before_above_it_and_first_tries_before_retries() {
        let (mut traffic, slots) = waiting();
        assert_eq!(Turn::ALL.map(|turn| traffic.waiting_at(CLASS, 1, turn)), [1; 4]);
        assert_eq!((traffic.first_tries(CLASS, 1), traffic.waiting_at(CLASS, 0, Turn::First)), (2, 0));
        let order: Vec<u32> = core::iter::from_fn(|| traffic.pop_next(CLASS, 1, &Turn::ALL)).collect();
        assert_eq!(order, slots);
        assert_eq!(traffic.waiting.len(), 0);
    }

    #[test]
    fn whoever_is_taken_out_of_turn_is_looked_for_in_all_lists() {
        let (mut traffic, [first, again, first_above, again_above]) = waiting();
        assert_eq!(traffic.waiting_since(CLASS, 1), Some(Timestamp::from_millis(7)));
        assert_eq!(traffic.pop_displaced(CLASS), Some(again_above));
        assert_eq!(traffic.pop_displaced(CLASS), Some(first_above));
        assert_eq!(traffic.pop_displaced(CLASS), None, "who is left is within");
        assert_eq!(traffic.pop_oldest(CLASS, 1), Some(again));
        assert_eq!(traffic.newest_since(CLASS, 1), Some(Timestamp::from_millis(10)));
        assert_eq!(traffic.pop_newest(CLASS, 1), Some(first));
    }

    #[test]
    fn whoever_is_overdue_leaves_its_list_and_those_that_are_gone_are_passed_over() {
        let (mut traffic, [first, again, first_above, again_above]) = waiting();
        assert_eq!(traffic.pop_next(CLASS, 1, &[Turn::Again]), Some(again));
        let ticket = traffic.flights.ticket(again);
        if let Some(flight) = traffic.flights.get_mut(ticket) {
            flight.state = State::InFlight { server: ServerId(0) };
        }
        let now = Timestamp::from_millis(9);
        assert_eq!(traffic.pop_overdue(now), Some(again_above));
        assert_eq!(traffic.pop_overdue(now), Some(first_above));
        assert_eq!(traffic.pop_overdue(now), None);
        assert_eq!(traffic.pop_next(CLASS, 1, &Turn::ALL), Some(first));
    }
}
