//! What a client can make the sentry keep for it, by what it sends and does not read.

use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;

use bytes::Bytes;

use crate::support::{Client, Door, RawServer, Running, application, ok, refuse_all, until};
use tidegate_sentry::config::{Application, Page};
use tidegate_sentry::counters::Counter;

/// A small request, sent ahead many times.
const ASK: &str = "GET / HTTP/1.1\r\nHost:t\r\n\r\n";

/// A refused request's page.
const PAGE: usize = 20_000;

/// Refuses everything with a large page.
fn refusing() -> Application {
    let mut app = application(&[]);
    app.setup.admission = refuse_all();
    let page = Page {
        content_type: String::from("text/plain"),
        body: Bytes::from(vec![b'x'; PAGE]),
        path: PathBuf::from("page.txt"),
    };
    app.rejection.pages = vec![Some(page)];
    app
}

/// Sends as much of `bytes` as is taken while nothing is read; returns once nothing moves any more.
fn send_without_reading(sentry: &Running, client: &Client, bytes: &[u8]) {
    let mut io: &TcpStream = &client.io;
    io.set_nonblocking(true).expect("a socket that does not block");
    let (mut sent, mut before, mut standstill) = (0, (0, 0), 0);
    until("nothing moves any more", || {
        sent += io.write(&bytes[sent..]).unwrap_or(0);
        let now = (sent, sentry.count(Counter::Requests));
        standstill = if now == before { standstill + 1 } else { 0 };
        before = now;
        standstill == 50
    });
    io.set_nonblocking(false).expect("a socket that blocks");
}

#[test]
fn refusals_that_nobody_reads_are_not_made() {
    let sentry = Running::start(refusing());
    let mut client = sentry.client();
    // What the review sent: 63 kB, for which the sentry kept 46 MB.
    let bytes = ASK.repeat(2520);
    send_without_reading(&sentry, &client, bytes.as_bytes());
    let made = sentry.count(Counter::RefusedByGate) as usize * PAGE;
    // Nearly all of it is in the kernel's buffers on both ends.
    assert!(made < 4 << 20, "{made} bytes of answers were made for {} bytes of requests", bytes.len());
    // And a client that does read gets every answer.
    for _ in 0..2520 {
        assert_eq!(client.answer().body.len(), PAGE);
    }
    assert_eq!(sentry.count(Counter::RefusedByGate), 2520);
}

#[test]
fn admitted_requests_that_are_sent_ahead_cost_what_they_weigh() {
    let server = RawServer::answering(|_| ok(&"x".repeat(PAGE)));
    let sentry = Running::start(application(&[server.address]));
    let client = sentry.client();
    send_without_reading(&sentry, &client, ASK.repeat(100_000).as_bytes());
    let made = sentry.count(Counter::Requests) as usize * PAGE;
    assert!(made < 5 << 20, "{made} bytes of answers were asked for");
}

/// What a connection keeps at most of the sentry's own memory: the table of docs/security.md. Name, what is sent
/// without reading, the most bytes held.
const HELD: [(&str, &str, usize, u64); 4] = [
    ("refusals that are not read", ASK, 100_000, (128 + 64) * 1024 + PAGE as u64),
    ("half a head", "GET / HTTP/1.1\r\nHost:t\r\nX: ", 1, 16 * 1024),
    ("empty lines", "\r\n", 100_000, 16 * 1024),
    ("a refused body", "POST / HTTP/1.1\r\nHost:t\r\nContent-Length: 60000\r\n\r\nxxxxxxxxxxxx", 1, 16 * 1024),
];

#[test]
fn what_a_connection_can_make_the_sentry_keep_is_bounded() {
    let sentry = Running::start(refusing());
    for (name, piece, times, most) in HELD {
        let client = sentry.client();
        send_without_reading(&sentry, &client, piece.repeat(times).as_bytes());
        let held = sentry.app().counters.held();
        assert!(held <= most, "{name}: {held} bytes are held, {most} are allowed");
        drop(client);
        until("nothing is held for who has left", || sentry.app().counters.held() == 0);
    }
}

#[test]
fn what_is_sent_ahead_of_an_admitted_request_is_bounded() {
    let door = Door::default();
    let opened = door.clone();
    let server = RawServer::answering(move |_| {
        opened.wait();
        ok("late")
    });
    let sentry = Running::start(application(&[server.address]));
    let mut client = sentry.client();
    send_without_reading(&sentry, &client, ASK.repeat(100_000).as_bytes());
    let held = sentry.app().counters.held();
    assert!(held <= 2 * 64 * 1024, "{held} bytes are held");
    door.open();
    assert_eq!(client.answer().text(), "late");
}

#[test]
fn when_all_together_leave_too_much_unread_those_are_closed() {
    let mut app = refusing();
    app.limits.held_bytes = Some(1);
    let sentry = Running::start(app);
    let mut client = sentry.client();
    let _ = client.io.write_all(ASK.repeat(2520).as_bytes());
    until("it is closed", || sentry.count(Counter::ConnectionsShed) == 1);
    until("nothing is held", || sentry.app().counters.held() == 0);
    // One that reads is served.
    assert_eq!(sentry.ask(ASK).body.len(), PAGE);
}

#[test]
fn empty_lines_do_not_keep_a_connection() {
    let mut app = application(&[]);
    app.timeouts.client_idle = std::time::Duration::from_millis(100);
    app.timeouts.header = std::time::Duration::from_millis(100);
    let sentry = Running::start(app);
    let client = sentry.client();
    // As often as it can: each would begin the time anew.
    until("the connection is closed for want of a request", || {
        let _ = (&client.io).write(b"\r\n");
        sentry.count(Counter::ConnectionsClosed) == 1
    });
}

/// Read anew with each byte, half of it would be hours of work.
#[test]
fn a_large_head_in_small_pieces_is_no_work() {
    let server = crate::support::RawServer::echo();
    let mut app = application(&[server.address]);
    app.limits.header_bytes = 1 << 20;
    let sentry = Running::start(app);
    let mut client = sentry.client();
    client.send("GET /large HTTP/1.1\r\nHost: t\r\n");
    let field = "y".repeat(16_000);
    for number in 0..60 {
        client.send(format!("X-{number}: {field}\r\n"));
    }
    client.send("\r\n");
    assert_eq!(client.answer().text(), "/large");
}
