//! What requests say of their time and of their tries, and requests that are ended for the sake of others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tidegate_engine::{Cancel, ClassSetup, Sla, Snapshot, Statistic};
use tidegate_sentry::config::Application;
use tidegate_sentry::counters::Counter;

use crate::support::{Client, Door, RawServer, Running, admission, application, ok, until};

/// A server that answers `/slow` when the door opens and the rest at once, and how many requests reached it.
fn server(door: &Door) -> (RawServer, Arc<AtomicUsize>) {
    let (door, count) = (door.clone(), Arc::<AtomicUsize>::default());
    let counted = count.clone();
    let server = RawServer::answering(move |asked| {
        counted.fetch_add(1, Ordering::SeqCst);
        if asked.target == "/slow" {
            door.wait();
        }
        ok("done")
    });
    (server, count)
}

fn limited(limit: u32, queue: u32, server: &RawServer) -> Application {
    let mut application = application(&[server.address]);
    application.setup.admission =
        admission(json!({"policy": "concurrency", "limit": limit, "queue": queue, "queue_timeout": "60s"}));
    application
}

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: t\r\n{fields}\r\n")
}

fn seen(sentry: &Running) -> Snapshot {
    sentry.app().snapshot()
}

fn rejected(sentry: &Running) -> Vec<(&'static str, u64)> {
    seen(sentry).classes[0].rejected.clone()
}

/// A request that keeps the only place until the door opens.
fn occupy(sentry: &Running, count: &AtomicUsize) -> Client {
    let before = count.load(Ordering::SeqCst);
    let mut client = sentry.client();
    client.send(get("/slow", ""));
    until("the server has it", || count.load(Ordering::SeqCst) > before);
    client
}

#[test]
fn a_deadline_that_has_passed_is_refused_at_once_and_says_so() {
    let (server, count) = server(&Door::default());
    let sentry = Running::start(application(&[server.address]));
    let answer = sentry.ask(&get("/", "grpc-timeout: 0m\r\n"));
    assert_eq!(answer.status, 504, "{}", answer.head);
    assert_eq!(answer.field("tidegate-decision"), Some("rejected; reason=deadline; policy=none; class=default"));
    assert_eq!(sentry.count(Counter::RefusedByGate), 1, "without hyper");
    // What is not plain takes the other way; gRPC has its own words.
    let grpc = "content-type: application/grpc\r\ngrpc-timeout: 0n\r\nexpect: 100-continue\r\ncontent-length: 1\r\n";
    let answer = sentry.ask(&format!("POST /s/m HTTP/1.1\r\nHost: t\r\n{grpc}\r\n"));
    if answer.field("grpc-status").is_some() {
        assert_eq!((answer.field("grpc-status"), answer.field("grpc-retry-pushback-ms")), (Some("4"), Some("-1")));
    } else {
        assert_eq!(answer.status, 504, "{}", answer.head);
    }
    assert_eq!((count.load(Ordering::SeqCst), rejected(&sentry)), (0, vec![("deadline", 2)]));
    assert_eq!(sentry.ask(&get("/", "grpc-timeout: 1M\r\n")).status, 200);
    sentry.assert_quiet();
}

#[test]
fn what_waits_beyond_its_deadline_is_refused_then() {
    let door = Door::default();
    let (server, count) = server(&door);
    let sentry = Running::start(limited(1, 10, &server));
    let mut first = occupy(&sentry, &count);
    let mut waits = sentry.client();
    waits.send(get("/", "x-envoy-expected-rq-timeout-ms: 100\r\n"));
    let mut waits_on = sentry.client();
    waits_on.send(get("/", ""));
    let answer = waits.answer();
    assert_eq!((answer.status, rejected(&sentry)), (504, vec![("deadline", 1)]), "{}", answer.head);
    assert_eq!((seen(&sentry).waiting, count.load(Ordering::SeqCst)), (1, 1));
    door.open();
    assert_eq!((first.answer().status, waits_on.answer().status), (200, 200));
    sentry.assert_quiet();
}

/// What the server is told is less than what the client said, by the time spent in the queue.
#[test]
fn the_server_is_told_what_is_left() {
    let door = Door::default();
    let told = Arc::new(std::sync::Mutex::new(String::new()));
    let (waits, heard) = (door.clone(), told.clone());
    let server = RawServer::answering(move |asked| {
        if asked.target == "/slow" {
            waits.wait();
        }
        *heard.lock().expect("a lock") = asked.head.clone();
        ok("done")
    });
    let sentry = Running::start(limited(1, 10, &server));
    let mut first = sentry.client();
    first.send(get("/slow", ""));
    until("it is in flight", || seen(&sentry).in_flight == 1);
    let mut second = sentry.client();
    second.send(get("/", "grpc-timeout: 60S\r\nx-envoy-expected-rq-timeout-ms: 50000\r\n"));
    until("it waits", || seen(&sentry).waiting == 1);
    let arrived = sentry.app().now();
    until("some time has gone", || sentry.app().now().since(arrived) > Duration::from_millis(20));
    door.open();
    assert_eq!((first.answer().status, second.answer().status), (200, 200));
    let head = told.lock().expect("a lock").to_ascii_lowercase();
    let value = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {head}"));
        line.trim_matches([':', ' ', '\r', 'u']).parse::<u64>().unwrap_or_else(|_| panic!("{line}"))
    };
    let (grpc, envoy) = (value("grpc-timeout"), value("x-envoy-expected-rq-timeout-ms"));
    assert!((1_000_000..59_980_000).contains(&grpc) && (1_000..49_980).contains(&envoy), "{grpc} us, {envoy} ms");
    sentry.assert_quiet();
}

#[test]
fn retries_are_counted_and_stand_back_while_first_tries_are_refused() {
    let door = Door::default();
    let (server, count) = server(&door);
    let mut application = limited(1, 0, &server);
    application.setup.sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("a target");
    let sentry = Running::start(application);
    let mut first = occupy(&sentry, &count);
    assert_eq!(sentry.ask(&get("/", "x-request-id: one\r\n")).status, 503);
    for fields in ["x-request-id: one\r\n", "x-envoy-attempt-count: 2\r\n", "grpc-previous-rpc-attempts: 1\r\n"] {
        // For a second after each refusal of a first try, such as this one.
        until("a retry stands back", || {
            assert_eq!(sentry.ask(&get("/", "")).status, 503);
            let answer = sentry.ask(&get("/", fields));
            assert_eq!(answer.status, 503, "{fields}");
            answer.field("tidegate-decision").is_some_and(|why| why.contains("reason=first-tries-first"))
        });
    }
    assert!(seen(&sentry).classes[0].retries >= 3);
    door.open();
    assert_eq!(first.answer().status, 200);
    until("the place is free", || seen(&sentry).in_flight == 0);
    let before = seen(&sentry).classes[0].retries;
    assert_eq!(sentry.ask(&get("/", "x-request-id: two\r\n")).status, 200, "a first try");
    assert_eq!(sentry.ask(&get("/other", "x-request-id: one\r\n")).status, 200, "another request of the same trace");
    assert_eq!(seen(&sentry).classes[0].retries, before);
    until("it is over", || sentry.ask(&get("/", "x-request-id: one\r\n")).status == 200);
    sentry.assert_quiet();
}

/// Two classes by path; the more important one is refused while a request of the other is at work for ever.
fn pressed(cancel: Cancel, server: &RawServer) -> Application {
    use tidegate_classify::{PathMatch, Rule};
    let mut application = limited(1, 0, server);
    application.setup.sla = Sla::constant(Statistic::P95, Duration::from_millis(100)).expect("a target");
    application.setup.cancel = cancel;
    application.setup.classes = ["gold", "bronze"].map(ClassSetup::new).to_vec();
    let gold = Rule { path: Some(PathMatch::Prefix(String::from("/gold"))), ..Rule::default() };
    application.classifier.classes = vec![vec![gold], Vec::new()];
    application
}

#[test]
fn a_runaway_is_ended_and_explained_and_its_server_works_on_as_a_ghost() {
    let door = Door::default();
    let (server, count) = server(&door);
    let sentry = Running::start(pressed(Cancel::Runaways, &server));
    let mut client = sentry.client();
    for _ in 0..150 {
        client.send(get("/", ""));
        assert_eq!(client.answer().status, 200);
    }
    let mut runaway = occupy(&sentry, &count);
    until("it is ended", || {
        assert_eq!(sentry.ask(&get("/gold", "")).status, 503, "the server works on, so the place is taken");
        seen(&sentry).classes[1].runaways == 1
    });
    let answer = runaway.answer();
    assert_eq!(
        (answer.status, answer.field("tidegate-decision")),
        (503, Some("cancelled; reason=runaway; class=bronze"))
    );
    assert_eq!((seen(&sentry).ghosts, seen(&sentry).in_flight), (1, 1));
    door.open();
    until("its server is done", || sentry.ask(&get("/gold", "")).status == 200);
    let bronze = &seen(&sentry).classes[1];
    assert_eq!((bronze.failed, bronze.runaways, bronze.cancelled), (1, 1, 0));
    sentry.assert_quiet();
}

/// The server stops when its connection is closed: the place is free at once.
#[test]
fn a_server_that_notices_gives_the_place_back() {
    let server = RawServer::start(move |mut peer| {
        while let Some(asked) = peer.request() {
            if asked.target == "/slow" {
                // Until the other end closes its half.
                let _ = peer.exactly(1);
                return;
            }
            if !peer.send(ok("done")) {
                return;
            }
        }
    });
    let sentry = Running::start(pressed(Cancel::Runaways, &server));
    let mut client = sentry.client();
    for _ in 0..150 {
        client.send(get("/", ""));
        assert_eq!(client.answer().status, 200);
    }
    let mut runaway = sentry.client();
    runaway.send(get("/slow", ""));
    until("it is in flight", || seen(&sentry).in_flight == 1);
    until("gold is served", || sentry.ask(&get("/gold", "")).status == 200);
    assert_eq!(runaway.answer().status, 503);
    assert_eq!((seen(&sentry).classes[1].runaways, sentry.count(Counter::GhostsStopped)), (1, 1));
    sentry.assert_quiet();
}
