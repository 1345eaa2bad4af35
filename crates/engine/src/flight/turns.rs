//! Turns inside a class queue: first tries before retries, and until when each may wait.
//!
//! Every bucket of a policy is two lists of [`Waiting`]: the policy's own number for first tries, and the same beyond
//! its last bucket for retries. Policies know nothing of it: who is let in is the first of the first tries, who has
//! waited longest is the older of the two heads.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use super::Traffic;
use super::table::State;
use super::waiting::Waiting;
use crate::request::{ClassId, Ticket};
use crate::time::Timestamp;

/// The lists of first tries and retries for `buckets` of a policy.
pub(super) fn lists(classes: usize, buckets: usize) -> Waiting {
    Waiting::new(classes, 2 * buckets.max(1))
}

/// Until when requests may wait that have a deadline; some of them may be gone.
#[derive(Debug, Default)]
pub(crate) struct Overdue(BinaryHeap<Reverse<(Timestamp, Ticket)>>);

/// So many entries of requests that are gone are kept beside those that wait.
const STALE_LEAST: usize = 64;

impl Traffic {
    /// How many buckets a policy has.
    pub(crate) fn buckets(&self) -> usize {
        self.waiting.buckets() / 2
    }

    /// The list in which a request waits that its policy put into `bucket`.
    pub(crate) fn list(&self, bucket: usize, is_retry: bool) -> usize {
        let buckets = self.buckets();
        bucket.min(buckets - 1) + if is_retry { buckets } else { 0 }
    }

    /// First tries that wait in a bucket.
    pub(crate) fn first_tries(&self, class: ClassId, bucket: usize) -> usize {
        self.waiting.bucket_len(class, self.list(bucket, false)) as usize
    }

    /// Requests that wait in a bucket.
    pub(crate) fn waiting_in(&self, class: ClassId, bucket: usize) -> usize {
        self.first_tries(class, bucket) + self.waiting.bucket_len(class, self.list(bucket, true)) as usize
    }

    /// The next of a bucket: the first first try, else the first retry. It waits no longer.
    pub(crate) fn pop_next(&mut self, class: ClassId, bucket: usize) -> Option<u32> {
        self.pop_first_try(class, bucket).or_else(|| {
            let list = self.list(bucket, true);
            self.waiting.pop(&mut self.flights, class, list)
        })
    }

    /// The first of a bucket's first tries. It waits no longer.
    pub(crate) fn pop_first_try(&mut self, class: ClassId, bucket: usize) -> Option<u32> {
        let list = self.list(bucket, false);
        self.waiting.pop(&mut self.flights, class, list)
    }

    /// The last of a bucket's first tries, else of its retries. It waits no longer.
    pub(crate) fn pop_newest(&mut self, class: ClassId, bucket: usize) -> Option<u32> {
        let lists = [self.list(bucket, false), self.list(bucket, true)];
        lists.into_iter().find_map(|list| self.waiting.pop_last(&mut self.flights, class, list))
    }

    /// The one of a bucket that has waited longest. It waits no longer.
    pub(crate) fn pop_oldest(&mut self, class: ClassId, bucket: usize) -> Option<u32> {
        let (_, list) = self.oldest(class, bucket)?;
        self.waiting.pop(&mut self.flights, class, list)
    }

    /// Since when the one of a bucket waits that has waited longest.
    pub(crate) fn waiting_since(&self, class: ClassId, bucket: usize) -> Option<Timestamp> {
        self.oldest(class, bucket).map(|(since, _)| since)
    }

    /// Since when the one of a bucket waits that is let in first from its newest end.
    pub(crate) fn newest_since(&self, class: ClassId, bucket: usize) -> Option<Timestamp> {
        let lists = [self.list(bucket, false), self.list(bucket, true)];
        let slot = lists.into_iter().find_map(|list| self.waiting.last(class, list))?;
        Some(self.flights.arrived(slot))
    }

    fn oldest(&self, class: ClassId, bucket: usize) -> Option<(Timestamp, usize)> {
        let since = |list: usize| Some((self.flights.arrived(self.waiting.first(class, list)?), list));
        [self.list(bucket, false), self.list(bucket, true)].into_iter().filter_map(since).min()
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
            if let State::Waiting { bucket } = flight.state {
                self.waiting.unlink(&mut self.flights, flight.request.class, bucket, ticket.slot);
                return Some(ticket.slot);
            }
        }
        None
    }
}
