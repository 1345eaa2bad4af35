//! Health over gRPC.

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
