//! HAProxy asks by SPOP whether it may send a request on, and tells of its end by a line of its log.

use std::sync::Arc;

use tidegate_sentry::config::Asker;
use tidegate_sentry::counters::Counter;

use crate::grpc::Told;
use crate::support::haproxy::{AGENT_HELLO, DISCONNECT, HELLO, Haproxy, NOTIFY, greeting, word};
use crate::support::{RawServer, Running, application, behind, ok, refuse_all, until, with_one_place};

/// A request that is let through, without a change.
fn admitted(haproxy: &mut Haproxy, stream: u64, id: &str) {
    haproxy.ask(stream, id, &[]);
    assert!(haproxy.answer(stream).values.is_empty());
}

/// Tells of an end.
fn tell(sentry: &Running, fields: &str) {
    sentry.tell_end("haproxy[7]", fields);
}

const FINE: &str = "status=200 bytes=9 ended=-- queue=0 connect=1 answer=20 rest=4";

#[test]
fn a_request_holds_a_place_from_the_decision_until_its_end_is_told() {
    let sentry = Running::start(with_one_place(behind(Asker::Haproxy)));
    let mut haproxy = Haproxy::connect(sentry.address);
    admitted(&mut haproxy, 1, "a");
    haproxy.ask(2, "b", &[]);
    haproxy.ask(300, "c", &[]);
    until("two wait", || sentry.app().waiting() == 2);
    assert_eq!(sentry.app().in_flight(), 1);
    tell(&sentry, &format!("id=other {FINE}"));
    tell(&sentry, &format!("id=a {FINE}"));
    assert!(haproxy.answer(2).values.is_empty());
    assert_eq!((sentry.app().in_flight(), sentry.app().waiting()), (1, 1));
    // Another connection is another thread of HAProxy's: the line is the same.
    tell(&sentry, &format!("id=b {FINE}"));
    assert!(haproxy.answer(300).values.is_empty());
    tell(&sentry, &format!("id=c {FINE}"));
    until("all are over", || sentry.app().in_flight() == 0);
    let class = sentry.app().snapshot().classes[0].clone();
    assert_eq!((class.offered, class.completed, class.failed, class.cancelled), (3, 3, 0, 0));
    assert_eq!(sentry.count(Counter::BytesOut), 27);
    haproxy.send(DISCONNECT, (0, 0), b"");
    haproxy.ends_with("0");
    sentry.assert_quiet();
}

#[test]
fn a_refusal_is_said_by_haproxy_as_the_sentry_would() {
    let told = Arc::new(Told::default());
    let mut app = behind(Asker::Haproxy);
    app.setup.admission = refuse_all();
    app.rejection.status = 429;
    let sentry = Running::with_records(app, 1, told.clone());
    let mut haproxy = Haproxy::connect(sentry.address);
    haproxy.ask(1, "a", &[("accept", "application/json")]);
    let said = haproxy.answer(1);
    assert_eq!((said.value("status"), said.value("retry_after")), (Some("429"), Some("1")));
    assert_eq!(said.value("type"), Some("application/json"));
    assert!(said.value("decision").is_some_and(|text| text.starts_with("rejected; reason=")), "{said:?}");
    assert!(said.value("body").is_some_and(|text| text.starts_with("{\"class\":")), "{said:?}");
    haproxy.ask(2, "b", &[(":method", "POST"), ("content-type", "application/grpc")]);
    let said = haproxy.answer(2);
    assert_eq!((said.value("status"), said.value("body")), (Some("503"), None), "which gRPC knows");
    drop(haproxy);
    sentry.assert_quiet();
    assert_eq!((sentry.count(Counter::RefusedByGate), sentry.app().snapshot().classes[0].offered), (2, 2));
    until("both are told of", || told.0.lock().expect("no panic").len() == 2);
}

#[test]
fn who_waits_and_is_refused_then_is_told_so() {
    let sentry = Running::start({
        let mut app = with_one_place(behind(Asker::Haproxy));
        app.timeouts.request = Some(std::time::Duration::from_millis(50));
        app
    });
    let mut haproxy = Haproxy::connect(sentry.address);
    admitted(&mut haproxy, 1, "a");
    haproxy.ask(2, "b", &[]);
    let said = haproxy.answer(2);
    assert_eq!((said.value("status"), said.value("body").is_some()), (Some("504"), true), "{said:?}");
    tell(&sentry, &format!("id=a {FINE}"));
    drop(haproxy);
    sentry.assert_quiet();
    assert_eq!(sentry.count(Counter::TimeoutRequest), 1);
}

#[test]
fn who_leaves_gives_its_place_to_the_next_and_so_does_a_connection_that_breaks() {
    let sentry = Running::start(with_one_place(behind(Asker::Haproxy)));
    let mut first = Haproxy::connect(sentry.address);
    let mut second = Haproxy::connect(sentry.address);
    admitted(&mut first, 1, "a");
    first.ask(2, "b", &[]);
    until("it waits", || sentry.app().waiting() == 1);
    second.ask(1, "c", &[]);
    until("both wait", || sentry.app().waiting() == 2);
    drop(first);
    until("one is asked for by nobody", || sentry.app().waiting() == 1);
    assert_eq!(sentry.app().in_flight(), 1, "what went on goes on");
    tell(&sentry, "id=a status=400 bytes=206 ended=CH queue=0 connect=1 answer=-1 rest=-1");
    assert!(second.answer(1).values.is_empty());
    tell(&sentry, &format!("id=c {FINE}"));
    drop(second);
    sentry.assert_quiet();
    let class = sentry.app().snapshot().classes[0].clone();
    assert_eq!((class.completed, class.cancelled), (1, 2));
}

#[test]
fn what_no_server_answered_is_a_failure_and_what_none_was_asked_for_is_nothing() {
    let sentry = Running::start(behind(Asker::Haproxy));
    let ends = [
        "status=503 bytes=217 ended=SC queue=0 connect=-1 answer=-1 rest=-1",
        "status=503 bytes=9 ended=-- queue=0 connect=0 answer=2 rest=0",
        "status=403 bytes=192 ended=PR queue=-1 connect=-1 answer=-1 rest=-1",
        FINE,
    ];
    let mut haproxy = Haproxy::connect(sentry.address);
    for (at, end) in ends.iter().enumerate() {
        admitted(&mut haproxy, at as u64, &format!("a{at}"));
        tell(&sentry, &format!("id=a{at} {end}"));
        until("it is over", || sentry.app().in_flight() == 0);
    }
    let class = sentry.app().snapshot().classes[0].clone();
    assert_eq!((class.completed, class.failed, class.cancelled), (1, 2, 1));
}

#[test]
fn what_is_open_holds_no_place() {
    let sentry = Running::start(with_one_place(behind(Asker::Haproxy)));
    let mut haproxy = Haproxy::connect(sentry.address);
    haproxy.ask(1, "a", &[("upgrade", "websocket")]);
    assert!(haproxy.answer(1).values.is_empty());
    let class = sentry.app().snapshot().classes[0].clone();
    assert_eq!((class.in_flight, class.tunnels), (0, 1));
    admitted(&mut haproxy, 2, "b");
    tell(&sentry, &format!("id=a {FINE}"));
    tell(&sentry, &format!("id=b {FINE}"));
    until("it is closed", || sentry.app().snapshot().classes[0].tunnels == 0);
    until("both are over", || sentry.app().snapshot().classes[0].completed == 2);
}

#[test]
fn servers_get_the_path_that_rules_have_read() {
    let sentry = Running::start(behind(Asker::Haproxy));
    let mut haproxy = Haproxy::connect(sentry.address);
    haproxy.ask(1, "a", &[(":path", "/%61?b")]);
    let said = haproxy.answer(1);
    assert_eq!((said.values.len(), said.value("path")), (1, Some("/a?b")));
    // What the gate would refuse, HAProxy is to refuse, too.
    for (stream, fields) in [
        (2, &[(":path", "/a%2f../b")][..]),
        (3, &[(":method", "CONNECT"), (":path", "a:1")]),
        (4, &[("host", "other")]),
        (5, &[("content-length", "-1")]),
    ] {
        haproxy.ask(stream, "x", fields);
        let said = haproxy.answer(stream);
        assert!(said.value("status").is_some_and(|status| matches!(status, "400" | "501")), "{fields:?} {said:?}");
    }
    haproxy.ask(6, "", &[]);
    let said = haproxy.answer(6);
    assert_eq!(said.value("status"), Some("500"), "no end could be told");
    assert!(said.value("body").is_some_and(|text| text.contains("no-request-id")), "{said:?}");
    // Other messages are no affair of the sentry's.
    haproxy.send(NOTIFY, (7, 1), &[word("other"), vec![0]].concat());
    assert!(haproxy.answer(7).values.is_empty());
}

#[test]
fn what_breaks_the_protocol_ends_the_connection_and_says_why() {
    let sentry = Running::start(behind(Asker::Haproxy));
    let bad: [(u8, u32, Vec<u8>, &str); 4] = [
        (NOTIFY, 1, Vec::new(), "4"),
        (HELLO, 1, greeting(100, false), "9"),
        (HELLO, 1, Vec::new(), "5"),
        (HELLO, 0, greeting(16_380, false), "10"),
    ];
    for (kind, flags, payload, status) in bad {
        let mut haproxy = Haproxy::silent(sentry.address);
        haproxy.send_flagged(kind, flags, (0, 0), &payload);
        haproxy.ends_with(status);
    }
    for (kind, flags, payload, status) in
        [(NOTIFY, 0, &b""[..], "10"), (NOTIFY, 1, b"\x05ab", "4"), (HELLO, 1, b"", "5")]
    {
        let mut haproxy = Haproxy::connect(sentry.address);
        haproxy.send_flagged(kind, flags, (1, 1), payload);
        haproxy.ends_with(status);
    }
    let mut haproxy = Haproxy::silent(sentry.address);
    haproxy.send_raw(&[0, 0, 64, 0]);
    haproxy.ends_with("3");
    // What is not known is skipped, and a check is answered.
    let mut haproxy = Haproxy::connect(sentry.address);
    haproxy.send(77, (1, 1), b"what");
    admitted(&mut haproxy, 1, "a");
    let mut check = Haproxy::silent(sentry.address);
    check.send(HELLO, (0, 0), &greeting(16_380, true));
    assert_eq!(check.said().map(|said| said.kind), Some(AGENT_HELLO));
    assert_eq!(check.said(), None);
    tell(&sentry, &format!("id=a {FINE}"));
    drop(haproxy);
    sentry.assert_quiet();
}

#[test]
fn a_frame_comes_in_pieces_and_answers_fit_into_what_haproxy_takes() {
    let mut app = behind(Asker::Haproxy);
    app.setup.admission = refuse_all();
    let sentry = Running::start(app);
    let mut haproxy = Haproxy::silent(sentry.address);
    haproxy.send(HELLO, (0, 0), &greeting(256, false));
    assert_eq!(haproxy.said().expect("an answer").value("max-frame-size"), Some("256"));
    haproxy.ask(1, "a", &[("accept", "text/html")]);
    let said = haproxy.answer(1);
    assert_eq!((said.value("status"), said.value("body")), (Some("503"), None), "the page is too large");
}

#[test]
fn only_haproxy_asks_what_haproxy_asks_for() {
    let sentry = Running::start(behind(Asker::Haproxy));
    assert_eq!(sentry.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").status, 404);
    sentry.assert_quiet();
    let server = RawServer::answering(|asked| ok(&asked.target));
    let sentry = Running::start(application(&[server.address]));
    let mut client = sentry.client();
    client.send("\0\0\0\x07\x01\0\0\0\x01\0\0");
    assert_eq!(client.answer().status, 400);
}
