//! A fixed limit on requests in flight, and before it a queue that knows when it is standing.
//!
//! *Intuition.* A queue that empties now and then evens out bumps and does no harm. One that never empties is only
//! delay: then no request should wait long in it, and the newest, whose client is surely still there, goes first.
//!
//! *Applied.* While fewer than `limit` requests are in flight, each is admitted. The others wait. When a request
//! comes and the queue has been empty within the last `interval` (the source's N, 100 ms), it may wait for
//! `interval`; otherwise the queue is standing and it may wait for `target` (M, 5 ms). A request that waited longer
//! is refused. A place that becomes free goes to the oldest request, and while the queue is standing to the newest
//! (adaptive LIFO; `lifo = false` turns it off). It knows no classes: oldest and newest are of all classes.
//!
//! *Awkward cases.* It bounds the wait in its own queue, not the time at the servers. That depends on `limit`, for
//! which the source has no number, and which is a guess as with `concurrency`. The method is not CoDel's: RFC 8289
//! drops at a growing rate from the head; here only the time-out changes.
//!
//! *Source.* B. Maurer, *Fail at scale* (ACM Queue, 2015), "Controlled delay" and "Adaptive LIFO"; the limit is from
//! its "Concurrency control", the value is ours.

use core::time::Duration;
use serde::{Deserialize, Serialize};

use super::limit::MOST;
use super::{Admission, AdmissionPolicy, Arrival, Context, PolicyState, require};
use crate::decision::Reason;
use crate::request::ClassId;
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;
use crate::units::Seconds;

/// Settings; `target` and `interval` have the source's values.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Most requests in flight, all servers together.
    pub limit: u32,
    /// Most requests waiting.
    pub queue: u32,
    /// Longest wait of a request that finds a standing queue.
    pub target: Seconds,
    /// Longest wait of any other; a queue that was not empty for this long is standing.
    pub interval: Seconds,
    /// Whether the newest goes first while the queue is standing.
    pub lifo: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config { limit: 128, queue: 10_000, target: Seconds(0.005), interval: Seconds(0.1), lifo: true }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let wrong = |holds, key, problem| require(holds, "codel", key, problem);
        wrong((1..=MOST).contains(&self.limit), "limit", "must lie between 1 and 1000000")?;
        wrong((0.0001..=60.0).contains(&self.target.0), "target", "must lie between 100us and 1m")?;
        let range = self.target.0..=60.0;
        wrong(range.contains(&self.interval.0), "interval", "must lie between `target` and 1m")
    }

    pub(super) fn build(&self, _setup: &Setup) -> Codel {
        Codel {
            limit: self.limit as usize,
            queue: self.queue as usize,
            patience: [self.interval.duration(), self.target.duration()],
            lifo: self.lifo,
            last_empty: Timestamp::ZERO,
            expiry: None,
        }
    }
}

/// Buckets: who may wait for the interval, and who for the target.
const PATIENT: usize = 0;
const HURRIED: usize = 1;
const BUCKETS: [usize; 2] = [PATIENT, HURRIED];

/// State of the policy `codel`.
#[derive(Debug)]
pub struct Codel {
    limit: usize,
    queue: usize,
    /// Longest wait by bucket.
    patience: [Duration; 2],
    lifo: bool,
    /// When the queue was last seen empty.
    last_empty: Timestamp,
    /// When the first waiting request will have waited too long, as of the last look.
    expiry: Option<Timestamp>,
}

impl AdmissionPolicy for Codel {
    fn on_arrival(&mut self, cx: &mut Context<'_>, _arrival: &Arrival) -> Admission {
        self.look(cx);
        if self.room(cx) > 0 {
            return Admission::Admit;
        }
        if cx.shadow || self.queue == 0 {
            return Admission::refuse(cx.load.refusal(Reason::ConcurrencyLimit));
        }
        if cx.waiting_in_all() >= self.queue {
            return Admission::refuse(cx.load.refusal(Reason::QueueFull));
        }
        let bucket = if self.is_standing(cx.now) { HURRIED } else { PATIENT };
        let expires = cx.now + self.patience[bucket];
        self.expiry = Some(self.expiry.map_or(expires, |first| first.min(expires)));
        Admission::Wait { bucket }
    }

    fn on_completion(&mut self, cx: &mut Context<'_>) {
        self.look(cx);
        while self.room(cx) > 0 {
            if self.lifo && self.is_standing(cx.now) {
                let Some((class, bucket)) = newest(cx) else { break };
                cx.start_newest(class, bucket);
            } else {
                let Some((class, bucket)) = oldest(cx) else { break };
                cx.start(class, bucket, 1);
            }
        }
        self.look(cx);
    }

    /// A server may have come up.
    fn on_tick(&mut self, cx: &mut Context<'_>) {
        self.on_completion(cx);
    }

    /// Who waited under another policy waits on, no longer than any other.
    fn on_takeover(&mut self, cx: &mut Context<'_>) {
        self.last_empty = cx.now;
        self.expiry = self.first_expiry(cx);
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        for (class, bucket) in lists(cx) {
            let patience = self.patience[bucket];
            while cx.waiting_since(class, bucket).is_some_and(|since| since + patience <= cx.now) {
                cx.refuse(class, bucket, 1, cx.load.refusal(Reason::QueueTimeout), None);
            }
        }
        self.expiry = self.first_expiry(cx);
        self.look(cx);
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        self.expiry
    }

    fn buckets(&self) -> usize {
        BUCKETS.len()
    }

    fn describe(&self, state: &mut PolicyState) {
        state.limit = Some(self.limit as f64);
    }
}

impl Codel {
    fn room(&self, cx: &Context<'_>) -> usize {
        self.limit.saturating_sub(cx.load.in_flight).min(cx.load.free)
    }

    fn look(&mut self, cx: &Context<'_>) {
        if cx.waiting_in_all() == 0 {
            self.last_empty = cx.now;
        }
    }

    fn is_standing(&self, now: Timestamp) -> bool {
        now.since(self.last_empty) > self.patience[PATIENT]
    }

    fn first_expiry(&self, cx: &Context<'_>) -> Option<Timestamp> {
        let expires = |(class, bucket)| Some(cx.waiting_since(class, bucket)? + self.patience[bucket]);
        lists(cx).filter_map(expires).min()
    }
}

fn lists(cx: &Context<'_>) -> impl Iterator<Item = (ClassId, usize)> + use<> {
    cx.class_ids().flat_map(|class| BUCKETS.map(|bucket| (class, bucket)))
}

/// The list whose first has waited longest.
fn oldest(cx: &Context<'_>) -> Option<(ClassId, usize)> {
    let since = |list: (ClassId, usize)| Some((cx.waiting_since(list.0, list.1)?, list));
    lists(cx).filter_map(since).min_by_key(|(since, _)| *since).map(|(_, list)| list)
}

/// The list whose last came last.
fn newest(cx: &Context<'_>) -> Option<(ClassId, usize)> {
    let since = |list: (ClassId, usize)| Some((cx.newest_waiting_since(list.0, list.1)?, list));
    lists(cx).filter_map(since).max_by_key(|(since, _)| *since).map(|(_, list)| list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{Bench, answered};

    /// A bench at its limit of one, and the request in flight.
    fn full(settings: &str) -> (Bench, crate::Ticket) {
        let mut bench = Bench::new(&alloc::format!(r#"{{ "policy": "codel", "limit": 1 {settings} }}"#));
        let first = bench.arrive(2).expect("it is empty");
        (bench, first)
    }

    #[test]
    fn in_good_times_the_oldest_goes_first_whatever_its_class() {
        let (mut bench, first) = full("");
        let bronze = bench.wait(2);
        bench.advance(10);
        bench.wait(0);
        bench.complete(first, answered(10));
        assert_eq!(bench.started, [bronze]);
    }

    #[test]
    fn a_queue_that_never_empties_is_served_from_its_newest_end() {
        let (mut bench, mut flying) = full("");
        for _ in 0..4 {
            bench.wait(1);
            bench.advance(30);
            bench.wait(1);
            bench.complete(flying, answered(30));
            flying = *bench.started.last().expect("a place was free");
        }
        // Not empty for 120 ms: standing.
        bench.advance(1);
        let (_, newest) = (bench.wait(0), {
            bench.advance(2);
            bench.wait(1)
        });
        bench.complete(flying, answered(30));
        assert_eq!(bench.started.last(), Some(&newest));
    }

    #[test]
    fn who_finds_a_standing_queue_waits_five_milliseconds_and_others_a_hundred() {
        let (mut bench, _first) = full("");
        let patient = bench.wait(0);
        bench.advance(50);
        let second = bench.wait(0);
        bench.advance(49);
        assert_eq!(bench.refused, []);
        bench.advance(2);
        assert_eq!(bench.refused, [(patient, Reason::QueueTimeout)]);
        // Empty at 0 ms, now 101 ms: standing.
        let hurried = bench.wait(0);
        bench.advance(4);
        assert_eq!(bench.refused.len(), 1);
        bench.advance(1);
        assert_eq!(bench.refused[1..], [(hurried, Reason::QueueTimeout)]);
        bench.advance(44);
        assert_eq!(bench.refused[2..], [(second, Reason::QueueTimeout)]);
        // Empty again: in good times.
        bench.wait(0);
        bench.advance(99);
        assert_eq!(bench.refused.len(), 3);
    }

    #[test]
    fn a_full_queue_refuses() {
        let (mut bench, _first) = full(r#", "queue": 1"#);
        bench.wait(0);
        let decision = bench.decide(0);
        assert!(matches!(decision, crate::Decision::Reject(r) if r.reason == Reason::QueueFull), "{decision:?}");
    }
}
