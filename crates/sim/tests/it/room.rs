//! What the sentry lets in where the target is worth few requests a server, beside the loss system that theory makes of
//! it.

use std::time::Duration;

use tidegate_engine::{ServerSetup, Statistic};
use tidegate_provision::{Replica, mean_bound};
use tidegate_workload::ServiceTime;

use crate::support::{admission, stream, world};

const SERVICE: f64 = 0.1;
const TARGET: Duration = Duration::from_secs(1);
/// Share of the target that the test aims at.
const HEADROOM: f64 = 0.85;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;

/// What came of servers with one processor each, mean over the seeds.
#[derive(Default)]
struct Outcome {
    /// Shares: refused of the offered, late of the admitted, in time of the offered.
    refused: f64,
    late: f64,
    good: f64,
    /// p95, and the highest of any ten seconds of any seed.
    p95: f64,
    worst: f64,
}

fn outcome(policy: &str, servers: usize, rate: f64) -> Outcome {
    let mut world = world(servers, 1.0, TARGET, admission(policy));
    world.setup.classes.truncate(1);
    let known = |at| ServerSetup { cores: Some(1.0), ..ServerSetup::new(format!("s{at}")) };
    world.setup.servers = (0..servers).map(known).collect();
    world.streams = vec![stream(0, &format!("{rate}/s"), ServiceTime::exponential(SERVICE).expect("positive"))];
    world.duration = Duration::from_secs(400);
    let mut mean = Outcome::default();
    for seed in SEEDS {
        let report = world.run(seed).expect("the setup makes sense");
        let (span, part) = (report.span_all(40, 400), 1.0 / SEEDS.count() as f64);
        let (offered, refused, good) = (f64::from(span.offered), f64::from(span.refused), f64::from(span.in_target));
        mean.refused += part * refused / offered;
        mean.late += part * (1.0 - good / (offered - refused));
        mean.good += part * good / offered;
        mean.p95 += part * span.quantile(0.95);
        let windows = (40..400).step_by(10).map(|from| report.span_all(from, from + 10).quantile(0.95));
        mean.worst = windows.fold(mean.worst, f64::max);
    }
    mean
}

#[test]
fn less_is_refused_than_a_loss_system_must_and_p95_holds() {
    println!("servers  load                 refused    late    good    p95  worst");
    for (servers, load) in [(2, 0.6), (4, 0.7), (8, 0.85), (4, 0.95), (4, 1.5)] {
        let rate = load * servers as f64 / SERVICE;
        let bound = HEADROOM * mean_bound(Statistic::P95, TARGET);
        let theory = Replica::new(SERVICE, 1.0, 1.0).refused(rate, servers as u32, bound);
        println!("{servers:7} {load:5} {:14} {theory:9.4}", "M/M/c/K");
        let [with, strict, rounded] = [
            ("with budget", r#"{ "policy": "batch" }"#),
            ("without", r#"{ "policy": "batch", "late_budget": false }"#),
            ("rounded up", r#"{ "policy": "batch", "round_up": true }"#),
        ]
        .map(|(name, policy)| {
            let Outcome { refused, late, good, p95, worst } = outcome(policy, servers, rate);
            println!("              {name:14} {refused:9.4} {late:7.4} {good:7.4} {p95:6.2} {worst:6.2}");
            Outcome { refused, late, good, p95, worst }
        });
        let case = format!("{servers} servers at {load}");
        let (share, strict, rounded) = (with.refused, strict.refused, rounded.refused);
        assert!(strict < theory * 1.5 + 0.003, "{case}: {strict} refused without a budget, {theory} by theory");
        assert!(with.p95 < TARGET.as_secs_f64(), "{case}: p95 {} s", with.p95);
        if load < 0.9 {
            assert!(rounded > 1.3 * strict, "{case}: {rounded} rounded up, {strict} not");
            assert!(share < 0.5 * strict, "{case}: {share} with a budget, {strict} without");
        }
        // Under lasting overload there is nothing to be gained, and nothing may be lost.
        assert!(load < 1.0 || (share - strict).abs() < 0.02, "{case}: {share} with a budget, {strict} without");
    }
}
