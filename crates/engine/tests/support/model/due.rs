//! What must hold of deadlines, of first tries and retries, and of cancellations.

use tidegate_engine::{Action, Cancel, Decision, Reason, Rejection, Ticket, Timestamp};

use super::super::cases::is_as_published;
use super::rules::require;
use super::{Checked, Input, Kind, Live, Model, Output, Step};

/// A reason that is about the request itself fits it.
pub(super) fn fits(rejection: &Rejection, deadline: Option<Timestamp>, is_retry: bool) -> Checked {
    match rejection.reason {
        Reason::Deadline => require(deadline.is_some(), || "missed a deadline that it has not".into()),
        Reason::FirstTriesFirst => require(is_retry, || "a first try stood back for first tries".into()),
        _ => Ok(()),
    }
}

/// Nobody is sent, or waits on, whose deadline has passed; and at one instant no retry is started where a first try of
/// its class failed the test.
pub(super) fn check(model: &Model, step: &Step) -> Checked {
    let in_time = |deadline: Option<Timestamp>| deadline.is_none_or(|deadline| deadline > step.now);
    if let (Input::Arrive(request), Output::Decision(Decision::Admit { shadow: None, .. })) =
        (&step.input, &step.output)
    {
        require(in_time(request.deadline), || "admitted after its deadline".into())?;
    }
    let started: Vec<&Live> = step.actions.iter().filter_map(|action| started(model, action)).collect();
    require(model.shadow || started.iter().all(|live| in_time(live.deadline)), || "started after its deadline".into())?;
    if step.input == Input::Timeout {
        let waits = |live: &&Live| live.server.is_none() && !in_time(live.deadline);
        require(!model.live.values().any(|live| waits(&live)), || "it waits on after its deadline".into())?;
    }
    if is_as_published(step.after.snapshot.policy.policy) {
        return Ok(());
    }
    let failed = |class: usize| step.actions.iter().any(|action| failed_first_try(model, action, class));
    require(!started.iter().any(|live| live.is_retry && failed(live.class)), || {
        "a retry was started, and a first try of its class failed the test".into()
    })
}

/// A cancellation is about work that somebody waits for, of a class that is not the most important, and rare.
pub(super) fn cancels(model: &mut Model, ticket: Ticket) -> Checked {
    require(model.setup.cancel == Cancel::Runaways && !model.shadow, || "a cancellation that nobody asked for".into())?;
    let live = model.live.get(&ticket).ok_or_else(|| format!("{ticket:?} is cancelled and not there"))?;
    let is_wanted = live.kind == Kind::Wanted && live.server.is_some();
    require(is_wanted && live.class > 0, || format!("{live:?} is cancelled"))?;
    model.sums.runaways += 1;
    let (runaways, completed) = (model.sums.runaways, model.sums.completed);
    require(runaways * 100 <= completed, || format!("{runaways} cancelled for {completed} answers"))
}

fn started<'m>(model: &'m Model, action: &Action) -> Option<&'m Live> {
    match action {
        Action::Start { ticket, .. } => model.live.get(ticket),
        _ => None,
    }
}

fn failed_first_try(model: &Model, action: &Action, class: usize) -> bool {
    match action {
        Action::Refuse { ticket, rejection } => {
            rejection.class.index() == class
                && rejection.reason == Reason::SlaTarget
                && model.first_tries_ended.contains(ticket)
        }
        _ => false,
    }
}
