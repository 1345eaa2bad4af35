//! A server at random, of those that may take a request.

use super::View;
use crate::request::ServerId;

/// So often a server is drawn that takes nothing, or that was drawn before, until all are looked at.
const TRIES: usize = 8;

/// Any server but `not` that takes the request, each as likely; `None` when there is none.
pub(super) fn draw(view: &mut View<'_>, not: Option<ServerId>) -> Option<ServerId> {
    let count = view.servers.len();
    for _ in 0..TRIES.min(count) {
        let server = &view.servers[view.rng.below(count)];
        if Some(server.id) != not && view.takes(server) {
            return Some(server.id);
        }
    }
    let (mut chosen, mut seen) = (None, 0);
    for server in view.servers {
        if Some(server.id) != not && view.takes(server) {
            seen += 1;
            // The n-th replaces the choice with probability 1/n: all are equally likely.
            chosen = if view.rng.below(seen) == 0 { Some(server.id) } else { chosen };
        }
    }
    chosen
}

/// Of two such servers, drawn at random, the one with less; the first where both have as much.
pub(super) fn lesser_of_two(view: &mut View<'_>, mut load: impl FnMut(&View<'_>, ServerId) -> f64) -> Option<ServerId> {
    let one = draw(view, None)?;
    let Some(other) = draw(view, Some(one)) else { return Some(one) };
    let loads = (load(view, one), load(view, other));
    Some(if loads.1 < loads.0 { other } else { one })
}
