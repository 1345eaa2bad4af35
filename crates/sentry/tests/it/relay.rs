//! Requests and answers on their way through a real sentry.

use std::io::Write;
use std::time::Duration;

use tidegate_sentry::counters::Counter;

use crate::support::{Client, Door, RawServer, Running, application, ok, refuse_all, until};

const GET: &str = "GET /hello HTTP/1.1\r\nHost: test\r\n\r\n";

#[test]
fn a_request_goes_to_the_server_and_its_answer_comes_back() {
    let server = RawServer::echo();
    let sentry = Running::start(application(&[server.address]));
    let mut client = sentry.client();
    for _ in 0..3 {
        client.send(GET);
        let answer = client.answer();
        assert_eq!((answer.status, answer.text().as_str()), (200, "/hello"));
    }
    sentry.assert_quiet();
    assert_eq!(sentry.count(Counter::ServerConnects), 1, "connections to servers are kept");
    let snapshot = sentry.app().snapshot();
    assert_eq!((snapshot.classes[0].offered, snapshot.classes[0].completed), (3, 3));
}

/// A server with few processes has them for others again, long before the longest that a connection may rest.
#[test]
fn connections_that_are_not_needed_any_more_go_by_halves() {
    let door = Door::default();
    let server = door.server("late");
    let mut app = application(&[server.address]);
    app.timeouts.server_idle = Duration::from_secs(18);
    let sentry = Running::start(app);
    let mut clients: Vec<Client> = (0..16).map(|_| sentry.client()).collect();
    clients.iter_mut().for_each(|client| client.send(GET));
    until("each has its own", || server.open() == 16);
    door.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    assert_eq!(server.open(), 16, "they may be needed again");
    until("half of them are gone", || server.open() <= 8);
    assert!(server.open() > 0, "but not all");
    assert_eq!(sentry.ask(GET).status, 200);
    assert_eq!(sentry.count(Counter::ServerConnects), 16, "the newest are kept");
}

/// Without `[traces]`, whatever the program was built with.
#[test]
fn the_fields_of_a_trace_pass_as_they_came() {
    let server = RawServer::answering(|asked| {
        let told = |name| asked.field(name).unwrap_or("nothing").to_owned();
        ok(&format!("{} {}", told("traceparent"), told("tracestate")))
    });
    let sentry = Running::start(application(&[server.address]));
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\ntraceparent: {parent}\r\ntracestate: a=1,b=2\r\n\r\n");
    assert_eq!(sentry.ask(&request).text(), format!("{parent} a=1,b=2"));
    assert_eq!(sentry.ask(GET).text(), "nothing nothing", "and none is made");
}

#[test]
fn a_refusal_explains_itself() {
    let server = RawServer::echo();
    let mut app = application(&[server.address]);
    app.setup.admission = refuse_all();
    let sentry = Running::start(app);
    let mut client = sentry.client();
    for _ in 0..2 {
        client.send(GET);
        let answer = client.answer();
        assert_eq!(answer.status, 503);
        let decision = "rejected; reason=concurrency-limit; policy=concurrency; class=default";
        assert_eq!(answer.field("tidegate-decision"), Some(decision));
        assert!(answer.field("retry-after").is_some_and(|s| s.parse::<u32>().is_ok_and(|s| s >= 1)));
        assert_eq!(answer.field("cache-control"), Some("no-store"));
        assert!(answer.field("content-type").is_some_and(|t| t.starts_with("text/plain")));
        assert!(!answer.body.is_empty());
    }
    assert_eq!(sentry.count(Counter::ServerConnects), 0);
    assert_eq!(sentry.count(Counter::RefusedByGate), 2);
}

#[test]
fn a_server_whose_answers_are_late_is_asked_for_cheaper_ones() {
    let server = RawServer::start(|mut peer| {
        while let Some(asked) = peer.request() {
            let told = asked.field("tidegate-quality").unwrap_or("nothing").to_owned();
            if !peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{told}", told.len())) {
                return;
            }
        }
    });
    let mut app = application(&[server.address]);
    let policy = r#"{ "policy": "aimd", "targets": { "default": "1ns" },
        "controller": { "samples": 1, "quality": { "lower_by": 2.0, "min": 0.25, "then_police": false } } }"#;
    app.setup.admission = serde_json::from_str(policy).expect("its settings");
    let sentry = Running::start(app);
    let mut client = sentry.client();
    for expected in ["nothing", "0.50", "0.25", "0.25"] {
        client.send(GET);
        assert_eq!(client.answer().text(), expected);
        // The answer is complete for the client a moment before its permit is.
        sentry.assert_quiet();
    }
}

#[test]
fn a_large_body_streams_both_ways() {
    let server = RawServer::start(|mut peer| {
        while let Some(asked) = peer.request() {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", asked.body.len());
            if !(peer.send(head) && peer.send(&asked.body)) {
                return;
            }
        }
    });
    let sentry = Running::start(application(&[server.address]));
    let body: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let mut client = sentry.client();
    let mut sender = client.io.try_clone().expect("a socket");
    let sent = body.clone();
    let writer = std::thread::spawn(move || {
        let head = format!("PUT /big HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", sent.len());
        sender.write_all(head.as_bytes()).and_then(|()| sender.write_all(&sent)).expect("a write");
    });
    let answer = client.answer();
    writer.join().expect("the writer");
    assert_eq!(answer.status, 200);
    assert!(answer.body == body);
    // And the connection goes on.
    client.send("GET /x HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    sentry.assert_quiet();
}

#[test]
fn chunked_bodies_pass_both_ways_and_the_connection_goes_on() {
    let server = RawServer::answering(|asked| {
        assert_eq!(asked.field("content-length"), None);
        let body = String::from_utf8_lossy(&asked.body).into_owned();
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
    });
    let sentry = Running::start(application(&[server.address]));
    let mut client = sentry.client();
    for _ in 0..3 {
        client.send("POST /c HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        client.send("4;x=y\r\ndefg\r\n0\r\n\r\n");
        let answer = client.answer();
        assert_eq!((answer.status, answer.text().as_str()), (200, "abcdefg"));
    }
    sentry.assert_quiet();
    assert_eq!(sentry.count(Counter::ServerConnects), 1);
}

#[test]
fn a_head_request_has_a_length_and_no_body() {
    let server = RawServer::answering(|asked| match asked.method.as_str() {
        "HEAD" => String::from("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"),
        _ => ok("body"),
    });
    let sentry = Running::start(application(&[server.address]));
    let mut client = sentry.client();
    client.send("HEAD / HTTP/1.1\r\nHost: t\r\n\r\nGET / HTTP/1.1\r\nHost: t\r\n\r\n");
    let head = client.head_answer();
    assert_eq!((head.status, head.field("content-length")), (200, Some("1234")));
    assert_eq!(client.answer().text(), "body");
    sentry.assert_quiet();
}

#[test]
fn trailers_pass_when_both_ends_take_them() {
    let server = RawServer::answering(|asked| {
        assert_eq!(asked.field("te"), Some("trailers"));
        String::from(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 7\r\n\r\n",
        )
    });
    let sentry = Running::start(application(&[server.address]));
    let mut client = sentry.client();
    client.send("GET / HTTP/1.1\r\nHost: t\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n");
    let all = String::from_utf8(client.rest()).expect("text");
    assert!(all.contains("trailer: x-sum"), "{all}");
    assert!(all.ends_with("0\r\nx-sum: 7\r\n\r\n"), "{all}");
    sentry.assert_quiet();
}

#[test]
fn a_client_that_expects_100_continue_is_told_to_go_on() {
    let server = RawServer::answering(|asked| {
        assert_eq!(asked.field("expect"), None, "this hop answers it");
        ok(&String::from_utf8_lossy(&asked.body))
    });
    let sentry = Running::start(application(&[server.address]));
    let mut client = sentry.client();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.answer().status, 100);
    client.send("abc");
    assert_eq!(client.answer().text(), "abc");
    sentry.assert_quiet();
}

#[test]
fn a_refused_client_that_expects_100_continue_never_gets_it() {
    let server = RawServer::echo();
    let mut app = application(&[server.address]);
    app.setup.admission = refuse_all();
    let sentry = Running::start(app);
    let mut client = sentry.client();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.answer().status, 503);
    client.assert_closed();
}

#[test]
fn interim_answers_of_servers_are_not_the_answer() {
    let server = RawServer::answering(|_| format!("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n{}", ok("final")));
    let sentry = Running::start(application(&[server.address]));
    let answer = sentry.ask(GET);
    assert_eq!((answer.status, answer.text().as_str()), (200, "final"));
    sentry.assert_quiet();
}

#[test]
fn answers_without_a_body_leave_the_connection_usable() {
    let server = RawServer::answering(|asked| match asked.target.as_str() {
        "/204" => String::from("HTTP/1.1 204 No Content\r\n\r\n"),
        "/304" => String::from("HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\nETag: \"a\"\r\n\r\n"),
        _ => ok("body"),
    });
    let sentry = Running::start(application(&[server.address]));
    let mut client = sentry.client();
    for (target, status) in [("/204", 204), ("/304", 304), ("/", 200)] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n"));
        assert_eq!(client.answer().status, status);
    }
    assert_eq!(sentry.count(Counter::ServerConnects), 1);
    sentry.assert_quiet();
}

#[test]
fn an_old_client_gets_an_old_answer() {
    let server = RawServer::answering(|asked| {
        assert!(asked.head.starts_with("GET / HTTP/1.1\r\n"));
        String::from("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    });
    let sentry = Running::start(application(&[server.address]));
    let mut client = sentry.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    let answer = client.answer();
    assert!(answer.head.starts_with("HTTP/1.0 200"), "{}", answer.head);
    assert_eq!(answer.field("transfer-encoding"), None);
    assert_eq!(answer.text(), "abc");
    client.assert_closed();
    sentry.assert_quiet();
}

#[test]
fn absolute_and_asterisk_forms_are_understood() {
    let server = RawServer::answering(|asked| ok(&format!("{} {}", asked.target, asked.field("host").unwrap_or("-"))));
    let sentry = Running::start(application(&[server.address]));
    let answer = sentry.ask("GET http://other:81/a?b HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(answer.text(), "/a?b other:81");
    let answer = sentry.ask("OPTIONS * HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(answer.text(), "* test");
    sentry.assert_quiet();
}

#[test]
fn servers_are_told_of_the_client_and_clients_of_the_decision() {
    let server = RawServer::answering(|asked| {
        assert_eq!(asked.field("x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(asked.field("x-forwarded-proto"), Some("http"));
        assert_eq!(asked.field("x-forwarded-host"), Some("test"));
        assert_eq!(asked.field("x-request-id").map(str::len), Some(32));
        assert_eq!(asked.field("tidegate-decision"), None);
        assert_eq!(asked.field("connection"), None);
        String::from("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n\r\n")
    });
    let mut app = application(&[server.address]);
    app.rejection.decision_on_admitted = true;
    let sentry = Running::start(app);
    let answer =
        sentry.ask("GET / HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: 1.2.3.4\r\nTidegate-Decision: admitted\r\n\r\n");
    assert_eq!(answer.field("tidegate-decision"), Some("admitted; class=default"));
    assert_eq!((answer.field("x-hop"), answer.field("keep-alive")), (None, None));
    sentry.assert_quiet();
}

#[test]
fn an_upgrade_becomes_a_tunnel() {
    let server = RawServer::start(|mut peer| {
        let Some(asked) = peer.request() else { return };
        assert_eq!((asked.field("connection"), asked.field("upgrade")), (Some("upgrade"), Some("echo")));
        peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nwelcome");
        while let Ok(bytes) = peer.exactly(4) {
            peer.send(bytes);
        }
    });
    let mut app = application(&[server.address]);
    app.forwarded.upgrade = vec![String::from("echo")];
    let sentry = Running::start(app);
    let mut client = sentry.client();
    client.send("GET /chat HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, answer.field("upgrade")), (101, Some("echo")));
    assert_eq!(client.exactly(7).expect("bytes"), b"welcome");
    sentry.assert_quiet();
    for word in [&b"ping"[..], b"pong"] {
        client.send(word);
        assert_eq!(client.exactly(4).expect("bytes"), word);
    }
    assert_eq!(sentry.app().counters.tunnels_open(), 1);
    client.close_sending();
    client.assert_closed();
    until("the tunnel is closed", || sentry.app().counters.tunnels_open() == 0);
}

#[test]
fn a_declined_upgrade_is_an_ordinary_answer() {
    let server = RawServer::echo();
    let sentry = Running::start(application(&[server.address]));
    let mut client = sentry.client();
    client.send("GET /a HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(client.answer().text(), "/a");
    client.send(GET);
    assert_eq!(client.answer().text(), "/hello");
    sentry.assert_quiet();
}

#[test]
fn the_page_is_in_a_form_the_client_reads() {
    let mut app = application(&[]);
    app.setup.admission = refuse_all();
    let sentry = Running::start(app);
    for (accept, starts) in
        [("text/html,*/*", "<!doctype html>"), ("application/json", "{\"class\""), ("image/png", "The service is busy")]
    {
        for gate_or_hyper in ["GET / HTTP/1.1", "PURGE / HTTP/1.1"] {
            let answer = sentry.ask(&format!("{gate_or_hyper}\r\nHost: t\r\nAccept: {accept}\r\n\r\n"));
            assert_eq!(answer.status, 503);
            assert!(answer.text().starts_with(starts), "{accept}: {}", answer.text());
        }
    }
    let grpc = sentry.ask("POST /a HTTP/1.1\r\nHost: t\r\nContent-Type: application/grpc\r\n\r\n");
    assert_eq!((grpc.status, grpc.field("grpc-status")), (200, Some("14")));
    assert!(grpc.field("grpc-retry-pushback-ms").is_some_and(|ms| ms.parse::<u32>().is_ok()));
}

#[test]
fn shadow_mode_refuses_nothing() {
    let server = RawServer::echo();
    let mut app = application(&[server.address]);
    app.setup.admission = refuse_all();
    app.setup.shadow = true;
    let sentry = Running::start(app);
    assert_eq!(sentry.ask(GET).status, 200);
    sentry.assert_quiet();
    assert!(sentry.app().snapshot().classes[0].rejected_total() > 0);
}

#[test]
fn exempt_requests_are_never_policed() {
    let server = RawServer::echo();
    let mut app = application(&[server.address]);
    app.setup.admission = refuse_all();
    let path = Some(tidegate_classify::PathMatch::Exact(String::from("/healthz")));
    app.exempt = vec![tidegate_classify::Rule { path, ..Default::default() }];
    let sentry = Running::start(app);
    assert_eq!(sentry.ask(GET).status, 503);
    assert_eq!(sentry.ask("GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n").status, 200);
}
