//! What is typed of the mirror.

use tidegate_config::{Bytes, Share, Time, section};

section! {
    pub(in crate::config) struct RawMirror ("in [application.mirror]") {
        /// The shadow server, as in `servers`: `"host:port"`, `"https://host:port"`, `"h2c://host:port"` or
        /// `"h2://host:port"`. Required.
        to: String,
        /// Share of the admitted requests that are copied. Default: `"100%"`.
        share: Share,
        /// Largest body that is copied; requests with larger ones are not. Default: `"64KiB"`.
        body: Bytes,
        /// Copies under way at once in a worker; beyond it requests are not copied. Default: `64`.
        in_flight: u64,
        /// Of a copy, to the last byte of its answer. Default: `"10s"`.
        timeout: Time,
    }
}
