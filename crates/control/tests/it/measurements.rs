//! How long it takes until another control plane leads.

use std::time::{Duration, Instant};

use tidegate_control::backend::Turn;

use crate::support::home::{Home, elected, stand, write};
use crate::support::running::Running;
use crate::support::{answer, until};

/// The usual lease.
const LEASE: Duration = Duration::from_secs(3);

/// `Err` when what took `took` may take `most`.
fn within(what: &str, took: Duration, most: Duration) -> Result<(), String> {
    println!("{took:.2?} {what}");
    if took < most { Ok(()) } else { Err(format!("{took:.2?} {what}, of {most:?} at most")) }
}

#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn after_a_kill_the_next_leader_leads_within_five_seconds() -> Result<(), String> {
    let home = Home::start();
    let (one, other) = (home.candidate("one", LEASE), home.candidate("other", LEASE));
    let (mut store, mut plane) = elected(&one);
    write(&mut store, &mut plane, 1..=650);
    // It has seen who leads, as one does that waits.
    assert!(matches!(answer(|| stand(&other)), Turn::Others(_)), "the first one leads");
    // As a kill -9 does: nothing is given back.
    drop(store);
    let killed = Instant::now();
    let (store, _) = elected(&other);
    let took = killed.elapsed();
    drop(store);
    within("from the kill to the next leader", took, Duration::from_secs(5))
}

#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn after_a_clean_stop_the_next_leader_decides_before_the_lease_would_end() -> Result<(), String> {
    let home = Home::start();
    let one = Running::start(&home, "one", "3s");
    until("one leads", || one.leads() && one.began() == 1);
    let two = Running::start(&home, "two", "3s");
    until("two waits", || two.follows("one"));
    let stopped = Instant::now();
    one.stop();
    until("two leads", || two.leads() && two.began() == 2);
    let took = stopped.elapsed();
    two.stop();
    within("from the stop to the next leader's first decision", took, Duration::from_millis(2500))
}
