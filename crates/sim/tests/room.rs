//! What the sentry lets in where the target is worth few requests a server, beside the loss system that theory makes of
//! it.

mod support;

use std::time::Duration;

use support::{admission, stream, world};
use tidegate_engine::provision::{Replica, mean_bound};
use tidegate_engine::{AdmissionConfig, ServerSetup, Statistic};
use tidegate_workload::ServiceTime;

const SERVICE: f64 = 0.1;
const TARGET: Duration = Duration::from_secs(1);
/// Share of the target that the test aims at.
const HEADROOM: f64 = 0.85;

/// Share refused, and p95 in seconds, of servers with one processor each.
fn refused(policy: AdmissionConfig, servers: usize, rate: f64) -> (f64, f64) {
    let mut world = world(servers, 1.0, TARGET, policy);
    world.setup.classes.truncate(1);
    let known = |at| ServerSetup { cores: Some(1.0), ..ServerSetup::new(format!("s{at}")) };
    world.setup.servers = (0..servers).map(known).collect();
    world.streams = vec![stream(0, &format!("{rate}/s"), ServiceTime::exponential(SERVICE).expect("positive"))];
    world.duration = Duration::from_secs(400);
    let report = world.run(1).expect("the setup makes sense");
    let span = report.span(0, 40, 400);
    let p95 = report.span_all(40, 400).quantile(0.95);
    (f64::from(span.refused) / f64::from(span.offered), p95)
}

#[test]
fn less_is_refused_than_a_loss_system_must_and_p95_holds() {
    println!("servers  load  M/M/c/K  refused  without budget  rounded up    p95");
    for (servers, load) in [(2, 0.6), (4, 0.7), (8, 0.85), (4, 1.5)] {
        let rate = load * servers as f64 / SERVICE;
        let bound = HEADROOM * mean_bound(Statistic::P95, TARGET);
        let theory = Replica::new(SERVICE, 1.0, 1.0).refused(rate, servers as u32, bound);
        let (share, p95) = refused(admission(r#"{ "policy": "batch" }"#), servers, rate);
        let (strict, _) = refused(admission(r#"{ "policy": "batch", "late_budget": false }"#), servers, rate);
        let (rounded, _) = refused(admission(r#"{ "policy": "batch", "round_up": true }"#), servers, rate);
        println!("{servers:7} {load:5} {theory:8.4} {share:8.4} {strict:15.4} {rounded:11.4} {p95:6.2}");
        let case = format!("{servers} servers at {load}");
        assert!(strict < theory * 1.5 + 0.003, "{case}: {strict} refused without a budget, {theory} by theory");
        assert!(p95 < TARGET.as_secs_f64(), "{case}: p95 {p95} s");
        assert!(load > 1.0 || rounded > 1.3 * strict, "{case}: {rounded} rounded up");
        assert!(load > 1.0 || share < 0.5 * strict, "{case}: {share} with a budget, {strict} without");
        // Under lasting overload there is nothing to be gained, and nothing may be lost.
        assert!(load < 1.0 || (share - strict).abs() < 0.02, "{case}: {share} with a budget, {strict} without");
    }
}
