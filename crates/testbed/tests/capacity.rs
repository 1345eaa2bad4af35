//! What `tidegate_loadgen::capacity` finds is what the emulated servers are known to hold.

use std::time::Duration;

use tidegate_loadgen::capacity::{Bounds, CapacityError, Found, Loops, Target, find};
use tidegate_testbed::{EmulatedCluster, ServerSpec, ThreadedCluster};
use tidegate_workload::ServiceTime;

fn server(cores: u32, milliseconds: f64, concurrency: Option<usize>) -> ThreadedCluster {
    let service = ServiceTime::constant(milliseconds / 1000.0).expect("more than zero");
    let spec = ServerSpec { cores, concurrency, accept_queue: concurrency, ..ServerSpec::new(service, 100) };
    EmulatedCluster::start_on_thread(1, spec).expect("starts")
}

fn target(server: &ThreadedCluster) -> Target {
    Target { name: "page".into(), url: server.servers()[0].url("/page"), headers: Vec::new() }
}

fn bounds(target_ms: u64, loops: Loops) -> Bounds {
    Bounds {
        target: Duration::from_millis(target_ms),
        step: Duration::from_millis(1500),
        most_in_flight: 64,
        most_rate: 1000.0,
        seed: 1,
        loops,
    }
}

fn measure(server: &ThreadedCluster, bounds: &Bounds) -> Found {
    find(&target(server), bounds, |step| println!("{step:?}")).expect("measured")
}

/// What a busy machine does to a measurement: it makes the service look slower than it is, never faster.
#[derive(Debug, Clone, Copy)]
enum Noise {
    Lowers,
    Raises,
}

/// Within a share of what is known. On the side to which noise cannot push it, it fails at once; on the other the run
/// says so, and may be repeated.
fn near(found: f64, known: f64, within: f64, noise: Noise) -> Result<(), String> {
    let off = found / known - 1.0;
    let problem = format!("found {found}, known {known}");
    match noise {
        _ if off.abs() <= within => Ok(()),
        Noise::Lowers if off < 0.0 => Err(problem),
        Noise::Raises if off > 0.0 => Err(problem),
        _ => panic!("{problem}: noise does not do that"),
    }
}

/// Late timers and late clients push what is found to one side; a search that is wrong errs in all runs, or to the
/// other side in any ([`near`]). So what looks like noise is tried again, twice, and nothing else is.
fn in_some_run(check: impl Fn() -> Result<(), String>) {
    let results: Vec<_> = (0..3).map(|_| check()).take_while(Result::is_err).collect();
    assert!(results.len() < 3, "{results:?}");
}

/// Two cores and 20 ms: 100 per second. 20 at once take 200 ms each under processor sharing, 21 take 210.
#[test]
fn capacity_and_the_most_in_flight_are_found() {
    let server = server(2, 20.0, None);
    in_some_run(|| {
        let found = measure(&server, &bounds(205, Loops::Closed));
        assert!(!found.is_bound && found.steps.iter().all(|step| step.in_flight.is_some()));
        near(found.capacity, 100.0, 0.1, Noise::Lowers)?;
        near(f64::from(found.max_conn.expect("a closed loop")), 20.0, 0.15, Noise::Lowers)?;
        assert!(found.most >= found.max_conn, "it breaks later than it misses its target: {:?}", found.most);
        near(found.cost, 0.020, 0.25, Noise::Raises)?;
        // Two at once use both cores, and nobody waits.
        near(found.knee.0, 90.0, 0.15, Noise::Lowers)
    });
}

/// By rates alone, from nothing. Under processor sharing with two cores a request of 20 ms takes 20 / (1 - u^2) on
/// average at a use of u, and the 95th percentile is about three times that: 150 ms at 76 per second.
#[test]
fn the_highest_rate_is_found_by_rates_alone() {
    let server = server(2, 20.0, None);
    in_some_run(|| {
        let found = measure(&server, &bounds(150, Loops::Open));
        assert_eq!(found.max_conn, None);
        near(found.rate_in_target, 76.0, 0.12, Noise::Lowers)
    });
}

/// A server that takes ten at once and refuses more: its limit shows as failures, long before it is slow.
#[test]
fn refusals_are_a_breaking_point_too() {
    let server = server(2, 20.0, Some(5));
    in_some_run(|| {
        let found = measure(&server, &bounds(1000, Loops::Closed));
        // Five in service and five that wait; with one more it refuses, so that is its breaking point too.
        near(f64::from(found.max_conn.expect("a closed loop")), 10.0, 0.0, Noise::Lowers)?;
        assert_eq!(found.most, found.max_conn);
        near(found.capacity, 100.0, 0.1, Noise::Lowers)
    });
}

#[test]
fn the_bound_that_was_given_is_not_passed() {
    let server = server(64, 20.0, None);
    let found = measure(&server, &Bounds { most_in_flight: 6, ..bounds(1000, Loops::Closed) });
    assert_eq!((found.max_conn, found.is_bound), (Some(6), true));
    assert!(found.steps.iter().all(|step| step.in_flight.is_some_and(|clients| clients <= 6)));
}

#[test]
fn what_cannot_hold_its_target_at_all_is_named_at_once() {
    let server = server(1, 50.0, None);
    let refused = find(&target(&server), &bounds(20, Loops::Both), |_| {}).expect_err("too slow");
    assert!(matches!(refused, CapacityError::TooSlow { .. }), "{refused}");
    assert!(refused.to_string().contains("--target"), "{refused}");
    assert!(server.stats().requests < 60, "one at a time, for one step");
}
