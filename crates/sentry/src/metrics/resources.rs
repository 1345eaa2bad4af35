//! Resource controllers (`resource`), and the policing of new connections.

use std::fmt;

use tidegate_engine::ResourceState;

use super::Seen;
use super::family::{Families, Labels};
use crate::syn_policing::Counted;

pub(super) fn write(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    let of = |what: fn(&ResourceState) -> Option<f64>| {
        all.iter().flat_map(states).filter_map(move |(labels, state)| Some((labels, what(state)?)))
    };
    let help = "Requests per second that the resource's controller lets in; absent: all.";
    out.gauge("tidegate_resource_rate", help, None, of(|state| state.rate))?;
    let help = "What was measured of the resource last, in its signal's unit.";
    out.gauge("tidegate_resource_input", help, None, of(|state| state.input))?;
    let help = "What it should be.";
    out.gauge("tidegate_resource_reference", help, None, of(|state| Some(state.reference)))?;
    let help = "What the control law said last, requests per second.";
    out.gauge("tidegate_resource_step", help, None, of(|state| Some(state.step)))?;
    let help = "Requests per second that wanted in.";
    out.gauge("tidegate_resource_hits", help, None, of(|state| Some(state.hits)))?;
    let admitted = all.iter().flat_map(states).map(|(labels, state)| (labels, state.admitted));
    out.counter("tidegate_resource_admitted", "Requests that the resource's bucket let in.", admitted)?;
    let refused = all.iter().flat_map(states).map(|(labels, state)| (labels, state.refused));
    out.counter("tidegate_resource_refused", "Requests that it did not let in.", refused)?;
    let why = all.iter().flat_map(states).map(|(labels, state)| (labels.and("why", state.why), 1.0));
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

fn states(seen: &Seen) -> impl Iterator<Item = (Labels<'_>, &ResourceState)> {
    seen.snapshot.policy.resources.iter().map(|state| {
        let server = state.server.as_deref().unwrap_or("");
        (seen.labels().and("resource", &state.resource).and("server", server), state)
    })
}
