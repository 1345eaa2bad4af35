//! The hot path allocates nothing: counted, not claimed.

use std::hint::black_box;
use std::time::Duration;

use tidegate_engine::{
    AdmissionConfig, ClassId, Controller, Decision, NoEvents, Outcome, Request, ServerSetup, Setup, Share, Sla,
    Statistic, Timestamp, UrlKey,
};

use crate::counting::allocations_in;

fn controller(policy: &str) -> Controller {
    let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("more than zero");
    let mut setup = Setup::simple("hot", sla, (0..3).map(|i| ServerSetup::new(format!("s{i}"))));
    setup.admission = AdmissionConfig::from_name(policy).expect("a policy of the table");
    Controller::new(setup, 1, 1, Box::new(NoEvents)).expect("a sound setup")
}

/// `count` requests, one at a time, ten milliseconds each.
fn serve(controller: &mut Controller, from: u64, count: u64) {
    for i in from..from + count {
        let now = Timestamp::from_millis(10 * i);
        let request = Request { url: UrlKey((i % 50).wrapping_mul(0x9E37_79B9_7F4A_7C15)), ..Request::default() };
        if let Decision::Admit { ticket, .. } = controller.handle_arrival(now, request) {
            controller.handle_completion(now + Duration::from_millis(10), ticket, Outcome::answered());
        }
        while black_box(controller.poll_action()).is_some() {}
        controller.handle_timeout(now + Duration::from_millis(10));
    }
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations_in(|| drop(black_box(Box::new(1)))), 1);
}

#[test]
fn policing_allocates_nothing() {
    let mut controller = controller("threshold");
    serve(&mut controller, 0, 100);
    let policer = controller.policer();
    let found = allocations_in(|| {
        for i in 0..10_000 {
            black_box(policer.police(0, Timestamp::from_nanos(i), &Request::default()));
        }
    });
    assert_eq!(policer.share(ClassId(0)), Share::Admit(1.0), "a table is published");
    assert_eq!(found, 0);
}

#[test]
fn a_request_that_does_not_wait_allocates_nothing_at_steady_state() {
    let limits =
        ["concurrency", "codel", "aimd-limit", "vegas", "gradient", "gradient2", "brpc", "bbr", "netflix-partition"];
    for policy in ["none", "threshold", "dagor"].into_iter().chain(limits) {
        let mut controller = controller(policy);
        serve(&mut controller, 0, 1_000);
        assert_eq!(allocations_in(|| serve(&mut controller, 1_000, 1_000)), 0, "{policy}");
    }
}
