//! What a policy is told of a request that comes or ends, and what it answers.

use crate::decision::{End, Reason};
use crate::request::{Request, ServerId};
use crate::time::Timestamp;

/// A request, and what it is expected to cost.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The request, as the driver classified it.
    pub request: Request,
    /// Expected inherent service time, seconds.
    pub cost: f64,
}

/// An admitted request, and how it ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The request, as the driver classified it.
    pub request: Request,
    /// The server where it was in flight, if any.
    pub server: Option<ServerId>,
    /// The end as the client saw it.
    pub end: End,
    /// Time at the server, seconds: queueing there included, the time a slow client took to read not.
    pub service_time: f64,
    /// Bytes of the answer, where the driver tells.
    pub bytes: Option<u64>,
    /// From its arrival to the end of its answer, of a stream to its beginning, seconds.
    pub response_time: f64,
    /// When it was sent to its server.
    pub started: Timestamp,
    /// Requests in flight then, itself included.
    pub in_flight_at_start: usize,
    /// Whether it is over; a stream goes on, and says nothing of how long work takes.
    pub is_over: bool,
    /// Whether its server did not work on it, as it seemed: how long it was there says nothing of work either.
    pub hung: bool,
}

/// A policy's answer to an arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Admission {
    /// Admit the request now.
    Admit,
    /// Let it wait in its class queue, in this cost bucket.
    Wait {
        /// The bucket, below [`AdmissionPolicy::buckets`](super::AdmissionPolicy::buckets).
        bucket: usize,
    },
    /// Refuse the request now.
    Refuse {
        /// Reason of the refusal.
        reason: Reason,
        /// The response time foreseen, seconds, where one was.
        predicted: Option<f64>,
    },
}

impl Admission {
    /// A refusal without a prediction.
    pub const fn refuse(reason: Reason) -> Self {
        Admission::Refuse { reason, predicted: None }
    }
}
