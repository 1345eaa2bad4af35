//! gRPC: calls as services see them, and statuses as clients do.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response};
use tidegate_loadgen::{ErrorKind, Plan, Protocol, Report, grpc};
use tidegate_workload::{Retry, Wait};

use crate::support::{Asked, Server, run};

fn plan(server: &Server) -> Plan {
    let mut plan = Plan { protocol: Protocol::Grpc, ..server.plan() };
    plan.streams[0].body = grpc::message(100);
    plan
}

fn call(server: &Server) -> Report {
    run(plan(server))
}

/// Answers with an empty message, and these trailers.
fn answer((_, mut answer): Asked, trailers: Option<HeaderMap>) {
    let head = Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
    let mut body = answer.send_response(head, false).expect("a head");
    body.send_data(Bytes::from_static(&[0; 5]), trailers.is_none()).expect("a message");
    if let Some(trailers) = trailers {
        body.send_trailers(trailers).expect("trailers");
    }
}

/// Answers with trailers only.
fn refuse((_, mut answer): Asked, status: &'static str, pushback: Option<&'static str>) {
    let mut head = Response::builder().header("content-type", "application/grpc").header(grpc::STATUS, status);
    if let Some(pushback) = pushback {
        head = head.header("grpc-retry-pushback-ms", pushback);
    }
    answer.send_response(head.body(()).expect("a head"), true).expect("a head");
}

fn status(status: &'static str) -> Option<HeaderMap> {
    Some(HeaderMap::from_iter([(grpc::STATUS, HeaderValue::from_static(status))]))
}

#[test]
fn a_call_says_all_that_services_look_for() {
    let server = Server::answering(|mut asked| {
        let request = &asked.0;
        assert_eq!((request.method(), request.uri().path()), (&Method::POST, "/a"));
        let field = |name: &str| request.headers()[name].to_str().expect("text");
        assert_eq!((field("content-type"), field("te")), ("application/grpc", "trailers"));
        let left: u64 = field("grpc-timeout").strip_suffix('u').expect("microseconds").parse().expect("a number");
        assert!((1..=30_000_000).contains(&left), "{left}");
        assert!(!request.headers().contains_key("grpc-previous-rpc-attempts"));
        tokio::task::spawn_local(async move {
            let mut body = Vec::new();
            while let Some(data) = asked.0.body_mut().data().await {
                body.extend_from_slice(&data.expect("data"));
            }
            assert_eq!((body.len(), &body[..5]), (105, &[0, 0, 0, 0, 100][..]));
            answer(asked, status("0"));
        });
    });
    let report = call(&server);
    let total = &report.total;
    assert_eq!((total.admitted, total.offered, &total.grpc_status), (50, 50, &[(0, 50)].into()), "{report}");
    assert!(total.status.is_empty() && report.to_string().contains("OK x 50"), "{report}");
}

#[test]
fn statuses_are_read_where_they_stand() {
    for (trailers, code, refused, other) in [
        (status("0"), 0, 0, 0),
        (status("14"), 14, 50, 0),
        (status("13"), 13, 0, 50),
        // Cut off, but for the end of the stream.
        (None, 2, 0, 50),
    ] {
        let server = Server::answering(move |asked| answer(asked, trailers.clone()));
        let report = call(&server);
        let total = &report.total;
        assert_eq!(
            (total.refused, total.other, &total.grpc_status),
            (refused, other, &[(code, 50)].into()),
            "{report}"
        );
    }
    let server = Server::answering(|(_, mut answer)| answer.send_reset(h2::Reason::CANCEL));
    assert_eq!(call(&server).total.errors, [(ErrorKind::StreamReset, 50)].into(), "no status, no answer");
}

#[test]
fn who_is_pushed_back_comes_again_and_says_so_or_does_not() {
    for (pushback, tries) in [(Some("0"), 3), (None, 3), (Some("-1"), 1), (Some("soon"), 1)] {
        let said = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&said);
        let server = Server::answering(move |asked| {
            let attempts = asked.0.headers().get("grpc-previous-rpc-attempts").cloned();
            seen.lock().expect("a list").push(attempts.map(|value| value.to_str().expect("text").to_owned()));
            refuse(asked, "14", pushback);
        });
        let retry = Retry { tries: 3, wait: Wait::RetryAfter, time: None, jitter: 0.0, says: false };
        let mut plan = plan(&server);
        // One call, and then time for the others: nobody comes again after the end.
        plan.streams[0].profile = "0s:5/s, 200ms:0/s".parse().expect("a profile");
        plan.streams[0].retry = Some(retry);
        plan.duration = Duration::from_secs(1);
        let report = run(plan);
        assert_eq!((report.total.offered, report.total.refused), (tries, tries), "{pushback:?} {report}");
        let expected = [None, Some("1".to_owned()), Some("2".to_owned())];
        assert_eq!(*said.lock().expect("a list"), expected[..tries as usize], "{pushback:?}");
    }
}
