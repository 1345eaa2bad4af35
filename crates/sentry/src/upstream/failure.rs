//! Why a request has no answer, and what its client, the engine and the log are told of it.

use tidegate_engine::Outcome;

use crate::counters::Counter;
use crate::gate::head::Bad;
use crate::grpc;
use crate::record::RecordEnd;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The client's fault.
    Bad(Bad),
    /// The server could not be reached.
    Connect,
    /// This machine has no descriptor, port or memory left to reach it.
    Local,
    /// The server could not be reached in time.
    ConnectTimeout,
    /// The server closed the connection instead of answering.
    Broken,
    /// What the server sent is no answer.
    Garbage,
    /// The answer did not begin in time.
    FirstByte,
    /// The server does not take the request's body.
    Unread,
    /// The whole request took too long.
    Request,
    /// The controller wants it ended, for the sake of others.
    Cancelled,
    /// There is no server to send it to.
    NoServer,
    /// A proxy that asks did not say by which id it will tell of the end.
    NoId,
}

impl Failure {
    /// The status the client gets, and the name in counters and logs.
    pub(crate) fn answer(self) -> (u16, &'static str) {
        match self {
            Failure::Bad(bad) => (bad.status(), bad.name()),
            Failure::Connect => (502, "server-unreachable"),
            Failure::Local => (503, "no-resources"),
            Failure::ConnectTimeout => (504, "connect-timeout"),
            Failure::Broken => (502, "server-closed"),
            Failure::Garbage => (502, "server-garbage"),
            Failure::FirstByte => (504, "first-byte-timeout"),
            Failure::Unread => (504, "body-unread-timeout"),
            Failure::Request => (504, "request-timeout"),
            Failure::Cancelled => (503, "runaway"),
            Failure::NoServer => (503, "no-server"),
            Failure::NoId => (500, "no-request-id"),
        }
    }

    /// The same in gRPC's words. Many clients make a call again that ends with `UNAVAILABLE`: a time-out, after which a
    /// server may still be at work, is not called so. A connection that broke is, as gRPC's own libraries call it.
    pub(crate) fn grpc_status(self) -> u8 {
        match self {
            Failure::Bad(bad) => bad.grpc_status(),
            Failure::Connect
            | Failure::Local
            | Failure::ConnectTimeout
            | Failure::Broken
            | Failure::Garbage
            | Failure::NoServer => grpc::UNAVAILABLE,
            Failure::FirstByte | Failure::Unread | Failure::Request => grpc::DEADLINE_EXCEEDED,
            Failure::Cancelled => grpc::RESOURCE_EXHAUSTED,
            Failure::NoId => grpc::INTERNAL,
        }
    }

    /// What the engine is told.
    pub(crate) fn outcome(self) -> Outcome {
        match self.end() {
            RecordEnd::TimedOut | RecordEnd::Cancelled => Outcome::timed_out(),
            _ => Outcome::failed(),
        }
    }

    /// What the log is told.
    pub(crate) fn end(self) -> RecordEnd {
        match self {
            Failure::Bad(_) | Failure::Local | Failure::NoId => RecordEnd::Complete,
            Failure::ConnectTimeout | Failure::FirstByte | Failure::Unread | Failure::Request => RecordEnd::TimedOut,
            Failure::Cancelled => RecordEnd::Cancelled,
            _ => RecordEnd::ServerFailed,
        }
    }

    /// Whether the server is to blame.
    pub(crate) fn blames_server(self) -> bool {
        matches!(self, Failure::Connect | Failure::ConnectTimeout | Failure::Broken | Failure::Garbage)
    }

    /// What counts it.
    pub(super) fn counter(self) -> Option<Counter> {
        Some(match self {
            Failure::Connect => Counter::ServerConnectErrors,
            Failure::Local => Counter::LocalErrors,
            Failure::ConnectTimeout => Counter::TimeoutConnect,
            Failure::Broken | Failure::Garbage => Counter::ServerErrors,
            Failure::FirstByte => Counter::TimeoutFirstByte,
            Failure::Unread => Counter::TimeoutBodyIdle,
            Failure::Request => Counter::TimeoutRequest,
            Failure::Bad(_) | Failure::NoServer | Failure::NoId | Failure::Cancelled => return None,
        })
    }
}
