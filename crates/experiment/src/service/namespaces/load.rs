//! The load, a new connection for every request, and what came of it by load and by request type.
//!
//! The clients are S-clients (Banga and Druschel), as the paper's: who has no connection after half a second gives up,
//! so that what arrives is what is offered, whatever becomes of it.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_loadgen::{Plan, PlanError, Report, Stream};
use tidegate_workload::{Course, Profile};

use super::site;
use crate::configure::prefix;
use crate::outcome::StreamOutcome;
use crate::scenario::{Load, Scenario};
use crate::service::emulated;

/// How long a client waits for a connection.
const CONNECT: Duration = Duration::from_millis(500);
/// Connections at most: each request has its own.
const CONNECTIONS: usize = 20_000;

/// What is sent to an address. Clients take compressed answers unless what is sent is to be what the files have.
pub(super) fn plan(scenario: &Scenario, to: SocketAddr, seed: u64, compressed: bool) -> Result<Plan, PlanError> {
    let mut streams = Vec::new();
    for load in &scenario.loads {
        for (name, share) in shares(load) {
            streams.push(stream(
                scenario,
                load,
                name,
                load.rate.scale_rate(share).until(scenario.duration),
                to,
                compressed,
            )?);
        }
    }
    Ok(limits(scenario, streams, scenario.duration, seed))
}

/// The first load's mix at a constant rate, for so long.
pub(super) fn mix(
    scenario: &Scenario,
    rate: f64,
    duration: Duration,
    to: SocketAddr,
    compressed: bool,
) -> Result<Plan, PlanError> {
    let mut streams = Vec::new();
    for load in scenario.loads.iter().take(1) {
        for (name, share) in shares(load) {
            let rate = tidegate_workload::Rate::new(rate * share).unwrap_or_default();
            streams.push(stream(scenario, load, name, Profile::constant(rate), to, compressed)?);
        }
    }
    Ok(limits(scenario, streams, duration, scenario.seed))
}

/// What came of each load.
pub(super) fn streams(scenario: &Scenario, report: &Report) -> Vec<StreamOutcome> {
    let outcome = |load: &Load| {
        let parts = load.requests.keys().map(|name| label(load, name)).collect::<Vec<_>>();
        let course = sum(scenario, report, |class| parts.iter().any(|part| part == class));
        StreamOutcome { name: load.label().to_owned(), class: load.class.clone(), course }
    };
    scenario.loads.iter().map(outcome).collect()
}

/// What came of each request type.
pub(super) fn types(scenario: &Scenario, report: &Report) -> Vec<(String, Course)> {
    let of = |name: &str| {
        let parts = scenario.loads.iter().map(|load| label(load, name)).collect::<Vec<_>>();
        sum(scenario, report, |class| parts.iter().any(|part| part == class))
    };
    scenario.requests.iter().map(|request| (request.name.clone(), of(&request.name))).collect()
}

fn sum(scenario: &Scenario, report: &Report, which: impl Fn(&str) -> bool) -> Course {
    let mut sum = Course::default();
    let courses = report.classes.iter().filter(|class| which(&class.class));
    courses.for_each(|class| sum.add(&emulated::course(scenario, class, 0)));
    sum
}

/// The request types of a load, each with its share.
fn shares(load: &Load) -> impl Iterator<Item = (&str, f64)> {
    let all: f64 = load.requests.values().sum();
    load.requests.iter().map(move |(name, weight)| (name.as_str(), weight / all))
}

fn stream(
    scenario: &Scenario,
    load: &Load,
    name: &str,
    rate: Profile,
    to: SocketAddr,
    compressed: bool,
) -> Result<Stream, PlanError> {
    let class = scenario.class_index(&load.class).unwrap_or_default();
    let request = scenario.request_index(name).unwrap_or_default();
    let mut stream = Stream::new(label(load, name), rate).arrivals(load.arrivals).timeout(scenario.timeout);
    if compressed {
        stream = stream.header("Accept-Encoding", "gzip")?;
    }
    for number in 0..scenario.requests[request].urls {
        let url = format!("http://{to}{}{number}", prefix(scenario, class, request));
        stream = stream.url(&url, site::popularity(number))?;
    }
    Ok(stream)
}

fn limits(scenario: &Scenario, streams: Vec<Stream>, duration: Duration, seed: u64) -> Plan {
    Plan {
        seed,
        target: Some(scenario.target(0.0)),
        connections: CONNECTIONS,
        keep_alive: false,
        connect_timeout: Some(CONNECT),
        ..Plan::new(streams, duration)
    }
}

fn label(load: &Load, request: &str) -> String {
    format!("{}/{request}", load.label())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in;

    #[test]
    fn each_type_of_a_load_is_a_stream_of_its_own() {
        let scenario = built_in::find("V1").unwrap().for_live().unwrap();
        let plan = plan(&scenario, SocketAddr::from(([10, 77, 2, 1], 8080)), 1, true).unwrap();
        let rate = |at: usize| plan.streams[at].profile.rate_at(Duration::ZERO).per_second();
        let names: Vec<&str> = plan.streams.iter().map(|stream| stream.class.as_str()).collect();
        let scripts = names.iter().position(|name| *name == "all/cgi").unwrap();
        assert_eq!((names.len(), scripts + names.iter().position(|name| *name == "all/file").unwrap()), (2, 1));
        assert!((rate(scripts) - 60.0).abs() < 1e-9 && (rate(1 - scripts) - 240.0).abs() < 1e-9);
        let files = &plan.streams[1 - scripts].urls;
        assert_eq!((files.len(), files[0].0.path(), files[1].1 / files[0].1), (40, "/all/file/0", 0.5));
        assert!(!plan.keep_alive && plan.connect_timeout == Some(CONNECT));
    }
}
