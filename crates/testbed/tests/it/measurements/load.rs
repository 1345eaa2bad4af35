//! The load generator and emulated servers over loopback: both against queueing theory.

use tidegate_loadgen::Plan;
use tidegate_testbed::ServerSpec;

use super::tell_disturbance;
use crate::support::load::{
    SECOND, assert_conserved, closing_server, constant, double_load, exponential, half_load, run, saturated_cluster,
    start, stream,
};

/// A seed whose arrivals are as many as they are on average, within what is asserted of them.
const SEED: u64 = 11;

#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn at_half_load_everything_is_as_processor_sharing_says() -> Result<(), String> {
    let (report, stats) = half_load(SEED, 8 * SECOND);
    tell_disturbance(&report);
    let [all, without] = &report.classes[..] else { panic!("two classes: {report}") };
    // Poisson noise of 2000 arrivals is 2.2 %; the seed is fixed, and its count within 3 %.
    assert!((all.admitted as f64 / 2000.0 - 1.0).abs() < 0.03, "{report}");
    let load = stats.work_done / 8.0;
    assert!((load - 0.5).abs() < 0.06, "load {load}");
    // At 250/s the mean response time is 2 ms / (1 - 0.5) = 4 ms. What the machine adds on the way, it adds as much
    // again when a service is to end.
    let (mean, added) = (all.latency.mean, without.latency.mean);
    let as_wanted = mean > 0.003 && mean - 2.0 * added < 0.0055 && added < 0.010;
    let found =
        || format!("mean {mean} s for 0.003 to 0.0055 beside what is added; without service {added} s for 0.010");
    as_wanted.then_some(()).ok_or_else(found)
}

#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn at_double_load_the_server_completes_its_capacity() -> Result<(), String> {
    let report = double_load(1, 5 * SECOND);
    tell_disturbance(&report);
    let total = &report.total;
    // 50 waiting before two cores of 5 ms: 125 ms, and the service.
    let waited = (0.120..0.200).contains(&total.latency.p95);
    let is_capacity = (total.admitted_per_s / 400.0 - 1.0).abs() < 0.05;
    let found = || format!("p95 for 0.12 to 0.2 s, and admitted for 400/s within 5 %, not as wanted:\n{report}");
    (waited && is_capacity).then_some(()).ok_or_else(found)
}

#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn an_overloaded_server_without_limits_answers_ever_later() -> Result<(), String> {
    let cluster = start(ServerSpec::new(exponential(0.01), 100));
    let plan = Plan::new(vec![stream(&cluster, "200/s").timeout(2 * SECOND)], 4 * SECOND);
    let report = run(Plan { target: Some(SECOND / 2), ..plan });
    tell_disturbance(&report);
    assert_conserved(&report);
    let goodput = report.total.goodput_per_s;
    if goodput < 80.0 { Ok(()) } else { Err(format!("goodput {goodput}/s, less than 80 is due:\n{report}")) }
}

#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn a_server_at_a_tenth_of_its_speed_is_felt() -> Result<(), String> {
    let cluster = start(ServerSpec::new(constant(0.001), 10));
    let plan = || Plan::new(vec![stream(&cluster, "200/s").timeout(SECOND)], SECOND);
    cluster.set_speed(0.1);
    let slow = run(plan());
    cluster.set_speed(1.0);
    let normal = run(plan());
    [&slow, &normal].into_iter().for_each(tell_disturbance);
    let p50 = [slow.total.latency.p50, normal.total.latency.p50];
    // 200/s of 10 ms each overload one core.
    let as_wanted = p50[0] > 0.1 && p50[1] < p50[0] / 5.0 && normal.total.admitted == normal.total.offered;
    let found = || format!("p50 {p50:?} s for more than 0.1 and less than a fifth of that:\n{slow}{normal}");
    as_wanted.then_some(()).ok_or_else(found)
}

#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn a_full_server_closes_as_many_as_it_has_no_place_for() -> Result<(), String> {
    let report = closing_server(1);
    tell_disturbance(&report);
    let (errors, admitted) = (report.total.errors_total(), report.total.admitted);
    let found = || format!("{errors} closed for more than 50, {admitted} admitted for more than 20:\n{report}");
    (errors > 50 && admitted > 20).then_some(()).ok_or_else(found)
}

#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn a_saturated_cluster_completes_its_capacity_to_the_last_server() -> Result<(), String> {
    let (report, [least, most, work]) = saturated_cluster(1, 4 * SECOND);
    tell_disturbance(&report);
    let as_wanted = least > 54.0 && most < 64.0 && (26.6..29.4).contains(&work);
    let found =
        || format!("servers at {least}/s to {most}/s for 54 to 64, {work} cores busy for 26.6 to 29.4\n{report}");
    as_wanted.then_some(()).ok_or_else(found)
}
