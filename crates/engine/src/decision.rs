//! Decisions of the engine, and the outcomes that drivers report afterwards.

use core::fmt;
use core::time::Duration;

use crate::request::{ClassId, ServerId, Ticket};

/// The answer to an arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// Send it to `server` now.
    Admit {
        /// Names the request until its completion or cancel.
        ticket: Ticket,
        /// The server that gets the request.
        server: ServerId,
        /// In shadow mode: the rejection that was decided, counted, and not carried out.
        shadow: Option<Rejection>,
    },
    /// It waits in its class queue; an [`Action`] will start or refuse it.
    Enqueue {
        /// Names the request until its completion or cancel.
        ticket: Ticket,
    },
    /// Refuse the request now.
    Reject(Rejection),
}

/// What the controller wants done about a request that waits, or about the world.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Send the waiting request to `server` now.
    Start {
        /// The ticket of the waiting request.
        ticket: Ticket,
        /// The server that gets the request.
        server: ServerId,
    },
    /// Refuse the waiting request; its ticket is dead.
    Refuse {
        /// The ticket of the waiting request.
        ticket: Ticket,
        /// Why, and when to come back.
        rejection: Rejection,
    },
    /// Tell the nucleus of data server `server` to give the application's software `cores` of its cores; the data
    /// service keeps the others. Said when it changes, and again when the server is up again.
    Isolate {
        /// The data server whose cores are divided.
        server: ServerId,
        /// Cores for application work; 0: the data service has all.
        cores: u32,
    },
    /// Let in so many new connections per second at the application's port, before their handshakes where that can be
    /// done. Said when it changes.
    SynRate {
        /// Connections per second; `None`: all.
        rate: Option<f64>,
        /// Most connections at once: the depth of the bucket.
        depth: f64,
    },
    /// End a request in flight that has used several times its predicted cost: close its connection to the server,
    /// answer its client, and say so with [`AbandonedBy::Controller`]. Said once.
    Cancel {
        /// The ticket of the request in flight.
        ticket: Ticket,
    },
}

/// A refusal that explains itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rejection {
    /// Why the request was refused.
    pub reason: Reason,
    /// The policy that refused.
    pub policy: &'static str,
    /// Class of the refused request.
    pub class: ClassId,
    /// When trying again makes sense: the time the application needs to drain what it holds.
    pub retry_after: Duration,
    /// The response time the policy foresaw, where it foresaw one.
    pub predicted: Option<Duration>,
}

/// Why a request was refused. The names are part of the rejection contract (`Tidegate-Decision: reason=...`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The predicted response time is over the target (batch test).
    SlaTarget,
    /// A more important class failed the test at the same instant.
    MoreImportantFirst,
    /// The class is below the admission threshold, or lost the draw at it.
    Threshold,
    /// The limit on requests in flight is reached.
    ConcurrencyLimit,
    /// The class queue is full.
    QueueFull,
    /// The request waited in the queue for the longest permitted time.
    QueueTimeout,
    /// The rate limit of its class and request type is reached.
    RateLimit,
    /// A resource that the request needs is exhausted: its token bucket is empty.
    ResourceLimit,
    /// There is not enough for all, and its tenant has had its fair share of the class.
    TenantShare,
    /// Its tenant's own limit is reached.
    TenantLimit,
    /// Every server is at its connection limit.
    ServerLimit,
    /// No server is up.
    NoServer,
    /// It could not have been answered before its own deadline, or waited until then.
    Deadline,
    /// It is a repeated try, and first tries of its class are being refused.
    FirstTriesFirst,
    /// A service that its server calls would refuse it, as it refused others of its kind.
    RefusedBelow,
    /// Its turn would have come, or came, too late for its own deadline, or when clients of its class that wait for so
    /// long leave.
    Patience,
}

impl Reason {
    /// Every reason, for tables and metrics.
    pub const ALL: [Reason; 16] = [
        Reason::SlaTarget,
        Reason::MoreImportantFirst,
        Reason::Threshold,
        Reason::ConcurrencyLimit,
        Reason::QueueFull,
        Reason::QueueTimeout,
        Reason::RateLimit,
        Reason::ResourceLimit,
        Reason::TenantShare,
        Reason::TenantLimit,
        Reason::ServerLimit,
        Reason::NoServer,
        Reason::Deadline,
        Reason::FirstTriesFirst,
        Reason::RefusedBelow,
        Reason::Patience,
    ];

    /// The reason's name in headers, metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::SlaTarget => "sla-target",
            Reason::MoreImportantFirst => "more-important-first",
            Reason::Threshold => "threshold",
            Reason::ConcurrencyLimit => "concurrency-limit",
            Reason::QueueFull => "queue-full",
            Reason::QueueTimeout => "queue-timeout",
            Reason::RateLimit => "rate-limit",
            Reason::ResourceLimit => "resource-limit",
            Reason::TenantShare => "tenant-share",
            Reason::TenantLimit => "tenant-limit",
            Reason::ServerLimit => "server-limit",
            Reason::NoServer => "no-server",
            Reason::Deadline => "deadline",
            Reason::FirstTriesFirst => "first-tries-first",
            Reason::RefusedBelow => "refused-below",
            Reason::Patience => "patience",
        }
    }

    /// The reason in a sentence for a person.
    pub const fn explanation(self) -> &'static str {
        match self {
            Reason::SlaTarget => "it could not have been answered within the response-time target",
            Reason::MoreImportantFirst => "capacity is kept for more important requests",
            Reason::Threshold => "more requests arrive than can be served, and more important requests go first",
            Reason::ConcurrencyLimit => "the limit on concurrent requests is reached",
            Reason::QueueFull => "the queue is full",
            Reason::QueueTimeout => "it waited in the queue for too long",
            Reason::RateLimit => "the rate limit for this kind of request is reached",
            Reason::ResourceLimit => "it needs a resource that is exhausted",
            Reason::TenantShare => "more requests arrive than can be served, and its tenant has had its fair share",
            Reason::TenantLimit => "the limit of its tenant is reached",
            Reason::ServerLimit => "every server is at its connection limit",
            Reason::NoServer => "no server is available",
            Reason::Deadline => "it could not have been answered before its own deadline",
            Reason::FirstTriesFirst => "requests that come for the first time go before those that are tried again",
            Reason::RefusedBelow => "a service that it needs takes no more requests of its kind",
            Reason::Patience => "it would have had to wait for longer than its client stays",
        }
    }

    /// Whether a refusal for it says that more arrives than can be served.
    pub(crate) const fn is_contention(self) -> bool {
        use Reason::{Deadline, FirstTriesFirst, NoServer, RefusedBelow, TenantLimit};
        !matches!(self, NoServer | Deadline | FirstTriesFirst | TenantLimit | RefusedBelow)
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How an admitted request ended. A client that leaves is not an outcome but a cancel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The end as the client saw it.
    pub end: End,
    /// Time at the server: from sending the request to the server's last byte. Costs are learned from it.
    /// `None` when the driver cannot tell: the time since the start is used.
    pub service_time: Option<Duration>,
    /// Bytes of the answer; `None` when the driver does not count them.
    pub bytes: Option<u64>,
    /// The request failed because a service that its server called refused it.
    pub refused_below: bool,
}

impl Outcome {
    /// The outcome of a complete answer.
    pub const fn answered() -> Self {
        Outcome { end: End::Answered, service_time: None, bytes: None, refused_below: false }
    }

    /// A complete answer that took the server `service_time`.
    pub const fn answered_in(service_time: Duration) -> Self {
        Outcome { service_time: Some(service_time), ..Self::answered() }
    }

    /// The outcome of a failure at the server.
    pub const fn failed() -> Self {
        Outcome { end: End::Failed, ..Self::answered() }
    }

    /// The answer says that a service which the server called refused the request: a failure from which nothing is
    /// learned of the server, but that fewer such requests should be let in.
    pub const fn refused_below() -> Self {
        Outcome { refused_below: true, ..Self::failed() }
    }

    /// A time-out of the sentry ended it.
    pub const fn timed_out() -> Self {
        Outcome { end: End::TimedOut, ..Self::answered() }
    }
}

/// Why nobody waits for the answer any more of a request that a server works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AbandonedBy {
    /// Its client left.
    Client,
    /// A time-out of the sentry ended it.
    TimeOut,
    /// The controller had it ended: [`Action::Cancel`].
    Controller,
}

/// How the end of a ghost's work becomes known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Watch {
    /// The driver sees the server close or answer, and says so.
    Driver,
    /// Not at all: the work is taken to last as long as it is expected to.
    Nobody,
}

/// What is open at a server without being work there: it has no place, and counts in a pool of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Open {
    /// Its answer has begun and goes on as things happen: server-sent events, for example.
    Stream,
    /// Its answer begins when something happens: a long poll.
    Poll,
    /// Both sides changed protocol.
    Tunnel,
}

/// The ways an admitted request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Answered to the last byte, with a status below 500.
    Answered,
    /// The server answered with a 5xx status, broke the answer off, or could not be reached.
    Failed,
    /// A time-out of the sentry ended it.
    TimedOut,
}
