//! Servers that fail in every way, and clients that leave: the right status, and nothing left behind.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{Client, Door, Peer, RawServer, Running, application, ok, until};
use socket2::{Domain, Socket, Type};
use tidegate_engine::Status;
use tidegate_sentry::config::Application;
use tidegate_sentry::counters::Counter;

const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nhi";

/// A server that reads a request's head and then does `fault`. Connections without a request are health checks.
pub fn faulty(fault: impl Fn(Peer) + Send + Sync + 'static) -> RawServer {
    RawServer::start(move |mut peer| {
        if peer.head().is_some() {
            fault(peer);
        }
    })
}

/// An address where nobody listens, and nobody else can while the socket is kept.
fn nobody() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
    let address = socket.local_addr().ok().and_then(|address| address.as_socket()).expect("an address");
    (socket, address)
}

#[track_caller]
pub fn assert_status(app: Application, request: &str, status: u16) -> Running {
    let sentry = Running::start(app);
    assert_eq!(sentry.ask(request).status, status);
    sentry.assert_quiet();
    sentry
}

#[test]
fn a_server_that_refuses_connections_is_a_502() {
    let (_kept, address) = nobody();
    let sentry = assert_status(application(&[address]), GET, 502);
    assert!(sentry.count(Counter::ServerConnectErrors) >= 1);
    let class = &sentry.app().snapshot().classes[0];
    assert_eq!(class.failed, 1);
}

#[test]
fn a_server_that_closes_before_answering_is_a_502() {
    let server = faulty(drop);
    let sentry = assert_status(application(&[server.address]), POST, 502);
    assert_eq!(sentry.count(Counter::ServerErrors), 1);
}

#[test]
fn a_server_that_resets_before_answering_is_a_502() {
    let server = faulty(Peer::reset);
    assert_status(application(&[server.address]), POST, 502);
}

#[test]
fn a_server_that_sends_garbage_is_a_502() {
    let server = faulty(|mut peer| {
        peer.send("this is not HTTP\r\n\r\n");
    });
    assert_status(application(&[server.address]), POST, 502);
}

#[test]
fn a_server_that_never_answers_is_a_504() {
    let door = Door::default();
    let inside = door.clone();
    let server = faulty(move |peer| {
        inside.wait();
        drop(peer);
    });
    let mut app = application(&[server.address]);
    app.timeouts.first_byte = Duration::from_millis(200);
    let sentry = assert_status(app, GET, 504);
    assert_eq!(sentry.count(Counter::TimeoutFirstByte), 1);
    door.open();
}

#[test]
fn a_whole_request_has_its_time() {
    let door = Door::default();
    let inside = door.clone();
    let server = faulty(move |peer| {
        inside.wait();
        drop(peer);
    });
    let mut app = application(&[server.address]);
    app.timeouts.request = Some(Duration::from_millis(150));
    let sentry = Running::start(app);
    assert_eq!(sentry.ask(GET).status, 504);
    assert_eq!(sentry.count(Counter::TimeoutRequest), 1);
    // Until then its server is at work.
    door.open();
    sentry.assert_quiet();
}

/// The head has gone out: all that is left is to break the connection, so that nobody takes the part for the whole.
#[test]
fn a_broken_answer_breaks_the_connection() {
    let door = Door::default();
    let inside = door.clone();
    type Fault = Box<dyn Fn(Peer) + Send + Sync>;
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf";
    let faults: Vec<(&str, Fault)> = vec![
        (
            "closed",
            Box::new(move |mut peer| {
                peer.send(half);
            }),
        ),
        (
            "reset",
            Box::new(move |mut peer| {
                peer.send(half);
                peer.reset();
            }),
        ),
        (
            "hangs",
            Box::new(move |mut peer| {
                peer.send(half);
                inside.wait();
            }),
        ),
        (
            "bad chunk",
            Box::new(|mut peer| {
                peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nzz\r\n");
            }),
        ),
        (
            "cut chunks",
            Box::new(|mut peer| {
                peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n");
            }),
        ),
    ];
    for (name, fault) in faults {
        let server = faulty(fault);
        let mut app = application(&[server.address]);
        app.timeouts.body_idle = Duration::from_millis(200);
        let sentry = Running::start(app);
        let mut client = sentry.client();
        client.send(GET);
        let broken = client.try_answer(false);
        assert!(broken.is_err(), "{name}: {broken:?}");
        if name == "hangs" {
            // Until then its server is at work.
            door.open();
        }
        sentry.assert_quiet();
        assert_eq!(sentry.app().snapshot().classes[0].failed, 1, "{name}");
    }
}

#[test]
fn bytes_after_an_answer_poison_only_that_connection() {
    let server = faulty(|mut peer| {
        peer.send(format!("{}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", ok("first")));
        while let Some(asked) = peer.request() {
            peer.send(ok(&asked.target));
        }
    });
    let sentry = Running::start(application(&[server.address]));
    let mut client = sentry.client();
    for _ in 0..3 {
        client.send(GET);
        assert_eq!(client.answer().text(), "first");
    }
    sentry.assert_quiet();
}

#[test]
fn an_unsent_request_goes_to_another_server_whatever_its_method() {
    let ((_kept, nobody), good) = (nobody(), RawServer::echo());
    let sentry = Running::start(application(&[nobody, good.address]));
    // Which one is tried first is drawn.
    until("one was sent again", || {
        assert_eq!(sentry.ask(POST).status, 200);
        sentry.count(Counter::Retries) >= 1
    });
    sentry.assert_quiet();
}

#[test]
fn a_sent_request_is_repeated_only_when_that_does_no_harm() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let bad = faulty(move |peer| {
        count.fetch_add(1, Ordering::SeqCst);
        drop(peer);
    });
    let good = RawServer::echo();
    let sentry = Running::start(application(&[bad.address, good.address]));
    // Which one is tried is drawn.
    until("the bad server was tried", || {
        assert_eq!(sentry.ask(GET).status, 200);
        asked.load(Ordering::SeqCst) > 0
    });
    let mut posts = Vec::new();
    until("posts got both answers", || {
        posts.push(sentry.ask(POST).status);
        posts.contains(&502) && posts.contains(&200)
    });
    assert!(posts.iter().all(|status| matches!(status, 200 | 502)), "{posts:?}");
    sentry.assert_quiet();
}

#[test]
fn retries_stay_within_their_budget() {
    let (a, b) = (faulty(drop), faulty(drop));
    let mut app = application(&[a.address, b.address]);
    app.retry.budget = 0.0;
    let sentry = Running::start(app);
    for _ in 0..30 {
        assert_eq!(sentry.ask(GET).status, 502);
    }
    assert_eq!(sentry.count(Counter::Retries), 10, "what may come at once after a quiet time, and no more");
    assert_eq!(sentry.count(Counter::RetriesDenied), 20);
    sentry.assert_quiet();
}

#[test]
fn a_connection_that_the_server_closed_while_idle_costs_no_request() {
    let server = RawServer::start(|mut peer| {
        if let Some(asked) = peer.request() {
            peer.send(ok(&asked.target));
        }
    });
    let sentry = Running::start(application(&[server.address]));
    for _ in 0..20 {
        assert_eq!(sentry.ask(GET).status, 200);
    }
    sentry.assert_quiet();
}

#[test]
fn too_many_failures_in_a_row_take_a_server_down_and_checks_bring_it_back() {
    let failing = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (first, second) = (mute(&failing), mute(&failing));
    let sentry = Running::start(watchful(&[first.address, second.address]));
    let down = || sentry.app().snapshot().servers.iter().filter(|server| server.status == Status::Down).count();
    // Several clients, several paths: that is no client's doing.
    let mut asked = 0;
    until("a server is taken down", || {
        asked += 1;
        let mut client = Client::connect_from([127, 0, 0, 1 + asked % 7].into(), sentry.address);
        client.send(format!("POST /{} HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n", asked % 3));
        let _ = client.try_answer(false);
        assert!(down() <= 1, "half of them at most");
        sentry.count(Counter::Ejections) > 0
    });
    failing.store(false, Ordering::SeqCst);
    until("both are back", || down() == 0 && sentry.ask(GET).status == 200);
    sentry.assert_quiet();
}

#[test]
fn one_client_cannot_take_servers_down() {
    let failing = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (first, second) = (mute(&failing), mute(&failing));
    let sentry = Running::start(watchful(&[first.address, second.address]));
    for path in 0..40 {
        let request = format!("POST /crash/{path} HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(sentry.ask(&request).status, 502, "never that there is no server");
    }
    assert!(sentry.app().snapshot().servers.iter().all(|server| server.status == Status::Up));
    assert_eq!(sentry.count(Counter::Ejections), 0);
}

/// A server that is well, says its health check, and closes without an answer while it is to fail.
fn mute(failing: &Arc<std::sync::atomic::AtomicBool>) -> RawServer {
    let fail = failing.clone();
    RawServer::start(move |mut peer| {
        while let Some(asked) = peer.request() {
            if asked.target != "/up" && fail.load(Ordering::SeqCst) {
                return;
            }
            peer.send(ok("fine"));
        }
    })
}

/// Checks health often, and looks at unanswered requests.
fn watchful(servers: &[std::net::SocketAddr]) -> tidegate_sentry::config::Application {
    let mut app = application(servers);
    app.health.path = Some(String::from("/up"));
    app.health.interval = Duration::from_millis(50);
    app.health.passive_failures = 3;
    app.health.rise = 1;
    app.setup.when_all_down = tidegate_engine::WhenAllDown::Refuse;
    app
}

#[test]
fn health_checks_take_a_dead_server_down() {
    let (good, bad) = (RawServer::echo(), RawServer::echo());
    let mut app = application(&[good.address, bad.address]);
    app.health.interval = Duration::from_millis(30);
    app.health.fall = 2;
    let sentry = Running::start(app);
    bad.kill();
    until("one server is down", || sentry.app().snapshot().servers[1].status == Status::Down);
    for _ in 0..10 {
        assert_eq!(sentry.ask(POST).status, 200);
    }
    sentry.assert_quiet();
}

#[test]
fn a_client_that_leaves_is_a_cancel_at_every_stage() {
    let door = Door::default();
    let inside = door.clone();
    let asked_for = Arc::new(AtomicUsize::new(0));
    let seen = asked_for.clone();
    let server = RawServer::start(move |mut peer| {
        while let Some(asked) = peer.request() {
            seen.fetch_add(1, Ordering::Relaxed);
            match asked.target.as_str() {
                "/hang" => inside.wait(),
                _ => {
                    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
                }
            }
            while peer.send([0; 65536]) {}
        }
    });
    let sentry = Running::start(application(&[server.address]));
    for (before, request) in
        ["GET /hang HTTP/1.1\r\nHost: t\r\n\r\n", "GET /endless HTTP/1.1\r\nHost: t\r\n\r\n"].iter().enumerate()
    {
        let mut client = sentry.client();
        client.send(request);
        until("it is in flight", || sentry.app().in_flight() == 1);
        until("its server has it", || asked_for.load(Ordering::Relaxed) > before);
        if request.contains("endless") {
            client.exactly(10_000).expect("a part");
        }
        drop(client);
        if request.contains("hang") {
            until("it is a ghost", || sentry.app().snapshot().ghosts == 1);
            door.open();
        }
        sentry.assert_quiet();
    }
    let mut client = sentry.client();
    client.send("POST /up HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\nonly a part");
    until("a part is here", || sentry.app().counters.held() > 0);
    drop(client);
    until("that counts, too", || sentry.app().snapshot().classes[0].cancelled == 3);
    sentry.assert_quiet();
    assert_eq!((sentry.app().snapshot().classes[0].failed, sentry.app().counters.held()), (0, 0));
    door.open();
}

#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let server = RawServer::start(|mut peer| {
        while peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
            while peer.send([0; 65536]) {}
        }
    });
    let mut app = application(&[server.address]);
    app.timeouts.body_idle = Duration::from_millis(200);
    let sentry = Running::start(app);
    let mut client = sentry.client();
    client.send(GET);
    until("it is cut off", || sentry.count(Counter::TimeoutBodyIdle) == 1);
    sentry.assert_quiet();
    drop(client);
}

#[test]
fn more_connections_than_allowed_are_closed_at_once() {
    let door = Door::default();
    let opened = door.clone();
    let server = RawServer::answering(move |_| {
        opened.wait();
        ok("late")
    });
    let mut app = application(&[server.address]);
    app.limits.connections = 2;
    let sentry = Running::start(app);
    let mut kept: Vec<_> = (0..2).map(|_| sentry.client()).collect();
    kept.iter_mut().for_each(|client| client.send(GET));
    until("both are in flight: idle ones would make room", || sentry.app().in_flight() == 2);
    let mut one_too_many = sentry.client();
    one_too_many.send(GET);
    assert!(one_too_many.try_answer(false).is_err());
    assert_eq!(sentry.count(Counter::ConnectionsRefused), 1);
    door.open();
    kept.clear();
    until("there is room again", || {
        let mut client = sentry.client();
        client.send(GET);
        client.try_answer(false).is_ok_and(|answer| answer.status == 200)
    });
}
