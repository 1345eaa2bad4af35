//! Certificates that are ordered.

use std::fmt;
use std::time::SystemTime;

use prometheus_client::registry::Unit;

use super::Seen;
use super::family::Families;
use crate::acme::{Standing, standing};

pub(super) fn write(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    let ordered: Vec<(&Seen, Standing)> = all
        .iter()
        .filter_map(|seen| Some((seen, standing(seen.app.live().config.tls.as_ref()?.acme.as_ref()?))))
        .collect();
    let ends = ordered.iter().filter_map(|(seen, standing)| {
        let left = standing.validity?.not_after.duration_since(SystemTime::now()).unwrap_or_default();
        Some((seen.labels(), left.as_secs_f64()))
    });
    out.gauge(
        "tidegate_acme_certificate_left",
        "Until the certificate ends; absent: none.",
        Some(Unit::Seconds),
        ends,
    )?;
    let failures = ordered.iter().map(|(seen, standing)| (seen.labels(), standing.failures));
    out.counter("tidegate_acme_failures", "Orders of certificates that came to nothing.", failures)
}
