//! Panics and stalls in live workers: seen, survived, and nobody else's affair.

use std::io::Write;

use tidegate_sentry::counters::Counter;
use tidegate_sentry::faults::Fault;

use crate::support::{Client, Door, RawServer, Running, admission, application, ok, until};

const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
const HOLD: &str = "GET /hold HTTP/1.1\r\nHost: t\r\n\r\n";

/// A server that answers `/hold` when the door opens, and all else at once.
fn holding(door: &Door) -> RawServer {
    let door = door.clone();
    RawServer::answering(move |asked| {
        if asked.target == "/hold" {
            door.wait();
        }
        ok("here")
    })
}

/// Two workers, and `count` requests that their servers hold.
fn two_workers(server: &RawServer, count: usize) -> (Running, Vec<Client>) {
    let sentry = Running::with_workers(application(&[server.address]), 2);
    let mut clients: Vec<Client> = (0..count).map(|_| sentry.client()).collect();
    clients.iter_mut().for_each(|client| client.send(HOLD));
    until("all are in flight", || sentry.app().in_flight() == count);
    (sentry, clients)
}

#[test]
fn a_panic_over_a_connection_costs_that_connection() {
    let door = Door::default();
    let server = holding(&door);
    let (sentry, mut clients) = two_workers(&server, 10);
    sentry.app().faults.arm(Fault::Accept);
    let mut struck = sentry.client();
    let _ = struck.io.write_all(GET.as_bytes());
    assert!(struck.try_answer(false).is_err());
    until("it is counted", || sentry.count(Counter::WorkerPanics) == 1);
    // Whichever worker they come to.
    for _ in 0..20 {
        assert_eq!(sentry.ask(GET).status, 200);
    }
    door.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    drop(clients);
    sentry.assert_quiet();
    until("every connection is closed", || sentry.app().counters.connections_open() == 0);
}

#[test]
fn a_controller_that_panicked_is_built_anew() {
    let door = Door::default();
    let server = holding(&door);
    let (sentry, mut clients) = two_workers(&server, 10);
    sentry.app().set_shadow(true);
    sentry.app().faults.arm(Fault::Engine);
    let mut struck = sentry.client();
    struck.send(GET);
    until("it struck", || sentry.app().faults.has_struck());
    for _ in 0..20 {
        assert_eq!(sentry.ask(GET).status, 200);
    }
    assert_eq!(sentry.app().rebuilt(), 1);
    assert!(sentry.app().snapshot().shadow, "what was set by hand stays");
    // Those of before are answered, and the new controller is not told of what it does not know.
    door.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    sentry.assert_quiet();
    assert_eq!(sentry.app().snapshot().stale_tickets, 0);
}

#[test]
fn who_waits_when_the_controller_panics_is_refused() {
    let door = Door::default();
    let server = holding(&door);
    let mut app = application(&[server.address]);
    app.setup.admission =
        admission(serde_json::json!({"policy": "concurrency", "limit": 1, "queue": 10, "queue_timeout": 600.0}));
    let sentry = Running::start(app);
    let mut first = sentry.client();
    first.send(HOLD);
    until("it is in flight", || sentry.app().in_flight() == 1);
    let mut waiting = sentry.client();
    waiting.send(GET);
    until("it waits", || sentry.app().waiting() == 1);
    sentry.app().faults.arm(Fault::Engine);
    until("it struck", || {
        let _ = sentry.client().io.write_all(GET.as_bytes());
        sentry.app().faults.has_struck()
    });
    assert_eq!(sentry.app().waiting(), 0);
    assert_eq!(waiting.answer().status, 503);
    door.open();
    assert_eq!(first.answer().status, 200);
    sentry.assert_quiet();
}

#[test]
fn a_stuck_worker_is_replaced() {
    let door = Door::default();
    let server = holding(&door);
    let (sentry, mut clients) = two_workers(&server, 10);
    sentry.app().faults.arm(Fault::Stall);
    until("a worker hangs", || sentry.app().faults.has_struck());
    until("another takes its place", || sentry.app().replaced() == 1);
    // The kernel deals connections to both; each is served.
    for _ in 0..40 {
        assert_eq!(sentry.ask(GET).status, 200);
    }
    // And what hung goes on where it was.
    sentry.app().faults.release();
    door.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    sentry.assert_quiet();
}

#[test]
fn a_worker_that_stays_stuck_does_not_keep_the_sentry_from_ending() {
    let server = RawServer::echo();
    let sentry = Running::with_workers(application(&[server.address]), 2);
    assert_eq!(sentry.ask(GET).status, 200);
    let app = sentry.app().clone();
    app.faults.arm(Fault::Stall);
    until("a worker hangs", || app.faults.has_struck());
    sentry.handle.shutdown(std::time::Duration::ZERO);
    app.faults.release();
}
