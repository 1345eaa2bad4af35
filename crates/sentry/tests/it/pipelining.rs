//! Several requests sent ahead on one connection: every answer, once, in order.

use std::io::Write as _;

use crate::support::{Client, RawServer, Running, admission, application, refuse_all, until};
use serde_json::json;
use tidegate_classify::{PathMatch, Rule};
use tidegate_engine::{ClassSetup, ServerSetup};
use tidegate_sentry::config::Application;
use tidegate_sentry::counters::Counter;

/// Two classes; the second, `/low`, is always refused: the first has a guarantee, and nothing else gets in.
fn gold_only(server: &RawServer) -> Application {
    let mut app = application(&[server.address]);
    let gold = ClassSetup { min_rate: 1e6, burst: 1e6, ..ClassSetup::new("gold") };
    app.setup.classes = vec![gold, ClassSetup::new("low")];
    app.setup.servers = vec![ServerSetup::new("s0")];
    let path = Some(PathMatch::Prefix(String::from("/gold")));
    app.classifier.classes = vec![vec![Rule { path, ..Rule::default() }], Vec::new()];
    app.setup.admission = admission(json!({"policy": "concurrency", "limit": 0}));
    app
}

#[test]
fn sixteen_admitted_requests_are_answered_in_order() {
    let server = RawServer::echo();
    let sentry = Running::start(application(&[server.address]));
    let mut client = sentry.client();
    client.send((0..16).map(|i| format!("GET /{i} HTTP/1.1\r\nHost: t\r\n\r\n")).collect::<String>());
    for i in 0..16 {
        assert_eq!(client.answer().text(), format!("/{i}"));
    }
    sentry.assert_quiet();
    assert_eq!(sentry.count(Counter::ServerConnects), 1);
}

#[test]
fn sixteen_refused_requests_are_answered_in_one_pass() {
    let mut app = application(&[]);
    app.setup.admission = refuse_all();
    let sentry = Running::start(app);
    let mut client = sentry.client();
    for _ in 0..3 {
        client.send("GET /x HTTP/1.1\r\nHost: t\r\n\r\n".repeat(16));
        for _ in 0..16 {
            assert_eq!(client.answer().status, 503);
        }
    }
    assert_eq!(sentry.count(Counter::RefusedByGate), 48);
    client.send("GET /x HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\nGET /y HTTP/1.1\r\nHost: t\r\n\r\n");
    let last = client.answer();
    assert_eq!((last.status, last.field("connection")), (503, Some("close")));
    client.assert_closed();
}

#[test]
fn admitted_and_refused_requests_keep_their_order() {
    let server = RawServer::echo();
    let sentry = Running::start(gold_only(&server));
    let mut client = sentry.client();
    // Every kind of request the gate tells apart, several rounds of them, cut at awkward places.
    let mut bytes = String::new();
    let mut wanted = Vec::new();
    for round in 0..8 {
        bytes += "GET /low HTTP/1.1\r\nHost: t\r\n\r\n";
        wanted.push((503, None));
        bytes += &format!("GET /gold/{round} HTTP/1.1\r\nHost: t\r\n\r\n");
        wanted.push((200, Some(format!("/gold/{round}"))));
        bytes += "POST /low HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello";
        wanted.push((503, None));
        bytes += &format!("POST /gold/p{round} HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello");
        wanted.push((200, Some(format!("/gold/p{round}"))));
        bytes += &format!(
            "POST /gold/c{round} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
        );
        wanted.push((200, Some(format!("/gold/c{round}"))));
        bytes += "\r\n";
    }
    let check = |client: &mut Client| {
        for (status, text) in &wanted {
            let answer = client.answer();
            assert_eq!(answer.status, *status, "{answer:?}");
            assert!(text.as_ref().is_none_or(|text| *text == answer.text()), "{answer:?}");
        }
    };
    client.send(&bytes);
    check(&mut client);
    for size in [1, 7, 64] {
        for piece in bytes.as_bytes().chunks(size) {
            client.send(piece);
        }
        check(&mut client);
    }
    sentry.assert_quiet();
}

#[test]
fn a_refused_body_that_is_not_here_yet_does_not_become_a_request() {
    let mut app = application(&[]);
    app.setup.admission = refuse_all();
    let sentry = Running::start(app);
    let mut client = sentry.client();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\nGET / HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.answer().status, 503);
    client.assert_closed();
    sentry.assert_quiet();
}

#[test]
fn a_refused_body_that_comes_later_is_thrown_away_and_the_connection_goes_on() {
    let mut app = application(&[]);
    app.setup.admission = refuse_all();
    let sentry = Running::start(app);
    let mut client = sentry.client();
    for _ in 0..3 {
        client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 30000\r\n\r\n");
        assert_eq!(client.answer().status, 503, "the answer does not wait for the body");
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n".repeat(1112).split_at(30_000).0);
        client.send("GET /x HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(client.answer().status, 503);
    }
    assert_eq!(sentry.count(Counter::RefusedByGate), 6, "the body was never taken for requests");
}

#[test]
fn refusals_that_are_read_late_arrive_whole() {
    const REQUESTS: usize = 20_000;
    let mut app = application(&[]);
    app.setup.admission = refuse_all();
    let sentry = Running::start(app);
    let mut client = sentry.client();
    let mut writer = client.io.try_clone().expect("a second handle");
    // Far more than the sockets between them hold: the sentry owes answers, and reads no more while it owes many.
    let sent = std::thread::spawn(move || {
        (0..REQUESTS / 100).for_each(|_| {
            writer.write_all("GET /x HTTP/1.1\r\nHost: t\r\n\r\n".repeat(100).as_bytes()).expect("the sentry reads on");
        });
    });
    let (mut before, mut standstill) = (0, 0);
    until("the sentry waits for its client to read", || {
        let now = sentry.count(Counter::RefusedByGate);
        standstill = if now == before { standstill + 1 } else { 0 };
        before = now;
        now > 500 && standstill == 20
    });
    for _ in 0..REQUESTS {
        assert_eq!(client.answer().status, 503);
    }
    sent.join().expect("all was sent");
    assert_eq!(sentry.count(Counter::RefusedByGate), REQUESTS as u64);
}

#[test]
fn clients_without_hyper_of_their_own_are_served_again_and_again() {
    let server = RawServer::echo();
    let sentry = Running::start(application(&[server.address]));
    // More than keep theirs between two requests.
    let mut clients: Vec<Client> = (0..200).map(|_| sentry.client()).collect();
    for round in 0..3 {
        for (i, client) in clients.iter_mut().enumerate() {
            client.send(format!("POST /{round}/{i} HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nhi"));
            assert_eq!(client.answer().text(), format!("/{round}/{i}"));
        }
    }
    sentry.assert_quiet();
    assert_eq!(sentry.count(Counter::ConnectionsAccepted), 200);
    drop(clients);
    until("all are closed", || sentry.count(Counter::ConnectionsClosed) == 200);
}
