//! What the fuzz targets call: readers of what strangers send, as functions of bytes that panic on a finding.
//!
//! Not in a release: `fuzz/` and tests turn it on by the feature `fuzzing`.

mod connection;
mod judge;
pub mod naive;
mod origin;

pub use self::connection::connection;
pub(crate) use self::connection::dial;
pub use crate::gate::fuzz::{HyperRead, Read, Stop, disagreement, hyper_reads, read_all};
pub use crate::gate::head::{Framing, HeadLimits};
pub use crate::headers::fuzz::headers;

/// Any text as a configuration: what is accepted is accepted again as it is printed, and means the same.
///
/// # Panics
/// When it does not: that is the finding.
pub fn config(text: &str) {
    crate::config::fuzz(text);
}

/// Any bytes as what comes before requests: a PROXY header, a `ClientHello`.
///
/// # Panics
/// When what is read contradicts itself: that is the finding.
pub fn doorstep(bytes: &[u8]) {
    crate::proxy_protocol::fuzz(bytes);
    crate::tls::hello::fuzz(bytes);
}
