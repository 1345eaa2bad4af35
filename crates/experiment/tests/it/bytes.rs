//! The same seed gives the same bytes: golden reports of two scenarios, on every machine and whatever the jobs.

use std::fmt::Write;
use std::path::Path;

use tidegate_experiment::plan::simulate;
use tidegate_experiment::report::RunReport;
use tidegate_experiment::scenario::Scenario;

fn scenario(path: &str) -> Scenario {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    Scenario::load(&root.join(path)).unwrap_or_else(|error| panic!("{error}"))
}

/// Everything that came of a scenario, in numbers with all their digits.
fn played(scenario: &Scenario, seeds: &[u64], jobs: usize) -> String {
    let mut text = String::new();
    for point in scenario.points().expect("it was checked") {
        let settings: Vec<String> = point.settings.iter().map(|(key, value)| format!("{key} = {value}; ")).collect();
        let arms = simulate(&point.scenario, seeds, jobs, || ()).unwrap_or_else(|error| panic!("{error}"));
        for arm in &arms {
            for run in &arm.runs {
                writeln!(text, "== {}{}, seed {}", settings.concat(), arm.name, run.seed).expect("a string takes all");
                write(&mut text, run);
            }
        }
    }
    text
}

fn write(text: &mut String, run: &RunReport) {
    for stream in &run.outcome.streams {
        for from in (0..stream.course.seconds().len()).step_by(10) {
            let second = |at: usize| std::time::Duration::from_secs(at as u64);
            let row = serde_json::to_string(&stream.course.span(second(from), second(from + 10)).row());
            writeln!(text, "{} {from}s {}", stream.name, row.expect("numbers")).expect("a string takes all");
        }
    }
    for check in &run.checks {
        writeln!(text, "{}: {:?} {}", check.what, check.measured, check.pass).expect("a string takes all");
    }
    for (at, note) in run.outcome.notes.iter().rev().take(8) {
        writeln!(text, "{at} {note}").expect("a string takes all");
    }
}

#[test]
fn a_report_is_the_same_to_the_last_digit() {
    insta::assert_snapshot!("shop", played(&scenario("tests/scenarios/shop.toml"), &[1], 1));
    let c5 = scenario("../../scenarios/c5.toml").shortened();
    insta::assert_snapshot!("c5-short", played(&c5, &[1], 1));
}

#[test]
fn whatever_the_jobs() {
    let mut shop = scenario("tests/scenarios/shop.toml");
    shop.duration /= 6;
    shop.faults.clear();
    shop.sweep = toml::from_str(r#""servers.count" = [2, 4]"#).expect("a table");
    let first = played(&shop, &[1, 2], 1);
    assert_eq!(first, played(&shop, &[1, 2], 4));
    assert_ne!(first, played(&shop, &[3, 4], 4));
}

#[test]
fn the_canary_fails() {
    let text = r#"
        id = "canary"
        title = "twice the capacity, and nothing refused"
        duration = "20s"
        sla = { target = "500ms" }
        servers = { count = 1 }
        class = [{ name = "all" }]
        request = [{ name = "page", service = { distribution = "exponential", mean = "20ms" } }]
        load = [{ class = "all", requests = { page = 1 }, rate = "100/s" }]
        arm = [{ name = "sentry" }]
        expect = [
            { what = "impossible", metric = "refused_share", over = "5s..20s", at_most = 0.0 },
            { what = "true", metric = "refused_share", over = "5s..20s", at_least = 0.3 },
        ]
    "#;
    let scenario = Scenario::parse(text, "canary.toml").expect("it is well formed");
    let arms = simulate(&scenario, &[1], 1, || ()).expect("the engine takes it");
    let passed: Vec<bool> = arms[0].runs[0].checks.iter().map(|check| check.pass).collect();
    assert_eq!(passed, [false, true]);
}
