//! What the model holds one step, or two views, against.

use std::fmt::{Debug, Display};

use tidegate_engine::{Action, Decision, Reason, ServerId, Setup};

use super::{Checked, Model, Output, Step, View};

pub(super) fn lending_changed(step: &Step) -> bool {
    step.events.iter().any(|(_, event)| event.name() == "lending-changed")
}

/// Whether a server is in the partition of a class.
pub(super) fn may_use(view: &View, class: usize, server: ServerId) -> bool {
    let name = &view.snapshot.classes[class].name;
    let own = view.snapshot.partitions.iter().position(|partition| partition.classes.contains(name));
    let of = view.servers[server.index()].partition;
    own.is_some() && of.is_none_or(|of| Some(usize::from(of)) == own)
}

pub(super) fn partitions(view: &View) -> Vec<Option<u8>> {
    view.servers.iter().map(|server| server.partition).collect()
}

/// At one instant no request of a class fails the SLA test while a less important one is started.
pub(super) fn no_inversion(model: &Model, step: &Step) -> Checked {
    let tested = |reason: Reason| matches!(reason, Reason::SlaTarget | Reason::MoreImportantFirst);
    let actions = step.actions.iter().filter_map(|action| match action {
        Action::Refuse { rejection, .. } if tested(rejection.reason) => Some(rejection.class.index()),
        _ => None,
    });
    let decided = match &step.output {
        Output::Decision(Decision::Reject(rejection)) if tested(rejection.reason) => Some(rejection.class.index()),
        _ => None,
    };
    let Some(failed) = actions.chain(decided).min() else { return Ok(()) };
    for action in &step.actions {
        if let Action::Start { ticket, .. } = action
            && let Some(live) = model.live.get(ticket)
            && live.class > failed
        {
            return Err(format!("class {} failed the test, class {} was started", failed + 1, live.class + 1));
        }
    }
    Ok(())
}

/// A cancel teaches nothing; where the request was at work, no more than that it costs more than it received.
pub(super) fn same_estimates(before: &View, after: &View, was_at_work: bool) -> Checked {
    let of = |view: &View| {
        let snapshot = &view.snapshot;
        let costs: Vec<_> = snapshot.classes.iter().filter(|_| !was_at_work).map(|c| c.mean_cost).collect();
        let urls = (!was_at_work).then_some(snapshot.urls);
        let classes: Vec<_> = snapshot.classes.iter().map(|c| (c.offered_rate, c.p50, c.p95, c.p99)).collect();
        let servers: Vec<_> = snapshot.servers.iter().map(|s| (s.processors, s.confidence)).collect();
        let totals = (snapshot.mean_cost, snapshot.calibration, snapshot.processors, snapshot.target);
        format!("{costs:?} {urls:?} {classes:?} {servers:?} {totals:?}")
    };
    let (before, after) = (of(before), of(after));
    require(before == after, || format!("a cancel moved estimates from {before} to {after}"))
}

/// When an answer began shows with its end.
pub(super) fn unchanged(before: Option<&View>, step: &Step) -> Checked {
    let Some(before) = before else { return Ok(()) };
    require(step.actions.is_empty(), || "a first byte caused actions".into())?;
    require(before.snapshot == step.after.snapshot, || "a first byte changed what is shown".into())
}

pub(super) fn longest_target(setup: &Setup) -> f64 {
    setup.sla.steps().iter().map(|step| step.target.as_secs_f64()).fold(0.0, f64::max)
}

pub(super) fn equal<T: PartialEq + Debug>(what: impl Display, seen: T, expected: T) -> Checked {
    require(seen == expected, || format!("{what} is {seen:?}, the model has {expected:?}"))
}

pub(super) fn require(holds: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(otherwise()) }
}
