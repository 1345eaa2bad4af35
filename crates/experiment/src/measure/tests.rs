//! Measures of outcomes made by hand.

use super::*;
use crate::outcome::{Control, StreamOutcome};

const SECOND: Duration = Duration::from_secs(1);

/// Ten seconds: gold is answered in 100 ms, and from 5 s on in 2 s; bronze is refused every other time.
fn outcome() -> Outcome {
    let (mut gold, mut bronze) = (Course::default(), Course::default());
    for second in 0..10 {
        let at = second * SECOND;
        for turn in 0..20 {
            gold.offered(at);
            gold.answered(at, if second < 5 { SECOND / 10 } else { 2 * SECOND }, SECOND);
            bronze.offered(at);
            if turn % 2 == 0 { bronze.refused(at) } else { bronze.answered(at, SECOND / 2, SECOND) }
        }
    }
    let stream = |name: &str, course| StreamOutcome { name: name.into(), class: name.into(), course };
    let types = vec![("page".to_owned(), gold.clone())];
    Outcome { streams: vec![stream("gold", gold), stream("bronze", bronze)], types, ..Outcome::default() }
}

fn scenario(expects: &str) -> Scenario {
    let text = r#"
        id = "t"
        title = "t"
        duration = "10s"
        sla = { target = "1s" }
        servers = { count = 1 }
        class = [{ name = "gold" }, { name = "bronze" }]
        request = [{ name = "page", service = { distribution = "constant", value = "1ms" } }]
        load = [{ class = "gold", requests = { page = 1 }, rate = "20/s" }, { class = "bronze", requests = { page = 1 }, rate = "20/s" }]
        arm = [{ name = "a" }]
    "#;
    Scenario::parse(&format!("{text}{expects}"), "t.toml").unwrap()
}

fn measured(expect: &str) -> (Option<f64>, bool) {
    let scenario = scenario(&format!("expect = [{{ {expect} }}]"));
    let checks = Measure::new(&scenario, &outcome()).checks(&scenario.arms[0]);
    (checks[0].measured, checks[0].pass)
}

#[test]
fn shares_rates_and_parts() {
    let over = r#"over = "0s..10s""#;
    let of = |text: &str| measured(&format!("{over}, {text}"));
    assert_eq!(of(r#"metric = "admitted_share", class = "bronze", at_least = 0.5"#), (Some(0.5), true));
    assert_eq!(of(r#"metric = "refused_share", at_most = 0.2"#), (Some(0.25), false));
    assert_eq!(of(r#"metric = "refused_share", at_most = 0.2, tolerance = 0.06"#), (Some(0.25), true));
    assert_eq!(of(r#"metric = "part_of_refused", class = "bronze", at_least = 0.99"#), (Some(1.0), true));
    assert_eq!(of(r#"metric = "offered_rate", request = "page", at_least = 20"#), (Some(20.0), true));
    assert_eq!(of(r#"metric = "offered_rate", at_least = 40"#), (Some(40.0), true));
    assert_eq!(of(r#"metric = "goodput_rate", class = "gold", at_least = 11"#), (Some(10.0), false));
    // 10 of gold's and 10 of bronze's a second, 1 ms each.
    assert_eq!(of(r#"metric = "goodput_work", at_least = 0.02"#), (Some(0.02), true));
    assert_eq!(of(r#"metric = "goodput_work", class = "gold", at_least = 0.02"#), (Some(0.01), false));
}

#[test]
fn answers_in_time_are_worth_their_classes_revenue() {
    let mut scenario = scenario(
        r#"expect = [
            { over = "0s..10s", metric = "revenue_rate", at_least = 80 },
            { over = "0s..10s", metric = "revenue_rate", class = "gold", at_least = 80 },
            { over = "5s..10s", metric = "revenue_rate", load = "gold", at_most = 1 },
        ]"#,
    );
    (scenario.classes[0].revenue, scenario.classes[1].revenue) = (7.0, 1.0);
    let checks = Measure::new(&scenario, &outcome()).checks(&scenario.arms[0]);
    let measured: Vec<_> = checks.iter().map(|check| (check.measured, check.pass)).collect();
    assert_eq!(measured, [(Some(80.0), true), (Some(70.0), false), (Some(0.0), true)]);
}

#[test]
fn quantiles_and_windows() {
    let near = |text: &str, wanted: f64| {
        let found = measured(text).0.unwrap();
        assert!((found / wanted - 1.0).abs() < 0.003, "{text}: {found}");
    };
    near(r#"over = "0s..5s", metric = "p95", at_most = 1"#, 0.5);
    near(r#"over = "0s..10s", metric = "p95_worst_window", window = "1s", at_most = 1"#, 2.0);
    near(r#"over = "0s..10s", metric = "p90_worst_window", window = "1s", at_most = 1"#, 2.0);
    near(r#"over = "0s..10s", metric = "p95_windows_over", window = "1s", at_most = 1"#, 0.5);
    near(r#"over = "4s..6s", metric = "p50", class = "gold", at_most = 1"#, 0.1);
}

#[test]
fn servers_of_a_class() {
    let scenario = scenario(
        r#"expect = [
            { over = "0s..4s", metric = "servers_least", class = "gold", at_least = 1 },
            { over = "1s..4s", metric = "servers_most", class = "bronze", at_least = 1 },
            { over = "0s..4s", metric = "servers_changes", class = "gold", at_most = 1 },
            { over = "2s..4s", metric = "servers_changes", class = "gold", at_most = 0 },
            { over = "0s..4s", metric = "servers_usual", class = "gold", at_least = 5 },
            { over = "1s..3s", metric = "servers_usual", class = "bronze", at_least = 6 },
        ]"#,
    );
    let outcome = Outcome { partitions: [[5, 5], [4, 6], [5, 5], [5, 5]].map(Vec::from).to_vec(), ..outcome() };
    let checks = Measure::new(&scenario, &outcome).checks(&scenario.arms[0]);
    let measured: Vec<_> = checks.iter().map(|check| (check.measured, check.pass)).collect();
    let extremes = [(Some(4.0), true), (Some(6.0), true), (Some(2.0), false), (Some(0.0), true)];
    assert_eq!(measured[..4], extremes);
    // Three seconds of four; and of one second each the smaller number.
    assert_eq!(measured[4..], [(Some(5.0), true), (Some(5.0), false)]);
}

#[test]
fn requests_in_flight() {
    let scenario = scenario(
        r#"expect = [
            { over = "0s..10s", metric = "in_flight", load = "gold", at_least = 1 },
            { over = "0s..10s", metric = "in_flight", at_least = 1 },
            { over = "0s..5s", metric = "in_flight", class = "bronze", at_least = 9 },
        ]"#,
    );
    let outcome = Outcome { in_flight: (0..10).map(|second| vec![second, 2]).collect(), ..outcome() };
    let checks = Measure::new(&scenario, &outcome).checks(&scenario.arms[0]);
    let measured: Vec<_> = checks.iter().map(|check| (check.measured, check.pass)).collect();
    assert_eq!(measured, [(Some(4.5), true), (Some(6.5), true), (Some(2.0), false)]);
}

#[test]
fn arms_are_compared_over_the_same_span() {
    let mut scenario = scenario(
        r#"expect = [{ over = "0s..10s", metric = "goodput_rate", class = "gold", at_most = 1, arms = ["a"] }]"#,
    );
    scenario.expects[0].relative_to_arm = Some("b".to_owned());
    let (all, half) = (outcome(), outcome());
    let check =
        |arms: &[(&str, &Outcome)]| Measure::new(&scenario, &all).beside(arms).check(&scenario.expects[0]).measured;
    assert_eq!(check(&[("a", &all), ("b", &half)]), Some(1.0));
    assert_eq!(check(&[("b", &Outcome::default())]), None);
    assert_eq!(check(&[("a", &all)]), None);
    assert_eq!(scenario.expects[0].bound(), "<= 1 times that of `b`");
}

#[test]
fn rates_of_resources_and_connections() {
    let scenario = scenario(
        r#"expect = [
            { over = "0s..4s", metric = "limited_share", resource = "cpu", at_most = 0.5 },
            { over = "0s..4s", metric = "rate_fall_mean", resource = "cpu", at_most = 1 },
            { over = "0s..4s", metric = "rate_rise_to_fall", resource = "cpu", at_least = 2 },
            { over = "1s..4s", metric = "turned_away", at_least = 3 },
            { over = "0s..4s", metric = "rate_change_time", at_most = 1e-5 },
            { over = "0s..4s", metric = "refusal_cost", at_most = 1 },
        ]"#,
    );
    let control = |(second, rate): (u64, Option<f64>)| Control {
        second,
        request: "cpu".to_owned(),
        class: "all".to_owned(),
        rate,
        percentile: None,
        quality: 1.0,
    };
    let connections = |(second, turned_away, change)| Connections { second, turned_away, change };
    let outcome = Outcome {
        controls: [(0, None), (1, Some(9.0)), (2, Some(7.0)), (3, Some(8.0))].map(control).to_vec(),
        connections: [(0, 0.0, None), (1, 2.0, Some(2e-5)), (2, 2.0, Some(2e-5)), (3, 6.0, Some(5e-5))]
            .map(connections)
            .to_vec(),
        ..Outcome::default()
    };
    let checks = Measure::new(&scenario, &outcome).checks(&scenario.arms[0]);
    let measured: Vec<_> = checks.iter().map(|check| check.measured).collect();
    assert_eq!(measured, [Some(0.75), Some(0.5), Some(0.5), Some(4.0), Some(5e-5), None]);
}

#[test]
fn nothing_to_measure_never_passes() {
    let scenario = scenario(r#"expect = [{ over = "0s..5s", metric = "p95", at_most = 9, class = "gold" }]"#);
    let silent = Outcome::default();
    let check = Measure::new(&scenario, &silent).check(&scenario.expects[0]);
    assert_eq!((check.measured, check.pass), (None, false));
}

#[test]
fn arms_differ_by_so_much() {
    let mut scenario = scenario(
        r#"expect = [{ over = "0s..10s", metric = "goodput_rate", class = "gold", at_least = 0, arms = ["a"] }]"#,
    );
    scenario.expects[0].minus_arm = Some("b".to_owned());
    let (all, nothing) = (outcome(), Outcome::default());
    let alone = Measure::new(&scenario, &all).beside(&[("b", &nothing)]).check(&scenario.expects[0]);
    assert!(alone.measured.is_some_and(|measured| measured > 0.0) && alone.pass, "{alone:?}");
    let other = Measure::new(&scenario, &nothing).beside(&[("b", &all)]).check(&scenario.expects[0]);
    assert_eq!((other.measured, other.pass), (alone.measured.map(|measured| -measured), false));
    assert_eq!(scenario.expects[0].bound(), ">= 0 above that of `b`");
}

#[test]
fn seeds_are_judged_together_where_that_is_asked_for() {
    let mut scenario = scenario(r#"expect = [{ over = "0s..10s", metric = "goodput_rate", at_least = 1.0 }]"#);
    let check = |measured: f64| {
        let check = Measure::new(&scenario, &outcome()).check(&scenario.expects[0]);
        vec![Check { measured: Some(measured), pass: measured >= 1.0, ..check }]
    };
    let judged = |scenario: &Scenario, values: [f64; 4]| -> Vec<bool> {
        let mut runs: Vec<Vec<Check>> = values.map(check).to_vec();
        judge(scenario.expects.iter(), &mut runs, true);
        runs.iter().map(|checks| checks[0].pass).collect()
    };
    let (sure, unsure) = ([0.99, 1.1, 1.1, 1.1], [0.7, 1.1, 1.3, 1.4]);
    assert_eq!(judged(&scenario, sure), [false, true, true, true]);
    let mut together = scenario.clone();
    together.expects[0].over_seeds = Some(true);
    // 1.0725 by 0.0875 to both sides: not sure to be above 1. 1.125 by 0.5: not at all.
    assert_eq!(judged(&together, sure), [false; 4]);
    assert_eq!(judged(&together, unsure), [false; 4]);
    assert_eq!(judged(&together, [1.0, 1.1, 1.1, 1.1]), [false; 4]);
    assert_eq!(judged(&together, [1.08, 1.1, 1.1, 1.1]), [true; 4]);
    scenario = together;
    assert_eq!(scenario.expects[0].bound(), ">= 1 over the seeds");
}
