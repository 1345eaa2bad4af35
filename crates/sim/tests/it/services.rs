//! Services that servers call and that have a sentry of their own.

use std::time::Duration;

use tidegate_engine::{ClassSetup, ServerSetup, Setup, Sla, Snapshot, Statistic};
use tidegate_sim::{
    Action, Discipline, Fault, FaultKind, Manner, Program, Report, ServerModel, Step, Stream, Tier, Url, World,
};
use tidegate_workload::{Abandoned, ArrivalProcess, Course, ServiceTime};

use crate::support::admission;

const MS: Duration = Duration::from_millis(1);

fn exponential(mean: f64) -> ServiceTime {
    ServiceTime::exponential(mean).expect("positive")
}

fn setup(name: &str, target: Duration, servers: usize) -> Setup {
    let sla = Sla::constant(Statistic::P95, target).expect("a target");
    let mut setup = Setup::simple(name, sla, (0..servers).map(|at| ServerSetup::new(format!("{name}-{at}"))));
    setup.classes = vec![ClassSetup::new("gold"), ClassSetup::new("bronze")];
    setup
}

fn tier(name: &str, servers: usize) -> Tier {
    let server = ServerModel::new(2.0, Discipline::ProcessorSharing);
    let sentry = Some(setup(name, 200 * MS, servers));
    Tier { name: name.into(), servers: vec![server; servers], latency: Duration::ZERO, sentry }
}

/// A call of a tier: time on its processors, and what it does there besides.
fn call(tier: usize, mean: f64, calls: u32, program: usize) -> Step {
    let what = Action::Call { tier, calls, parallel: false, work: exponential(mean), program, pool: None };
    Step { what, overlap: false }
}

fn stream(class: u8, key: u64, profile: &str) -> Stream {
    Stream {
        class,
        profile: profile.parse().expect("a profile"),
        process: ArrivalProcess::Poisson,
        urls: vec![Url { program: 1, ..Url::new(key, exponential(0.010)) }],
        retry: None,
        manner: Manner::default(),
    }
}

/// A front of eight processors that calls a middle of four, which calls a back of two: 100 requests/s.
fn chain(gold: &str, bronze: &str) -> World {
    let front = ServerModel::new(4.0, Discipline::ProcessorSharing);
    let mut world = World::new(setup("front", 500 * MS, 2), vec![front; 2], Duration::from_secs(60));
    world.tiers =
        vec![Tier { servers: vec![ServerModel::new(4.0, Discipline::ProcessorSharing)], ..tier("middle", 1) }];
    world.tiers.push(tier("back", 1));
    world.programs.push(Program { steps: vec![call(0, 0.010, 1, 2)] });
    world.programs.push(Program { steps: vec![call(1, 0.010, 2, 0)] });
    world.streams = vec![stream(0, 11, gold), stream(1, 12, bronze)];
    world
}

fn run(world: &World, seed: u64) -> Report {
    world.run(seed).expect("a setup that makes sense")
}

fn service(report: &Report, tier: usize) -> &Snapshot {
    report.services[tier].as_ref().expect("it has a sentry")
}

fn sum(snapshot: &Snapshot, of: impl Fn(&tidegate_engine::ClassSnapshot) -> u64) -> u64 {
    snapshot.classes.iter().map(of).sum()
}

/// Of all streams, from 20 s on: answered within the target, and failed.
fn good_and_failed(report: &Report) -> (u64, u64) {
    let span = |course: &Course| course.span(Duration::from_secs(20), Duration::from_secs(60));
    let spans = report.courses.iter().map(span);
    spans.fold((0, 0), |(good, failed), span| (good + span.good, failed + span.failed))
}

#[test]
fn every_call_is_accounted_for_at_every_service() {
    for seed in 1..=3 {
        let report = run(&chain("60/s", "140/s"), seed);
        assert_eq!(report.unfinished, 0);
        for snapshot in [&report.snapshot, service(&report, 0), service(&report, 1)] {
            let ended = sum(snapshot, |class| class.completed + class.failed + class.rejected_total());
            let what = format!("seed {seed}, {}", snapshot.application);
            assert_eq!(sum(snapshot, |class| class.offered), ended, "{what}");
            assert_eq!((snapshot.in_flight, snapshot.waiting, snapshot.stale_tickets), (0, 0, 0), "{what}");
        }
        let (middle, back) = (service(&report, 0), service(&report, 1));
        assert_eq!(sum(&report.snapshot, |class| class.admitted), sum(middle, |class| class.offered));
        // Whose first call is refused makes no second one.
        let calls = 2 * sum(middle, |class| class.completed) + sum(middle, |class| class.refused_below);
        assert!(sum(back, |class| class.offered) >= calls, "{calls}");
        assert_eq!(sum(middle, |class| class.refused_below), sum(back, |class| class.rejected_total()));
    }
}

#[test]
fn who_hears_of_refusals_does_little_for_nothing_and_answers_as_much() {
    let mut of_all = [[0; 2]; 2];
    for seed in 11..=20 {
        let mut world = chain("50/s", "400/s");
        // Where all requests go the same way, the first sentry finds out by itself how many are of use.
        let page = Url::new(13, exponential(0.010));
        world.streams.push(Stream { urls: vec![page], ..stream(1, 13, "250/s") });
        let hears = run(&world, seed);
        world.tells_refusals = false;
        let deaf = run(&world, seed);
        assert_eq!(sum(&deaf.snapshot, |class| class.refused_below), 0, "nobody told it");
        for ([good, failed], of) in of_all.iter_mut().zip([&hears, &deaf].map(good_and_failed)) {
            *good += of.0;
            *failed += of.1;
        }
        let gold = hears.courses[0].span(Duration::from_secs(20), Duration::from_secs(60));
        let (good, offered) = (gold.good, gold.offered);
        assert!(good * 100 >= offered * 97, "gold goes first at every service: {good} of {offered}");
    }
    // Of all seeds: who is told nothing may find out by itself early, as in four of seeds 11 to 30. It was asked of
    // each of three seeds, until a change of cold starts gave one of these that luck (166 failed where it was told, 55
    // where not; of all ten 1,777 and 49,190). Before that change three of the twenty had it.
    let [[good, failed], [good_of_deaf, failed_of_deaf]] = of_all;
    assert!(failed * 2 < failed_of_deaf, "{failed} for nothing, {failed_of_deaf} where nobody is told");
    assert!(good * 10 >= good_of_deaf * 9, "{good} in time, {good_of_deaf} where nobody is told");
}

#[test]
fn where_all_can_be_served_nobody_is_held_back() {
    for seed in 21..=23 {
        let report = run(&chain("40/s", "20/s"), seed);
        let refused = sum(&report.snapshot, tidegate_engine::ClassSnapshot::rejected_total);
        assert!(refused * 100 <= sum(&report.snapshot, |class| class.offered), "seed {seed}: {refused}");
    }
}

#[test]
fn a_deadline_holds_for_the_calls_too() {
    let mut world = chain("30/s", "30/s");
    world.setup.admission = admission(r#"{ "policy": "none" }"#);
    world.streams.iter_mut().for_each(|stream| stream.manner.deadline = Some(60 * MS));
    let report = run(&world, 1);
    let missed = |snapshot: &Snapshot| {
        sum(snapshot, |class| class.rejected.iter().filter(|(why, _)| *why == "deadline").map(|(_, n)| n).sum())
    };
    assert!(missed(service(&report, 0)) + missed(service(&report, 1)) > 0, "further down there is less time left");
}

#[test]
fn servers_that_fail_and_clients_that_leave_lose_no_call() {
    let mut world = chain("60/s", "60/s");
    world.tiers[0] =
        Tier { servers: vec![ServerModel::new(2.0, Discipline::ProcessorSharing); 2], ..tier("middle", 2) };
    world.servers.iter_mut().for_each(|server| server.abandoned = Abandoned::Stops);
    world.streams[1].manner.patience = Some(50 * MS);
    let fault = |at, tier, what| Fault { at: Duration::from_secs(at), tier, server: 0, what, noticed_after: 500 * MS };
    world.faults = vec![
        fault(10, Some(0), FaultKind::Fail),
        fault(20, Some(0), FaultKind::Recover),
        fault(25, None, FaultKind::Fail),
        fault(30, None, FaultKind::Recover),
        fault(40, Some(1), FaultKind::Fail),
        fault(45, Some(1), FaultKind::Recover),
    ];
    let (mut good, mut offered) = (0, 0);
    for seed in 1..=10 {
        let report = run(&world, seed);
        for snapshot in [&report.snapshot, service(&report, 0), service(&report, 1)] {
            let left = (snapshot.in_flight, snapshot.waiting, snapshot.stale_tickets);
            assert_eq!(left, (0, 0, 0), "{}, seed {seed}", snapshot.application);
        }
        let late = report.courses[0].span(Duration::from_secs(50), Duration::from_secs(60));
        (good, offered) = (good + late.good, offered + late.offered);
    }
    // Of all seeds: it was asked of seed 5 alone until requests that are all alike stood in one line. Then that one had
    // 483 of 614, where it had all; of the twenty from 1 to 20 one was below nine tenths before (18) and one after (5).
    assert!(good * 10 >= offered * 9, "after all that it works as before: {good} of {offered}");
}
