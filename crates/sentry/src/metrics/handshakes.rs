//! TLS handshakes: what they took, and who got one when there was not enough time for all.

use std::fmt;

use prometheus_client::registry::Unit;

use super::Seen;
use super::family::Families;
use crate::counters::Counter;

pub(super) fn write(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    let kinds = [("full", Counter::NanosFull), ("resumed", Counter::NanosResumed)];
    let samples = all.iter().flat_map(|seen| {
        kinds.map(|(kind, counter)| (seen.labels().and("kind", kind), seen.app.counters.get(counter) as f64 / 1e9))
    });
    let help = "Processor time of TLS handshakes.";
    out.counter_f64("tidegate_handshake_cpu", help, Some(Unit::Seconds), samples)?;
    let ranks: Vec<_> = all.iter().map(|seen| (seen, seen.app.live())).collect();
    let samples = ranks.iter().filter(|(_, live)| live.config.tls.is_some()).flat_map(|(seen, live)| {
        seen.snapshot.classes.iter().enumerate().flat_map(move |(index, class)| {
            let [refused, done] = live.ranks.counts(index);
            let labels = move || seen.labels().and("class", &class.name);
            [(labels().and("outcome", "refused"), refused), (labels().and("outcome", "begun"), done)]
        })
    });
    let help = "TLS handshakes wanted while there was not processor time for all, by class.";
    out.counter("tidegate_handshakes_short", help, samples)
}
