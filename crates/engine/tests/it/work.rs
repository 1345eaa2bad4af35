//! A place is work at a server: what clients leave behind keeps its place, and what is only open has none.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_engine::{AbandonedBy, Bounds, Decision, Open, Outcome, Reason, Sla, Statistic, Timestamp, Watch};

use crate::support::cases::{self, Case};
use crate::support::check;
use crate::support::driver::{Driver, Output};

fn case(policy: &str) -> Case {
    let mut case = cases::of(cases::admission(policy));
    // What is guaranteed goes over every limit.
    case.setup.classes.iter_mut().for_each(|class| class.min_rate = 0.0);
    case.setup.servers.truncate(1);
    case.setup.servers[0].max_connections = None;
    case.setup.servers[0].cores = Some(1.0);
    case
}

fn last_is_admitted(driver: &Driver) -> bool {
    matches!(driver.last().output, Output::Decision(Decision::Admit { .. }))
}

/// Requests that are abandoned as soon as they are admitted, one after the other. How many were admitted.
fn abandon_each(driver: &mut Driver, count: u8, watch: Watch) -> usize {
    let mut admitted = 0;
    for i in 0..count {
        driver.arrive(0, 0, i);
        if last_is_admitted(driver) {
            admitted += 1;
            let newest = driver.flying()[driver.flying().len() - 1];
            driver.abandon(newest, AbandonedBy::Client, watch);
        }
    }
    admitted
}

#[test]
fn whoever_leaves_does_not_put_a_second_request_to_work() {
    for watch in [Watch::Driver, Watch::Nobody] {
        let case = case(r#"{ "policy": "concurrency", "limit": 1 }"#);
        let mut driver = Driver::new(&case, 3);
        assert_eq!(abandon_each(&mut driver, 8, watch), 1, "{watch:?}");
        let shown = &driver.last().after.snapshot;
        assert_eq!((shown.in_flight, shown.ghosts, shown.classes[0].cancelled), (1, 1, 1));
        assert_eq!(shown.classes[0].rejected, [("concurrency-limit", 7)]);
        check(&case, &driver.trace).unwrap();
    }
}

#[test]
fn the_end_of_a_watched_ghost_frees_its_place_once_and_teaches_its_cost() {
    let case = case(r#"{ "policy": "concurrency", "limit": 1 }"#);
    let mut driver = Driver::new(&case, 3);
    for _ in 0..40 {
        abandon_each(&mut driver, 1, Watch::Driver);
        driver.advance(Duration::from_millis(300));
        let [ghost] = *driver.flying() else { panic!("one ghost") };
        driver.complete(ghost, Outcome::answered());
    }
    let shown = &driver.last().after.snapshot;
    assert_eq!((shown.in_flight, shown.classes[0].completed, shown.classes[0].cancelled), (0, 0, 40));
    let cost = shown.mean_cost.expect("learned");
    assert!((0.2..0.4).contains(&cost), "{cost}");
    assert!(shown.classes[0].p95.is_none(), "nobody waited for these answers");
    check(&case, &driver.trace).unwrap();
}

#[test]
fn a_ghost_that_nobody_watches_fades_after_the_cost_that_is_expected_of_it() {
    let mut case = case(r#"{ "policy": "concurrency", "limit": 1 }"#);
    case.setup.default_cost = Some(Duration::from_secs(2));
    let mut driver = Driver::new(&case, 3);
    abandon_each(&mut driver, 1, Watch::Nobody);
    driver.advance(Duration::from_millis(1900));
    assert_eq!(driver.last().after.in_flight, 1, "its server is taken to work on it");
    driver.advance(Duration::from_millis(200));
    assert_eq!(driver.last().after.in_flight, 0);
    check(&case, &driver.trace).unwrap();
}

/// Ghosts that are watched to their end, which is `stops`, or an answer, after that many milliseconds each.
fn show_habit(driver: &mut Driver, stops: bool, millis: u64) {
    for _ in 0..16 {
        abandon_each(driver, 1, Watch::Driver);
        driver.advance(Duration::from_millis(millis));
        let [ghost] = *driver.flying() else { panic!("one ghost") };
        match stops {
            true => driver.cancel(ghost),
            false => driver.complete(ghost, Outcome::answered()),
        }
    }
}

/// Whoever leaves in the middle of an answer may leave when its server has sent all of it.
#[test]
fn a_server_that_closes_after_its_answer_is_not_taken_to_stop() {
    let case = case(r#"{ "policy": "concurrency", "limit": 1 }"#);
    let mut driver = Driver::new(&case, 3);
    for _ in 0..20 {
        driver.arrive(0, 0, 1);
        driver.advance(Duration::from_millis(5));
        let [ticket] = *driver.flying() else { panic!("one request") };
        driver.first_byte(ticket, driver.now);
        driver.abandon(ticket, AbandonedBy::Client, Watch::Driver);
        driver.cancel(ticket);
    }
    assert_eq!(habit(&driver), ("unknown", false));
    check(&case, &driver.trace).unwrap();
}

fn habit(driver: &Driver) -> (&'static str, bool) {
    let server = &driver.last().after.snapshot.servers[0];
    (server.when_abandoned, server.stops_after.is_some())
}

#[test]
fn a_server_that_is_known_to_stop_frees_the_places_of_ghosts_that_nobody_watches() {
    let mut case = case(r#"{ "policy": "concurrency", "limit": 1 }"#);
    case.setup.default_cost = Some(Duration::from_secs(10));
    let mut driver = Driver::new(&case, 3);
    assert_eq!(habit(&driver), ("unknown", false));
    show_habit(&mut driver, true, 5);
    assert_eq!(habit(&driver), ("stops", true));
    assert_eq!(abandon_each(&mut driver, 8, Watch::Nobody), 8, "each is gone before the next comes");
    assert_eq!((driver.last().after.in_flight, driver.last().after.snapshot.classes[0].cancelled), (0, 24));
    check(&case, &driver.trace).unwrap();
}

#[test]
fn a_server_that_stops_slowly_keeps_the_place_for_as_long_as_that_takes() {
    let mut case = case(r#"{ "policy": "concurrency", "limit": 1 }"#);
    case.setup.default_cost = Some(Duration::from_secs(10));
    let mut driver = Driver::new(&case, 3);
    show_habit(&mut driver, true, 400);
    assert_eq!(abandon_each(&mut driver, 8, Watch::Nobody), 1);
    driver.advance(Duration::from_millis(700));
    assert_eq!(driver.last().after.in_flight, 1, "twice the mean is not over");
    driver.advance(Duration::from_millis(300));
    assert_eq!(driver.last().after.in_flight, 0);
    check(&case, &driver.trace).unwrap();
}

#[test]
fn a_server_that_is_known_to_work_on_keeps_the_place_for_what_the_work_costs() {
    let case = case(r#"{ "policy": "concurrency", "limit": 1 }"#);
    let mut driver = Driver::new(&case, 3);
    show_habit(&mut driver, false, 300);
    assert_eq!(habit(&driver), ("works-on", false));
    assert_eq!(abandon_each(&mut driver, 8, Watch::Nobody), 1);
    driver.advance(Duration::from_millis(150));
    assert_eq!(driver.last().after.in_flight, 1, "about 300 ms were learned");
    driver.advance(Duration::from_millis(350));
    assert_eq!(driver.last().after.in_flight, 0);
    check(&case, &driver.trace).unwrap();
}

/// One that was watched in vain is no proof that its server stops.
#[test]
fn a_ghost_that_was_watched_and_went_on_is_not_taken_to_stop() {
    let mut case = case(r#"{ "policy": "concurrency", "limit": 1 }"#);
    case.setup.default_cost = Some(Duration::from_secs(10));
    let mut driver = Driver::new(&case, 3);
    show_habit(&mut driver, true, 5);
    abandon_each(&mut driver, 1, Watch::Driver);
    driver.advance(Duration::from_secs(1));
    driver.abandon(driver.flying()[0], AbandonedBy::Client, Watch::Nobody);
    driver.advance(Duration::from_secs(1));
    assert_eq!(driver.last().after.in_flight, 1, "what is left of its cost");
    check(&case, &driver.trace).unwrap();
}

#[test]
fn a_time_out_leaves_a_ghost_too() {
    let case = case(r#"{ "policy": "concurrency", "limit": 1 }"#);
    let mut driver = Driver::new(&case, 3);
    driver.arrive(0, 0, 1);
    driver.advance(Duration::from_secs(60));
    driver.abandon(driver.flying()[0], AbandonedBy::TimeOut, Watch::Driver);
    driver.arrive(0, 0, 1);
    assert!(!last_is_admitted(&driver));
    driver.cancel(driver.flying()[0]);
    driver.arrive(0, 0, 1);
    assert!(last_is_admitted(&driver));
    let class = &driver.last().after.snapshot.classes[0];
    assert_eq!((class.failed, class.cancelled), (1, 0));
    check(&case, &driver.trace).unwrap();
}

/// Three streams before an idle server, then ordinary requests, with the default policy.
#[test]
fn streams_cost_ordinary_requests_nothing() {
    let case = case(r#"{ "policy": "sentry" }"#);
    let mut driver = Driver::new(&case, 3);
    for i in 0..3 {
        driver.arrive(0, 0, 100 + i);
        assert!(last_is_admitted(&driver), "stream {i}");
        driver.advance(Duration::from_millis(10));
        let newest = driver.flying()[driver.flying().len() - 1];
        assert!(driver.open(newest, Open::Stream, driver.now));
    }
    let streams: Vec<_> = driver.flying().to_vec();
    for i in 0..140 {
        driver.arrive(0, 0, i % 7);
        assert!(last_is_admitted(&driver), "request {i}: {:?}", driver.last().output);
        driver.advance(Duration::from_millis(20));
        let ordinary = *driver.flying().iter().find(|ticket| !streams.contains(ticket)).expect("it is in flight");
        driver.complete(ordinary, Outcome::answered());
        driver.advance(Duration::from_millis(500));
    }
    // The streams have lasted more than a minute by now, and nothing was learned from that.
    streams.into_iter().for_each(|ticket| driver.complete(ticket, Outcome::answered()));
    let shown = &driver.last().after.snapshot;
    assert_eq!((shown.streams, shown.classes[0].completed), (0, 143));
    assert!(shown.mean_cost.expect("learned") < 0.1 && shown.classes[0].p99.expect("known") < 0.1, "{shown:?}");
    check(&case, &driver.trace).unwrap();
}

/// Answers that begin after 50 ms and end after 450, with a target of 100: late by their last bytes, in time by their
/// first.
#[test]
fn an_sla_on_the_first_byte_counts_what_begins_in_time() {
    for (bounds, in_target) in [(Bounds::Response, 0), (Bounds::FirstByte, 20)] {
        let mut case = case(r#"{ "policy": "none" }"#);
        let sla = Sla::constant(Statistic::P95, Duration::from_millis(100)).expect("a target");
        case.setup.sla = sla.bounding(bounds);
        let mut driver = Driver::new(&case, 3);
        for _ in 0..20 {
            driver.arrive(0, 0, 1);
            driver.advance(Duration::from_millis(50));
            let began = driver.now;
            driver.advance(Duration::from_millis(400));
            driver.first_byte(driver.flying()[0], began);
            driver.complete(driver.flying()[0], Outcome::answered());
        }
        let class = &driver.last().after.snapshot.classes[0];
        assert_eq!((class.completed, class.in_target), (20, in_target), "{bounds:?}");
        let (first, last) = (class.first_byte_p95.expect("known"), class.p95.expect("known"));
        assert!((0.045..0.055).contains(&first) && (0.4..0.5).contains(&last), "{first} {last}");
        assert_eq!(class.statistic, Some(if bounds == Bounds::FirstByte { first } else { last }));
        check(&case, &driver.trace).unwrap();
    }
}

/// Nobody said when these answers began: what is known is when they ended.
#[test]
fn an_sla_on_the_first_byte_judges_by_the_last_where_no_other_is_known() {
    let mut case = case(r#"{ "policy": "none" }"#);
    let sla = Sla::constant(Statistic::P95, Duration::from_millis(100)).expect("a target");
    case.setup.sla = sla.bounding(Bounds::FirstByte);
    let mut driver = Driver::new(&case, 3);
    for millis in [50, 450] {
        driver.arrive(0, 0, 1);
        driver.advance(Duration::from_millis(millis));
        driver.complete(driver.flying()[0], Outcome::answered());
    }
    let class = &driver.last().after.snapshot.classes[0];
    assert_eq!((class.completed, class.in_target, class.first_byte_p95), (2, 1, None));
}

#[test]
fn the_wait_of_a_poll_teaches_nothing() {
    let case = case(r#"{ "policy": "sentry" }"#);
    let mut driver = Driver::new(&case, 3);
    for _ in 0..20 {
        driver.arrive(0, 0, 1);
        assert!(driver.open(driver.flying()[0], Open::Poll, driver.now));
        driver.advance(Duration::from_secs(10));
        driver.complete(driver.flying()[0], Outcome::answered());
    }
    let shown = &driver.last().after.snapshot;
    assert_eq!((shown.mean_cost, shown.classes[0].p95, shown.classes[0].completed), (None, None, 20));
    check(&case, &driver.trace).unwrap();
}

#[test]
fn a_full_pool_leaves_streams_their_places() {
    let mut case = case(r#"{ "policy": "concurrency", "limit": 2 }"#);
    case.setup.most_open = 3;
    let mut driver = Driver::new(&case, 3);
    let mut pooled = 0;
    for i in 0..10 {
        driver.arrive(0, 0, i);
        if last_is_admitted(&driver) {
            let newest = driver.flying()[driver.flying().len() - 1];
            pooled += usize::from(driver.open(newest, Open::Tunnel, driver.now));
        }
    }
    let after = &driver.last().after;
    assert_eq!((pooled, after.open, after.in_flight), (3, 3, 2));
    check(&case, &driver.trace).unwrap();
}

#[test]
fn tunnels_count_as_connections_of_their_server() {
    let mut case = case(r#"{ "policy": "none" }"#);
    case.setup.servers[0].max_connections = Some(2);
    let mut driver = Driver::new(&case, 3);
    for _ in 0..2 {
        driver.arrive(0, 0, 1);
        let newest = driver.flying()[driver.flying().len() - 1];
        assert!(driver.open(newest, Open::Tunnel, driver.now));
    }
    driver.arrive(0, 0, 1);
    let Output::Decision(Decision::Reject(rejection)) = driver.last().output else { panic!("the server is full") };
    assert_eq!(rejection.reason, Reason::ServerLimit);
    driver.complete(driver.flying()[0], Outcome::answered());
    driver.arrive(0, 0, 1);
    assert!(last_is_admitted(&driver));
    check(&case, &driver.trace).unwrap();
}

/// What a client or its server does next.
#[derive(Clone, Copy, Debug)]
enum Act {
    Arrive(u8),
    Leave(u8),
    LeaveUnseen(u8),
    TimeOut(u8),
    Stream(u8),
    Done(u8),
    Wait(u16),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => any::<u8>().prop_map(Act::Arrive),
        2 => any::<u8>().prop_map(Act::Leave),
        1 => any::<u8>().prop_map(Act::LeaveUnseen),
        1 => any::<u8>().prop_map(Act::TimeOut),
        1 => any::<u8>().prop_map(Act::Stream),
        2 => any::<u8>().prop_map(Act::Done),
        1 => any::<u16>().prop_map(Act::Wait),
    ]
}

proptest! {
    /// Whatever clients do, and whatever is known of what their server does then: what it works on, whether they wait
    /// for it or not, stays within the limit.
    #[test]
    fn work_at_a_server_stays_within_the_limit(
        acts in prop::collection::vec(act(), 1..200),
        limit in 1usize..6,
        stops in any::<Option<bool>>(),
    ) {
        let case = case(&format!(r#"{{ "policy": "concurrency", "limit": {limit}, "queue": 3 }}"#));
        let mut driver = Driver::new(&case, 3);
        if let Some(stops) = stops {
            show_habit(&mut driver, stops, 20);
        }
        let mut streams = Vec::new();
        for act in acts {
            let pick = |which: u8| {
                let all = driver.flying();
                (!all.is_empty()).then(|| all[usize::from(which) % all.len()])
            };
            match act {
                Act::Arrive(url) => driver.arrive(url % 3, url % 3, url),
                Act::Leave(which) => pick(which).into_iter().for_each(|ticket| {
                    driver.abandon(ticket, AbandonedBy::Client, Watch::Driver);
                }),
                Act::LeaveUnseen(which) => pick(which).into_iter().for_each(|ticket| {
                    driver.abandon(ticket, AbandonedBy::Client, Watch::Nobody);
                }),
                Act::TimeOut(which) => pick(which).into_iter().for_each(|ticket| {
                    driver.abandon(ticket, AbandonedBy::TimeOut, Watch::Driver);
                }),
                Act::Stream(which) => pick(which).into_iter().for_each(|ticket| {
                    if driver.open(ticket, Open::Stream, Timestamp::ZERO) {
                        streams.push(ticket);
                    }
                }),
                Act::Done(which) => pick(which).into_iter().for_each(|ticket| {
                    driver.complete(ticket, Outcome::answered());
                }),
                Act::Wait(millis) => driver.advance(Duration::from_millis(u64::from(millis) / 16)),
            }
            let working = driver.flying().iter().filter(|ticket| !streams.contains(ticket)).count();
            prop_assert!(working <= limit, "{working} at work after {act:?}");
            let counted = driver.controller.in_flight();
            prop_assert!((working..=limit).contains(&counted), "{working} at work, {counted} counted after {act:?}");
        }
        check(&case, &driver.trace).map_err(TestCaseError::fail)?;
    }
}
