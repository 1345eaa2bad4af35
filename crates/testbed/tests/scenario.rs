//! A scenario on real HTTP, and the reports of it.

use std::path::Path;
use std::time::Duration;

use tidegate_testbed::LiveRun;
use tidegate_testbed::report::{ArmReport, ExperimentReport, Mode, RunReport, WriteError};
use tidegate_workload::scenario::Scenario;

/// Three seconds; one server of 100/s, and from the first second on three times that.
const RUSH: &str = r#"
    id = "rush"
    title = "three seconds"
    duration = "3s"
    timeout = "5s"
    sla = { target = "300ms" }
    servers = { count = 1, learned = false }
    class = [{ name = "gold" }, { name = "rest" }]
    request = [
        { name = "page", service = { distribution = "constant", value = "10ms" }, response_bytes = 300, urls = 2 },
        { name = "image", service = { distribution = "constant", value = "10ms" } },
    ]
    load = [
        { class = "gold", requests = { page = 1 }, rate = "40/s" },
        { class = "rest", requests = { page = 1, image = 1 }, rate = "0s:20/s, 1s:260/s" },
    ]
    arm = [{ name = "batch", admission = { policy = "batch" } }]
    expect = [
        { what = "gold is known by its path", class = "gold", metric = "admitted_share", over = "0s..1s", at_least = 0.9 },
        { what = "the rest is refused", class = "rest", metric = "refused_share", over = "1s..3s", at_least = 0.2 },
        { what = "nothing breaks", metric = "failed_share", over = "0s..3s", at_most = 0.0 },
        { what = "canary", metric = "offered_rate", over = "0s..3s", at_least = 100000 },
    ]
"#;

fn live() -> ExperimentReport {
    let scenario = Scenario::parse(RUSH, "rush.toml").unwrap();
    let run = LiveRun::start(&scenario, &scenario.arms[0], 3).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), run.wait()).await });
    let run = RunReport::new(&scenario, &scenario.arms[0], 3, outcome.unwrap().unwrap());
    let arms = vec![ArmReport { name: "batch".into(), runs: vec![run] }];
    ExperimentReport { scenario, mode: Mode::Live, short: false, arms }
}

#[test]
fn a_scenario_on_real_http_and_its_reports() {
    let report = live();
    let run = &report.arms[0].runs[0];
    for stream in &run.outcome.streams {
        let sum = stream.course.total();
        assert_eq!(sum.offered, sum.admitted() + sum.refused + sum.failed, "{}", stream.name);
    }
    let passed: Vec<bool> = run.checks.iter().map(|check| check.pass).collect();
    assert_eq!(passed, [true, true, true, false], "{}", report.text());
    assert!(!report.pass());
    reports_say_the_same(&report);
}

fn reports_say_the_same(report: &ExperimentReport) {
    let run = &report.arms[0].runs[0];
    let total = run.outcome.class(None).total();
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    let first = &json["arms"][0]["runs"][0];
    assert_eq!((&json["mode"], &json["pass"], &first["seed"]), (&"live".into(), &false.into(), &3.into()));
    assert_eq!(first["totals"][2]["offered"], total.offered);
    let by_second: u64 = first["seconds"][2]["refused"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(by_second, total.refused);

    let csv = report.csv();
    let offered: u64 = csv.lines().skip(1).map(|line| line.split(',').nth(4).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(offered, total.offered);

    let text = report.text();
    for part in ["== batch ==", "PASS  the rest is refused", "FAIL  canary", "rush FAIL: 1 of 4 checks missed"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let figure = report.figure(&report.arms[0], run).unwrap();
    for part in ["<svg", "rush (batch, live)", "requests/s", "time (s)", "gold", "rest", "target", "</svg>"] {
        assert!(figure.contains(part), "{part}");
    }
    let nowhere = report.write(Path::new("/dev/null/x")).unwrap_err();
    assert!(matches!(&nowhere, WriteError::File { .. }) && nowhere.to_string().contains("/dev/null/x"), "{nowhere}");
}

/// Three servers with a back end besides their cores, and a nucleus each; two kinds of users in sessions, a partition
/// for each class.
const CLUSTER: &str = r#"
    id = "cluster"
    title = "four seconds of sessions"
    duration = "4s"
    sla = { target = "400ms" }
    class = [{ name = "top" }, { name = "normal" }]
    max_conn = [
        { name = "static", requests = ["page"], within_target = 40, most = 60 },
        { name = "dynamic", requests = ["made"], within_target = 8, most = 12 },
    ]
    live = { nuclei = ["static"] }

    [servers]
    count = 3
    learned = false
    resource = [{ name = "backend", discipline = "ps", units = 2 }, { name = "network", discipline = "ps", units = 1000 }]

    [[request]]
    name = "page"
    service = { distribution = "constant", value = "1ms" }
    step = [{ resource = "network", amount = { distribution = "constant", value = "150ms" } }]

    [[request]]
    name = "made"
    service = { distribution = "constant", value = "1ms" }
    step = [{ resource = "backend", amount = { distribution = "constant", value = "50ms" } }]

    [[sessions]]
    class = "top"
    rate = "20/s"
    static = "page"
    dynamic_light = "made"
    dynamic_cpu = "made"
    dynamic_cpu_and_disk = "made"
    per_object = "0.1ms"

    [[sessions]]
    class = "normal"
    rate = "20/s"
    static = "page"
    dynamic_light = "made"
    dynamic_cpu = "made"
    dynamic_cpu_and_disk = "made"

    [[arm]]
    name = "static"
    admission = { policy = "switch" }
    dispatch = { policy = "wrr" }
    partition = { policy = "static", shares = [0.5] }

    [[expect]]
    what = "both classes have servers of their own"
    class = "top"
    metric = "servers_least"
    over = "1s..4s"
    at_least = 1
    [[expect]]
    what = "made pages take their time at the back end"
    load = "top-dynamic"
    metric = "p50"
    over = "1s..4s"
    at_least = 0.05
    [[expect]]
    what = "pages from files do not wait for them"
    load = "normal-static"
    metric = "p50"
    over = "1s..4s"
    at_least = 0.15
    [[expect]]
    what = "some of them are under way"
    load = "top-static"
    metric = "in_flight"
    over = "1s..4s"
    at_least = 0.3
    [[expect]]
    what = "nothing breaks"
    metric = "failed_share"
    over = "0s..4s"
    at_most = 0.0
"#;

#[test]
fn sessions_on_a_cluster_with_nuclei_are_those_of_the_simulator() {
    let scenario = Scenario::parse(CLUSTER, "cluster.toml").unwrap().for_live().unwrap();
    assert_eq!(scenario.simulator_only(), Vec::<String>::new());
    let run = LiveRun::start(&scenario, &scenario.arms[0], 5).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), run.wait()).await });
    let outcome = outcome.unwrap().unwrap();
    let simulated = tidegate_sim::Played::new(&scenario, &scenario.arms[0]).unwrap().play(5).unwrap();
    let offered = |of: &tidegate_workload::outcome::Outcome| -> Vec<(String, u64)> {
        of.streams.iter().map(|stream| (stream.name.clone(), stream.course.total().offered)).collect()
    };
    assert_eq!(offered(&outcome), offered(&simulated));
    assert!(offered(&outcome).iter().all(|(_, count)| *count > 10), "{:?}", offered(&outcome));
    assert!(outcome.notes.iter().any(|(_, note)| note.starts_with("3 nuclei: ")), "{:?}", outcome.notes);
    assert!(!outcome.warnings.iter().any(|warning| warning.contains("nuclei")), "{:?}", outcome.warnings);
    let run = RunReport::new(&scenario, &scenario.arms[0], 5, outcome);
    let missed: Vec<_> = run.checks.iter().filter(|check| !check.pass).collect();
    assert!(missed.is_empty(), "{missed:?}");
}
