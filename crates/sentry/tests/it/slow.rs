//! Clients that send or read slowly: they hold no place, and whoever is too slow is cut off.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use socket2::{Domain, Socket, Type};
use tidegate_engine::{Sla, Statistic};
use tidegate_sentry::config::{Application, RequestKind};
use tidegate_sentry::counters::{Bad, Counter};

use crate::support::{Client, Door, RawServer, Running, admission, application, ok, until};

pub const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";

/// At most `limit` at work.
pub fn limited(limit: u32, server: &RawServer) -> Application {
    let mut application = application(&[server.address]);
    application.setup.admission = admission(json!({"policy": "concurrency", "limit": limit}));
    application
}

/// Answers with the length of what it got, and its last bytes.
fn counting() -> RawServer {
    RawServer::answering(|asked| {
        let tail = &asked.body[asked.body.len().saturating_sub(4)..];
        ok(&format!("{} {}", asked.body.len(), String::from_utf8_lossy(tail)))
    })
}

/// Answers with so many bytes.
pub fn generous(bytes: usize) -> RawServer {
    RawServer::answering(move |_| ok(&"x".repeat(bytes)))
}

/// A client whose system takes a few kilobytes ahead of it, and no more, in packets such as networks carry.
pub fn narrow(sentry: &Running) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(8192).expect("a small buffer");
    socket.set_tcp_mss(536).expect("small packets");
    socket.connect(&sentry.address.into()).expect("a connection");
    socket.into()
}

pub fn post(length: usize) -> String {
    format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n")
}

fn held(sentry: &Running) -> u64 {
    sentry.app().counters.held()
}

#[test]
fn a_slow_upload_holds_no_place() {
    let server = counting();
    let sentry = Running::start(limited(1, &server));
    let chunked = "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    let whole = post(6) + "abc";
    let odd = "POST / HTTP/1.0\r\nContent-Length: 6\r\n\r\nabc";
    let ends = [("3\r\ndef\r\n0\r\n\r\n", chunked), ("def", &whole), ("def", odd)];
    let mut clients: Vec<Client> = ends.iter().map(|_| sentry.client()).collect();
    for (client, (_, begin)) in clients.iter_mut().zip(ends) {
        let before = held(&sentry);
        client.send(begin);
        until("a part is here", || held(&sentry) > before);
    }
    assert_eq!((sentry.app().in_flight(), sentry.ask(GET).status), (0, 200), "the only place is free");
    for (client, (end, _)) in clients.iter_mut().zip(ends) {
        client.send(end);
        assert_eq!(client.answer().text(), "6 cdef");
    }
    sentry.assert_quiet();
    until("nothing is held", || held(&sentry) == 0);
    let class = &sentry.app().snapshot().classes[0];
    assert_eq!((class.offered, class.completed), (4, 4), "each is one request");
}

#[test]
fn what_is_too_long_to_be_held_is_admitted_with_what_is_held() {
    let server = counting();
    let mut application = limited(1, &server);
    application.limits.ahead = 1000;
    let sentry = Running::start(application);
    let mut client = sentry.client();
    client.send(post(5000) + &"x".repeat(999));
    until("a part is here", || held(&sentry) > 0);
    assert_eq!(sentry.app().in_flight(), 0);
    client.send("x");
    until("it is admitted", || sentry.app().in_flight() == 1);
    assert_eq!(sentry.ask(GET).status, 503, "it has the only place");
    client.send("x".repeat(3996) + "last");
    assert_eq!(client.answer().text(), "5000 last");
    sentry.assert_quiet();
}

#[test]
fn where_nothing_may_be_held_uploads_go_on_as_they_come() {
    let server = counting();
    let mut application = limited(1, &server);
    application.limits.held_bytes = Some(0);
    let sentry = Running::start(application);
    let mut client = sentry.client();
    client.send(post(6) + "abc");
    until("it is admitted", || sentry.app().in_flight() == 1);
    client.send("def");
    assert_eq!(client.answer().text(), "6 cdef");
    sentry.assert_quiet();
}

#[test]
fn an_upload_by_rule_goes_to_its_server_as_it_comes() {
    let door = Door::default();
    let inside = door.clone();
    let server = RawServer::start(move |mut peer| {
        while let Some(head) = peer.head() {
            assert!(head.starts_with("POST"), "{head}");
            inside.open();
            peer.exactly(6).expect("a body");
            peer.send(ok("taken"));
        }
    });
    let mut application = limited(1, &server);
    application.kinds = vec![RequestKind::Upload];
    // Not of the upload: its body comes later than that.
    application.timeouts.request = Some(Duration::from_millis(1));
    let sentry = Running::start(application);
    let mut client = sentry.client();
    client.send(post(6));
    door.wait();
    assert_eq!(sentry.app().in_flight(), 1);
    client.send("abcdef");
    let status = client.answer().status;
    assert!(status == 200 || status == 504, "{status}: from its last byte on its time is short");
    sentry.assert_quiet();
}

#[test]
fn whoever_asks_whether_to_send_is_told_before_and_holds_no_place_meanwhile() {
    let server = counting();
    let sentry = Running::start(limited(1, &server));
    let mut client = sentry.client();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 6\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.answer().status, 100);
    assert_eq!(sentry.ask(GET).status, 200, "the place is free while it sends");
    client.send("abcdef");
    assert_eq!(client.answer().text(), "6 cdef");
    sentry.assert_quiet();
}

#[test]
fn a_body_that_drips_is_given_up() {
    let server = counting();
    let mut application = limited(1, &server);
    application.timeouts.body_idle = Duration::from_millis(300);
    application.limits.body_rate = 1 << 20;
    let sentry = Running::start(application);
    let mut client = sentry.client();
    client.send(post(1 << 20));
    until("it is given up", || {
        let _ = client.io.write(b"x");
        sentry.app().counters.bad(Bad::BodyTimeout) == 1
    });
    assert_eq!(client.answer().status, 408);
    until("it counts as a request that asked for nothing", || sentry.app().snapshot().classes[0].cancelled == 1);
    assert_eq!(sentry.app().snapshot().classes[0].admitted, 0);
    sentry.assert_quiet();
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_admitted() {
    let server = counting();
    let mut application = limited(1, &server);
    application.limits.body_bytes = Some(100);
    let sentry = Running::start(application);
    let mut client = sentry.client();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n");
    client.send("x".repeat(64) + "\r\n40\r\n" + &"x".repeat(64) + "\r\n");
    assert_eq!(client.answer().status, 413);
    until("it is counted", || sentry.app().snapshot().classes[0].cancelled == 1);
    assert_eq!((sentry.app().snapshot().classes[0].admitted, sentry.count(Counter::ServerConnects)), (0, 0));
}

#[test]
fn a_body_that_was_read_ahead_can_be_sent_again() {
    let (mute, good) = (RawServer::start(|mut peer| drop(peer.request())), counting());
    let sentry = Running::start(application(&[mute.address, good.address]));
    // Which server is asked first is drawn.
    until("one was sent again", || {
        let mut client = sentry.client();
        client.send("PUT / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n");
        client.send("0\r\n\r\n");
        assert_eq!(client.answer().text(), "6 cdef");
        sentry.count(Counter::Retries) >= 1
    });
    sentry.assert_quiet();
}

#[test]
fn a_place_is_free_when_the_answer_is_here_not_when_it_is_read() {
    let server = generous(400_000);
    let sentry = Running::start(limited(1, &server));
    let mut slow = narrow(&sentry);
    slow.write_all(GET.as_bytes()).expect("a write");
    until("its server is done", || sentry.app().snapshot().classes[0].completed == 1);
    assert!(held(&sentry) > 0, "the client has not read it");
    let mut another = sentry.client();
    another.send(GET);
    assert_eq!(another.answer().body.len(), 400_000);
    slow.write_all(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").expect("a write");
    let mut read = Vec::new();
    slow.read_to_end(&mut read).expect("both answers");
    assert!(read.len() > 800_000, "{}", read.len());
    sentry.assert_quiet();
    until("nothing is held", || held(&sentry) == 0);
}

#[test]
fn an_answer_that_is_too_long_to_be_held_keeps_its_place() {
    let server = generous(4_000_000);
    let sentry = Running::start(limited(1, &server));
    let mut slow = narrow(&sentry);
    slow.write_all(GET.as_bytes()).expect("a write");
    until("as much as may be is held", || held(&sentry) >= 256 * 1024);
    assert_eq!((sentry.app().in_flight(), sentry.ask(GET).status), (1, 503));
    assert!(held(&sentry) <= 1 << 20, "{}", held(&sentry));
    drop(slow);
    sentry.assert_quiet();
    until("nothing is held", || held(&sentry) == 0);
}

#[test]
fn an_answer_that_its_client_hardly_takes_is_no_work() {
    let server = generous(4_000_000);
    let mut application = limited(1, &server);
    application.setup.sla = Sla::constant(Statistic::P95, Duration::from_millis(10)).expect("a target");
    let sentry = Running::start(application);
    let mut slow = narrow(&sentry);
    slow.write_all(GET.as_bytes()).expect("a write");
    until("it is only open", || sentry.app().snapshot().streams == 1 && sentry.app().in_flight() == 0);
    assert_eq!(sentry.ask(GET).body.len(), 4_000_000, "the place is free");
    slow.read_exact(&mut vec![0; 4_000_000]).expect("all of it");
    drop(slow);
    until("it is over", || sentry.app().snapshot().streams == 0);
    sentry.assert_quiet();
}

#[test]
fn a_reader_that_takes_too_little_is_cut_off() {
    let server = generous(400_000);
    let mut application = limited(1, &server);
    application.timeouts.body_idle = Duration::from_millis(300);
    application.limits.body_rate = 64 << 20;
    let sentry = Running::start(application);
    let mut slow = narrow(&sentry);
    slow.write_all(GET.as_bytes()).expect("a write");
    let mut part = [0; 20];
    until("it is cut off", || {
        let _ = slow.read(&mut part);
        sentry.count(Counter::TimeoutBodyIdle) == 1
    });
    sentry.assert_quiet();
}

#[test]
fn hundreds_of_slow_clients_refuse_nobody() {
    let server = generous(300_000);
    let sentry = Running::start(limited(1, &server));
    let mut senders: Vec<Client> = (0..200).map(|_| sentry.client()).collect();
    for client in &mut senders {
        client.send(post(1000) + "x");
    }
    until("all of them send", || sentry.app().counters.get(Counter::Requests) == 200);
    // One after the other: each needs the only place until its answer is here.
    let readers = (1..=50).map(|number| {
        let mut reader = narrow(&sentry);
        reader.write_all(GET.as_bytes()).expect("a write");
        until("its answer is here", || sentry.app().snapshot().classes[0].completed == number);
        reader
    });
    let readers: Vec<TcpStream> = readers.collect();
    let mut honest = sentry.client();
    for i in 0..100 {
        for client in &mut senders {
            client.send("x");
        }
        honest.send(if i % 2 == 0 { GET.to_owned() } else { post(2) + "hi" });
        assert_eq!(honest.answer().status, 200, "request {i}");
        sentry.assert_quiet();
    }
    assert_eq!(sentry.app().snapshot().classes[0].rejected_total(), 0);
    drop((senders, readers));
    sentry.assert_quiet();
}
