//! Class 1 before class 2 where the servers have room for few requests: each place counts.

use std::time::Duration;

use tidegate_sim::{Report, World};
use tidegate_workload::ServiceTime;

use crate::support::{admission, admitted_share, stream, world};

const SERVICE: f64 = 0.05;

/// Two servers of two processors, 80 requests per second together; 365 arrive, of which class 1 has 30 and class 2 135.
fn shop(policy: &str, cost: ServiceTime) -> World {
    let mut world = world(2, 2.0, Duration::from_millis(500), admission(policy));
    world.streams = (0..3).map(|class| stream(class as u8, ["30/s", "135/s", "200/s"][class], cost)).collect();
    world.duration = Duration::from_secs(120);
    world
}

fn goodput(report: &Report) -> f64 {
    f64::from(report.span_all(20, 120).in_target) / 100.0
}

#[test]
fn class_1_is_hardly_refused_while_class_2_gets_in() {
    println!("cost         seed  class 1  class 2  good/s   p95");
    for (name, cost, least) in [
        ("constant", ServiceTime::constant(SERVICE).expect("positive"), 0.98),
        ("exponential", ServiceTime::exponential(SERVICE).expect("positive"), 0.95),
    ] {
        for seed in 1..=4 {
            let report = shop(r#"{ "policy": "batch" }"#, cost).run(seed).expect("the setup makes sense");
            let [first, second] = [0, 1].map(|class| admitted_share(&report, class, 20, 120));
            let (good, p95) = (goodput(&report), report.span_all(20, 120).quantile(0.95));
            println!("{name:12} {seed:4} {first:8.3} {second:8.3} {good:7.1} {p95:5.2}");
            assert!(first > least, "{name}, seed {seed}: {first} of class 1, {second} of class 2");
            assert!(good > 70.0, "{name}, seed {seed}: {good} good answers per second of 80 that are possible");
        }
    }
}
