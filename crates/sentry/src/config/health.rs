//! How servers are checked.

use std::fmt;
use std::num::NonZeroU16;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};

use super::Spoken;

/// How servers are checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// How a server is asked; `None`: as its address says.
    pub with: Option<CheckWith>,
    /// The path that is requested; `None`: `/` where `with` says HTTP, else nothing is requested.
    pub path: Option<String>,
    /// The method of that request.
    pub method: Method,
    /// The gRPC service whose health is asked for, empty for the server as a whole; `None` where nothing says gRPC.
    pub service: Option<String>,
    /// The port that is asked; `None`: that of the server's address.
    pub port: Option<NonZeroU16>,
    /// The host that is asked for; `None`: the address that is asked.
    pub host: Option<String>,
    /// Further header fields of the request.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The statuses that are good, as ranges with both ends.
    pub status: Vec<(u16, u16)>,
    /// From the end of one check to the start of the next, on average.
    pub interval: Duration,
    /// How much of `interval` a check may be early or late, 0 to 1.
    pub jitter: f64,
    /// How long one check may take.
    pub timeout: Duration,
    /// Good checks in a row that bring a server up.
    pub rise: u32,
    /// Failed checks in a row that take a server down.
    pub fall: u32,
    /// Requests in a row that a server fails before it counts as down without waiting for a check; 0 for never.
    pub passive_failures: u32,
    /// Answers in a row that are errors before a server counts as down, while its siblings answer well; 0 for never.
    pub passive_errors: u32,
    /// The share of servers that may be down, 0 to 1, for another to be taken out by what becomes of requests.
    pub max_ejected: f64,
}

impl Default for Health {
    fn default() -> Self {
        Health {
            with: None,
            path: None,
            method: Method::GET,
            service: None,
            port: None,
            host: None,
            headers: Vec::new(),
            status: vec![(200, 399)],
            interval: Duration::from_secs(2),
            jitter: 0.1,
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 3,
            passive_failures: 5,
            passive_errors: 10,
            max_ejected: 0.5,
        }
    }
}

impl Health {
    /// How a server of which so much is known by its address is asked.
    pub(crate) fn with(&self, spoken: Spoken) -> CheckWith {
        let asks = match (&self.service, &self.path) {
            (Some(_), _) => Asks::Grpc,
            (None, None) => Asks::Connection,
            (None, Some(_)) if spoken.http2 => Asks::Http2,
            (None, Some(_)) => Asks::Http1,
        };
        self.with.unwrap_or(CheckWith { tls: spoken.tls, asks })
    }

    /// Whether a status is good.
    pub(crate) fn is_good(&self, status: u16) -> bool {
        self.status.iter().any(|(from, to)| (*from..=*to).contains(&status))
    }
}

/// How a server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckWith {
    /// Whether the connection begins with a TLS handshake.
    pub tls: bool,
    /// What is asked then.
    pub asks: Asks,
}

/// What is asked of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// Nothing: a connection is enough.
    Connection,
    /// A request of HTTP/1.1.
    Http1,
    /// A request of HTTP/2.
    Http2,
    /// `grpc.health.v1.Health/Check`.
    Grpc,
}

impl CheckWith {
    /// Every choice, in the order of messages.
    pub const ALL: [CheckWith; 8] = {
        const fn with(tls: bool, asks: Asks) -> CheckWith {
            CheckWith { tls, asks }
        }
        [
            with(false, Asks::Connection),
            with(true, Asks::Connection),
            with(false, Asks::Http1),
            with(true, Asks::Http1),
            with(false, Asks::Http2),
            with(true, Asks::Http2),
            with(false, Asks::Grpc),
            with(true, Asks::Grpc),
        ]
    };

    /// The name in the file.
    pub const fn name(self) -> &'static str {
        match (self.asks, self.tls) {
            (Asks::Connection, false) => "tcp",
            (Asks::Connection, true) => "tls",
            (Asks::Http1, false) => "http",
            (Asks::Http1, true) => "https",
            (Asks::Http2, false) => "h2c",
            (Asks::Http2, true) => "h2",
            (Asks::Grpc, false) => "grpc",
            (Asks::Grpc, true) => "grpcs",
        }
    }
}

impl fmt::Display for CheckWith {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
