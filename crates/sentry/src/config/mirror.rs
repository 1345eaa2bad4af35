//! Copies of requests for a shadow server.

use std::time::Duration;

/// Which requests are copied to a shadow server.
#[derive(Clone, Debug, PartialEq)]
pub struct Mirror {
    /// The shadow server: `host:port`, behind `https://`, `h2://` or `h2c://` where that is spoken.
    pub to: String,
    /// Of the admitted requests, 0 to 1.
    pub share: f64,
    /// Bytes of the largest body that is copied.
    pub body: usize,
    /// Copies under way at once in a worker.
    pub in_flight: usize,
    /// How long one may take, to the last byte of its answer.
    pub timeout: Duration,
}
