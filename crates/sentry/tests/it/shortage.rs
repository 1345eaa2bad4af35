//! Who gives way when connections, descriptors or memory are short: whoever has most, and only what waits for its
//! client.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, TcpStream};

use tidegate_sentry::counters::Counter;

use crate::http2::{END, GET as GET_HTTP2, PREFACE, frame, frames_until};
use crate::support::hostile::connect_from;
use crate::support::{Client, Door, PATIENCE, RawServer, Running, application, config, ok, until};

const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";

/// Another client than those at 127.0.0.1.
fn other(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 1, last).into()
}

/// A connection on which a request was answered, and which rests.
fn resting(sentry: &Running, from: IpAddr) -> Client {
    let mut client = Client::connect_from(from, sentry.address);
    client.send(GET);
    assert_eq!(client.answer().status, 200);
    client
}

fn is_open(client: &mut Client) -> bool {
    client.io.write_all(GET.as_bytes()).is_ok() && client.try_answer(false).is_ok_and(|answer| answer.status == 200)
}

#[test]
fn who_has_most_idle_connections_makes_room_for_others() {
    let server = RawServer::echo();
    let mut app = application(&[server.address]);
    app.limits.connections = 6;
    let sentry = Running::start(app);
    let (greedy, modest, late) = (other(1), other(2), other(3));
    let mut first = resting(&sentry, modest);
    let mut many: Vec<_> = (0..5).map(|_| resting(&sentry, greedy)).collect();
    assert_eq!(sentry.count(Counter::ConnectionsMadeRoom), 0, "there is room");
    let mut others: Vec<_> = (0..3).map(|_| resting(&sentry, late)).collect();
    assert_eq!(sentry.count(Counter::ConnectionsMadeRoom), 3);
    // The modest client's connection is the oldest of all; the others' were the oldest of who has most.
    assert!(is_open(&mut first));
    assert!(others.iter_mut().all(is_open));
    assert_eq!(many.iter_mut().map(is_open).collect::<Vec<_>>(), [false, false, false, true, true]);
    assert_eq!(sentry.count(Counter::ConnectionsRefused), 0);
}

#[test]
fn connections_behind_a_trusted_proxy_go_last() {
    let server = RawServer::echo();
    let mut app = application(&[server.address]);
    app.limits.connections = 4;
    app.forwarded.trust = vec!["127.0.1.1/32".parse().expect("a network")];
    let sentry = Running::start(app);
    let mut proxied: Vec<_> = (0..3).map(|_| resting(&sentry, other(1))).collect();
    let mut own = resting(&sentry, other(2));
    let mut late = resting(&sentry, other(3));
    assert!(proxied.iter_mut().all(is_open) && is_open(&mut late));
    assert!(!is_open(&mut own));
}

#[test]
fn half_a_head_makes_room_for_a_whole_one() {
    let server = RawServer::echo();
    let mut app = application(&[server.address]);
    app.limits.connections = 8;
    let sentry = Running::start(app);
    let slow = || {
        let mut client = Client::connect_from(other(1), sentry.address);
        client.send("GET / HTTP/1.1\r\nHost: t\r\nX-Slow: ");
        client
    };
    let slow: Vec<_> = (0..8).map(|_| slow()).collect();
    until("all heads are begun", || sentry.app().counters.connections_open() == 8);
    for _ in 0..20 {
        assert_eq!(sentry.ask(GET).status, 200);
    }
    assert!(sentry.count(Counter::ConnectionsMadeRoom) >= 1);
    drop(slow);
}

#[test]
fn what_is_being_served_is_never_closed_for_others() {
    let door = Door::default();
    let server = door.server("late");
    let mut app = application(&[server.address]);
    app.limits.connections = 3;
    let sentry = Running::start(app);
    let mut served: Vec<_> = (0..3).map(|_| sentry.client()).collect();
    served.iter_mut().for_each(|client| client.send(GET));
    until("all are in flight", || sentry.app().in_flight() == 3);
    for _ in 0..5 {
        let mut more = Client::connect_from(other(1), sentry.address);
        let _ = more.io.write_all(GET.as_bytes());
        assert!(more.try_answer(false).is_err());
    }
    assert_eq!(sentry.count(Counter::ConnectionsMadeRoom), 0);
    door.open();
    served.iter_mut().for_each(|client| assert_eq!(client.answer().text(), "late"));
}

#[test]
fn who_holds_most_memory_gives_it_back() {
    let mut app = application(&[]);
    app.limits.held_bytes = Some(128 * 1024);
    let sentry = Running::start(app);
    let half = |bytes: usize| format!("GET / HTTP/1.1\r\nHost: t\r\nX: {}", "x".repeat(bytes));
    let mut modest = Client::connect_from(other(2), sentry.address);
    modest.send(half(4000));
    until("it is held", || sentry.app().counters.held() >= 4000);
    let many: Vec<_> = (0..30)
        .map(|_| {
            let mut client = Client::connect_from(other(1), sentry.address);
            client.send(half(8000));
            client
        })
        .collect();
    // Little is held, too, before all of it has been read: what has gone is waited for first.
    until("as many have gone as do not fit", || sentry.count(Counter::ConnectionsShed) >= 14);
    until("what is too much is given back", || sentry.app().counters.held() <= 128 * 1024);
    // The modest client's head is the oldest, and can be finished still.
    modest.send("\r\n\r\n");
    assert_ne!(modest.answer().status, 0);
    drop(many);
}

/// More than the kernel takes of an answer that nobody reads.
const LARGE: usize = 12 << 20;

#[test]
fn answers_of_servers_that_nobody_reads_give_way_too() {
    let server = RawServer::answering(|asked| ok(&"x".repeat(if asked.target == "/large" { LARGE } else { 20_000 })));
    let mut app = application(&[server.address]);
    app.limits.held_bytes = Some(256 * 1024);
    let sentry = Running::start(app);
    let unread: Vec<_> = (0..16)
        .map(|_| {
            let mut client = Client::connect_from(other(1), sentry.address);
            client.send("GET /large HTTP/1.1\r\nHost: t\r\n\r\n");
            client
        })
        .collect();
    until("some were closed", || sentry.count(Counter::ConnectionsShed) > 0);
    until("what is too much is given back", || sentry.app().counters.held() <= 256 * 1024);
    assert!(sentry.count(Counter::ConnectionsShed) < 16, "those that fit stay");
    assert_eq!(sentry.ask(GET).body.len(), 20_000);
    drop(unread);
    until("nothing is held for who has left", || sentry.app().counters.held() == 0);
}

/// What a connection of HTTP/2 counts for, and how many of them fit into what may be held.
const HTTP2_CONNECTION: u64 = 32 * 1024;
const FIT: usize = 8;

/// A connection of HTTP/2 on which nothing is asked.
fn resting_http2(sentry: &Running, from: IpAddr) -> TcpStream {
    let before = sentry.count(Counter::Http2Connections);
    let mut io = connect_from(from, sentry.address).expect("a connection");
    io.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    io.write_all(&[PREFACE, &frame(4, 0, 0, &[])].concat()).expect("the preface");
    until("it is known", || sentry.count(Counter::Http2Connections) > before);
    io
}

#[test]
fn idle_connections_of_http2_take_memory_and_give_way() {
    let server = RawServer::answering(|_| ok("here"));
    let mut app = application(&[server.address]);
    app.limits.held_bytes = Some(FIT as u64 * HTTP2_CONNECTION);
    let sentry = Running::start(app);
    let mut modest = resting_http2(&sentry, other(2));
    let mut many: Vec<_> = (0..3 * FIT).map(|_| resting_http2(&sentry, other(1))).collect();
    until("what is too much is given back", || sentry.app().counters.held() <= FIT as u64 * HTTP2_CONNECTION);
    let shed = sentry.count(Counter::ConnectionsShed);
    // Seven or eight of 25 fit, and nobody goes in vain.
    assert!((2 * FIT as u64 + 1..=2 * FIT as u64 + 2).contains(&shed), "{shed}");
    // It hears that what it may have asked was not served.
    assert_eq!(frames_until(&mut many[0], END).last(), Some(&(7, 0)));
    modest.write_all(&frame(1, 5, 1, GET_HTTP2)).expect("it is open");
    assert_eq!(frames_until(&mut modest, 0).last(), Some(&(0, 0)), "the modest client's is the oldest, and stays");
    drop((many, modest));
    until("nothing is held for who has left", || sentry.app().counters.held() == 0);
}

#[test]
fn nobody_comes_while_all_work_and_hold_far_too_much() {
    let door = Door::default();
    let server = door.server("here");
    let mut app = application(&[server.address]);
    let sentry = Running::start(app.clone());
    let mut served: Vec<_> = (0..FIT).map(|_| resting_http2(&sentry, other(1))).collect();
    served.iter_mut().for_each(|io| io.write_all(&frame(1, 5, 1, GET_HTTP2)).expect("it is open"));
    until("all ask", || sentry.count(Counter::Http2Requests) == FIT as u64);
    // From now on there is less room than they take.
    app.listen = sentry.app().live().config.listen.clone();
    app.limits.held_bytes = Some(FIT as u64 / 2 * HTTP2_CONNECTION);
    sentry.handle.reload(config(app, 1)).expect("a reload");
    let late: Vec<_> = (0..5).map(|_| connect_from(other(2), sentry.address).expect("a connection")).collect();
    late.iter().for_each(|mut io| io.write_all(GET.as_bytes()).expect("the kernel takes it"));
    until("they are turned away", || sentry.count(Counter::ConnectionsRefused) == 5);
    door.open();
    for io in &mut served {
        assert_eq!(frames_until(io, 0).last(), Some(&(0, 0)), "who works goes on");
    }
    drop((served, late));
    until("nothing is held for who has left", || sentry.app().counters.held() == 0);
    resting(&sentry, other(2));
}

#[test]
fn idle_connections_of_http2_give_way_to_requests() {
    let door = Door::default();
    let server = door.server("here");
    let mut app = application(&[server.address]);
    app.limits.held_bytes = Some(FIT as u64 * HTTP2_CONNECTION);
    let sentry = Running::start(app);
    let idle: Vec<_> = (0..FIT - 2).map(|_| resting_http2(&sentry, other(1))).collect();
    let mut busy = resting_http2(&sentry, other(2));
    assert_eq!(sentry.count(Counter::ConnectionsShed), 0, "there is room");
    for stream in 0..4 {
        busy.write_all(&frame(1, 5, 2 * stream + 1, GET_HTTP2)).expect("it is open");
    }
    until("idle ones are closed", || sentry.count(Counter::ConnectionsShed) > 0);
    door.open();
    assert_eq!(frames_until(&mut busy, 0).last(), Some(&(0, 0)));
    assert_eq!(sentry.count(Counter::Http2Crowded), 0);
    drop(idle);
}
