//! What `tidegate_loadgen::capacity` finds is what the emulated servers are known to hold.

use tidegate_loadgen::capacity::{Bounds, Found, Loops, find};
use tidegate_testbed::ThreadedCluster;

use crate::support::capacity::{bounds, server, target};
use crate::support::load::SECOND;

/// Searches. A server that does not hold its target even alone, or does not recover, is what a late machine looks like.
fn measure(server: &ThreadedCluster, bounds: &Bounds) -> Result<Found, String> {
    let found = find(&target(server), bounds, |step| println!("{step:?}"));
    found.map_err(|error| error.to_string())
}

/// Within a share of what is known.
fn near(what: &str, found: f64, known: f64, within: f64) -> Result<(), String> {
    let is_near = (found / known - 1.0).abs() <= within;
    let problem = || format!("{what}: found {found}, known {known} within {} %", within * 1e2);
    is_near.then_some(()).ok_or_else(problem)
}

/// Two cores and 20 ms: 100 per second. 20 at once take 200 ms each under processor sharing, 21 take 210.
#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn capacity_and_the_most_in_flight_are_found() -> Result<(), String> {
    let server = server(2, 20.0, None);
    let found = measure(&server, &bounds(205, Loops::Closed))?;
    assert!(!found.is_bound && found.steps.iter().all(|step| step.in_flight.is_some()));
    near("capacity", found.capacity, 100.0, 0.1)?;
    near("in flight", f64::from(found.max_conn.expect("a closed loop")), 20.0, 0.15)?;
    assert!(found.most >= found.max_conn, "it breaks later than it misses its target: {:?}", found.most);
    near("cost", found.cost, 0.020, 0.25)?;
    // Two at once use both cores, and nobody waits.
    near("knee", found.knee.0, 90.0, 0.15)
}

/// By rates alone, from nothing. Under processor sharing with two cores a request of 10 ms takes 10 / (1 - u^2) on
/// average at a use of u, and the 95th percentile is about three times that: 75 ms at 152 per second.
#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn the_highest_rate_is_found_by_rates_alone() -> Result<(), String> {
    let server = server(2, 10.0, None);
    let found = measure(&server, &Bounds { step: SECOND / 2, ..bounds(75, Loops::Open) })?;
    assert_eq!(found.max_conn, None);
    near("rate", found.rate_in_target, 152.0, 0.12)
}

/// A server that takes ten at once and refuses more: its limit shows as failures, long before it is slow.
#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn refusals_are_a_breaking_point_too() -> Result<(), String> {
    let server = server(2, 20.0, Some(5));
    let found = measure(&server, &bounds(1000, Loops::Closed))?;
    // Five in service and five that wait; with one more it refuses, so that is its breaking point too.
    near("in flight", f64::from(found.max_conn.expect("a closed loop")), 10.0, 0.0)?;
    near("breaking point", f64::from(found.most.expect("a closed loop")), 10.0, 0.0)?;
    near("capacity", found.capacity, 100.0, 0.1)
}
