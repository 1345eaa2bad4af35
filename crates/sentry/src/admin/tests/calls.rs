//! Health over gRPC, and what KEDA asks for.

use super::*;

/// A call of gRPC: the message of its answer, and how it ended.
fn call(server: &AdminServer, path: &str, message: &'static [u8]) -> (Vec<u8>, Option<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let whole = async {
        let socket = tokio::net::TcpStream::connect(server.address()).await.expect("connects");
        let (sender, connection) = h2::client::handshake(socket).await.expect("HTTP/2");
        let driven = tokio::spawn(connection);
        let request = http::Request::post(format!("http://sentry{path}")).header("content-type", "application/grpc");
        let mut sender = sender.ready().await.expect("it takes requests");
        let (answer, mut body) = sender.send_request(request.body(()).expect("a request"), false).expect("sends");
        body.send_data(bytes::Bytes::from_static(message), true).expect("sends");
        let (head, mut body) = answer.await.expect("an answer").into_parts();
        let mut message = Vec::new();
        while let Some(data) = body.data().await {
            message.extend_from_slice(&data.expect("whole"));
        }
        let trailers = body.trailers().await.expect("whole").unwrap_or(head.headers);
        driven.abort();
        (message, trailers.get("grpc-status").map(|status| status.to_str().expect("text").to_owned()))
    };
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), whole).await.expect("an answer in time") })
}

#[test]
fn readiness_is_told_over_grpc_of_all_and_of_one() {
    const CHECK: &str = "/grpc.health.v1.Health/Check";
    const ALL: &[u8] = b"\0\0\0\0\0";
    const ONE: &[u8] = b"\0\0\0\0\x07\x0a\x05sh\"op";
    let ok = || Some("0".to_owned());
    // As everywhere, nobody needs a token to see whether it is ready.
    let (server, board) = start(Some("0123456789abcdef"));
    assert_eq!(call(&server, CHECK, ALL), (b"\0\0\0\0\x02\x08\x01".to_vec(), ok()));
    assert_eq!(call(&server, CHECK, ONE), (b"\0\0\0\0\x02\x08\x01".to_vec(), ok()));
    assert_eq!(call(&server, CHECK, b"\0\0\0\0\x05\x0a\x03sho"), (vec![], Some("5".to_owned())));
    assert_eq!(call(&server, CHECK, b"\0\0\0\0\x05\x0a\x09sho"), (vec![], Some("3".to_owned())));
    // 404 is UNIMPLEMENTED to a client of gRPC.
    assert_eq!(call(&server, "/grpc.health.v1.Health/Watch", ALL).1, None);
    board.drain();
    assert_eq!(call(&server, CHECK, ALL), (b"\0\0\0\0\x02\x08\x02".to_vec(), ok()));
    assert_eq!(call(&server, CHECK, ONE), (b"\0\0\0\0\x02\x08\x02".to_vec(), ok()));
    assert_eq!(ask(&server, &format!("POST {CHECK} HTTP/1.1"), "").0, 415);
    assert_eq!(get(&server, "/readyz").0, 503, "HTTP/1.1 as before");
}

/// A call of an external scaler's, and one about an application that is not there.
const SPEC: &str = "/externalscaler.ExternalScaler/GetMetricSpec";
const OTHER: &[u8] = b"\0\0\0\0\x17\x1a\x15\x0a\x0bapplication\x12\x06sh\"op?";

#[test]
fn who_scales_is_told_the_metric_of_an_application() {
    let open = config::Admin { token: Some("0123456789abcdef".to_owned()), scaler: true, ..config::Admin::default() };
    let (server, _board) = start_as(&open);
    const NAMED: &[u8] = b"\0\0\0\0\x16\x1a\x14\x0a\x0bapplication\x12\x05sh\"op";
    let one = b"\0\0\0\0\x1d\x0a\x1b\x0a\x0eservers-needed\x10\x01\x19\0\0\0\0\0\0\xf0\x3f";
    let spec = (one.to_vec(), Some("0".to_owned()));
    assert_eq!(call(&server, SPEC, b"\0\0\0\0\0"), spec, "there is one only");
    assert_eq!(call(&server, SPEC, NAMED), spec);
    let failed = |status: &str| (vec![], Some(status.to_owned()));
    assert_eq!(call(&server, SPEC, OTHER), failed("5"), "no such application");
    assert_eq!(call(&server, SPEC, b"\0\0\0\0\x09nonsense"), failed("3"));
    let metrics = "/externalscaler.ExternalScaler/GetMetrics";
    assert_eq!(call(&server, metrics, b"\0\0\0\0\x02\x0a\0"), failed("14"), "nothing is known yet: not zero");
    let active = "/externalscaler.ExternalScaler/IsActive";
    assert_eq!(call(&server, active, b"\0\0\0\0\0"), (b"\0\0\0\0\0".to_vec(), Some("0".to_owned())), "nobody came");
    assert_eq!(call(&server, "/externalscaler.ExternalScaler/Other", b"\0\0\0\0\0"), failed("12"));
    assert_eq!(ask(&server, &format!("POST {SPEC} HTTP/1.1"), "").0, 415);
    assert_eq!(get(&server, "/api/state").0, 401, "the rest needs a token as before");
}

#[test]
fn who_scales_needs_the_token_unless_that_is_said() {
    let (server, _board) = start(Some("0123456789abcdef"));
    assert_eq!(call(&server, SPEC, b"\0\0\0\0\0").1, None, "401 is UNAUTHENTICATED to a client of gRPC");
    assert_eq!(ask(&server, &format!("POST {SPEC} HTTP/1.1"), "").0, 401);
    let (server, _board) = start(None);
    assert_eq!(call(&server, SPEC, b"\0\0\0\0\0").1, Some("0".to_owned()), "on this machine anyone may look");
}
