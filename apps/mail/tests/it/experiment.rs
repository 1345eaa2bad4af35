//! `tidegate experiment run --live` with this program: a scenario's arms on the real service.

use std::path::Path;
use std::time::Duration;

use tidegate_experiment::outcome::Outcome;
use tidegate_experiment::report::RunReport;
use tidegate_experiment::scenario::Scenario;
use tidegate_experiment::service::{self, Lab, Running, ServiceError};

use crate::support::{Folder, MINUTE, has_mariadb, seeds};

/// Seeds with which a test of this file has failed.
const REGRESSIONS: &[u64] = &[];

/// Starts the scenario's first arm on this program.
fn start(scenario: &Scenario, seed: u64, program: &Path, folder: &Path) -> Result<Box<dyn Running>, ServiceError> {
    let lab = Lab { tidegate: "tidegate".into(), mail: program.to_owned(), folder: folder.to_owned() };
    service::of(&scenario.on()).start(scenario, &scenario.arms[0], seed, &lab)
}

/// Six seconds of W7: both classes from the second second on. Eight users of each sign in at once, of whom one a second
/// is let in, and those of the high class try again soon: whatever the machine, some are let in and some are not.
fn scenario(database: &str) -> Scenario {
    let text = include_str!("../../../../scenarios/w7.toml");
    let mut scenario: toml::Table = toml::from_str(text).unwrap();
    let live = format!(
        "on = \"mail\"\ntime_scale = 0.012\narms = [\"equal\"]\nmail = {{ database = \"{database}\", accounts = 3, largest = 200 }}\n\
         set = {{ \"users.low.count\" = 8, \"users.high.count\" = 8, \"users.high.pause.min\" = \"400ms\", \
         \"users.high.pause.max\" = \"600ms\", \"arm.equal.admission.controller.max_rate\" = 1, \
         \"arm.equal.admission.controller.initial_rate\" = 1 }}"
    );
    scenario.insert("live".to_owned(), toml::Value::Table(toml::from_str(&live).unwrap()));
    scenario.remove("expect");
    Scenario::parse(&scenario.to_string(), "w7").unwrap().for_live().unwrap()
}

fn play(scenario: &Scenario, seed: u64, folder: &Folder) -> Outcome {
    let program = Path::new(env!("CARGO_BIN_EXE_tidegate-mail"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = start(scenario, seed, program, &folder.0).unwrap();
    runtime.block_on(async { tokio::time::timeout(2 * MINUTE, run.wait()).await }).unwrap().unwrap()
}

fn users_met_the_service(database: &str) {
    seeds(REGRESSIONS).into_iter().for_each(|seed| users_met_the_service_with(seed, database));
}

fn users_met_the_service_with(seed: u64, database: &str) {
    let (scenario, folder) = (scenario(database), Folder::new());
    let outcome = play(&scenario, seed, &folder);
    for stream in &outcome.streams {
        let sum = stream.course.total();
        assert_eq!(sum.offered, sum.admitted() + sum.refused + sum.failed, "{}", stream.name);
        assert!(sum.admitted() > 0 && sum.refused > 0, "{}: {sum:?}", stream.name);
    }
    assert_eq!(
        outcome.load("high").span(Duration::ZERO, Duration::from_secs(1)).offered,
        0,
        "the high class comes later"
    );
    let by_type: u64 = outcome.types.iter().map(|(_, course)| course.total().offered).sum();
    assert_eq!(by_type, outcome.class(None).total().offered);
    assert!(outcome.request("login").total().admitted() > 0);
    let seen = outcome.controls.iter().find(|control| control.request == "login");
    assert!(seen.is_some_and(|control| control.rate.is_some_and(|rate| rate <= 1.0)), "{:?}", outcome.controls);
    assert!(outcome.notes.is_empty(), "it ended well: {:?}", outcome.notes);
    let report = RunReport::new(&scenario, &scenario.arms[0], seed, outcome);
    assert!(report.pass());
}

#[test]
fn on_sqlite() {
    users_met_the_service("sqlite");
}

#[test]
fn on_mariadb() {
    if has_mariadb() {
        users_met_the_service("mariadb");
    }
}

#[test]
fn a_program_that_is_none_is_told_apart() {
    let (scenario, folder) = (scenario("sqlite"), Folder::new());
    let problem = |program: &str| start(&scenario, 1, Path::new(program), &folder.0).unwrap_err().to_string();
    assert!(problem("/no/such/program").contains("cargo build --release -p tidegate-mail"));
    assert!(problem("/bin/false").contains("ended with"));
}
