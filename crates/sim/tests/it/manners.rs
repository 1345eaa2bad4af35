//! What production has every day, in worlds small enough that what must come of it is known: streams, polls, clients
//! that leave, slow ones, tenants.

use std::time::Duration;

use tidegate_engine::Open;
use tidegate_sim::{Fault, FaultKind, Lasting, Manner, Report, World};
use tidegate_workload::{Abandoned, ArrivalProcess, Second, ServiceTime, Tenants};

use crate::support::{self, admission};

fn constant(seconds: f64) -> ServiceTime {
    ServiceTime::constant(seconds).expect("not negative")
}

/// One server of one core that may have five requests in flight; requests of so much work, evenly spaced, for 100 s.
fn five_places(rate: f64, work: f64) -> World {
    let policy = admission(r#"{ "policy": "concurrency", "limit": 5 }"#);
    let mut world = support::world(1, 1.0, Duration::from_secs(1), policy);
    world.streams = vec![support::stream(0, &format!("{rate}/s"), constant(work))];
    world.streams[0].process = ArrivalProcess::Constant;
    world.duration = Duration::from_secs(100);
    world.count_in_flight = true;
    world
}

fn run(world: &World) -> Report {
    world.run(1).expect("the setup makes sense")
}

fn refused_share(report: &Report) -> f64 {
    let all = report.courses[0].total();
    all.refused as f64 / all.offered as f64
}

fn mean(report: &Report) -> f64 {
    report.courses[0].total().responses.mean().expect("something was answered")
}

#[track_caller]
fn near(found: f64, wanted: f64) {
    assert!((found / wanted - 1.0).abs() < 0.005, "{found} for {wanted}");
}

fn lasting(kind: Open, told: bool) -> World {
    let mut world = five_places(10.0, 0.010);
    world.streams[0].urls[0].lasts = Some(Lasting { kind, time: constant(20.0), told });
    world
}

#[test]
fn streams_and_polls_of_which_the_sentry_knows_have_no_place_and_teach_nothing() {
    for kind in [Open::Stream, Open::Poll] {
        let report = run(&lasting(kind, true));
        assert_eq!(refused_share(&report), 0.0, "{kind:?}");
        near(mean(&report), 0.010);
        // 10/s for 20 s are open, and none of them counts as in flight.
        assert!(report.in_flight.iter().all(|second| second[0] <= 1), "{kind:?}");
        let class = &report.snapshot.classes[0];
        let counts = (class.completed, class.in_flight, report.snapshot.stale_tickets, report.unfinished);
        assert_eq!(counts, (report.courses[0].total().offered, 0, 0, 0), "{kind:?}");
    }
}

#[test]
fn a_poll_of_which_it_is_not_told_keeps_its_place_until_there_is_news() {
    let report = run(&lasting(Open::Poll, false));
    // Five places of 20 s each, where 10/s arrive.
    near(1.0 - refused_share(&report), 5.0 / 20.0 / 10.0);
    near(mean(&report), 0.010);
}

#[test]
fn a_stream_of_which_it_is_not_told_gives_its_place_back_when_it_is_seen_to_be_one() {
    let report = run(&lasting(Open::Stream, false));
    // Eight targets of a second after its first byte: five more are let in every 8.1 s, and so thirteen times.
    assert_eq!(report.courses[0].total().admitted(), 65);
    near(mean(&report), 0.010);
    assert_eq!(report.snapshot.stale_tickets, 0);
}

/// 50/s with 100 ms of work each, five times what the server can, from clients that leave after 50 ms.
fn deserted(abandoned: Abandoned) -> Report {
    let mut world = five_places(50.0, 0.100);
    world.streams[0].manner.patience = Some(Duration::from_millis(50));
    world.servers[0].abandoned = abandoned;
    let report = run(&world);
    let all = report.courses[0].total();
    assert_eq!((all.admitted(), all.refused + all.failed), (0, all.offered), "{abandoned:?}");
    assert_eq!((report.snapshot.stale_tickets, report.unfinished), (0, 0), "{abandoned:?}");
    report
}

#[test]
fn work_that_nobody_waits_for_has_its_place_until_the_server_is_done() {
    let report = deserted(Abandoned::WorksOn);
    assert_eq!(report.at_work.iter().max(), Some(&5));
    near(report.servers[0].busy, 100.0);
    // Ten a second is what the server does.
    near(report.courses[0].total().failed as f64, 1000.0);
}

#[test]
fn a_server_that_stops_has_free_places_and_free_time() {
    let report = deserted(Abandoned::Stops);
    // Who came 50 ms ago is gone when the next but two comes: three share the core.
    assert_eq!(report.at_work.iter().max(), Some(&3));
    assert_eq!(report.courses[0].total().refused, 0);
}

#[test]
fn a_server_that_hangs_up_and_works_on_is_pushed_beyond_every_limit() {
    let report = deserted(Abandoned::HangsUp);
    assert_eq!(report.courses[0].total().refused, 0);
    // What is let in is five times what is done.
    assert!(report.at_work.iter().max() > Some(&3900), "{:?}", report.at_work.iter().max());
}

#[test]
fn who_sends_or_reads_slowly_has_a_place_meanwhile_unless_the_sentry_holds_bodies() {
    let slow = Some(constant(2.0));
    for manner in [Manner { sends: slow, ..Manner::default() }, Manner { reads: slow, ..Manner::default() }] {
        let mut world = five_places(10.0, 0.010);
        world.streams[0].manner = manner.clone();
        let held = run(&world);
        assert_eq!(refused_share(&held), 0.0);
        // A request that is sent slowly comes when it is there; an answer is there when it has been read.
        near(mean(&held), if manner.sends.is_some() { 0.010 } else { 2.010 });
        world.holds_bodies = false;
        let passed = run(&world);
        // Five are let in, and the next five when the first of them is done: every 2.1 s, and so 48 times.
        assert_eq!(passed.courses[0].total().admitted(), 240);
        near(mean(&passed), 2.010);
        assert_eq!(passed.snapshot.stale_tickets, 0);
    }
}

#[test]
fn who_leaves_while_it_sends_leaves_nothing_behind() {
    let mut world = five_places(10.0, 0.010);
    world.holds_bodies = false;
    world.streams[0].manner.sends = Some(constant(2.0));
    world.streams[0].manner.patience = Some(Duration::from_secs(1));
    let report = run(&world);
    let (all, snapshot) = (report.courses[0].total(), &report.snapshot);
    assert_eq!((all.admitted(), snapshot.classes[0].in_flight, snapshot.stale_tickets), (0, 0, 0));
    assert_eq!(report.servers[0].busy, 0.0);
}

#[test]
fn a_stream_that_is_absent_changes_no_number_of_another() {
    // With cores for all of them nobody waits for anybody.
    let mut world = support::world(1, 1e6, Duration::from_secs(1), admission(r#"{ "policy": "none" }"#));
    let exponential = ServiceTime::exponential(0.010).expect("positive");
    world.streams = (0..2).map(|class| support::stream(class, "20/s", exponential)).collect();
    world.streams[0].manner.tenants = Some(Tenants { count: 10, zipf: 1.0 });
    let both = run(&world);
    world.streams[0].manner.absent = true;
    let alone = run(&world);
    // A nanosecond is lost where something else happens in between.
    let seconds = |report: &Report| -> Vec<(u64, u64)> {
        let second = |at: &Second| (at.offered, (at.responses.mean().unwrap_or(0.0) * 1e6).round() as u64);
        report.courses[1].seconds().iter().map(second).collect()
    };
    assert_eq!(seconds(&both), seconds(&alone));
    assert_eq!((alone.courses[0].total().offered, alone.clients[0].wanted), (0, 0));
    assert!(both.courses[0].total().offered > 1000);
}

#[test]
fn each_request_is_some_tenants() {
    let mut world = five_places(300.0, 0.010);
    world.streams[0].manner.tenants = Some(Tenants { count: 50, zipf: 1.0 });
    let report = run(&world);
    let (all, tenants) = (report.courses[0].total(), &report.tenants[0]);
    assert_eq!(tenants.iter().map(|tenant| tenant.offered).sum::<u64>(), all.offered);
    assert_eq!(tenants.iter().map(|tenant| tenant.good).sum::<u64>(), all.good);
    assert!(all.good > 0 && all.good < all.offered);
    // By Zipf's law the first sends twice as much as the second.
    let times = tenants[0].offered as f64 / tenants[1].offered as f64;
    assert!((1.9..2.1).contains(&times), "{times}");
}

#[test]
fn what_is_never_answered_has_failed() {
    let mut world = five_places(10.0, 0.010);
    let stops = FaultKind::Speed(0.0);
    let at = Duration::from_secs(50);
    world.faults = vec![Fault { at, tier: None, server: 0, what: stops, noticed_after: Duration::ZERO }];
    let report = run(&world);
    let all = report.courses[0].total();
    assert_eq!(all.offered, all.admitted() + all.refused + all.failed);
    assert_eq!((report.unfinished, all.failed), (5, 5));
}

/// Ordinary requests at twice what one core can, and beside them what is open.
fn mix(others: bool, seed: u64) -> (f64, f64) {
    let policy = admission(r#"{ "policy": "sentry" }"#);
    let mut world = support::world(1, 1.0, Duration::from_millis(500), policy);
    let exponential = ServiceTime::exponential(0.020).expect("positive");
    world.streams = vec![support::stream(0, "100/s", exponential)];
    for (kind, rate, mean, key) in [(Open::Poll, "60/s", 10.0, 100), (Open::Stream, "40/s", 60.0, 101)] {
        let mut stream = support::stream(0, rate, constant(0.0001));
        let time = ServiceTime::exponential(mean).expect("positive");
        stream.urls[0].key = key;
        stream.urls[0].lasts = Some(Lasting { kind, time, told: true });
        stream.manner.absent = !others;
        world.streams.push(stream);
    }
    world.duration = Duration::from_secs(240);
    let report = world.run(seed).expect("the setup makes sense");
    let span = report.courses[0].span(Duration::from_secs(90), world.duration);
    (span.good as f64 / 150.0, span.responses.quantile(0.95).expect("something was answered"))
}

#[test]
fn ordinary_requests_fare_as_if_nothing_else_were_open() {
    let sum =
        |others| (1..=8).map(|seed| mix(others, seed)).fold((0.0, 0.0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
    let (with, without) = (sum(true), sum(false));
    let (goodput, p95) = (with.0 / without.0, with.1 / without.1);
    // The bounds of the issue that asked for it: within 3 % of goodput and 10 % of p95.
    assert!((0.97..1.03).contains(&goodput) && (0.9..1.1).contains(&p95), "{goodput:.3} {p95:.3}");
}
