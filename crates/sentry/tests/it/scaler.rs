//! How many servers are needed, as KEDA asks for it (`externalscaler.proto`).

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use tidegate_sentry::Process;
use tidegate_sentry::config::Config;

use crate::support::{Client, RawServer, until};
use crate::tls::site::mirror;

const EMPTY: &[u8] = b"\0\0\0\0\0";
/// The metric with the number 1.
const ONE: &[u8] = b"\0\0\0\0\x1d\x0a\x1b\x0a\x0eservers-needed\x10\x01\x19\0\0\0\0\0\0\xf0\x3f";
const ACTIVE: &[u8] = b"\0\0\0\0\x02\x08\x01";

struct Site {
    process: Process,
    admin: SocketAddr,
    _server: RawServer,
}

impl Site {
    fn new() -> Site {
        let server = mirror();
        let text = format!(
            "[admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"0123456789abcdef\"\nscaler = true\n\
             [[application]]\nname = \"shop\"\nlisten = \"127.0.0.1:0\"\ntarget = \"500ms\"\n\
             servers = [{{ address = \"{}\", cores = 2 }}]\n",
            server.address
        );
        let config = Config::parse(&text, Path::new("scaler.toml")).expect("valid").config;
        let process = Process::start(config, None).expect("a process");
        let admin = process.admin_address().expect("an admin API");
        Site { process, admin, _server: server }
    }

    fn visit(&self) {
        let mut client = Client::connect(self.process.sentry().addresses("shop")[0]);
        client.send("GET / HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n\r\n");
        client.answer();
    }
}

/// What comes of a call with this message: its answer's body, and how it ended, if it did already.
async fn call(admin: SocketAddr, name: &str, message: &'static [u8]) -> (RecvStream, Option<String>) {
    let socket = tokio::net::TcpStream::connect(admin).await.expect("connects");
    let (sender, connection) = h2::client::handshake(socket).await.expect("HTTP/2");
    tokio::spawn(connection);
    let path = format!("http://sentry/externalscaler.ExternalScaler/{name}");
    let request = http::Request::post(path).header("content-type", "application/grpc").body(()).expect("a request");
    let mut sender = sender.ready().await.expect("it takes requests");
    let (answer, mut body) = sender.send_request(request, false).expect("sends");
    body.send_data(Bytes::from_static(message), true).expect("sends");
    let (head, body) = answer.await.expect("an answer").into_parts();
    let status = head.headers.get("grpc-status").map(|status| status.to_str().expect("text").to_owned());
    (body, status)
}

async fn next(body: &mut RecvStream) -> Option<Bytes> {
    let data = tokio::time::timeout(Duration::from_secs(60), body.data()).await.expect("in time");
    data.map(|data| data.expect("whole"))
}

/// Nothing is known at first, which is an error and not zero; then there is a number. Who listens hears at once when
/// somebody comes.
#[test]
fn what_is_needed_is_told_once_it_is_known() {
    let site = Site::new();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let ask = |name, message| runtime.block_on(call(site.admin, name, message));
    let (mut activity, _) = ask("StreamIsActive", EMPTY);
    assert_eq!(runtime.block_on(next(&mut activity)).as_deref(), Some(EMPTY), "nobody came");
    let unknown = ask("GetMetrics", b"\0\0\0\0\x02\x0a\0").1;
    assert_eq!(unknown.as_deref(), Some("14"));
    let mut needed = None;
    until("it is known", || {
        site.visit();
        let (mut body, failed) = ask("GetMetrics", b"\0\0\0\0\x02\x0a\0");
        needed = failed.is_none().then(|| runtime.block_on(next(&mut body)).expect("a message"));
        needed.is_some()
    });
    // One is enough for a few requests that cost nearly nothing.
    assert_eq!(needed.as_deref(), Some(ONE));
    let listen = async {
        while next(&mut activity).await.expect("it never ends") != ACTIVE {}
        next(&mut activity).await
    };
    assert_eq!(runtime.block_on(listen).as_deref(), Some(ACTIVE), "and it is said again");
    assert_eq!(runtime.block_on(next(&mut ask("IsActive", EMPTY).0)).as_deref(), Some(ACTIVE));
}
