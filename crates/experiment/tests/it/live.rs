//! A scenario on real HTTP, and the reports of it: what holds on any machine.

use std::path::Path;

use tidegate_experiment::outcome::Outcome;
use tidegate_experiment::report::{ArmReport, ExperimentReport, Mode, RunReport, WriteError};
use tidegate_experiment::scenario::Scenario;
use tidegate_experiment::service::{self, Played};

use crate::support::live::{CLUSTER, RUSH, play};
use crate::support::seeds;

/// Seeds with which a test of this file has failed.
const REGRESSIONS: &[u64] = &[];

#[test]
fn a_scenario_on_real_http_and_its_reports() {
    for seed in seeds(REGRESSIONS) {
        // Nobody is too slow for clients of such patience.
        let scenario = RUSH.replace("timeout = \"5s\"", "timeout = \"60s\"");
        let scenario = Scenario::parse(&scenario, "rush.toml").unwrap();
        let run = RunReport::new(&scenario, &scenario.arms[0], seed, play(&scenario, seed));
        for stream in &run.outcome.streams {
            let sum = stream.course.total();
            assert_eq!((sum.offered, sum.failed), (sum.admitted() + sum.refused, 0), "{}", stream.name);
            assert!(sum.offered > 0, "{}", stream.name);
        }
        let arms = vec![ArmReport { name: "batch".into(), runs: vec![run] }];
        let report = ExperimentReport { scenario, mode: Mode::Live, short: false, arms };
        let checks = &report.arms[0].runs[0].checks;
        assert!(checks.len() == 4 && !checks[3].pass && !report.pass(), "{}", report.text());
        reports_say_the_same(&report, seed);
    }
}

fn reports_say_the_same(report: &ExperimentReport, seed: u64) {
    let run = &report.arms[0].runs[0];
    let total = run.outcome.class(None).total();
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    let first = &json["arms"][0]["runs"][0];
    assert_eq!((&json["mode"], &json["pass"], &first["seed"]), (&"live".into(), &false.into(), &seed.into()));
    assert_eq!(first["totals"][2]["offered"], total.offered);
    let by_second: u64 = first["seconds"][2]["refused"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(by_second, total.refused);

    let csv = report.csv();
    let offered: u64 = csv.lines().skip(1).map(|line| line.split(',').nth(4).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(offered, total.offered);

    let text = report.text();
    let verdict = |pass: bool| if pass { "PASS" } else { "FAIL" };
    let checks = run.checks.iter().zip(&report.scenario.expects);
    let mut parts: Vec<_> = checks.map(|(check, of)| format!("{}  {}", verdict(check.pass), of.what)).collect();
    let missed = run.checks.iter().filter(|check| !check.pass).count();
    parts.extend(["== batch ==".to_owned(), format!("rush FAIL: {missed} of 4 checks missed")]);
    for part in parts {
        assert!(text.contains(&part), "{part} in\n{text}");
    }
    let figure = report.figure(&report.arms[0], run).unwrap();
    for part in ["<svg", "rush (batch, live)", "requests/s", "time (s)", "gold", "rest", "target", "</svg>"] {
        assert!(figure.contains(part), "{part}");
    }
    let nowhere = report.write(Path::new("/dev/null/x")).unwrap_err();
    assert!(matches!(&nowhere, WriteError::File { .. }) && nowhere.to_string().contains("/dev/null/x"), "{nowhere}");
}

#[test]
fn sessions_on_a_cluster_with_nuclei_are_those_of_the_simulator() {
    let scenario = Scenario::parse(CLUSTER, "cluster.toml").unwrap().for_live().unwrap();
    assert_eq!(service::of(&scenario.on()).cannot_do(&scenario), Vec::<String>::new());
    let offered = |of: &Outcome| -> Vec<(String, u64)> {
        of.streams.iter().map(|stream| (stream.name.clone(), stream.course.total().offered)).collect()
    };
    for seed in seeds(REGRESSIONS) {
        let outcome = play(&scenario, seed);
        let simulated = Played::new(&scenario, &scenario.arms[0]).unwrap().play(seed).unwrap();
        assert_eq!(offered(&outcome), offered(&simulated));
        assert!(offered(&outcome).iter().all(|(_, count)| *count > 10), "{:?}", offered(&outcome));
        // How many of them are heard in time is up to the machine.
        assert!(outcome.notes.iter().any(|(_, note)| note.contains(" nuclei: ")), "{:?}", outcome.notes);
    }
}
