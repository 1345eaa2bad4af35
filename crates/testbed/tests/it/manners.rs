//! Servers that notice a closed connection or not, answers that stay open, and clients that give up and try again.

use std::time::Duration;

use tidegate_loadgen::{ErrorKind, Plan};
use tidegate_testbed::{EmulatedServer, Lasts, LastsAs, Mode, ServerSpec};
use tidegate_workload::{Abandoned, ArrivalProcess, Retry, Wait};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::PATIENCE;
use crate::support::load::{SECOND, assert_conserved, constant, run, start, stream};

/// Longer than any test, seconds.
const LONG: f64 = 3000.0;
/// So fast that it does not matter.
const FAST: f64 = 1e9;

async fn server(abandoned: Abandoned) -> EmulatedServer {
    let spec = ServerSpec { abandoned, ..ServerSpec::new(constant(LONG), 5) };
    EmulatedServer::start(spec).await.expect("a server")
}

/// Asks, and closes its half of the connection once the request is in service.
async fn leave(server: &EmulatedServer) -> TcpStream {
    let mut client = TcpStream::connect(server.address()).await.expect("a connection");
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("a request");
    wait_for(server, |server| server.stats().in_service == 1).await;
    client.shutdown().await.expect("a closed half");
    client
}

/// Polls until it is so.
async fn wait_for(server: &EmulatedServer, so: impl Fn(&EmulatedServer) -> bool) {
    let poll = async {
        while !so(server) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, poll).await.unwrap_or_else(|_| panic!("{:?}", server.stats()));
}

async fn rest(mut client: TcpStream) -> String {
    let mut text = String::new();
    tokio::time::timeout(PATIENCE, client.read_to_string(&mut text)).await.expect("an end").expect("text");
    text
}

#[tokio::test]
async fn a_server_that_does_not_notice_answers_whoever_is_there() {
    let server = server(Abandoned::WorksOn).await;
    let client = leave(&server).await;
    server.set_speed(FAST);
    assert!(rest(client).await.starts_with("HTTP/1.1 200"));
    let stats = server.stats();
    assert_eq!((stats.completed, stats.abandoned, server.take_most()), (1, 0, 1));
    assert_eq!(server.take_most(), 0, "it was told");
}

#[tokio::test]
async fn a_server_that_stops_closes_and_has_nothing_left() {
    let server = server(Abandoned::Stops).await;
    assert_eq!(rest(leave(&server).await).await, "");
    wait_for(&server, |server| server.stats().abandoned == 1).await;
    assert_eq!(server.stats().in_service, 0);
}

#[tokio::test]
async fn a_server_that_hangs_up_closes_and_works_on() {
    let server = server(Abandoned::HangsUp).await;
    assert_eq!(rest(leave(&server).await).await, "");
    assert_eq!((server.stats().in_service, server.stats().abandoned), (1, 0));
    server.set_speed(FAST);
    wait_for(&server, |server| server.stats().completed == 1).await;
}

fn lasting(kind: LastsAs, told: bool, seconds: f64) -> ServerSpec {
    let mut spec = ServerSpec::new(constant(0.0), 5);
    spec.routes[0].lasts = Some(Lasts { kind, time: constant(seconds), told });
    spec
}

#[tokio::test]
async fn streams_say_what_they_are_if_they_are_told_to_and_polls_how_long_they_waited() {
    for (kind, told, has) in [
        (LastsAs::Stream, true, "content-type: text/event-stream"),
        (LastsAs::Stream, false, "content-type: text/plain"),
        (LastsAs::Poll, false, "x-waited: 0.010000"),
    ] {
        let server = EmulatedServer::start(lasting(kind, told, 0.010)).await.expect("a server");
        let mut client = TcpStream::connect(server.address()).await.expect("a connection");
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.expect("a request");
        let answer = rest(client).await;
        assert!(answer.contains(has), "{answer}");
        assert_eq!(answer.contains("x-lasts: stream"), kind == LastsAs::Stream, "{answer}");
    }
}

#[test]
fn an_open_answer_counts_when_it_begins_and_no_run_waits_for_its_end() {
    let cluster = start(lasting(LastsAs::Stream, true, LONG));
    let report = run(Plan::new(vec![stream(&cluster, "20/s")], SECOND));
    assert_conserved(&report);
    assert!(report.total.admitted > 5, "{report}");
    assert_eq!(report.total.admitted, report.total.offered, "{report}");
}

#[test]
fn who_is_refused_tries_again_as_often_as_it_may() {
    let cluster = start(ServerSpec::new(constant(0.0), 5));
    cluster.set_mode(Mode::Fail(503));
    let retry = Retry { tries: 3, wait: Wait::AtOnce, time: None, jitter: 0.0, says: false };
    let stream = stream(&cluster, "20/s").arrivals(ArrivalProcess::Constant).retry(Some(retry));
    let report = run(Plan::new(vec![stream], SECOND));
    assert_conserved(&report);
    // Twenty come. Those near the end have no time to come again, and on a busy machine that is any number of them.
    assert!((21..=60).contains(&report.total.offered), "{report}");
    assert_eq!((report.total.refused, cluster.stats().requests), (report.total.offered, report.total.offered));
}

#[test]
fn who_gives_up_closes_its_connection() {
    let cluster = start(ServerSpec::new(constant(LONG), 5));
    let stream = stream(&cluster, "20/s").timeout(Duration::from_millis(20));
    let report = run(Plan::new(vec![stream], SECOND));
    assert_conserved(&report);
    assert_eq!(report.total.errors.get(&ErrorKind::Timeout), Some(&report.total.offered), "{report}");
    assert!(cluster.stats().abandoned > 0);
}
