//! Events: what the engine did and why. Metrics, logs, the dashboard and golden files are made from them.

use alloc::string::String;
use alloc::vec::Vec;

use crate::request::{ClassId, ServerId};
use crate::time::Timestamp;

/// Something the engine did, or noticed, that a person may ask about later.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The `sentry` policy changed between batch and threshold policing.
    PolicySwitched {
        /// The policy in force before.
        from: &'static str,
        /// The policy in force now.
        to: &'static str,
        /// The measurement that decided it.
        reason: String,
    },
    /// A new admission threshold (cataclysm.md, threshold policing).
    ThresholdSet {
        /// Classes above pass, classes below are refused.
        class: ClassId,
        /// The share of `class` that passes, 0 to 1.
        admit: f64,
    },
    /// New processing delays d_i, seconds per class (cataclysm.md, delays).
    DelaysSet {
        /// One delay per class, most important first.
        delays: Vec<f64>,
        /// A class whose bound cannot be met within the cap, if any.
        unmet: Option<ClassId>,
    },
    /// A server's learned capacity moved by more than a quarter.
    CapacityLearned {
        /// Which server.
        server: ServerId,
        /// Effective processors before.
        from: f64,
        /// Effective processors now.
        to: f64,
    },
    /// The SLA's target changed with the arrival rate.
    TargetChanged {
        /// Seconds before.
        from: f64,
        /// Seconds now.
        to: f64,
    },
    /// A server came up, went down, or drains.
    ServerChanged {
        /// Which server.
        server: ServerId,
        /// Its state now.
        status: crate::server::Status,
    },
    /// A server is in another partition now; it finishes what it has.
    ServerMoved {
        /// Which server.
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
        /// Which class.
        class: ClassId,
        /// The reason of the first refusal.
        reason: crate::decision::Reason,
    },
    /// No request of the class was refused for a second.
    RefusalEnded {
        /// Which class.
        class: ClassId,
        /// How many were refused since it began.
        refused: u64,
    },
    /// The first requests went to data servers, after a second or more in which none did (SOFTScale).
    StealingBegan {
        /// The most that a data server may have in flight.
        limit: u32,
        /// The load, as a share of the data tier's peak.
        load: f64,
    },
    /// No request went to a data server for a second.
    StealingEnded {
        /// How many did since it began.
        stolen: u64,
    },
    /// Data servers lend more or less: the load went over a step of their profile.
    LendingChanged {
        /// The most that a data server might have in flight before.
        from: u32,
        /// The most that it may have now.
        to: u32,
        /// The load, as a share of the data tier's peak.
        load: f64,
    },
    /// The cores of a data server cannot be divided any more, so nothing is stolen there; or they can again.
    LenderChanged {
        /// Which server.
        server: ServerId,
        /// Whether it can lend now.
        lends: bool,
    },
    /// A resource's controller does something else than in the sample before.
    ResourceControlled {
        /// The resource; `syn`: new connections.
        resource: String,
        /// At which server; `None`: at all together.
        server: Option<ServerId>,
        /// Requests per second that it lets in; `None`: all.
        rate: Option<f64>,
        /// What was measured, in the signal's unit.
        input: Option<f64>,
        /// The reference less the input.
        error: f64,
        /// What the control law said, requests per second.
        step: f64,
        /// What was done, or why nothing was.
        why: &'static str,
    },
}

impl Event {
    /// A short name for metrics and the event stream.
    pub const fn name(&self) -> &'static str {
        match self {
            Event::PolicySwitched { .. } => "policy-switched",
            Event::ThresholdSet { .. } => "threshold-set",
            Event::DelaysSet { .. } => "delays-set",
            Event::CapacityLearned { .. } => "capacity-learned",
            Event::TargetChanged { .. } => "target-changed",
            Event::ServerChanged { .. } => "server-changed",
            Event::ServerMoved { .. } => "server-moved",
            Event::PartitionsSet { .. } => "partitions-set",
            Event::RefusalBegan { .. } => "refusal-began",
            Event::RefusalEnded { .. } => "refusal-ended",
            Event::StealingBegan { .. } => "stealing-began",
            Event::StealingEnded { .. } => "stealing-ended",
            Event::LendingChanged { .. } => "lending-changed",
            Event::LenderChanged { .. } => "lender-changed",
            Event::ResourceControlled { .. } => "resource-controlled",
        }
    }
}

/// Where events go. Called inside the controller's lock: take the event and return.
pub trait EventSink {
    /// Takes one event.
    fn record(&mut self, now: Timestamp, event: Event);
}

/// Drops every event.
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
