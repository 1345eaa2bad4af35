//! What a server's answer may be, and when it is there.

use tidegate_sentry::config::Application;
use tidegate_sentry::counters::Counter;

use crate::faults::{assert_status, faulty};
use crate::support::{Door, RawServer, Running, application, ok, until};

const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";

/// Nothing has gone out yet, so the client can be told; and another server may do better.
#[test]
fn an_answer_that_breaks_off_before_its_body_is_a_502() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ] {
        let server = RawServer::start(move |mut peer| {
            peer.head();
            peer.end_with(answer);
        });
        let mut app = application(&[server.address]);
        app.retry.attempts = 0;
        let sentry = assert_status(app, GET, 502);
        assert_eq!(sentry.count(Counter::ServerErrors), 1, "{answer:?}");
        assert_eq!(sentry.app().snapshot().classes[0].failed, 1, "{answer:?}");
    }
    let bad = faulty(|peer| peer.end_with("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"));
    let good = RawServer::echo();
    let sentry = Running::start(application(&[bad.address, good.address]));
    until("one was sent again", || {
        assert_eq!(sentry.ask(GET).status, 200);
        sentry.count(Counter::Retries) >= 1
    });
    sentry.assert_quiet();
}

/// As strictly as requests, for the same reason: others read them, too.
#[test]
fn answers_that_can_be_read_in_two_ways_are_none() {
    for answer in [
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nhi",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\nhi",
        "HTTP/1.1 200 OK\r\nX: a\rY: b\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 103 Early\nLink: x\n\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    ] {
        let server = faulty(move |mut peer| {
            peer.send(answer);
        });
        let mut app = application(&[server.address]);
        app.retry.attempts = 0;
        let sentry = Running::start(app);
        let got = sentry.ask(GET);
        assert_eq!((got.status, got.text().contains("server-garbage")), (502, true), "{answer:?}: {got:?}");
        sentry.assert_quiet();
    }
}

/// `printf ... | nc -N`.
#[test]
fn a_client_that_closes_its_sending_side_can_be_answered() {
    let door = Door::default();
    let inside = door.clone();
    let server = faulty(move |mut peer| {
        inside.wait();
        peer.send(ok("late"));
    });
    let sentry = Running::start(Application { half_close: true, ..application(&[server.address]) });
    let mut client = sentry.client();
    client.send(GET);
    client.close_sending();
    until("its server is at work", || sentry.app().in_flight() == 1);
    door.open();
    assert_eq!(client.answer().text(), "late");
    client.assert_closed();
    sentry.assert_quiet();
}
