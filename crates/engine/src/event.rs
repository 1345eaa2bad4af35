//! Events: what the engine did and why. Metrics, logs, the dashboard and golden files are made from them.

use alloc::vec::Vec;
use core::fmt;

use crate::facts::Facts;
use crate::request::{ClassId, ServerId};
use crate::time::Timestamp;

/// Something the engine did, or noticed, that a person may ask about later.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// What only this admission policy says.
    Admission(Facts),
    /// What only this dispatch policy says.
    Dispatch(Facts),
    /// A server's learned capacity moved by more than a quarter.
    CapacityLearned {
        /// The server concerned.
        server: ServerId,
        /// Number of effective processors before the change.
        from: f64,
        /// Number of effective processors after the change.
        to: f64,
    },
    /// The SLA's target changed with the arrival rate.
    TargetChanged {
        /// Value before the change, seconds.
        from: f64,
        /// Value after the change, seconds.
        to: f64,
    },
    /// A server came up, went down, or drains.
    ServerChanged {
        /// The server concerned.
        server: ServerId,
        /// State of the server after the change.
        status: crate::fleet::Status,
    },
    /// A server is in another partition now; it finishes what it has.
    ServerMoved {
        /// The server concerned.
        server: ServerId,
        /// The most important class whose requests it got.
        from: ClassId,
        /// The most important class whose requests it gets now.
        to: ClassId,
    },
    /// The sizes of the partitions changed, by a move or because servers came or went.
    PartitionsSet {
        /// Servers that take requests, by partition, that of the most important class first.
        servers: Vec<usize>,
    },
    /// A class began to be refused, after a second or more in which none of it was.
    RefusalBegan {
        /// The class concerned.
        class: ClassId,
        /// The reason of the first refusal.
        reason: crate::decision::Reason,
    },
    /// No request of the class was refused for a second.
    RefusalEnded {
        /// The class concerned.
        class: ClassId,
        /// How many were refused since it began.
        refused: u64,
    },
    /// A request in flight is to be ended: it has used several times its predicted cost, and a more important class
    /// misses the target.
    RunawayCancelled {
        /// Class of the request.
        class: ClassId,
        /// The server that worked on it.
        server: ServerId,
        /// What it has received of its server's processors, seconds.
        used: f64,
        /// What it was expected to cost, seconds.
        predicted: f64,
    },
    /// The cores of a data server cannot be divided any more, so nothing is stolen there; or they can again.
    LenderChanged {
        /// The server concerned.
        server: ServerId,
        /// Whether it can lend now.
        lends: bool,
    },
}

impl Event {
    /// A short name for metrics and the event stream.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Admission(facts) | Event::Dispatch(facts) => facts.name(),
            Event::CapacityLearned { .. } => "capacity-learned",
            Event::TargetChanged { .. } => "target-changed",
            Event::ServerChanged { .. } => "server-changed",
            Event::ServerMoved { .. } => "server-moved",
            Event::PartitionsSet { .. } => "partitions-set",
            Event::RefusalBegan { .. } => "refusal-began",
            Event::RefusalEnded { .. } => "refusal-ended",
            Event::RunawayCancelled { .. } => "runaway-cancelled",
            Event::LenderChanged { .. } => "lender-changed",
        }
    }
}

/// The event and its particulars, in a line.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Admission(facts) | Event::Dispatch(facts) => write!(f, "{facts:?}"),
            event => write!(f, "{event:?}"),
        }
    }
}

/// Where events go. Called inside the controller's lock: take the event and return.
pub trait EventSink {
    /// Takes one event.
    fn record(&mut self, now: Timestamp, event: Event);
}

/// A sink that drops every event.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

impl EventSink for NoEvents {
    fn record(&mut self, _now: Timestamp, _event: Event) {}
}

/// Keeps every event, in order: for tests and golden trajectories.
impl EventSink for Vec<(Timestamp, Event)> {
    fn record(&mut self, now: Timestamp, event: Event) {
        self.push((now, event));
    }
}
