//! Scenarios on real HTTP hold what they expect.

use tidegate_experiment::report::RunReport;
use tidegate_experiment::scenario::Scenario;

use crate::support::live::{CLUSTER, RUSH, play};

#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn a_scenario_on_real_http_holds_what_it_expects() -> Result<(), String> {
    let scenario = Scenario::parse(RUSH, "rush.toml").expect("it makes sense");
    let run = RunReport::new(&scenario, &scenario.arms[0], 3, play(&scenario, 3));
    println!("{:?}", run.outcome.warnings);
    let passed: Vec<bool> = run.checks.iter().map(|check| check.pass).collect();
    // The last one is a canary.
    let found = || format!("{:?}", run.checks);
    (passed == [true, true, true, false]).then_some(()).ok_or_else(found)
}

#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn sessions_on_a_cluster_with_nuclei_hold_what_they_expect() -> Result<(), String> {
    let scenario = Scenario::parse(CLUSTER, "cluster.toml").and_then(|scenario| scenario.for_live());
    let scenario = scenario.expect("it makes sense");
    let outcome = play(&scenario, 5);
    let heard = outcome.notes.iter().any(|(_, note)| note.starts_with("3 nuclei: "));
    let silent = outcome.warnings.iter().any(|warning| warning.contains("nuclei"));
    let run = RunReport::new(&scenario, &scenario.arms[0], 5, outcome);
    let missed: Vec<_> = run.checks.iter().filter(|check| !check.pass).collect();
    let found = || format!("missed: {missed:?}; notes: {:?}; {:?}", run.outcome.notes, run.outcome.warnings);
    (heard && !silent && missed.is_empty()).then_some(()).ok_or_else(found)
}
