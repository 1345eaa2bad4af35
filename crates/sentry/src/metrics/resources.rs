//! Controllers of resources, and the policing of new connections.

use std::fmt;

use tidegate_engine::Facts;

use super::Seen;
use super::family::{Families, Labels};
use crate::syn_policing::Counted;

/// Gauges: name, help, and what the policy calls it.
const GAUGES: [(&str, &str, &str); 5] = [
    ("tidegate_resource_rate", "Requests per second that the resource's controller lets in; absent: all.", "rate"),
    ("tidegate_resource_input", "What was measured of the resource last, in its signal's unit.", "input"),
    ("tidegate_resource_reference", "What it should be.", "reference"),
    ("tidegate_resource_step", "What the control law said last, requests per second.", "step"),
    ("tidegate_resource_hits", "Requests per second that wanted in.", "hits"),
];

/// Counters, likewise.
const COUNTERS: [(&str, &str, &str); 2] = [
    ("tidegate_resource_admitted", "Requests that the resource's bucket let in.", "admitted"),
    ("tidegate_resource_refused", "Requests that it did not let in.", "refused"),
];

pub(super) fn write(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    let states = || all.iter().flat_map(states);
    for (name, help, key) in GAUGES {
        out.gauge(name, help, None, states().filter_map(|(labels, state)| Some((labels, state.number(key)?))))?;
    }
    for (name, help, key) in COUNTERS {
        out.counter(name, help, states().filter_map(|(labels, state)| Some((labels, state.count(key)?))))?;
    }
    let why = states().filter_map(|(labels, state)| Some((labels.and("why", state.text("why")?), 1.0)));
    out.gauge("tidegate_resource_state", "1 for what the controller did last, or why it did nothing.", None, why)?;
    connections(out, all)
}

fn connections(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    let in_force = all.iter().map(|seen| {
        let mechanism = seen.app.syn.in_force().mechanism.name();
        (seen.labels().and("mechanism", mechanism), 1.0)
    });
    out.gauge("tidegate_syn_mechanism", "1 for what turns new connections away.", None, in_force)?;
    let counted: Vec<(&Seen, Vec<Counted>)> = all.iter().map(|seen| (seen, seen.app.syn.counts())).collect();
    let counts = || {
        counted.iter().flat_map(|(seen, classes)| {
            classes.iter().map(|counts| (seen.labels().and("source", &counts.class), counts))
        })
    };
    let help = "New connections let in while a rate was set.";
    out.counter("tidegate_syn_admitted", help, counts().map(|(labels, counts)| (labels, counts.admitted)))?;
    let help = "New connections turned away.";
    out.counter("tidegate_syn_refused", help, counts().map(|(labels, counts)| (labels, counts.refused)))?;
    let changes = all.iter().map(|seen| (seen.labels(), seen.app.syn.changes()));
    out.counter("tidegate_syn_rate_changes", "How often the kernel was given another rate.", changes)
}

fn states(seen: &Seen) -> impl Iterator<Item = (Labels<'_>, &Facts)> {
    seen.snapshot.policy.own.list("resources").map(|state| {
        let text = |key| state.text(key).unwrap_or("");
        (seen.labels().and("resource", text("resource")).and("server", text("server")), state)
    })
}
