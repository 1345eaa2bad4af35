//! Servers, connections to them, and what becomes of requests that one of them does not answer.

/// One server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its name, unique in the application.
    pub name: String,
    /// `host:port`, `srv:name` or `unix:path`, behind `https://`, `h2://` or `h2c://` where that is spoken; an IPv6
    /// host is in brackets. The name of an [`Asker`](super::Asker): wherever it sends
    /// requests.
    pub address: String,
}

/// When a failed request is tried again on another server.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// Further attempts per request; 0 for none.
    pub attempts: u32,
    /// Retries may be at most this share of requests, 0 to 1.
    pub budget: f64,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { attempts: 1, budget: 0.2 }
    }
}

/// Connections kept open to servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Idle connections to one server, per worker. Of as many as there were at once, those that are not needed are
    /// closed after a while ([`Timeouts::server_idle`]); a bound below what is in flight closes what is needed next.
    ///
    /// [`Timeouts::server_idle`]: super::Timeouts::server_idle
    pub idle_per_server: usize,
}

impl Default for Pool {
    fn default() -> Self {
        Pool { idle_per_server: 10_000 }
    }
}
