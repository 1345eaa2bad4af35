//! What health checks of servers said, and what became of copies for a shadow server.

use std::fmt;

use prometheus_client::registry::Unit;

use super::Seen;
use super::family::Families;

pub(super) fn write(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    let live: Vec<_> = all.iter().map(|seen| seen.app.live()).collect();
    // Every outcome is there from the start: a rate needs a first sample of 0.
    let counts = all.iter().zip(&live).flat_map(|(seen, live)| {
        let servers = live.servers();
        servers.flat_map(move |server| {
            let labels = seen.labels().and("server", &server.name);
            server.checks.counts().map(move |(outcome, count)| (labels.clone().and("outcome", outcome), count))
        })
    });
    out.counter("tidegate_health_checks", "Health checks of servers that ended, by outcome.", counts)?;
    let mirrored = || all.iter().zip(&live).filter(|(_, live)| live.config.mirror.is_some()).map(|(seen, _)| seen);
    let fates = mirrored().flat_map(|seen| {
        seen.app.mirror.fates().map(|(outcome, count)| (seen.labels().and("outcome", outcome), count))
    });
    out.counter("tidegate_mirror_requests", "Requests that were to be copied to the shadow server.", fates)?;
    let took = mirrored().map(|seen| (seen.labels(), seen.app.mirror.answering().as_secs_f64()));
    out.counter_f64(
        "tidegate_mirror_answering",
        "Time that the shadow server took for what it answered.",
        Some(Unit::Seconds),
        took,
    )
}
