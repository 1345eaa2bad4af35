//! Reports from outside the engine: the sentry's own load, and what nuclei measure on servers.

use crate::request::{RequestTypeId, ServerId};
use crate::signal::Signal;

/// A measurement that drivers bring.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum LoadReport {
    /// Share of the sentry's own processors in use, 0 to 1.
    SentryCpu(f64),
    /// A server's nucleus says how it is doing.
    Server {
        /// The server that was measured.
        server: ServerId,
        /// How it is doing.
        load: ServerLoad,
    },
    /// A server's nucleus says how many requests of a type are in service there, whoever sent them. It counts with the
    /// next [`LoadReport::Server`] of the server, which closes the report.
    Active {
        /// The server that was measured.
        server: ServerId,
        /// The type of the requests.
        request_type: RequestTypeId,
        /// Number of requests of the type.
        count: f64,
    },
    /// Nothing was heard of a server's nucleus for too long, or it stopped: from now on the server is judged by what
    /// the sentry sees itself, as if it had no nucleus.
    Silent(ServerId),
    /// Whether a data server can lend: its nucleus can divide its cores as [`Action::Isolate`](crate::Action::Isolate)
    /// wants it, or nobody said anything else. One that cannot gets nothing new.
    Lends {
        /// The data server concerned.
        server: ServerId,
        /// Whether it can divide its cores.
        can: bool,
    },
    /// More servers were asked for, and the first of them will serve then; `None`: none is on its way. Who is refused
    /// until then is told to come back when there is room.
    Coming(Option<crate::time::Timestamp>),
    /// How much of a resource is in use now.
    Signal {
        /// Where; `None`: at the sentry.
        server: Option<ServerId>,
        /// The signal that was measured.
        signal: Signal,
        /// How much, in the signal's unit. What is no number, or below 0, is ignored.
        value: f64,
    },
    /// New connections at the sentry's own port since the last such report. What the kernel sees of those that it turns
    /// away, nobody else does.
    Connections {
        /// New connections that arrived.
        offered: u64,
        /// Of these, turned away before a handshake.
        refused: u64,
    },
}

/// What a nucleus measured on its server, as far as the engine uses it. `None`: it does not measure that.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerLoad {
    /// Q: how long a request waits at the server before service begins, seconds.
    pub queueing_delay: Option<f64>,
    /// Requests in service there, whoever sent them.
    pub in_service: Option<f64>,
    /// Requests that wait there for service to begin.
    pub waiting: Option<f64>,
    /// Effective processors, where the server's operator said so.
    pub processors: Option<f64>,
}

/// What one request used at its server, measured there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeasuredCost {
    /// Processor time, seconds.
    pub cpu: f64,
    /// Time in which it waited for disks and the like, seconds.
    pub io: f64,
    /// From the request sent to the server's last byte, seconds; `None` when that is not known.
    pub service_time: Option<f64>,
}
