//! Resource controllers at work: V1 to V3 are the paper's, a cluster and learned tags are ours.

use std::fmt::Write;
use std::path::Path;

use tidegate_experiment::outcome::Outcome;
use tidegate_experiment::scenario::Scenario;
use tidegate_experiment::service::Played;

fn scenario(file: &str) -> Scenario {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(file);
    Scenario::load(&path).unwrap_or_else(|error| panic!("{error}"))
}

fn play(scenario: &Scenario, arm: &str) -> Outcome {
    let arm = scenario.arms.iter().find(|candidate| candidate.name == arm).expect("the scenario has it");
    Played::new(scenario, arm).expect("the engine takes it").play(scenario.seed).expect("the setup makes sense")
}

/// Rates every other second, and what the controllers did each time that was something else.
fn trajectory(outcome: &Outcome) -> String {
    let mut text = String::from("second  cpu    syn\n");
    let rate = |second: u64, resource: &str| {
        let is_its = |name: &str| name.split(" at ").next() == Some(resource);
        let found = outcome.controls.iter().find(|control| control.second == second && is_its(&control.request));
        found.and_then(|control| control.rate).map_or("-".to_owned(), |rate| format!("{rate:.1}"))
    };
    let last = outcome.controls.last().map_or(0, |control| control.second);
    for second in (1..=last).step_by(2) {
        let _ = writeln!(text, "{second:>6}  {:<6} {}", rate(second, "cpu"), rate(second, "syn"));
    }
    let events = outcome.notes.iter().filter(|(_, line)| line.starts_with("ResourceControlled"));
    let why = |line: &str| {
        let value = |key: &str| line.split(key).nth(1).and_then(|rest| rest.split('"').nth(1)).unwrap_or("").to_owned();
        format!("{} {}", value("resource: "), value("why: "))
    };
    for (at, line) in events {
        let _ = writeln!(text, "{at:>6.1}  {}", why(line));
    }
    text
}

#[test]
fn v3_sudden_high_load() {
    insta::assert_snapshot!("v3", trajectory(&play(&scenario("v3.toml"), "resource")));
}

#[test]
fn in_a_cluster_only_the_busy_servers_scripts_are_limited() {
    let mut scenario = scenario("v1.toml");
    scenario.servers.count = 2;
    scenario.duration = std::time::Duration::from_secs(60);
    scenario.loads[0].rate = "0s:700/s".parse().expect("a profile");
    // One of them is half as fast.
    let arm = scenario.arms.iter().find(|arm| arm.name == "resource").expect("V1 has it").clone();
    let mut played = Played::new(&scenario, &arm).expect("the engine takes it");
    let world = played.world_mut();
    world.faults.push(tidegate_sim::Fault {
        at: std::time::Duration::from_secs(1),
        tier: None,
        server: 1,
        what: tidegate_sim::FaultKind::Speed(0.5),
        noticed_after: std::time::Duration::from_secs(1),
    });
    world.setup.dispatch = tidegate_engine::DispatchConfig::from_name("wrr").expect("a name of the table");
    let report = world.run(1).expect("the setup makes sense");
    let (_, last) = report.shown.last().expect("it protects");
    let rate = |server: &str| {
        let mut states = last.list("resources").filter(|state| state.text("resource") == Some("cpu"));
        states.find(|state| state.text("server") == Some(server)).expect("it is measured").number("rate")
    };
    let (fast, slow) = (rate("server-0"), rate("server-1"));
    assert!(slow.is_some_and(|slow| fast.is_none_or(|fast| slow < 0.7 * fast)), "{fast:?}, {slow:?}");
}

#[test]
fn learned_tags_do_as_well_as_rules() {
    let mut scenario = scenario("v1.toml");
    scenario.duration = std::time::Duration::from_secs(100);
    scenario.loads[0].rate = "0s:300/s, 20s..50s:300/s->560/s, 50s:560/s".parse().expect("a profile");
    let arm = scenario.arms.iter_mut().find(|arm| arm.name == "resource").expect("V1 has it");
    arm.admission.insert("tags".to_owned(), "learn".into());
    for request in &mut scenario.requests {
        request.tags.clear();
        request.urls = 1;
    }
    let outcome = play(&scenario, "resource");
    let shares = |name: &str| {
        let course = outcome.request(name);
        let sum = course.span(std::time::Duration::from_secs(70), scenario.duration);
        sum.refused as f64 / sum.offered as f64
    };
    assert!(shares("file") < 0.001 && shares("cgi") > 0.3, "{} {}", shares("file"), shares("cgi"));
}
