//! What `tidegate_loadgen::capacity` says of servers whose answer is known beforehand, whatever the machine.

use tidegate_loadgen::capacity::{Bounds, CapacityError, Loops, find};

use crate::support::capacity::{bounds, server, target};
use crate::support::load::SECOND;

/// Nobody misses a target of a minute.
#[test]
fn the_bound_that_was_given_is_not_passed() {
    let server = server(64, 20.0, None);
    let bounds = Bounds { most_in_flight: 6, step: SECOND / 2, ..bounds(60_000, Loops::Closed) };
    let found = find(&target(&server), &bounds, |step| println!("{step:?}")).expect("measured");
    assert_eq!((found.max_conn, found.is_bound), (Some(6), true));
    assert!(found.steps.iter().all(|step| step.in_flight.is_some_and(|clients| clients <= 6)));
}

/// A second is more than 900 ms on any machine, and far from the four times as much at which the step is cut.
#[test]
fn what_cannot_hold_its_target_at_all_is_named_at_once() {
    let server = server(1, 1000.0, None);
    let refused = find(&target(&server), &bounds(900, Loops::Both), |_| {}).expect_err("too slow");
    assert!(matches!(refused, CapacityError::TooSlow { .. }), "{refused}");
    assert!(refused.to_string().contains("--target"), "{refused}");
    assert!(server.stats().requests <= 2, "one at a time, for one step");
}
