//! A gRPC service at three times what it can do, behind a sentry: the important method first.

use std::time::Duration;

use tidegate_loadgen::{Plan, Protocol, grpc};
use tidegate_testbed::ServerSpec;

use super::tell_disturbance;
use crate::spoken::Site;
use crate::support::load::{SECOND, assert_conserved, exponential, run};

/// Four cores, of which a call takes one for 40 ms: 100 a second.
const CAPACITY: f64 = 100.0;

/// From the sixth second, when costs and capacity are known.
const KNOWN: usize = 6;

#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn at_three_times_its_capacity_important_calls_come_first_and_in_time() -> Result<(), String> {
    let spec = ServerSpec { cores: 4, ..ServerSpec::new(exponential(0.04), 1000) };
    let site = Site::start(spec, "h2c://", "\"sentry\"");
    let checkout = site.stream("checkout", "/shop.Checkout/Pay", "60/s");
    let rest = site.stream("rest", "/shop.Catalog/Search", "240/s");
    let mut plan = Plan::new(vec![checkout, rest], Duration::from_secs(16));
    for stream in &mut plan.streams {
        stream.body = grpc::message(1000);
        stream.timeout = Duration::from_secs(10);
    }
    let report = run(Plan { protocol: Protocol::Grpc, target: Some(SECOND), seed: 3, ..plan });
    tell_disturbance(&report);
    assert_conserved(&report);
    let total = &report.total;
    assert_eq!((total.errors_total(), total.other, total.refused), (0, 0, total.refused_by_sentry), "{report}");
    assert!(total.grpc_status.keys().all(|status| [0, 14].contains(status)), "{report}");
    let seconds = |class: usize| &report.classes[class].seconds[KNOWN..];
    let important: u64 = seconds(0).iter().map(|second| second.admitted).sum();
    let offered: u64 = seconds(0).iter().map(|second| second.offered).sum();
    let good: u64 = [0, 1].into_iter().flat_map(seconds).map(|second| second.good).sum();
    let goodput = good as f64 / seconds(0).len() as f64;
    let mut times: Vec<f32> = report.total.responses[KNOWN..].concat();
    times.sort_by(f32::total_cmp);
    let p95 = times[times.len() * 95 / 100];
    let found = format!("{important} of {offered} important calls, {goodput:.1} good calls a second, p95 {p95:.2} s");
    println!("{found}\n{report}");
    let holds = important as f64 >= 0.97 * offered as f64 && goodput >= 0.85 * CAPACITY && p95 <= 1.0;
    if holds { Ok(()) } else { Err(format!("{found}:\n{report}")) }
}
