//! HTTP/2: what servers do to streams and connections, and what the clients make of it.

use bytes::Bytes;
use h2::Reason;
use http::{Response, Version};
use tidegate_loadgen::{ErrorKind, LoadRun, Plan, Protocol, Report, UsersFile, UsersPlan};

use crate::support::{Asked, Server, run, serve};

fn ok((_, mut answer): Asked) {
    let mut body = answer.send_response(Response::new(()), false).expect("a head");
    body.send_data(Bytes::from_static(b"hello"), true).expect("a body");
}

fn ask(server: &Server) -> Report {
    run(Plan { protocol: Protocol::H2, ..server.plan() })
}

#[test]
fn requests_share_a_connection_and_say_whom_they_ask() {
    let server = Server::answering(|asked| {
        let (request, _) = &asked;
        assert_eq!((request.version(), request.uri().path()), (Version::HTTP_2, "/a"));
        assert!(request.uri().authority().is_some() && request.headers().is_empty(), "{request:?}");
        ok(asked);
    });
    let report = ask(&server);
    let total = &report.total;
    assert_eq!((total.offered, total.sent, total.admitted, total.bytes), (50, 50, 50, 250), "{report}");
    assert_eq!((report.generator.connections_opened, &total.status), (1, &[(200, 50)].into()), "{report}");
}

#[test]
fn on_wish_every_request_has_a_connection_of_its_own() {
    let server = Server::answering(ok);
    let report = run(Plan { protocol: Protocol::H2, keep_alive: false, ..server.plan() });
    assert_eq!((report.total.admitted, report.generator.connections_opened), (50, 50), "{report}");
}

#[test]
fn a_reset_stream_is_no_refusal_and_the_connection_goes_on() {
    for (reason, kind) in [
        (Reason::INTERNAL_ERROR, ErrorKind::StreamReset),
        (Reason::CANCEL, ErrorKind::StreamReset),
        (Reason::REFUSED_STREAM, ErrorKind::StreamRefused),
    ] {
        let server = Server::answering(move |(_, mut answer)| answer.send_reset(reason));
        let report = ask(&server);
        assert_eq!((report.total.refused, &report.total.errors), (0, &[(kind, 50)].into()), "{reason:?} {report}");
        assert_eq!(report.generator.connections_opened, 1, "{report}");
    }
}

#[test]
fn a_refusal_is_told_from_a_failure_by_its_status_or_its_decision() {
    let server = Server::answering(|(_, mut answer)| {
        let head = Response::builder().status(503).header("tidegate-decision", "rejected; reason=x");
        answer.send_response(head.body(()).expect("a head"), true).expect("a head");
    });
    let report = ask(&server);
    assert_eq!((report.total.refused, report.total.refused_by_sentry), (50, 50), "{report}");
    assert_eq!((report.total.errors_total(), report.total.other), (0, 0));
}

/// A server that answers two requests, and then says goodbye as told; the request that came with it is not answered.
fn leaving(reason: Reason) -> Server {
    Server::start(move |stream| async move {
        let (mut left, mut unanswered) = (2, Vec::new());
        serve(stream, |asked, connection| {
            if left == 0 {
                unanswered.push(asked);
                return connection.abrupt_shutdown(reason);
            }
            left -= 1;
            ok(asked);
        })
        .await;
    })
}

#[test]
fn who_is_sent_away_in_an_orderly_way_asks_again_elsewhere() {
    let server = Server::start(|stream| async move {
        let mut answered = 0;
        serve(stream, |asked, connection| {
            ok(asked);
            answered += 1;
            if answered == 5 {
                connection.graceful_shutdown();
            }
        })
        .await;
    });
    let report = ask(&server);
    assert_eq!((report.total.admitted, report.total.errors_total()), (50, 0), "{report}");
    let opened = report.generator.connections_opened;
    assert!((2..=10).contains(&opened), "{opened} connections");
}

#[test]
fn who_is_cut_off_for_a_reason_knows_it() {
    let report = ask(&leaving(Reason::ENHANCE_YOUR_CALM));
    let gone = report.total.errors.get(&ErrorKind::GoneAway).copied().unwrap_or_default();
    assert!(gone >= 1, "{report}");
    assert_eq!((report.total.admitted + gone, report.total.errors_total()), (50, gone), "{report}");
    // A connection answers two: whoever comes later found another one.
    assert!(2 * report.generator.connections_opened >= report.total.admitted, "{report}");
    assert!(report.generator.connections_opened > 1, "{report}");
}

#[test]
fn a_server_of_http1_is_found_out() {
    let server = Server::start(|mut stream| async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let _ = stream.read(&mut [0; 512]).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
        // It waits for the end.
        let _ = stream.read(&mut [0; 512]).await;
    });
    let report = ask(&server);
    assert_eq!(report.total.errors, [(ErrorKind::Protocol, 50)].into(), "{report}");
}

const USERS: &str = r#"
    timeout = "30s"
    users = [{ class = "all", count = 3, think = { distribution = "constant", value = "10ms" }, requests = { a = 1 } }]
    request = [{ name = "a", path = "/a", method = "POST", form = { q = "{user}" } }]
"#;

/// Half a second of three users, each with a connection of their own.
fn users(server: &Server, protocol: Protocol) -> tidegate_loadgen::UsersReport {
    let file = UsersFile::parse(USERS, "text").expect("a file");
    let url = format!("http://{}", server.address);
    let mut plan = UsersPlan::new(file, &url, std::time::Duration::from_millis(500)).expect("a plan");
    plan.protocol = protocol;
    LoadRun::start_users(plan).expect("users").join().expect("a report")
}

#[test]
fn users_ask_by_http2_as_they_do_by_http1() {
    let server = Server::answering(|mut asked| {
        assert_eq!((asked.0.version(), asked.0.uri().path()), (Version::HTTP_2, "/a"));
        tokio::task::spawn_local(async move {
            let body = asked.0.body_mut().data().await.expect("a body").expect("data");
            assert!(matches!(&body[..], b"q=1" | b"q=2" | b"q=3"), "{body:?}");
            ok(asked);
        });
    });
    let report = users(&server, Protocol::H2);
    assert!(report.total.admitted >= 3, "{report}");
    assert_eq!((report.total.admitted, report.sessions_broken), (report.total.offered, 0), "{report}");
    assert_eq!(report.generator.connections_opened, 3, "{report}");
}

#[test]
fn a_user_whose_call_is_refused_has_got_nothing() {
    let server = Server::answering(|(request, mut answer)| {
        assert_eq!(request.headers()["content-type"], "application/grpc");
        assert!(request.headers().contains_key("grpc-timeout"));
        let head = Response::builder().header("content-type", "application/grpc").header("grpc-status", "14");
        answer.send_response(head.body(()).expect("a head"), true).expect("a head");
    });
    let report = users(&server, Protocol::Grpc);
    assert!(report.total.refused >= 3, "{report}");
    assert_eq!(
        (report.total.refused, report.sessions_broken),
        (report.total.offered, report.total.offered),
        "{report}"
    );
}
