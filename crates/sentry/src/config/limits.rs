//! How much an application accepts, and how long it waits.

use std::time::Duration;

use tidegate_engine::MOST_OPEN;

/// How long things may take.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeouts {
    /// From the first byte of a request to the end of its head.
    pub header: Duration,
    /// From a connection's beginning to the end of its PROXY header and its TLS handshake.
    pub handshake: Duration,
    /// Between two reads or writes of a body.
    pub body_idle: Duration,
    /// To connect to a server.
    pub connect: Duration,
    /// From the request sent to the first byte of the answer.
    pub first_byte: Duration,
    /// From arrival to the last byte; of an upload by rule from the end of its body, of a stream until it is known as
    /// one. `None` for no bound.
    pub request: Option<Duration>,
    /// An idle connection from a client.
    pub client_idle: Duration,
    /// An idle connection to a server.
    pub server_idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            header: Duration::from_secs(10),
            handshake: Duration::from_secs(10),
            body_idle: Duration::from_secs(30),
            connect: Duration::from_secs(2),
            first_byte: Duration::from_secs(60),
            request: Some(Duration::from_secs(3600)),
            client_idle: Duration::from_secs(75),
            server_idle: Duration::from_secs(30),
        }
    }
}

/// How large things may be.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Bytes of a request head.
    pub header_bytes: usize,
    /// Header fields of a request.
    pub headers: usize,
    /// Bytes of a request body; `None` for no bound.
    pub body_bytes: Option<u64>,
    /// Connections from clients.
    pub connections: usize,
    /// TLS handshakes under way.
    pub handshakes: usize,
    /// Requests that wait in class queues.
    pub waiting: usize,
    /// Bytes held for all clients together: what they sent ahead, bodies that are read before they are admitted, and
    /// what they do not read, what TLS and HTTP/2 take. `None`: by the memory that there is.
    pub held_bytes: Option<u64>,
    /// Bytes of one request's body that are read before it is admitted, and of one answer that its client does not
    /// take yet; 0 to hold neither.
    pub ahead: usize,
    /// Bytes a second that a body must bring, and that an answer's reader must take, on average over `body_idle`; 0
    /// for any.
    pub body_rate: u64,
    /// Streams, long polls and tunnels that are open without a place.
    pub open: usize,
    /// Bytes that these take together, by [`OPEN_BYTES`].
    pub open_bytes: u64,
    /// Requests at once on one connection of HTTP/2; 0: no HTTP/2.
    pub streams: usize,
}

/// What a stream, a long poll or a tunnel takes while it is open, bytes: the sentry's buffers on both of its sides, and
/// what it keeps of the request. An estimate on the high side; a client that does not read takes more, until
/// `body_idle` is up.
pub const OPEN_BYTES: u64 = 64 << 10;

impl Limits {
    /// How many may be open without a place: by their number, and by the memory that they take.
    pub(crate) fn most_open(&self) -> usize {
        self.open.min(usize::try_from(self.open_bytes / OPEN_BYTES).unwrap_or(usize::MAX))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            header_bytes: 16 * 1024,
            headers: 100,
            body_bytes: None,
            connections: 100_000,
            handshakes: 4096,
            waiting: 10_000,
            held_bytes: None,
            ahead: 256 << 10,
            body_rate: 500,
            open: MOST_OPEN,
            // Room for all of them.
            open_bytes: MOST_OPEN as u64 * OPEN_BYTES,
            streams: 100,
        }
    }
}
