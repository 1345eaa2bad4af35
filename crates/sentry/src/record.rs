//! What is told of a request when it is over: the access log and the metrics are made from this.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_engine::{ClassId, Open, Reason, Rejection, RequestTypeId, ServerId};

/// One request, from its head to the last byte of its answer.
#[derive(Clone, Copy, Debug)]
pub struct RequestRecord<'a> {
    /// The other end of the client's connection.
    pub client: SocketAddr,
    /// The method.
    pub method: &'a str,
    /// The `Host` field.
    pub host: Option<&'a str>,
    /// The path with its query.
    pub path: &'a str,
    /// The class it was put in.
    pub class: ClassId,
    /// The route it was put in.
    pub request_type: RequestTypeId,
    /// What was decided.
    pub decision: Decided,
    /// The server that answered, or was asked last.
    pub server: Option<ServerId>,
    /// How it came.
    pub protocol: Protocol,
    /// The status the client got.
    pub status: u16,
    /// The status of gRPC it got, where it asked by gRPC and was told one.
    pub grpc_status: Option<u8>,
    /// Body bytes from the client.
    pub bytes_in: u64,
    /// Body bytes to the client.
    pub bytes_out: u64,
    /// Time in a class queue.
    pub waited: Duration,
    /// From arrival to the server's first byte.
    pub first_byte: Option<Duration>,
    /// From arrival to the last byte handed to the client's socket.
    pub total: Duration,
    /// How it ended.
    pub end: RecordEnd,
    /// What it was, where it was not simply answered.
    pub work: Option<Work>,
    /// How often it was sent again.
    pub retries: u32,
    /// The `X-Request-Id` it carried or was given.
    pub request_id: Option<&'a str>,
}

/// The version of HTTP by which a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.0 and HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

impl Protocol {
    /// The name in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Http1 => "h1",
            Protocol::Http2 => "h2",
        }
    }
}

/// What was decided about a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decided {
    /// It was admitted.
    Admitted,
    /// It was admitted because nothing is refused in shadow mode; this would have been the reason.
    Shadow(Reason),
    /// It is exempt from policing.
    Exempt,
    /// It was refused.
    Rejected(Rejection),
    /// The sentry answered with an error of its own, named by its counter.
    Error(&'static str),
}

/// What an admitted request was that was not simply answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Its client left, or its time was up, and its server works on.
    Ghost,
    /// It was open, and not in flight.
    Open(Open),
}

impl Work {
    /// The name in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Work::Ghost => "ghost",
            Work::Open(Open::Stream) => "stream",
            Work::Open(Open::Poll) => "poll",
            Work::Open(Open::Tunnel) => "tunnel",
        }
    }
}

/// How a request ended, as the client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordEnd {
    /// Answered to the last byte.
    Complete,
    /// The client left first.
    ClientGone,
    /// The server could not be reached, or broke its answer off.
    ServerFailed,
    /// A time-out of the sentry ended it.
    TimedOut,
    /// The controller ended it: it had used several times what it was expected to cost, and others waited.
    Cancelled,
    /// Answered to the last byte: a service that its server called had refused it.
    RefusedBelow,
    /// It became a tunnel (`101 Switching Protocols`).
    Upgraded,
}

impl RecordEnd {
    /// The name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            RecordEnd::Complete => "complete",
            RecordEnd::ClientGone => "client-gone",
            RecordEnd::ServerFailed => "server-failed",
            RecordEnd::TimedOut => "timed-out",
            RecordEnd::Cancelled => "cancelled",
            RecordEnd::RefusedBelow => "refused-below",
            RecordEnd::Upgraded => "upgraded",
        }
    }
}

/// Who is told of finished requests.
pub trait RecordSink: Send + Sync + std::fmt::Debug {
    /// Whether anyone wants to hear of them: a record costs something to make.
    fn enabled(&self) -> bool;

    /// One request is over. Must not block.
    fn record(&self, app: &str, class_name: &str, record: &RequestRecord<'_>);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRecords;

impl RecordSink for NoRecords {
    fn enabled(&self) -> bool {
        false
    }

    fn record(&self, _app: &str, _class_name: &str, _record: &RequestRecord<'_>) {}
}
