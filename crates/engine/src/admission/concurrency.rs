//! A fixed limit on requests in flight.
//!
//! *Intuition.* A car park with a barrier: when it is full, cars wait in a short lane, and when that is full too they
//! are sent on. The lane has one file per class, and a place that becomes free goes to the most important file.
//!
//! *Awkward cases.* The right limit depends on how long requests take, which the barrier does not know: too low
//! leaves the servers idle, too high lets response times grow. That is why it is a baseline here and not the default.
//! A request that waited longer than `queue_timeout` is refused, so that the lane does not fill with clients that
//! have left.
//!
//! *Source.* What HAProxy's `maxconn` with `timeout queue` does, with classes.

use core::time::Duration;
use serde::{Deserialize, Serialize};

use super::{Admission, AdmissionPolicy, Arrival, Context, PolicyState, require};
use crate::decision::Reason;
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;
use crate::units::Seconds;

/// Settings of the policy `concurrency`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Most requests in flight, all servers together.
    pub limit: u32,
    /// Most requests waiting, all classes together.
    pub queue: u32,
    /// Longest wait.
    pub queue_timeout: Seconds,
}

impl Default for Config {
    fn default() -> Self {
        Config { limit: 128, queue: 0, queue_timeout: Seconds(1.0) }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let timeout = self.queue_timeout.0;
        require(timeout.is_finite() && timeout > 0.0, "concurrency", "queue_timeout", "must be more than zero")
    }

    pub(super) fn build(&self, setup: &Setup) -> Concurrency {
        let timeout = self.queue_timeout.duration();
        Concurrency {
            limit: self.limit as usize,
            queue: self.queue as usize,
            timeout,
            expiry: alloc::vec![None; setup.classes.len()],
        }
    }
}

/// State of the policy `concurrency`.
#[derive(Debug)]
pub struct Concurrency {
    limit: usize,
    queue: usize,
    timeout: Duration,
    /// Per class: when its first waiting request will have waited too long, as of the last look.
    expiry: alloc::vec::Vec<Option<Timestamp>>,
}

impl AdmissionPolicy for Concurrency {
    fn on_arrival(&mut self, cx: &mut Context<'_>, arrival: &Arrival) -> Admission {
        if self.room(cx) > 0 {
            return Admission::Admit;
        }
        if cx.waiting_in_all() >= self.queue || cx.shadow {
            let reason = if self.queue == 0 { Reason::ConcurrencyLimit } else { Reason::QueueFull };
            return Admission::refuse(cx.load.refusal(reason));
        }
        let expiry = &mut self.expiry[arrival.request.class.index()];
        expiry.get_or_insert(cx.now + self.timeout);
        Admission::Wait { bucket: 0 }
    }

    fn is_full(&self, cx: &Context<'_>) -> bool {
        self.room(cx) == 0 && cx.waiting_in_all() >= self.queue
    }

    fn on_completion(&mut self, cx: &mut Context<'_>) {
        for class in cx.class_ids() {
            let count = self.room(cx).min(cx.waiting(class));
            cx.start(class, 0, count);
        }
    }

    /// Who waited under another policy waits on, no longer than any other.
    fn on_takeover(&mut self, cx: &mut Context<'_>) {
        for class in cx.class_ids() {
            self.expiry[class.index()] = cx.waiting_since(class, 0).map(|since| since + self.timeout);
        }
    }

    /// A server may have come up, or a limit may have been raised by a reload.
    fn on_tick(&mut self, cx: &mut Context<'_>) {
        self.on_completion(cx);
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        for class in cx.class_ids() {
            let expires = |since: Timestamp| since + self.timeout;
            while cx.waiting_since(class, 0).is_some_and(|since| expires(since) <= cx.now) {
                cx.refuse(class, 0, 1, Reason::QueueTimeout, None);
            }
            self.expiry[class.index()] = cx.waiting_since(class, 0).map(expires);
        }
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        self.expiry.iter().flatten().min().copied()
    }

    fn describe(&self, state: &mut PolicyState) {
        state.limit = Some(self.limit as f64);
    }
}

impl Concurrency {
    fn room(&self, cx: &Context<'_>) -> usize {
        self.limit.saturating_sub(cx.load.in_flight).min(cx.load.free)
    }
}
