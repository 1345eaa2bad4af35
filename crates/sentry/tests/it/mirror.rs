//! Copies for a shadow server: what it gets, and that nobody waits for it.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use tidegate_sentry::Process;
use tidegate_sentry::config::{Application, Mirror};

use crate::support::{Client, Door, PATIENCE, RawServer, application, config, ok, until};

fn mirrored(server: &RawServer, to: &str) -> Application {
    let mut app = application(&[server.address]);
    let (body, timeout) = (1000, PATIENCE);
    app.mirror = Some(Mirror { to: to.to_owned(), share: 1.0, body, in_flight: 2, timeout });
    app
}

/// A shadow that tells what it got: method, target, head and body.
fn shadow() -> (RawServer, Receiver<(String, Vec<u8>)>) {
    let (tell, told) = sync_channel(1000);
    let tell = Mutex::new(tell);
    let server = RawServer::answering(move |asked| {
        let _ = tell.lock().expect("a lock").try_send((asked.head.to_ascii_lowercase(), asked.body.clone()));
        ok("nobody reads this")
    });
    (server, told)
}

/// What the metrics say became of requests.
fn fate(process: &Process, outcome: &str) -> u64 {
    let mut admin = Client::connect(process.admin_address().expect("an admin API"));
    admin.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let metrics = admin.answer().text();
    let start = format!("tidegate_mirror_requests_total{{application=\"app\",outcome=\"{outcome}\"}} ");
    let found = metrics.lines().find_map(|line| line.strip_prefix(&start));
    found.unwrap_or_else(|| panic!("{start}: {metrics}")).parse().expect("a number")
}

fn process(app: Application) -> (Process, std::net::SocketAddr) {
    let mut config = config(app, 1);
    config.admin.listen = Some(([127, 0, 0, 1], 0).into());
    let process = Process::start(config, None).expect("a process");
    let address = process.sentry().addresses("app")[0];
    (process, address)
}

#[test]
fn the_shadow_gets_the_same_request_with_a_mark() {
    let server = RawServer::answering(|asked| ok(asked.field("tidegate-mirror").unwrap_or("original")));
    let (shadow, told) = shadow();
    let (process, address) = process(mirrored(&server, &shadow.address.to_string()));
    let mut client = Client::connect(address);
    client.send("POST /a?b HTTP/1.1\r\nHost: shop\r\nTidegate-Mirror: copy\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.answer().text(), "original", "no client pretends to be a copy");
    let (head, body) = told.recv_timeout(PATIENCE).expect("a copy");
    assert!(head.starts_with("post /a?b http/1.1\r\n") && head.contains("host: shop\r\n"), "{head}");
    assert!(head.contains("tidegate-mirror: copy\r\n") && head.contains("x-forwarded-for: 127.0.0.1\r\n"), "{head}");
    assert_eq!(body, b"hello");
    // Until then its connection is in use, and the next copy has one of its own.
    until("the first copy is answered", || fate(&process, "answered") == 1);
    // A body whose length was not said, and one connection for copies one after the other.
    client.send("POST / HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    let (head, body) = told.recv_timeout(PATIENCE).expect("a copy");
    assert!(head.contains("content-length: 3\r\n") && !head.contains("transfer-encoding"), "{head}");
    assert_eq!(body, b"abc");
    until("the second copy is answered", || fate(&process, "answered") == 2);
    // And one that came whole.
    client.send("GET / HTTP/1.1\r\nHost: shop\r\nUser-Agent: b\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    let (head, _) = told.recv_timeout(PATIENCE).expect("a copy");
    assert!(head.contains("user-agent: b\r\n"), "{head}");
    assert_eq!(shadow.connections(), 1);
    until("nothing is in flight", || process.sentry().apps()[0].in_flight() == 0);
}

#[test]
fn a_shadow_that_hangs_costs_nobody_anything() {
    let server = RawServer::echo();
    let door = Door::default();
    let held = door.clone();
    let shadow = RawServer::answering(move |_| {
        held.wait();
        ok("")
    });
    let (process, address) = process(mirrored(&server, &shadow.address.to_string()));
    let mut client = Client::connect(address);
    for i in 0..20 {
        client.send(format!("GET /{i} HTTP/1.1\r\nHost: t\r\n\r\n"));
        assert_eq!(client.answer().text(), format!("/{i}"));
    }
    assert_eq!(fate(&process, "busy"), 18, "two are under way, and no more");
    door.open();
    until("both are answered", || fate(&process, "answered") == 2);
    client.send("GET /again HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    until("there is room again", || fate(&process, "answered") == 3);
}

#[test]
fn what_is_too_large_is_not_copied_and_a_dead_shadow_is_noticed() {
    let server = RawServer::echo();
    let shadow = RawServer::echo();
    let mut app = mirrored(&server, &shadow.address.to_string());
    // What is not read ahead is copied on its way.
    app.limits.ahead = 400;
    let (process, address) = process(app);
    let mut client = Client::connect(address);
    for length in [1001, 100_000, 1000] {
        client.send(format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n"));
        client.send(vec![b'x'; length]);
        assert_eq!(client.answer().status, 200);
    }
    until("the last one is answered", || fate(&process, "answered") == 1);
    assert_eq!((fate(&process, "body"), shadow.connections()), (2, 1));
    shadow.kill();
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    until("it failed", || fate(&process, "failed") == 1);
}

#[test]
fn a_share_is_copied_and_an_answer_too_late_is_given_up() {
    let server = RawServer::echo();
    let shadow = RawServer::start(|mut peer| drop((peer.head(), peer.head())));
    let mut app = mirrored(&server, &shadow.address.to_string());
    let mirror = app.mirror.as_mut().expect("a mirror");
    (mirror.share, mirror.in_flight, mirror.timeout) = (0.25, 10_000, Duration::from_millis(20));
    let (process, address) = process(app);
    let mut client = Client::connect(address);
    for _ in 0..400 {
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(client.answer().status, 200);
    }
    // 100 of 400 on average; less than 40 or more than 180 once in more than a million million runs.
    until("all are given up", || (40..=180).contains(&fate(&process, "timeout")));
    assert_eq!(fate(&process, "busy") + fate(&process, "answered") + fate(&process, "failed"), 0);
}
