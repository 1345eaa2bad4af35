//! What services and their callers agree on in other systems: under half and twice the load that can be served.
//!
//! The world is the same for all. The first service has two servers of two cores and 20 ms of work for a request. The
//! second is one server of two cores, called twice for each request, 10 ms each: it can serve 100 requests a second,
//! half of what the first can. At twice the load nothing of what is left to itself is answered in time.
//!
//! The bounds were set before the first run, by what the sources claim: nothing is lost when there is room, and under
//! overload at least half of what can be served is served in time while queues stay short.

use std::time::Duration;

use tidegate_sim::{Action, Discipline, Program, Protocol, Report, ServerModel, Step, Tier, World};
use tidegate_workload::ServiceTime;

use crate::support;

/// What the second service can serve, requests per second.
const CAPACITY: f64 = 100.0;
/// What is judged, in seconds; the first minute is for the systems to settle.
const JUDGED: (u64, u64) = (60, 180);

fn constant(seconds: f64) -> ServiceTime {
    ServiceTime::constant(seconds).expect("not negative")
}

/// Three classes alike, this often what can be served.
fn world(protocol: Option<Protocol>, load: f64) -> World {
    let none = support::admission(r#"{ "policy": "none" }"#);
    let mut world = support::world(2, 2.0, Duration::from_millis(500), none);
    let mut second = ServerModel::new(2.0, Discipline::Fifo);
    second.limit = Some(2);
    world.tiers = vec![Tier { name: "second".into(), servers: vec![second], latency: Duration::ZERO, sentry: None }];
    let call = Action::Call { tier: 0, calls: 2, parallel: false, work: constant(0.010), program: 0, pool: None };
    world.programs.push(Program { steps: vec![Step { what: call, overlap: false }] });
    let profile = format!("{}/s", load * CAPACITY / 3.0);
    world.streams = (0..3).map(|class| support::stream(class, &profile, constant(0.020))).collect();
    world.streams.iter_mut().for_each(|stream| stream.urls[0].program = 1);
    world.duration = Duration::from_secs(JUDGED.1);
    world.count_in_flight = true;
    world.protocol = protocol;
    world
}

/// What came of a run in the seconds that are judged.
#[derive(Debug)]
struct Outcome {
    /// Answered in time, as a share of what can be served; by class, the most important first.
    good: [f64; 3],
    /// Neither answered nor still there, as a share of what was offered.
    lost: f64,
    /// 95th percentile of the answers, seconds.
    p95: f64,
    /// The most requests in flight in any second.
    in_flight: u32,
}

impl Outcome {
    fn goodput(&self) -> f64 {
        self.good.iter().sum()
    }
}

fn run(protocol: Option<Protocol>, load: f64) -> Outcome {
    let report = world(protocol, load).run(1).expect("the setup makes sense");
    let [from, to] = [JUDGED.0, JUDGED.1].map(Duration::from_secs);
    let spans = [0, 1, 2].map(|class: usize| report.courses[class].span(from, to));
    let seconds = (JUDGED.1 - JUDGED.0) as f64;
    let offered: u64 = spans.iter().map(|span| span.offered).sum();
    let lost: u64 = spans.iter().map(|span| span.refused + span.failed).sum();
    Outcome {
        good: [0, 1, 2].map(|class: usize| spans[class].good as f64 / (CAPACITY * seconds)),
        lost: lost as f64 / offered as f64,
        p95: report.span_all(JUDGED.0 as usize, JUDGED.1 as usize).quantile(0.95),
        in_flight: most_in_flight(&report),
    }
}

fn most_in_flight(report: &Report) -> u32 {
    let judged = JUDGED.0 as usize..JUDGED.1 as usize;
    report.in_flight[judged].iter().map(|courses| courses.iter().sum()).max().unwrap_or(0)
}

/// What all of them claim: nothing is lost at half the load, and at twice the load half of what can be served is served
/// in time, with no more in flight than is served in two seconds, and 95 % of the answers within the target.
#[track_caller]
fn holds_its_claim(protocol: Protocol) -> Outcome {
    let calm = run(Some(protocol), 0.5);
    assert!(calm.lost < 0.01, "half the load: {calm:?}");
    let overloaded = run(Some(protocol), 2.0);
    assert!(overloaded.goodput() >= 0.5, "twice the load: {overloaded:?}");
    assert!(f64::from(overloaded.in_flight) < 2.0 * CAPACITY, "twice the load: {overloaded:?}");
    assert!(overloaded.p95 < 0.5, "twice the load: {overloaded:?}");
    overloaded
}

#[test]
fn left_to_themselves_services_answer_nothing_in_time() {
    let outcome = run(None, 2.0);
    assert!(outcome.goodput() < 0.02, "{outcome:?}");
    assert!(f64::from(outcome.in_flight) > 20.0 * CAPACITY, "{outcome:?}");
    let calm = run(None, 0.5);
    assert!(calm.lost < 0.001 && calm.goodput() > 0.48, "{calm:?}");
}

#[test]
fn dagor_serves_the_important_first() {
    let outcome = holds_its_claim(Protocol::Dagor);
    assert!(outcome.good[0] > 10.0 * outcome.good[2], "{outcome:?}");
}

#[test]
fn topfull_serves_the_important_first() {
    let outcome = holds_its_claim(Protocol::TopFull);
    assert!(outcome.good[0] > 10.0 * outcome.good[2], "{outcome:?}");
}

/// A finding: its limits fall by 5 % a second, and four times the load has filled the queue for a minute by then. The
/// answers that say so come as late. 5 % of what can be served is served in time from 60 to 180 s. The steps are those
/// that the source compares its own with, which are learned and may be ten times as large.
#[test]
fn topfull_comes_too_late_for_four_times_the_load() {
    let outcome = run(Some(Protocol::TopFull), 4.0);
    assert!(outcome.goodput() < 0.2, "{outcome:?}");
    assert!(f64::from(outcome.in_flight) > 20.0 * CAPACITY, "{outcome:?}");
}

#[test]
fn rajomon_serves_the_important_first() {
    let outcome = holds_its_claim(Protocol::Rajomon);
    assert!(outcome.good[0] > 5.0 * outcome.good[2], "{outcome:?}");
}

/// Nobody is more important than another. A request needs two calls, each of which may be refused: with 62 % of the
/// calls let in the second service is busy, and 76 % of what it could serve is all that comes of it.
#[test]
fn breakwater_serves_all_classes_alike() {
    let outcome = holds_its_claim(Protocol::Breakwater);
    let [least, most] = [f64::min, f64::max].map(|of| outcome.good.into_iter().reduce(of).expect("three"));
    assert!(most < 1.2 * least, "{outcome:?}");
    assert!((0.70..0.82).contains(&outcome.goodput()), "{outcome:?}");
}
