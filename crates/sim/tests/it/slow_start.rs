//! A server that begins cold: `jsq` brings it in by what it learns of it, without any setting; `wrr` does not.

use std::time::Duration;

use tidegate_engine::DispatchConfig;
use tidegate_sim::{Fault, FaultKind, Report, WarmUp, World};
use tidegate_workload::ServiceTime;

use crate::support::{admission, speed, stream, world};

const TARGET: f64 = 0.5;

/// Four servers of 50 requests per second each; the last is switched on after a minute, and runs at a tenth of its
/// speed for half a minute. Offered is nearly what all four can do.
fn cold(dispatch: &str, seed: u64) -> Report {
    let mut cold: World = world(4, 1.0, Duration::from_secs_f64(TARGET), admission(r#"{ "policy": "sentry" }"#));
    cold.setup.dispatch = DispatchConfig::from_name(dispatch).expect("a name of the table");
    cold.streams = vec![stream(0, "0s:190/s", ServiceTime::exponential(0.020).expect("positive"))];
    let last = &mut cold.servers[3];
    last.off = true;
    last.warm_up = Some(WarmUp { time: Duration::from_secs(30), speed: 0.1 });
    cold.faults = vec![Fault { what: FaultKind::Start, server: 3, ..speed(60, 1.0) }];
    cold.duration = Duration::from_secs(120);
    cold.run(seed).expect("the setup makes sense")
}

/// Answers within the target per second.
fn good(report: &Report, from: usize, to: usize) -> f64 {
    f64::from(report.span_all(from, to).in_target) / (to - from) as f64
}

#[test]
fn a_cold_server_gets_what_it_can_do() {
    for seed in 1..=5 {
        let report = cold("jsq", seed);
        let (before, meanwhile, after) = (good(&report, 30, 60), good(&report, 61, 90), good(&report, 95, 120));
        assert!(meanwhile > 0.97 * before, "seed {seed}: {meanwhile}/s in time, {before}/s before it came");
        assert!(after > 1.15 * before, "seed {seed}: {after}/s once it is warm, {before}/s before it came");
        // With the policy off the same server is flooded.
        let flooded = good(&cold("wrr", seed), 61, 90);
        assert!(flooded < 0.8 * before, "seed {seed}: {flooded}/s in time under wrr");
    }
}
