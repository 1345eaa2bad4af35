//! Requests that no server may see, and the answers they get.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{RawServer, Running, application, config, ok, until};
use tidegate_sentry::counters::Bad;

/// A name, the bytes, and the status; 0 for a connection that is closed without an answer.
const TABLE: &[(&str, &str, u16)] = &[
    (
        "both lengths",
        "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "both, the other way",
        "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        400,
    ),
    ("two lengths", "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
    ("a length twice", "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400),
    ("a list of lengths", "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5, 5\r\n\r\nhello", 400),
    ("a signed length", "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: +5\r\n\r\nhello", 400),
    ("a negative length", "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: -1\r\n\r\n", 400),
    ("a huge length", "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 18446744073709551616\r\n\r\n", 400),
    ("folded field", "GET / HTTP/1.1\r\nHost: t\r\nX: a\r\n b\r\n\r\n", 400),
    ("folded length", "POST / HTTP/1.1\r\nHost: t\r\nContent-Length:\r\n 5\r\n\r\nhello", 400),
    ("bare line feeds", "GET / HTTP/1.1\nHost: t\n\n", 400),
    ("one bare line feed", "GET / HTTP/1.1\r\nHost: t\nX: y\r\n\r\n", 400),
    ("a bare carriage return", "GET / HTTP/1.1\r\nHost: t\r\nX: a\rb\r\n\r\n", 400),
    ("space before colon", "GET / HTTP/1.1\r\nHost : t\r\n\r\n", 400),
    ("space before length's colon", "POST / HTTP/1.1\r\nHost: t\r\nContent-Length : 5\r\n\r\nhello", 400),
    ("chunked not last", "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400),
    ("chunked twice", "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400),
    ("unknown coding", "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
    (
        "a coding that is not done",
        "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        501,
    ),
    ("chunked in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("bad chunk size", "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
    (
        "overflowing chunk size",
        "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        400,
    ),
    (
        "chunk longer than its size",
        "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
        400,
    ),
    ("no host", "GET / HTTP/1.1\r\n\r\n", 400),
    ("two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    ("no host at all", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
    ("a user in the host", "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400),
    ("no target", "GET HTTP/1.1\r\nHost: t\r\n\r\n", 400),
    ("a fragment", "GET /a#b HTTP/1.1\r\nHost: t\r\n\r\n", 400),
    ("a control byte", "GET /a\u{1}b HTTP/1.1\r\nHost: t\r\n\r\n", 400),
    ("a NUL in a field", "GET / HTTP/1.1\r\nHost: t\r\nX: a\0b\r\n\r\n", 400),
    ("not HTTP", "hello there\r\n\r\n", 400),
    ("TLS", "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0", 400),
    ("CONNECT", "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n", 501),
    ("HTTP/2's preface, almost", "PRI * HTTP/2.0\r\n\r\nSMALL\r\n\r\n", 505),
    ("HTTP/3", "GET / HTTP/3.0\r\nHost: t\r\n\r\n", 505),
    ("an expectation", "POST / HTTP/1.1\r\nHost: t\r\nExpect: a-miracle\r\nContent-Length: 1\r\n\r\nx", 417),
    ("too large a body", "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 101\r\n\r\n", 413),
];

const WHOLE: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";

fn watched() -> (RawServer, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    let server = RawServer::answering(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        ok("should not be")
    });
    (server, seen)
}

#[test]
fn malformed_requests_get_the_right_status_and_reach_no_server() {
    let (server, seen) = watched();
    let mut app = application(&[server.address]);
    app.limits.body_bytes = Some(100);
    let sentry = Running::start(app);
    for (name, bytes, status) in TABLE {
        let mut client = sentry.client();
        client.send(bytes);
        let got = client.try_answer(false).map_or(0, |answer| answer.status);
        assert_eq!(got, *status, "{name}");
        client.assert_closed();
    }
    sentry.assert_quiet();
    assert_eq!(seen.load(Ordering::SeqCst), 0, "no server saw a whole request");
    let counted: u64 = Bad::ALL.iter().map(|&bad| sentry.app().counters.bad(bad)).sum();
    assert_eq!(counted, TABLE.len() as u64, "every one was counted");
}

#[test]
fn a_smuggled_request_is_never_the_second_one() {
    let (server, seen) = watched();
    let sentry = Running::start(application(&[server.address]));
    let mut client = sentry.client();
    let smuggled = "GET /admin HTTP/1.1\r\nHost: t\r\n\r\n";
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}",
        smuggled.len() + 5
    ));
    assert_eq!(client.answer().status, 400);
    client.assert_closed();
    assert_eq!(seen.load(Ordering::SeqCst), 0);
}

#[test]
fn heads_are_bounded() {
    let (server, _) = watched();
    let sentry = Running::start(application(&[server.address]));
    let long = "a".repeat(20_000);
    assert_eq!(sentry.ask(&format!("GET /{long} HTTP/1.1\r\nHost: t\r\n\r\n")).status, 414);
    assert_eq!(sentry.ask(&format!("GET / HTTP/1.1\r\nHost: t\r\nX: {long}\r\n\r\n")).status, 431);
    let many = "X: y\r\n".repeat(150);
    assert_eq!(sentry.ask(&format!("GET / HTTP/1.1\r\nHost: t\r\n{many}\r\n")).status, 431);
}

#[test]
fn a_chunked_body_is_bounded() {
    let (server, seen) = watched();
    let mut app = application(&[server.address]);
    app.limits.body_bytes = Some(100);
    let sentry = Running::start(app);
    let mut client = sentry.client();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n");
    // It may have been answered, and closed, before this comes.
    let _ = client.io.write_all(&[b'x'; 101]);
    assert_eq!(client.answer().status, 413);
    client.assert_closed();
    sentry.assert_quiet();
    assert_eq!(seen.load(Ordering::SeqCst), 0);
}

#[test]
fn slow_heads_and_slow_bodies_run_out_of_time() {
    let (server, seen) = watched();
    let patient = application(&[server.address]);
    let sentry = Running::start(patient.clone());
    let mut clients = [sentry.client(), sentry.client()];
    for client in &mut clients {
        client.send(WHOLE);
        assert_eq!(client.answer().status, 200);
    }
    // Only now: however slowly this test opens its connections, they are there, and rest.
    let mut hasty = patient;
    hasty.timeouts.header = Duration::from_millis(200);
    hasty.timeouts.body_idle = Duration::from_millis(200);
    sentry.handle.reload(config(hasty, 1)).expect("a reload");
    let parts = ["GET / HTTP/1.1\r\nHost:", "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nabc"];
    for (mut client, part) in clients.into_iter().zip(parts) {
        client.send(part);
        assert_eq!(client.answer().status, 408, "{part}");
        client.assert_closed();
    }
    sentry.assert_quiet();
    let counters = &sentry.app().counters;
    assert_eq!((counters.bad(Bad::HeaderTimeout), counters.bad(Bad::BodyTimeout)), (1, 1));
    assert_eq!(seen.load(Ordering::SeqCst), 2, "whole requests only");
}

#[test]
fn idle_and_half_closed_connections_are_closed() {
    let (server, _) = watched();
    let mut app = application(&[server.address]);
    // From the end of the first request on: until then it is the time for a head.
    app.timeouts.client_idle = Duration::from_millis(200);
    let sentry = Running::start(app);
    let mut client = sentry.client();
    client.send(WHOLE);
    assert_eq!(client.answer().status, 200);
    client.assert_closed();
    let mut client = sentry.client();
    client.send("GET / HTTP/1.1\r\nHo");
    client.close_sending();
    client.assert_closed();
    until("every connection is closed", || sentry.app().counters.connections_open() == 0);
}
