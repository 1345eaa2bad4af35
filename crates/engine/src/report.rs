//! Reports from outside the engine: the sentry's own load, and what nuclei measure on servers.

use crate::request::{RequestTypeId, ServerId};

/// A measurement that drivers bring.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum LoadReport {
    /// Share of the sentry's own processors in use, 0 to 1.
    SentryCpu(f64),
    /// A server's nucleus says how it is doing.
    Server {
        /// Which server.
        server: ServerId,
        /// How it is doing.
        load: ServerLoad,
    },
    /// A server's nucleus says how many requests of a type are in service there, whoever sent them. It counts with the
    /// next [`LoadReport::Server`] of the server, which closes the report.
    Active {
        /// Which server.
        server: ServerId,
        /// Of which type.
        request_type: RequestTypeId,
        /// How many.
        count: f64,
    },
    /// Nothing was heard of a server's nucleus for too long, or it stopped: from now on the server is judged by what
    /// the sentry sees itself, as if it had no nucleus.
    Silent(ServerId),
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
