//! Requests that are given instead of drawn.

use std::time::Duration;

use tidegate_engine::{AdmissionConfig, ServerSetup, Setup, Sla, Statistic};
use tidegate_sim::{Discipline, Fault, FaultKind, Offer, ServerModel, World};
use tidegate_workload::ServiceTime;

use crate::support::stream;

/// One server that takes one request at a time, and no policy.
fn world() -> World {
    let sla = Sla::constant(Statistic::P95, Duration::from_millis(400)).unwrap();
    let mut setup = Setup::simple("given", sla, [ServerSetup::new("only")]);
    setup.admission = AdmissionConfig::from_name("none").unwrap();
    World::new(setup, vec![ServerModel::new(1.0, Discipline::Fifo)], Duration::ZERO)
}

fn offer(millis: u64, work: f64) -> Offer {
    Offer { at: Duration::from_millis(millis), class: 0, request_type: 0, url: 7, work }
}

#[test]
fn each_comes_at_its_instant_with_its_work() {
    let report = world().run_with(1, [offer(0, 0.3), offer(100, 0.3), offer(10_000, 0.1)]).unwrap();
    let course = &report.courses[0];
    let (first, later) = (&course.seconds()[0], &course.seconds()[10]);
    // The second waits 200 ms for the first: 300 and 500 ms, of which one is within the target.
    assert_eq!((first.offered, first.good, first.admitted()), (2, 1, 2));
    assert!((first.responses.mean().unwrap() - 0.4).abs() < 1e-6, "{first:?}");
    assert!((later.responses.mean().unwrap() - 0.1).abs() < 1e-6, "{later:?}");
    assert_eq!(report.clients[0].satisfied, 3);
    // The run lasts as long as requests arrive.
    assert_eq!(report.duration, Duration::from_secs(10));
    assert!((report.servers[0].busy - 0.6).abs() < 1e-6, "{:?}", report.servers[0]);
}

#[test]
fn courses_are_kept_by_stretches() {
    let stretched = World { stretch: Duration::from_secs(50), ..world() };
    let report = stretched.run_with(1, (0..1000).map(|at| offer(at * 100, 0.05))).unwrap();
    let offered: Vec<u64> = report.courses[0].seconds().iter().map(|stretch| stretch.offered).collect();
    assert_eq!(offered, [500, 500]);
}

#[test]
fn what_is_not_answered_in_a_day_has_failed() {
    let stands = Fault {
        at: Duration::from_millis(50),
        tier: None,
        server: 0,
        what: FaultKind::Speed(0.0),
        noticed_after: Duration::ZERO,
    };
    let world = World { faults: vec![stands], ..world() };
    let total = world.run_with(1, [offer(0, 0.01), offer(1, 1.0), offer(60, 1.0)]).unwrap().courses[0].total();
    assert_eq!((total.offered, total.admitted(), total.refused, total.failed), (3, 1, 0, 2));
}

#[test]
fn streams_go_on_beside_them() {
    let mut world = World { duration: Duration::from_secs(10), ..world() };
    world.streams = vec![stream(0, "0s:5/s", ServiceTime::constant(0.001).unwrap())];
    let report = world.run_with(1, (0..40).map(|at| offer(at * 500, 0.01))).unwrap();
    let [drawn, given] = &report.courses[..] else { panic!("a course for the stream and one for the class") };
    assert_eq!(given.total().admitted(), 40);
    let drawn = drawn.total();
    assert!(drawn.admitted() == drawn.offered && (20..100).contains(&drawn.offered), "{drawn:?}");
    assert_eq!(report.duration, Duration::from_millis(19_500));
}
