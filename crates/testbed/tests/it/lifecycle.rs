//! Emulated servers begin, serve, lose clients and end.

use std::time::Duration;

use tidegate_testbed::{EmulatedCluster, EmulatedServer, Mode, ServerSpec, StartError, Stats, free_address};
use tidegate_workload::ServiceTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::PATIENCE;

fn spec(seconds: f64) -> ServerSpec {
    ServerSpec::new(ServiceTime::constant(seconds).unwrap(), 5)
}

async fn send(server: &EmulatedServer, head: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(format!("{head}\r\nHost: x\r\n").as_bytes()).await.unwrap();
    stream
}

async fn get(server: &EmulatedServer, path: &str, header: &str) -> String {
    let mut stream = send(server, &format!("GET {path} HTTP/1.1")).await;
    stream.write_all(format!("Connection: close\r\n{header}\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}

/// Polls until the counters are as they should be.
async fn until(server: &EmulatedServer, right: impl Fn(&Stats) -> bool) -> Stats {
    let poll = async {
        loop {
            let stats = server.stats();
            if right(&stats) {
                return stats;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, poll).await.unwrap_or_else(|_| panic!("{:?}", server.stats()))
}

#[tokio::test]
async fn answers_are_cheaper_where_less_quality_is_asked_for() {
    let slow = ServiceTime::constant(3000.0).unwrap();
    let mut spec = spec(0.0).route("/fixed", ServiceTime::constant(0.0).unwrap(), 1).route("/slow", slow, 1);
    spec.routes[2].degrades_to = 0.0;
    let server = EmulatedServer::start(spec).await.unwrap();
    let answer = get(&server, "/slow", "Tidegate-Quality: 0.00\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("tidegate-quality: 0.00"), "{answer:.200}");
    let answer = get(&server, "/fixed", "Tidegate-Quality: 0.00\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains("tidegate-quality"), "{answer:.200}");
    // Three thousand seconds at full quality, and at one that is no quality.
    for header in ["", "Tidegate-Quality: 7\r\n"] {
        let mut client = send(&server, "GET /slow HTTP/1.1").await;
        client.write_all(format!("{header}\r\n").as_bytes()).await.unwrap();
        until(&server, |stats| stats.in_service == 1).await;
        drop(client);
        until(&server, |stats| stats.in_service == 0).await;
    }
}

#[tokio::test]
async fn answers_by_route_and_stated_cost() {
    let slow = ServiceTime::constant(3000.0).unwrap();
    let mut spec = spec(0.0).route("/slow", slow, 1);
    spec.routes.retain(|r| r.prefix != "/");
    spec = spec.route("/a", ServiceTime::constant(0.0).unwrap(), 70_000);
    spec.cost_header = true;
    let server = EmulatedServer::start(spec).await.unwrap();
    let answer = get(&server, "/a/b", "").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("content-length: 70000"), "{answer:.200}");
    assert_eq!(answer.split_once("\r\n\r\n").unwrap().1.len(), 70_000);
    assert!(answer.contains("x-server: server"));
    assert!(get(&server, "/other", "").await.starts_with("HTTP/1.1 404"));
    assert!(get(&server, "/slow", "X-Cost: 0.001\r\n").await.starts_with("HTTP/1.1 200"));
    assert!(get(&server, "/slow", "X-Cost: much\r\n").await.starts_with("HTTP/1.1 400"));
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_work_along() {
    let server = EmulatedServer::start(spec(3000.0)).await.unwrap();
    let mut leaver = send(&server, "GET / HTTP/1.1").await;
    leaver.write_all(b"\r\n").await.unwrap();
    until(&server, |s| s.in_service == 1).await;
    drop(leaver);
    let stats = until(&server, |s| s.in_service == 0).await;
    assert_eq!((stats.abandoned, stats.completed), (1, 0));
}

#[tokio::test]
async fn a_graceful_stop_answers_what_is_under_way() {
    let server = EmulatedServer::start(spec(0.001)).await.unwrap();
    server.set_speed(0.0);
    let mut stream = send(&server, "GET / HTTP/1.1").await;
    stream.write_all(b"\r\n").await.unwrap();
    until(&server, |s| s.in_service == 1).await;
    // It is told to stop, and then goes on.
    let (stats, ()) = tokio::join!(server.stop(PATIENCE), async { server.set_speed(1.0) });
    assert_eq!((stats.completed, stats.in_service), (1, 0));
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(TcpStream::connect(server.address()).await.is_err());
}

#[tokio::test]
async fn a_stop_without_patience_breaks_connections_and_frees_the_address() {
    // An address that no client of another test is given while the server is away.
    let listen = free_address().unwrap();
    let server = EmulatedServer::start(ServerSpec { listen, ..spec(3000.0) }).await.unwrap();
    let mut stream = send(&server, "GET / HTTP/1.1").await;
    stream.write_all(b"\r\n").await.unwrap();
    until(&server, |s| s.in_service == 1).await;
    let stats = server.stop(Duration::ZERO).await;
    assert_eq!((stats.in_service, stats.abandoned), (0, 1));
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap();
    assert!(read.is_err() || answer.is_empty());
    let again = EmulatedServer::start(ServerSpec { listen, ..spec(0.0) }).await.unwrap();
    assert!(get(&again, "/", "").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn hanging_ends_when_the_mode_does() {
    let server = EmulatedServer::start(spec(0.0)).await.unwrap();
    server.set_mode(Mode::Hang);
    let (answer, ()) = tokio::join!(get(&server, "/", ""), async {
        until(&server, |s| s.requests == 1).await;
        server.set_mode(Mode::Fail(502));
    });
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
}

#[tokio::test]
async fn errors_say_what_and_where() {
    let first = EmulatedServer::start(spec(0.0)).await.unwrap();
    let listen = first.address();
    let error = EmulatedServer::start(ServerSpec { listen, ..spec(0.0) }).await.unwrap_err();
    assert!(matches!(error, StartError::Listen { .. }) && error.to_string().contains(&listen.to_string()), "{error}");
    let error = EmulatedCluster::start(2, ServerSpec::default()).await.unwrap_err().to_string();
    assert!(error.contains("routes"), "{error}");
    assert!(EmulatedCluster::start_on_thread(1, ServerSpec::default()).is_err());
}

#[test]
fn a_cluster_on_its_own_thread_needs_no_runtime() {
    let cluster = EmulatedCluster::start_on_thread(28, spec(0.0)).unwrap();
    let mut addresses = cluster.addresses();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 28);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for server in cluster.servers() {
            assert!(get(server, "/", "").await.contains(&format!("x-server: {}", server.name())));
        }
    });
    assert_eq!(cluster.stats().completed, 28);
    assert_eq!(runtime.block_on(cluster.stop(PATIENCE)).completed, 28);
}
