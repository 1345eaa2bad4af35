//! What gRPC says of a call's end, in trailers or in a head without messages: it is what the call came to, whatever the
//! status of HTTP.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use h2::client::SendRequest;
use http::{Request, Response};
use tidegate_sentry::record::{Protocol, RecordSink, RequestRecord};

use crate::http2::{whole, with_client};
use crate::support::{RawServer, Running, application, refuse_all, until};

/// What was told of each request: how it came, and its statuses.
#[derive(Debug, Default)]
pub(crate) struct Told(pub(crate) Mutex<Vec<(Protocol, u16, Option<u8>)>>);

impl RecordSink for Told {
    fn enabled(&self) -> bool {
        true
    }

    fn record(&self, _app: &str, _class: &str, record: &RequestRecord<'_>) {
        self.0.lock().expect("no panic").push((record.protocol, record.status, record.grpc_status));
    }
}

/// Its calls end with the status that is the last part of their paths: in trailers, or in the head.
fn server() -> RawServer {
    RawServer::start(|mut peer| {
        while let Some(asked) = peer.request() {
            let status = asked.target.rsplit('/').next().unwrap_or_default();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\n";
            let answer = if asked.target.starts_with("/trailers") {
                let rest = "Transfer-Encoding: chunked\r\nTrailer: grpc-status\r\n\r\n1\r\nx\r\n0\r\n";
                format!("{head}{rest}grpc-status: {status}\r\n\r\n")
            } else {
                format!("{head}grpc-status: {status}\r\nContent-Length: 0\r\n\r\n")
            };
            if !peer.send(answer) {
                return;
            }
        }
    })
}

async fn call(sender: &SendRequest<bytes::Bytes>, path: &str) -> Response<()> {
    let request = Request::builder().method("POST").uri(format!("http://test{path}"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers").body(()).expect("a call");
    let mut sender = sender.clone().ready().await.expect("room for a stream");
    whole(sender.send_request(request, true).expect("a stream").0).await.0
}

#[test]
fn a_call_that_its_server_does_not_serve_is_a_failure_whatever_http_says() {
    let (server, told) = (server(), Arc::new(Told::default()));
    let sentry = Running::with_records(application(&[server.address]), 1, told.clone());
    let paths = ["/trailers/0", "/trailers/5", "/trailers/14", "/head/0", "/head/8", "/head/5", "/head/14"];
    with_client(sentry.address, |sender| async move {
        for path in paths {
            call(&sender, path).await;
        }
    });
    sentry.assert_quiet();
    let class = sentry.app().snapshot().classes[0].clone();
    // Whether the head says so, or trailers after a message.
    assert_eq!((class.completed, class.failed), (4, 3));
    until("all are told of", || told.0.lock().expect("no panic").len() == paths.len());
    let told = told.0.lock().expect("no panic").clone();
    let said = told.iter().map(|(_, _, grpc)| *grpc).collect::<Vec<_>>();
    assert_eq!(said, [0, 5, 14, 0, 8, 5, 14].map(Some));
    assert!(told.iter().all(|(protocol, status, _)| (*protocol, *status) == (Protocol::Http2, 200)));
}

#[test]
fn a_conversation_begins_before_its_client_has_said_all() {
    let server = RawServer::start(|mut peer| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\n";
        if peer.head().is_none() || !peer.send(format!("{head}5\r\nhello\r\n")) {
            return;
        }
        for answer in ["3\r\ntwo\r\n", "4\r\nfour\r\n"] {
            if peer.exactly("3\r\none\r\n".len()).is_err() || !peer.send(answer) {
                return;
            }
        }
        // Not before its client has ended.
        if peer.exactly("0\r\n\r\n".len()).is_ok() {
            peer.end_with("0\r\n\r\n");
        }
    });
    let sentry = Running::start(application(&[server.address]));
    with_client(sentry.address, |sender| async move {
        let request = Request::builder().method("POST").uri("http://test/chat");
        let request = request.header("content-type", "application/grpc+proto").body(()).expect("a call");
        let mut sender = sender.ready().await.expect("room for a stream");
        let (answer, mut to) = sender.send_request(request, false).expect("a stream");
        let mut body = answer.await.expect("an answer").into_body();
        assert_eq!(body.data().await.expect("a message").expect("data"), "hello");
        for (message, heard) in [("one", "two"), ("six", "four")] {
            to.send_data(message.into(), false).expect("it is open");
            assert_eq!(body.data().await.expect("a message").expect("data"), heard);
        }
        to.send_data("".into(), true).expect("it is open");
        while let Some(data) = body.data().await {
            assert_eq!(data.expect("data"), "");
        }
    });
    sentry.assert_quiet();
}

#[test]
fn a_refused_call_is_told_of_with_the_status_that_it_got() {
    let (server, told) = (server(), Arc::new(Told::default()));
    let mut app = application(&[server.address]);
    app.setup.admission = refuse_all();
    let sentry = Running::with_records(app, 1, told.clone());
    with_client(sentry.address, |sender| async move {
        call(&sender, "/trailers/0").await;
    });
    assert_eq!(sentry.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").status, 503);
    until("both are told of", || told.0.lock().expect("no panic").len() == 2);
    let told = told.0.lock().expect("no panic").clone();
    assert_eq!(told, [(Protocol::Http2, 200, Some(14)), (Protocol::Http1, 503, None)]);
}

/// What `sentry` answers a call of `path`: the statuses of HTTP and gRPC, the message, and whether to try again.
fn ends(sentry: &Running, path: &'static str) -> [String; 4] {
    let mut said = Default::default();
    with_client(sentry.address, |sender| {
        let said = &mut said;
        async move {
            let head = call(&sender, path).await;
            let field = |name| head.headers().get(name).map_or("", |value| value.to_str().expect("text")).to_owned();
            assert_eq!(field("content-type"), "application/grpc");
            let [status, message, again] = ["grpc-status", "grpc-message", "grpc-retry-pushback-ms"].map(field);
            *said = [head.status().as_str().to_owned(), status, message, again];
        }
    });
    said
}

#[test]
fn a_call_without_an_answer_is_told_so_in_its_own_words() {
    let told = Arc::new(Told::default());
    let sentry = Running::with_records(application(&[([127, 0, 0, 1], 1).into()]), 1, told.clone());
    assert_eq!(ends(&sentry, "/a.B/C"), ["200", "14", "server-unreachable", ""]);
    assert_eq!(ends(&sentry, "/a/..%2fb"), ["200", "13", "ambiguous-path", ""]);
    assert_eq!(sentry.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").status, 502, "HTTP is told in HTTP's");
    until("both are told of", || told.0.lock().expect("no panic").len() == 2);
    let told = told.0.lock().expect("no panic").clone();
    assert_eq!(told, [(Protocol::Http2, 200, Some(14)), (Protocol::Http1, 502, None)]);

    let silent = RawServer::start(|mut peer| while peer.request().is_some() {});
    let mut app = application(&[silent.address]);
    app.timeouts.first_byte = Duration::from_millis(50);
    // It may still be at work: who calls again on UNAVAILABLE is not told that.
    assert_eq!(ends(&Running::start(app), "/a.B/C"), ["200", "4", "first-byte-timeout", ""]);
}
