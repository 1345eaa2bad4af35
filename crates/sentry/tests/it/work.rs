//! A place is work at a server: what clients leave behind, and what is only open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;
use tidegate_engine::{AdmissionConfig, Sla, Snapshot, Statistic, Timestamp};
use tidegate_sentry::config::{Application, RequestKind};
use tidegate_sentry::counters::Counter;

use crate::support::{Client, Door, RawServer, Running, admission, application, ok, until};

const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// How many requests a server works on, and the most it ever did.
#[derive(Clone, Default)]
struct Work(Arc<(AtomicUsize, AtomicUsize)>);

impl Work {
    fn begin(&self) {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(now, Ordering::SeqCst);
    }

    fn end(&self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn now(&self) -> usize {
        self.0.0.load(Ordering::SeqCst)
    }

    fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

/// A server that answers each request when the door opens, and does not notice who leaves.
fn unnoticing(door: &Door) -> (RawServer, Work) {
    let work = Work::default();
    let (door, counted) = (door.clone(), work.clone());
    let server = RawServer::answering(move |_| {
        counted.begin();
        door.wait();
        counted.end();
        ok("late")
    });
    (server, work)
}

/// Streams for `/events`, tunnels for `/tunnel`, polls that wait for the door, and short answers.
fn mixed(door: &Door) -> RawServer {
    let door = door.clone();
    RawServer::start(move |mut peer| {
        while let Some(asked) = peer.request() {
            let sent = match &*asked.target {
                "/events" => peer.send(EVENTS) && peer.exactly(1).is_ok(),
                "/tunnel" => {
                    peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
                        && peer.exactly(1).is_ok()
                }
                "/poll" => {
                    door.wait();
                    peer.send(ok("news"))
                }
                _ => peer.send(ok("short")),
            };
            if !sent {
                return;
            }
        }
    })
}

fn with(policy: serde_json::Value, server: &RawServer) -> Application {
    let mut application = application(&[server.address]);
    application.setup.admission = admission(policy);
    application
}

fn concurrency(limit: u32, server: &RawServer) -> Application {
    with(json!({"policy": "concurrency", "limit": limit}), server)
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n")
}

fn seen(sentry: &Running) -> Snapshot {
    sentry.app().snapshot()
}

/// Streams whose heads have come.
fn open_events(sentry: &Running, count: usize) -> Vec<Client> {
    let open = |_| {
        let mut client = sentry.client();
        client.send(get("/events"));
        let begins = client.exactly(EVENTS.find("\r\n").expect("a line")).expect("a head");
        assert!(begins.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&begins));
        client
    };
    (0..count).map(open).collect()
}

#[test]
fn event_streams_cost_ordinary_requests_nothing() {
    let server = mixed(&Door::default());
    let mut application = with(json!({"policy": "waiting"}), &server);
    assert_eq!(application.setup.admission, AdmissionConfig::default(), "the default policy");
    application.setup.sla = Sla::constant(Statistic::P95, Duration::from_millis(500)).expect("a target");
    let sentry = Running::start(application);
    let streams = open_events(&sentry, 3);
    until("all are streams", || seen(&sentry).streams == 3 && seen(&sentry).in_flight == 0);
    for i in 0..100 {
        assert_eq!(sentry.ask(&get("/")).status, 200, "request {i}");
    }
    drop(streams);
    until("they are closed", || seen(&sentry).streams == 0);
    let class = &seen(&sentry).classes[0];
    assert_eq!((class.completed, class.cancelled, class.rejected_total()), (103, 0, 0));
    sentry.assert_quiet();
    assert!(sentry.app().leavers(1).is_empty(), "streams end so");
}

#[test]
fn whoever_closes_does_not_put_a_second_request_to_work() {
    let door = Door::default();
    let (server, work) = unnoticing(&door);
    let sentry = Running::start(concurrency(1, &server));
    for i in 0..8 {
        let mut client = sentry.client();
        client.send(get("/"));
        if i == 0 {
            until("the server has it", || work.now() == 1);
            drop(client);
            until("its client left", || seen(&sentry).ghosts == 1);
        } else {
            assert_eq!(client.answer().status, 503, "the server works on");
        }
    }
    assert_eq!((work.most(), seen(&sentry).in_flight, seen(&sentry).classes[0].cancelled), (1, 1, 1));
    let leavers = sentry.app().leavers(9);
    assert_eq!(leavers.len(), 1, "those who were refused left nothing behind: {leavers:?}");
    assert!(leavers[0].client.is_loopback() && (0.9..=1.0).contains(&leavers[0].recent), "{leavers:?}");
    door.open();
    sentry.assert_quiet();
    assert_eq!(sentry.count(Counter::GhostsAnswered), 1);
    assert_eq!(sentry.ask(&get("/")).status, 200);
    assert_eq!(work.most(), 1);
}

#[test]
fn a_storm_of_clients_that_give_up_stays_within_the_limit() {
    let door = Door::default();
    let (server, work) = unnoticing(&door);
    let sentry = Running::with_workers(concurrency(4, &server), 2);
    let give_up = |_| {
        let address = sentry.address;
        thread::spawn(move || {
            for _ in 0..25 {
                let mut client = Client::connect(address);
                client.send(get("/"));
            }
        })
    };
    let clients: Vec<_> = (0..8).map(give_up).collect();
    clients.into_iter().for_each(|client| client.join().expect("no panic"));
    until("all are over, but for ghosts", || {
        sentry.app().counters.connections_open() == 0 && seen(&sentry).in_flight as u64 == seen(&sentry).ghosts
    });
    assert!(work.most() <= 4, "{} at work", work.most());
    door.open();
    sentry.assert_quiet();
    assert!(work.most() <= 4, "{} at work", work.most());
}

#[test]
fn a_server_that_stops_when_it_is_abandoned_frees_the_place() {
    let work = Work::default();
    let counted = work.clone();
    let server = RawServer::start(move |mut peer| {
        let Some(asked) = peer.request() else { return };
        // It works until its client is gone.
        counted.begin();
        if asked.target == "/short" {
            peer.send(ok("short"));
        }
        let _ = peer.exactly(1);
    });
    let sentry = Running::start(concurrency(1, &server));
    let mut client = sentry.client();
    client.send(get("/long"));
    until("it is at work", || work.now() == 1);
    drop(client);
    sentry.assert_quiet();
    until("it was seen to stop", || sentry.count(Counter::GhostsStopped) == 1);
    assert_eq!(sentry.ask(&get("/short")).status, 200);
}

#[test]
fn a_time_out_leaves_a_ghost() {
    let door = Door::default();
    let (server, work) = unnoticing(&door);
    let mut application = concurrency(1, &server);
    application.timeouts.request = Some(Duration::from_millis(50));
    let sentry = Running::start(application);
    assert_eq!(sentry.ask(&get("/")).status, 504);
    until("it is a ghost", || seen(&sentry).ghosts == 1);
    assert_eq!((sentry.ask(&get("/")).status, work.most()), (503, 1));
    assert_eq!(seen(&sentry).classes[0].failed, 1);
    door.open();
    sentry.assert_quiet();
}

#[test]
fn a_stream_that_says_nothing_of_itself_is_known_by_its_silence() {
    let server = RawServer::start(|mut peer| {
        let Some(_) = peer.request() else { return };
        peer.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n");
        let _ = peer.exactly(1);
    });
    let mut application = concurrency(1, &server);
    let target = Duration::from_millis(10);
    application.setup.sla = Sla::constant(Statistic::P95, target).expect("a target");
    let sentry = Running::start(application);
    let mut client = sentry.client();
    client.send(get("/"));
    until("it is a stream", || seen(&sentry).streams == 1 && seen(&sentry).in_flight == 0);
    assert_eq!(seen(&sentry).classes[0].completed, 1);
    drop(client);
    until("it is closed", || seen(&sentry).streams == 0);
}

#[test]
fn polls_by_rule_have_no_place_while_they_wait() {
    let door = Door::default();
    let server = mixed(&door);
    let mut application = concurrency(1, &server);
    application.kinds = vec![RequestKind::Poll];
    let sentry = Running::start(application);
    let mut clients: Vec<_> = (0..5).map(|_| sentry.client()).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        client.send(get("/poll"));
        until("it waits", || seen(&sentry).streams == i as u64 + 1);
    }
    assert_eq!(seen(&sentry).in_flight, 0);
    door.open();
    for client in &mut clients {
        assert_eq!(client.answer().text(), "news");
    }
    until("they are over", || seen(&sentry).streams == 0);
    let shown = seen(&sentry);
    assert_eq!((shown.classes[0].completed, shown.mean_cost, shown.classes[0].p95), (5, None, None));
}

#[test]
fn the_kind_of_a_class_holds_where_the_type_says_nothing() {
    let door = Door::default();
    let server = mixed(&door);
    let mut application = concurrency(1, &server);
    application.class_kinds = vec![RequestKind::Poll];
    let sentry = Running::start(application);
    let mut clients = [sentry.client(), sentry.client()];
    for (i, client) in clients.iter_mut().enumerate() {
        client.send(get("/poll"));
        until("it waits", || seen(&sentry).streams == i as u64 + 1);
    }
    assert_eq!(seen(&sentry).in_flight, 0);
    door.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().text(), "news"));
    sentry.assert_quiet();
}

/// Tokens of a language model, say: they are streamed, and each of them is computed.
#[test]
fn what_is_work_by_rule_keeps_its_place_whatever_its_answer_says_of_itself() {
    let server = mixed(&Door::default());
    let mut application = concurrency(2, &server);
    application.kinds = vec![RequestKind::Work];
    let sentry = Running::start(application);
    let streams = open_events(&sentry, 2);
    assert_eq!((seen(&sentry).streams, seen(&sentry).in_flight), (0, 2));
    assert_eq!(sentry.ask(&get("/")).status, 503);
    drop(streams);
    sentry.assert_quiet();
}

/// The answer begins at once, and ends when the door opens.
fn begins_at_once(door: &Door) -> RawServer {
    let door = door.clone();
    RawServer::start(move |mut peer| {
        while peer.request().is_some() {
            if !peer.send("HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf") {
                return;
            }
            door.wait();
            if !peer.send("half") {
                return;
            }
        }
    })
}

#[test]
fn the_time_to_the_first_byte_is_a_statistic_of_all_answers() {
    let door = Door::default();
    let server = begins_at_once(&door);
    let sentry = Running::start(with(json!({"policy": "none"}), &server));
    let mut client = sentry.client();
    client.send(get("/"));
    assert!(client.exactly(9).expect("the head").starts_with(b"HTTP/1.1 "));
    let began = sentry.app().now();
    assert_eq!(seen(&sentry).classes[0].first_byte_p95, None, "it shows with the end");
    // The last byte comes after twice the time that it took until the first, at least.
    until("as long again", || sentry.app().now() > began + began.since(Timestamp::ZERO));
    door.open();
    until("it is answered", || seen(&sentry).classes[0].completed == 1);
    let class = &seen(&sentry).classes[0];
    let (first, last) = (class.first_byte_p95.expect("known"), class.p95.expect("known"));
    assert!(first < last, "{first} {last}");
}

#[test]
fn tunnels_count_among_the_connections_of_their_server() {
    let server = mixed(&Door::default());
    let mut application = with(json!({"policy": "none"}), &server);
    application.setup.servers[0].max_connections = Some(2);
    let sentry = Running::start(application);
    let upgrade = "GET /tunnel HTTP/1.1\r\nHost: t\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let mut open: Vec<Client> = Vec::new();
    for _ in 0..2 {
        let mut client = sentry.client();
        client.send(upgrade);
        assert_eq!(client.answer().status, 101);
        open.push(client);
    }
    assert_eq!((seen(&sentry).tunnels, seen(&sentry).servers[0].tunnels, seen(&sentry).in_flight), (2, 2, 0));
    assert_eq!(sentry.ask(upgrade).status, 503, "the server has two connections already");
    drop(open.pop());
    until("one is closed", || seen(&sentry).tunnels == 1);
    assert_eq!(sentry.ask(&get("/")).status, 200);
}

#[test]
fn what_the_pool_does_not_take_keeps_its_place() {
    let server = mixed(&Door::default());
    let mut application = concurrency(1, &server);
    application.setup.most_open = 2;
    let sentry = Running::start(application);
    let streams = open_events(&sentry, 3);
    assert_eq!((seen(&sentry).streams, seen(&sentry).in_flight), (2, 1));
    assert_eq!(sentry.ask(&get("/")).status, 503);
    drop(streams);
    until("they are closed", || seen(&sentry).streams == 0);
    sentry.assert_quiet();
}
