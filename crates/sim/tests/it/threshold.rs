//! Threshold policing decides by rates and costs, which may be wrong. What is in flight must put it right.

use std::time::Duration;

use tidegate_sim::World;
use tidegate_workload::ServiceTime;

use crate::support::{admission, stream, world};

const MEAN: f64 = 0.01;

/// One server of `k` processors, offered `load` times what it can do.
fn offered(k: f64, load: f64, target: Duration) -> World {
    let mut world = world(1, k, target, admission(r#"{ "policy": "threshold" }"#));
    let rate = load * k / MEAN;
    world.streams = vec![stream(0, &format!("{rate}/s"), ServiceTime::exponential(MEAN).expect("positive"))];
    world
}

/// A single server that was never idle shows no scale of costs: a pile of any size could be work in hand. In an earlier
/// version half of such starts never came down from the pile they began with, and answered late for good.
#[test]
fn a_start_under_twice_the_load_gets_over_its_pile() {
    for k in [1.0, 2.0] {
        let good: Vec<f64> = (1..=16)
            .map(|seed| {
                let report = offered(k, 2.0, Duration::from_millis(500)).run(seed).expect("the setup makes sense");
                f64::from(report.span(0, 40, 60).in_target) / (20.0 * k / MEAN)
            })
            .collect();
        let mean = good.iter().sum::<f64>() / good.len() as f64;
        assert!(mean > 0.8, "k = {k}: {mean:.2} of the capacity is answered in time on average: {good:.2?}");
        assert!(good.iter().all(|good| *good > 0.4), "k = {k}: {good:.2?}");
    }
}

/// The configuration says one processor, there are eight: by rates and costs four times too much arrives.
#[test]
fn wrong_capacities_alone_refuse_nobody() {
    for seed in 1..=4 {
        let mut world = offered(8.0, 0.5, Duration::from_secs(4));
        world.setup.servers[0].cores = Some(1.0);
        let all = world.run(seed).expect("the setup makes sense").span(0, 0, 60);
        assert!(f64::from(all.refused) < 0.001 * f64::from(all.offered), "{} of {}", all.refused, all.offered);
    }
}
