//! State and events of the controllers of resources.

use alloc::string::String;
use alloc::vec::Vec;

use super::control::{Control, Look, Why};
use crate::admission::Context;
use crate::facts::Facts;
use crate::request::ServerId;
use crate::signal::Signal;

/// What a resource's controller shows of itself, the last of all that of new connections.
pub(super) fn describe(
    resource: &str,
    signal: Signal,
    server: Option<ServerId>,
    control: &Control,
    parts: Vec<f64>,
    (admitted, refused): (u64, u64),
) -> Facts {
    let Look { input, error, step, hits, why } = *control.last();
    Facts::new("resource-state")
        .with("resource", String::from(resource))
        // What is measured, and at which server; none: at the sentry, or at all servers together.
        .with("signal", signal.name())
        .with("server", server)
        // Requests (of `syn`: connections) per second that it lets in, none: all; how much of it each class has, the
        // most important first.
        .with("rate", control.rate())
        .with("parts", parts)
        // Requests per second that wanted in, in the last sample; let in and refused since the start.
        .with("hits", hits)
        .with("admitted", admitted)
        .with("refused", refused)
        // What was measured last, in the signal's unit; what it should be, and by how much it is less.
        .with("input", input)
        .with("reference", control.law().reference)
        .with("error", error)
        // What the control law said, requests per second; what was done, or why nothing was.
        .with("step", step)
        .with("why", why.name())
}

/// Says so when a controller does something else than before.
pub(super) fn tell(cx: &mut Context<'_>, resource: &str, server: Option<ServerId>, control: &Control, before: Why) {
    let look = control.last();
    if look.why != before {
        let facts = Facts::new("resource-controlled").with("resource", String::from(resource)).with("server", server);
        let facts = facts.with("rate", control.rate()).with("input", look.input).with("error", look.error);
        cx.say(facts.with("step", look.step).with("why", look.why.name()));
    }
}
