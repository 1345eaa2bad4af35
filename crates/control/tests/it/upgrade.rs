//! What versions before this one have stored: a state and the inputs after it, kept in `tests/stored/`, one file for
//! each policy. Later versions must read it. Where one cannot, the store has another format: count `FORMAT` up, and
//! say in the changelog how an operator gets from one to the other; the files here stay as they were written.
//!
//! `TIDEGATE_STORED=new` makes the files that are missing.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_control::plane::{Input, Plane, PlaneState, Process, Unit, What};
use tidegate_engine::Timestamp;
use tidegate_provision::{
    ApplicationReport, CataclysmConfig, CpuTargetConfig, FollowConfig, Place, Pool, Posts, ProvisionConfig, SentryRule,
    ServerNews, Site,
};

use crate::support::application::application;

/// A file of `tests/stored/`.
#[derive(Deserialize, Serialize)]
struct Stored {
    state: Value,
    journal: Vec<Input>,
}

fn policies() -> [(&'static str, ProvisionConfig); 3] {
    [
        ("follow", ProvisionConfig::Follow(FollowConfig::default())),
        ("cataclysm", ProvisionConfig::Cataclysm(CataclysmConfig::default())),
        ("cpu-target", ProvisionConfig::CpuTarget(CpuTargetConfig::default())),
    ]
}

fn site(policy: ProvisionConfig) -> Site {
    Site {
        servers: 8,
        pool: Pool { setup_time: Duration::from_secs(2), drain_limit: Duration::from_secs(10), ..Pool::default() },
        applications: vec![application("shop"), application("mail")],
        policy,
        sentries: SentryRule::default(),
        posts: Posts::default(),
    }
}

#[test]
fn what_was_stored_before_is_read() {
    for (name, policy) in policies() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/stored/1-{name}.json"));
        if std::env::var("TIDEGATE_STORED").is_ok_and(|wish| wish == "new") && !path.exists() {
            let text = serde_json::to_string(&make(policy.clone())).expect("text");
            std::fs::write(&path, text + "\n").expect("a file");
        }
        let text = std::fs::read_to_string(&path).expect("a file");
        let stored: Stored = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let state: PlaneState = serde_json::from_value(stored.state.clone()).expect("a state");
        let mut plane = Plane::restore(site(policy), state).unwrap_or_else(|error| panic!("{name}: {error}"));
        let now = serde_json::to_value(plane.state()).expect("text");
        let lost = lost(&stored.state, &now, String::new());
        assert!(lost.is_empty(), "{name}: not as it was stored: {lost:?}");
        let processes = |plane: &Plane| (0..8).filter(|server| plane.process(Unit::Server, *server).is_some()).count();
        let serves = |place: &&Place| matches!(place, Place::Serving { .. });
        assert!(processes(&plane) >= 2, "{name}: of {} servers the processes are known", processes(&plane));
        assert!(plane.places().iter().filter(serves).count() >= 2);
        assert_eq!(plane.sentries(0), ["one", "two"]);
        stored.journal.iter().for_each(|input| plane.handle(input));
        assert_eq!(plane.now(), stored.journal.last().expect("inputs").now(), "{name}");
    }
}

/// What of `before` is not in `after`; there may be more in it.
fn lost(before: &Value, after: &Value, at: String) -> Vec<String> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => before
            .iter()
            .flat_map(|(key, value)| lost(value, after.get(key).unwrap_or(&Value::Null), format!("{at}/{key}")))
            .collect(),
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            let both = before.iter().zip(after).enumerate();
            both.flat_map(|(index, (before, after))| lost(before, after, format!("{at}/{index}"))).collect()
        }
        _ if before == after => Vec::new(),
        _ => vec![format!("{at}: {before} and {after}")],
    }
}

/// A site that grew; the last inputs are of every kind.
fn make(policy: ProvisionConfig) -> Stored {
    let mut plane = Plane::new(site(policy)).expect("a plane");
    let at = |second: u64| Timestamp::from_millis(second * 1000);
    let names = vec![String::from("one"), String::from("two")];
    plane.handle(&Input::Began { now: at(1) });
    plane.handle(&Input::Sentries { now: at(1), application: 0, names });
    (2..400).for_each(|second| drop(a_second(&mut plane, at(second))));
    let state = serde_json::to_value(plane.state()).expect("text");
    let mut journal = vec![Input::Began { now: at(400) }];
    plane.handle(&journal[0]);
    for second in 400..410 {
        journal.extend(a_second(&mut plane, at(second)));
    }
    let roll = vec![(String::from("one"), vec![IpAddr::from([127, 0, 0, 1])])];
    let (now, reason) = (at(410), String::from("its process has ended by itself"));
    journal.push(Input::Several {
        now,
        inputs: vec![Input::Server { now, server: 0, news: ServerNews::Failed, reason: reason.clone() }],
    });
    journal.push(Input::Names { now, application: 0, roll });
    journal.push(Input::Note { now, kind: String::from("clock"), reason });
    Stored { state, journal }
}

/// Much is offered, and what is asked for is done.
fn a_second(plane: &mut Plane, now: Timestamp) -> Vec<Input> {
    let report = |rate: u64| {
        Some(ApplicationReport {
            offered: vec![rate],
            refused: rate / 10,
            busy: 2.5,
            mean_service: Some(0.05),
            processors: Some(3.0),
            ..ApplicationReport::default()
        })
    };
    let mut inputs = Vec::new();
    let mut take = |plane: &mut Plane, input: Input| {
        plane.handle(&input);
        inputs.push(input);
    };
    take(plane, Input::Period { now, reports: vec![report(70), report(10)], sentries: vec![(0, 1, 0.5)] });
    loop {
        let Some(step) = plane.pending().next().cloned() else { break };
        let starts = matches!(step.what, What::Start { .. });
        let process = starts.then_some(Process { pid: 100 + step.number as u32, started: 7, step: step.number });
        take(plane, Input::Done { now, step: step.number, process });
        if starts {
            let reason = String::from("it answers");
            take(plane, Input::Server { now, server: step.place, news: ServerNews::Up, reason });
        }
    }
    inputs
}
