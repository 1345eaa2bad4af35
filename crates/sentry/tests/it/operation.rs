//! Queues, drains, reloads and dying servers, while requests come.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Client, Door, PATIENCE, RawServer, Running, admission, application, config, ok, until};
use serde_json::json;
use tidegate_engine::ServerSetup;
use tidegate_sentry::config::{Application, Server};
use tidegate_sentry::counters::Counter;
use tidegate_sentry::{Process, Shutdown};

const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";

/// One request at a time; up to `queue` wait.
fn one_at_a_time(server: &RawServer, queue: u32) -> Application {
    let mut app = application(&[server.address]);
    let timeout = PATIENCE.as_secs_f64();
    app.setup.admission =
        admission(json!({"policy": "concurrency", "limit": 1, "queue": queue, "queue_timeout": timeout}));
    app
}

/// A server whose answers to `/hold` wait at the door.
fn holding(door: &Door) -> RawServer {
    let door = door.clone();
    RawServer::answering(move |asked| {
        if asked.target == "/hold" {
            door.wait();
        }
        ok(&asked.target)
    })
}

#[test]
fn a_waiting_request_is_started_when_its_turn_comes() {
    let door = Door::default();
    let server = holding(&door);
    // Several workers: the one that completes is not always the one that waits.
    let sentry = Running::with_workers(one_at_a_time(&server, 16), 2);
    let mut first = sentry.client();
    first.send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
    until("it is in flight", || sentry.app().in_flight() == 1);
    let mut waiting: Vec<Client> = (0..8).map(|_| sentry.client()).collect();
    waiting.iter_mut().for_each(|client| client.send(GET));
    until("they wait", || sentry.app().waiting() == 8);
    door.open();
    assert_eq!(first.answer().status, 200);
    for client in &mut waiting {
        assert_eq!(client.answer().status, 200);
    }
    sentry.assert_quiet();
}

#[test]
fn a_waiting_request_whose_client_leaves_is_removed() {
    let door = Door::default();
    let server = holding(&door);
    let sentry = Running::start(one_at_a_time(&server, 16));
    let mut first = sentry.client();
    first.send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
    until("it is in flight", || sentry.app().in_flight() == 1);
    // Alone, or with another one behind it.
    for requests in [GET.to_owned(), GET.repeat(2)] {
        let mut leaver = sentry.client();
        leaver.send(requests);
        until("it waits", || sentry.app().waiting() == 1);
        drop(leaver);
        until("it is gone", || sentry.app().waiting() == 0);
        assert_eq!(sentry.app().in_flight(), 1);
    }
    door.open();
    assert_eq!(first.answer().status, 200);
    sentry.assert_quiet();
    assert_eq!(sentry.app().snapshot().classes[0].cancelled, 2);
}

#[test]
fn clients_that_leave_while_places_come_free_leave_nothing_behind() {
    let server = RawServer::echo();
    let sentry = Running::with_workers(one_at_a_time(&server, 64), 2);
    let address = sentry.address;
    let threads: Vec<_> = (0..4)
        .map(|seed: usize| {
            thread::spawn(move || {
                for i in 0..200 {
                    let mut client = Client::connect(address);
                    client.send(GET);
                    if !(i + seed).is_multiple_of(3) {
                        let _ = client.try_answer(false);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a client"));
    sentry.assert_quiet();
    until("every connection is closed", || sentry.app().counters.connections_open() == 0);
    assert_eq!(sentry.app().snapshot().stale_tickets, 0);
}

#[test]
fn the_bound_on_waiting_requests_is_kept() {
    let door = Door::default();
    let server = holding(&door);
    let mut app = one_at_a_time(&server, 100);
    app.limits.waiting = 2;
    let sentry = Running::start(app);
    let mut first = sentry.client();
    first.send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
    until("it is in flight", || sentry.app().in_flight() == 1);
    let mut waiting: Vec<Client> = (0..2).map(|_| sentry.client()).collect();
    waiting.iter_mut().for_each(|client| client.send(GET));
    until("they wait", || sentry.app().waiting() == 2);
    let refused = sentry.ask(GET);
    assert_eq!(refused.status, 503);
    assert!(refused.field("tidegate-decision").is_some_and(|text| text.contains("queue-full")));
    door.open();
    waiting.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    sentry.assert_quiet();
}

/// A little less than what a drain leaves to idle connections.
const DRAIN_IDLE: Duration = Duration::from_millis(900);

/// Clients that ask again and again until told to stop, and the answers they got.
struct Load {
    stop: Arc<AtomicBool>,
    good: Arc<AtomicUsize>,
    threads: Vec<thread::JoinHandle<Vec<String>>>,
}

impl Load {
    /// `clients` keep-alive clients. A connection that is closed instead of an answer is a loss, and so is any answer
    /// but 200. A drain leaves idle connections open for a second: who took longer than that to ask again lost nothing.
    fn start(sentry: &Running, clients: usize) -> Self {
        let (stop, good) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (address, app) = (sentry.address, sentry.app());
        let client = || {
            let (stop, good, app) = (stop.clone(), good.clone(), app.clone());
            let (mut client, mut asked) = (Client::connect(address), Instant::now());
            // The sentry has accepted it, whenever its thread has its turn.
            client.send(GET);
            assert_eq!(client.answer().status, 200);
            thread::spawn(move || {
                let mut losses = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    let before = std::mem::replace(&mut asked, Instant::now());
                    match client.io.write_all(GET.as_bytes()).and_then(|()| client.try_answer(false)) {
                        Ok(answer) if answer.status == 200 => {
                            good.fetch_add(1, Ordering::SeqCst);
                            if answer.field("connection") == Some("close") {
                                // Draining: there may be nobody to connect to.
                                return losses;
                            }
                        }
                        Ok(answer) => losses.push(format!("{} {}", answer.status, answer.text())),
                        Err(_) if app.draining() && asked - before > DRAIN_IDLE => return losses,
                        Err(error) => {
                            losses.push(error.to_string());
                            client = Client::connect(address);
                        }
                    }
                }
                losses
            })
        };
        let threads = (0..clients).map(|_| client()).collect();
        Load { stop, good, threads }
    }

    fn good(&self) -> usize {
        self.good.load(Ordering::SeqCst)
    }

    #[track_caller]
    fn more(&self, count: usize) {
        let from = self.good();
        until("the load goes on", || self.good() >= from + count);
    }

    fn losses(self) -> Vec<String> {
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().flat_map(|thread| thread.join().expect("a client")).collect()
    }
}

#[test]
fn a_drain_under_load_loses_nothing() {
    let server = RawServer::echo();
    let sentry = Running::with_workers(application(&[server.address]), 2);
    let load = Load::start(&sentry, 8);
    load.more(200);
    let Running { handle, .. } = sentry;
    let app = handle.apps()[0].clone();
    let cut = handle.shutdown(PATIENCE);
    assert_eq!(cut.connections, 0);
    assert_eq!(load.losses(), Vec::<String>::new());
    assert_eq!((app.in_flight(), app.waiting()), (0, 0));
}

#[test]
fn a_drain_waits_for_what_is_in_flight_and_cuts_at_its_end() {
    let door = Door::default();
    let server = holding(&door);
    let sentry = Running::start(application(&[server.address]));
    let app = sentry.app().clone();
    let mut client = sentry.client();
    client.send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
    until("it is in flight", || app.in_flight() == 1);
    let Running { handle, .. } = sentry;
    let drain = thread::spawn(move || handle.shutdown(PATIENCE));
    until("it drains", || app.draining());
    door.open();
    let answer = client.answer();
    assert_eq!((answer.status, answer.field("connection")), (200, Some("close")));
    client.assert_closed();
    assert_eq!(drain.join().expect("the drain").connections, 0);

    let door = Door::default();
    let server = holding(&door);
    let sentry = Running::start(application(&[server.address]));
    let mut client = sentry.client();
    client.send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
    until("it is in flight", || sentry.app().in_flight() == 1);
    let cut = sentry.handle.shutdown(Duration::from_millis(100));
    assert_eq!((cut.connections, cut.requests), (1, 1));
    client.assert_closed();
    door.open();
}

#[test]
fn reloads_under_load_lose_nothing() {
    let (a, b) = (RawServer::echo(), RawServer::echo());
    let both = application(&[a.address, b.address]);
    let sentry = Running::with_workers(both.clone(), 2);
    let load = Load::start(&sentry, 6);
    // One server leaves and comes back, under another address too; a class comes and goes.
    let mut only_b = both.clone();
    only_b.setup.servers = vec![ServerSetup::new("s1")];
    only_b.servers = vec![Server { name: String::from("s1"), address: b.address.to_string() }];
    let mut swapped = both.clone();
    swapped.servers[0].address = b.address.to_string();
    swapped.servers[1].address = a.address.to_string();
    swapped.setup.classes.push(tidegate_engine::ClassSetup::new("more"));
    swapped.classifier.classes = vec![Vec::new(), Vec::new()];
    for _ in 0..5 {
        for next in [&only_b, &swapped, &both] {
            sentry.handle.reload(config(next.clone(), 2)).expect("a reload");
            load.more(50);
        }
    }
    assert_eq!(load.losses(), Vec::<String>::new());
    sentry.assert_quiet();
    assert_eq!(sentry.app().live().generation, 15);
}

#[test]
fn a_reload_that_makes_no_sense_changes_nothing() {
    let server = RawServer::echo();
    let good = application(&[server.address]);
    let sentry = Running::start(good.clone());
    let mut bad = good.clone();
    bad.classifier.classes.clear();
    assert!(sentry.handle.reload(config(bad, 1)).is_err());
    let mut bad = good.clone();
    bad.setup.classes.clear();
    assert!(sentry.handle.reload(config(bad, 1)).is_err());
    let error = sentry.handle.reload(config(good, 2)).expect_err("a restart is needed");
    assert!(error.to_string().contains("restart"), "{error}");
    assert_eq!(sentry.app().live().generation, 0);
    assert_eq!(sentry.ask(GET).status, 200);
}

#[test]
fn killing_a_server_under_load_loses_only_what_was_sent_to_it() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let doomed = RawServer::answering(move |asked| {
        count.fetch_add(1, Ordering::SeqCst);
        ok(&asked.target)
    });
    let other = RawServer::echo();
    let mut app = application(&[doomed.address, other.address]);
    // Nothing that was sent is sent again: then what is lost is exactly what the dead server had.
    app.health.passive_failures = 2;
    app.retry.budget = 1.0;
    let sentry = Running::with_workers(app, 2);
    let load = Load::start(&sentry, 8);
    load.more(300);
    assert!(sent.load(Ordering::SeqCst) > 0);
    doomed.kill();
    load.more(300);
    let losses = load.losses();
    assert_eq!(losses, Vec::<String>::new(), "GET is safe to repeat");
    sentry.assert_quiet();
    assert!(sentry.count(Counter::Retries) + sentry.count(Counter::ServerStale) > 0);
}

#[test]
fn a_request_that_waited_too_long_is_refused_by_the_clock() {
    let door = Door::default();
    let server = holding(&door);
    let mut app = one_at_a_time(&server, 16);
    app.setup.admission = admission(json!({"policy": "concurrency", "limit": 1, "queue": 16, "queue_timeout": 0.1}));
    let sentry = Running::with_workers(app, 2);
    let mut first = sentry.client();
    first.send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
    until("it is in flight", || sentry.app().in_flight() == 1);
    let mut waiting: Vec<Client> = (0..4).map(|_| sentry.client()).collect();
    waiting.iter_mut().for_each(|client| client.send(GET));
    for client in &mut waiting {
        let answer = client.answer();
        assert_eq!(answer.status, 503);
        assert!(answer.field("tidegate-decision").is_some_and(|text| text.contains("queue-timeout")));
    }
    door.open();
    assert_eq!(first.answer().status, 200);
    sentry.assert_quiet();
}

#[test]
fn a_connection_that_rested_without_hyper_goes_on() {
    let server = RawServer::echo();
    let mut app = application(&[server.address]);
    // The sweep comes in a quarter of the shortest time-out, every 50 ms, and sheds what has been idle for two of them.
    // This time-out is none for clients, who may be late: connections to servers are opened again.
    app.timeouts.server_idle = Duration::from_millis(200);
    let sentry = Running::start(app);
    let mut client = sentry.client();
    for _ in 0..4 {
        client.send(GET);
        assert_eq!(client.answer().status, 200);
        // Nothing comes, and the connection stays open.
        client.io.set_read_timeout(Some(Duration::from_millis(180))).expect("a time-out");
        let silence = client.try_answer(false).expect_err("silence");
        assert_eq!(silence.kind(), std::io::ErrorKind::WouldBlock);
        client.io.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    }
    assert_eq!(sentry.count(Counter::ConnectionsAccepted), 1);
    sentry.assert_quiet();
}

/// What programs start: the data path with its admin API, stopped in the right order.
#[test]
fn a_process_serves_shows_itself_and_drains() {
    let server = RawServer::echo();
    let mut config = config(application(&[server.address]), 1);
    config.admin.listen = Some(([127, 0, 0, 1], 0).into());
    let process = Process::start(config, None).expect("a process");
    let mut client = Client::connect(process.sentry().addresses("app")[0]);
    client.send(GET);
    assert_eq!(client.answer().status, 200);
    let mut admin = Client::connect(process.admin_address().expect("an admin API"));
    admin.send("GET /readyz HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(admin.answer().status, 200);
    assert!(!process.reload(), "there is no file to read again");
    let board = process.board().clone();
    drop(client);
    assert_eq!(process.shutdown(PATIENCE), Shutdown::default());
    assert!(board.draining());
}

/// With a successor, connections are told to end one after the other, and none is closed before its client heard of it.
#[test]
fn who_leaves_to_a_successor_tells_its_clients_first() {
    let server = RawServer::echo();
    let process = Process::start(config(application(&[server.address]), 2), None).expect("a process");
    let (address, app) = (process.sentry().addresses("app")[0], process.sentry().apps()[0].clone());
    let mut clients: Vec<Client> = (0..20).map(|_| Client::connect(address)).collect();
    let mut ask = |client: &mut Client| {
        client.send(GET);
        let answer = client.answer();
        assert_eq!(answer.status, 200);
        answer.field("connection") != Some("close")
    };
    assert!(clients.iter_mut().all(&mut ask), "nobody is told to go");
    let leaving = thread::spawn(move || process.leave(PATIENCE, Duration::from_secs(3)));
    until("it drains", || app.draining());
    let mut rounds = 0;
    while !clients.is_empty() {
        clients.retain_mut(&mut ask);
        rounds += 1;
    }
    assert!(rounds > 1, "all were told at once");
    assert_eq!(leaving.join().expect("it leaves"), Shutdown::default());
}
