//! Golden trajectories: what each policy does, second by second, in named scenarios. A change of a policy shows here as
//! a changed file; read it before you accept it.

use std::time::Duration;

use tidegate_engine::{DispatchConfig, LoadReport, MaxConn};
use tidegate_sim::{Fault, FaultKind, Reading, World};
use tidegate_workload::ServiceTime;

use crate::support::{self, admission, c1, service_times, stream, trajectory, world};

fn golden(name: &str, world: &World) {
    let report = world.run(1).expect("the setup makes sense");
    insta::assert_snapshot!(name, trajectory(&report));
}

fn exponential() -> ServiceTime {
    service_times()[2].1
}

#[test]
fn c1_under_batch() {
    let policy = admission(r#"{ "policy": "batch", "delays": ["0ms", "50ms", "100ms"] }"#);
    golden("c1-batch", &c1(policy, exponential()));
}

#[test]
fn c1_under_batch_with_computed_delays() {
    golden("c1-batch-computed", &c1(admission(r#"{ "policy": "batch" }"#), exponential()));
}

#[test]
fn c1_under_threshold() {
    golden("c1-threshold-1s", &c1(admission(r#"{ "policy": "threshold", "period": "1s" }"#), exponential()));
    golden("c1-threshold-15s", &c1(admission(r#"{ "policy": "threshold", "period": "15s" }"#), exponential()));
}

#[test]
fn c1_under_other_products_policies() {
    for name in ["codel", "aimd-limit", "vegas", "gradient2", "gradient", "dagor"] {
        let policy = admission(&format!(r#"{{ "policy": "{name}" }}"#));
        golden(&format!("c1-{name}"), &c1(policy, exponential()));
    }
}

#[test]
fn c1_under_response_time_controllers() {
    golden("c1-aimd", &c1(admission(r#"{ "policy": "aimd" }"#), exponential()));
    let policy = r#"{ "policy": "aimd", "controller": { "lower_own_always": true, "lag": 5, "smoothing": 0.5 } }"#;
    golden("c1-aimd-variant", &c1(admission(policy), exponential()));
}

#[test]
fn the_sentry_goes_to_threshold_and_back_with_its_own_load() {
    let policy = r#"{ "policy": "sentry", "batch": { "delays": ["0ms", "50ms", "100ms"] } }"#;
    let mut world = c1(admission(policy), exponential());
    let load = |second: u64| if (150..160).contains(&second) { 0.95 } else { 0.3 };
    let reading = |second| Reading { at: Duration::from_secs(second), report: LoadReport::SentryCpu(load(second)) };
    world.readings = (1..300).map(reading).collect();
    golden("c1-sentry", &world);
}

#[test]
fn a_cold_start_under_five_times_the_load() {
    let mut world = world(2, 8.0, Duration::from_secs(1), admission(r#"{ "policy": "batch" }"#));
    let cost = ServiceTime::exponential(0.05).expect("positive");
    world.streams = (0..3).map(|class| stream(class, "533/s", cost)).collect();
    golden("cold-start", &world);
}

#[test]
fn a_server_slows_to_half_and_recovers() {
    let mut world = c1(admission(r#"{ "policy": "batch" }"#), exponential());
    world.streams = (0..3).map(|class| stream(class, "80/s", exponential())).collect();
    world.faults = vec![support::speed(40, 0.5), support::speed(80, 1.0)];
    world.duration = Duration::from_secs(120);
    golden("half-speed", &world);
}

#[test]
fn small_requests_go_first_in_a_mix_of_sizes() {
    let mut world = world(3, 1.0, Duration::from_secs(1), admission(r#"{ "policy": "batch" }"#));
    world.setup.classes.truncate(1);
    world.streams = support::sizes("0s:20/s, 30s:80/s, 60s:20/s, 90s:120/s, 120s:20/s");
    world.duration = Duration::from_secs(150);
    golden("size-mix", &world);
}

#[test]
fn a_guarantee_holds_under_overload() {
    let mut world = c1(admission(r#"{ "policy": "batch" }"#), exponential());
    world.setup.classes[2].min_rate = 20.0;
    world.setup.classes[2].burst = 5.0;
    world.streams = [200, 100, 100]
        .iter()
        .zip(0..)
        .map(|(rate, class)| stream(class, &format!("{rate}/s"), exponential()))
        .collect();
    world.duration = Duration::from_secs(60);
    golden("guarantee", &world);
    let report = world.run(1).expect("the setup makes sense");
    let bronze = report.span(2, 10, 60);
    let admitted = f64::from(bronze.offered - bronze.refused) / 50.0;
    assert!((19.0..=22.0).contains(&admitted), "{admitted} per second of 20 guaranteed");
}

/// Ten servers and three classes: gold doubles, silver dies down, and two servers are dead for a while.
fn cluster(partition: &str) -> World {
    let mut world = world(10, 2.0, Duration::from_secs(1), admission(r#"{ "policy": "switch" }"#));
    world.setup.partition = serde_json::from_str(partition).expect("a policy of the table");
    world.setup.dispatch = DispatchConfig::from_name("wrr").expect("a name of the table");
    world.setup.max_conn = vec![MaxConn { within_target: 18.0, most: 26.0, ..MaxConn::unknown() }];
    world.setup.max_conn[0].request_types = vec!["default".into()];
    let cost = ServiceTime::exponential(0.1).expect("positive");
    let profiles = ["0s:40/s, 60s:110/s", "0s:60/s, 120s:5/s", "120/s"];
    world.streams = (0..3).map(|class| stream(class as u8, profiles[class], cost)).collect();
    let fault = |at, server, what| Fault {
        at: Duration::from_secs(at),
        tier: None,
        server,
        what,
        noticed_after: Duration::from_secs(1),
    };
    let (fail, recover) = (FaultKind::Fail, FaultKind::Recover);
    world.faults = vec![fault(150, 0, fail), fault(155, 1, fail), fault(200, 0, recover), fault(200, 1, recover)];
    world.duration = Duration::from_secs(240);
    world
}

#[test]
fn partitions_follow_the_load_of_three_classes() {
    let policy = r#"{ "policy": "dynamic", "shares": [0.2, 0.3], "period": "5s" }"#;
    golden("partition-dynamic", &cluster(policy));
}

#[test]
fn fixed_partitions_do_not() {
    golden("partition-static", &cluster(r#"{ "policy": "static", "shares": [0.2, 0.3] }"#));
}

#[test]
fn a_switch_without_partitions() {
    golden("switch", &cluster(r#"{ "policy": "none" }"#));
}
