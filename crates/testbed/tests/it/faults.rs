//! Each fault, seen by the load generator: the right kind of error, and counts that agree.

use std::time::Duration;

use tidegate_loadgen::{ErrorKind, LoadRun, Plan, Report, Stream};
use tidegate_workload::ArrivalProcess;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use tidegate_testbed::faults::{Fault, FaultServer};

use crate::support::PATIENCE;

async fn load(server: &FaultServer, timeout: Duration) -> Report {
    let stream = Stream::new("all", "50/s".parse().unwrap()).url(&server.url("/"), 1.0).unwrap();
    let stream = stream.arrivals(ArrivalProcess::Constant).timeout(timeout);
    LoadRun::start(Plan::new(vec![stream], Duration::from_millis(400))).unwrap().wait().await.unwrap()
}

async fn assert_only(fault: Fault, kind: ErrorKind) -> FaultServer {
    let server = FaultServer::start(fault).await.unwrap();
    let timeout = if kind == ErrorKind::Timeout { Duration::from_millis(300) } else { PATIENCE };
    let report = load(&server, timeout).await;
    let errors = &report.total.errors;
    assert_eq!(report.total.offered, 20);
    assert_eq!(errors.get(&kind), Some(&report.total.offered), "{fault:?}: {errors:?}\n{report}");
    server
}

#[tokio::test]
async fn each_fault_gives_its_error() {
    let all = [
        (Fault::Refuse, ErrorKind::Connect),
        (Fault::HangOnAccept, ErrorKind::Timeout),
        (Fault::HangOnRequest, ErrorKind::Timeout),
        (Fault::CloseBeforeResponse, ErrorKind::Closed),
        (Fault::ResetBeforeResponse, ErrorKind::Reset),
        (Fault::ResetMidBody { announced: 1000, sent: 100 }, ErrorKind::Reset),
        (Fault::CloseMidBody { announced: 1000, sent: 100 }, ErrorKind::Closed),
        (Fault::Garbage, ErrorKind::Protocol),
        (Fault::BadChunkSize, ErrorKind::Protocol),
        (Fault::CutChunks, ErrorKind::Closed),
        (Fault::SlowBody { bytes: 10, piece: 1, every: Duration::from_millis(100) }, ErrorKind::Timeout),
    ];
    let mut cases: JoinSet<FaultServer> = all.into_iter().map(|(fault, kind)| assert_only(fault, kind)).collect();
    while let Some(ended) = cases.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test]
async fn connections_and_requests_are_counted() {
    let server = assert_only(Fault::CloseBeforeResponse, ErrorKind::Closed).await;
    assert_eq!(server.connections(), server.requests());
    let hanging = assert_only(Fault::HangOnAccept, ErrorKind::Timeout).await;
    // Accepted, perhaps later than those who connect give up.
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while hanging.connections() <= 5 {
        assert!(tokio::time::Instant::now() < deadline, "{} connections", hanging.connections());
        tokio::task::yield_now().await;
    }
    assert_eq!(hanging.requests(), 0);
    let refusing = assert_only(Fault::Refuse, ErrorKind::Connect).await;
    assert_eq!(refusing.connections(), 0);
}

#[tokio::test]
async fn interim_answers_and_slow_bodies_are_correct_http() {
    for fault in [
        Fault::Interim { count: 3 },
        Fault::SlowBody { bytes: 4, piece: 2, every: Duration::from_millis(5) },
        Fault::ExtraBody { announced: 2, sent: 9 },
    ] {
        let server = FaultServer::start(fault).await.unwrap();
        let report = load(&server, PATIENCE).await;
        assert_eq!(report.total.admitted, report.total.offered, "{fault:?}\n{report}");
        assert_eq!(server.requests(), report.total.offered, "{fault:?}");
    }
}

#[tokio::test]
async fn a_stopped_fault_server_is_gone() {
    let server = FaultServer::start(Fault::HangOnRequest).await.unwrap();
    server.stop();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while tokio::net::TcpStream::connect(server.address()).await.is_ok() {
        assert!(tokio::time::Instant::now() < deadline, "still accepting");
        tokio::task::yield_now().await;
    }
}

/// Answers the first request of each connection with `answer`, then closes without having said so. Returns its URL.
async fn answer_with(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let mut length = 0;
            while !head[..length].ends_with(b"\r\n\r\n") {
                length += stream.read(&mut head[length..]).await.unwrap();
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    url
}

async fn load_url(url: &str) -> Report {
    let stream = Stream::new("all", "25/s".parse().unwrap()).url(url, 1.0).unwrap();
    let stream = stream.arrivals(ArrivalProcess::Constant).timeout(PATIENCE);
    LoadRun::start(Plan::new(vec![stream], Duration::from_millis(400))).unwrap().wait().await.unwrap()
}

#[tokio::test]
async fn a_sentrys_refusal_is_told_from_a_servers() {
    let sentry = "HTTP/1.1 503 Service Unavailable\r\n\
        Tidegate-Decision: rejected; reason=overload; policy=batch; class=rest\r\nContent-Length: 0\r\n\r\n";
    let total = load_url(&answer_with(sentry).await).await.total;
    assert_eq!((total.refused, total.refused_by_sentry), (10, 10));
    let server = "HTTP/1.1 503 Service Unavailable\r\nTidegate-Decision: admitted\r\nContent-Length: 0\r\n\r\n";
    let total = load_url(&answer_with(server).await).await.total;
    assert_eq!((total.refused, total.refused_by_sentry), (10, 0));
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_meanwhile_is_replaced() {
    let report = load_url(&answer_with("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await).await;
    assert_eq!((report.total.admitted, report.generator.connections_opened), (10, 10), "{report}");
}
