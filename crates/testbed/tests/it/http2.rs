//! Emulated servers and the load generator over HTTP/2 and in gRPC: the same stations, streams in place of connections.

use std::time::Duration;

use tidegate_loadgen::{ErrorKind, LoadRun, Plan, Protocol, Report, grpc};
use tidegate_testbed::{Mode, ServerSpec, ThreadedCluster};
use tidegate_workload::{Abandoned, ArrivalProcess};

use crate::support::PATIENCE;
use crate::support::load::{SECOND, assert_conserved, closing, constant, exponential, run, start, stream};

/// Longer than any test, seconds.
const LONG: f64 = 3000.0;
/// So fast that it does not matter.
const FAST: f64 = 1e9;

const BOTH: [Protocol; 2] = [Protocol::H2, Protocol::Grpc];

fn plan(cluster: &ThreadedCluster, rate: &str, protocol: Protocol) -> Plan {
    let mut stream = stream(cluster, rate).arrivals(ArrivalProcess::Constant);
    if protocol == Protocol::Grpc {
        stream.body = grpc::message(1000);
    }
    Plan { protocol, ..Plan::new(vec![stream], SECOND) }
}

/// Polls until it is so.
fn wait_for(cluster: &ThreadedCluster, so: impl Fn(&ThreadedCluster) -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !so(cluster) {
        assert!(std::time::Instant::now() < end, "{:?}", cluster.stats());
        std::thread::yield_now();
    }
}

#[test]
fn every_request_is_served_once_and_all_share_a_connection() {
    for (protocol, bytes) in [(Protocol::H2, 1000), (Protocol::Grpc, 1005)] {
        let cluster = start(ServerSpec::new(exponential(0.002), 1000));
        let report = run(plan(&cluster, "250/s", protocol));
        assert_conserved(&report);
        let (total, stats) = (&report.total, cluster.stats());
        assert_eq!((total.offered, total.admitted, total.bytes), (250, 250, 250 * bytes), "{protocol} {report}");
        assert_eq!((stats.requests, stats.completed, stats.in_service), (250, 250, 0), "{protocol}");
        assert!(report.generator.connections_opened <= 3, "{report}");
        assert_eq!(stats.connections, report.generator.connections_opened);
    }
}

/// Ten requests on a server that allows four at once on a connection, and does not answer yet.
fn ten(cluster: &ThreadedCluster, connections: usize, streams: usize) -> LoadRun {
    let plan = plan(cluster, "10/s", Protocol::H2);
    LoadRun::start(Plan { connections, per_connection: streams, ..plan }).expect("a load")
}

#[test]
fn what_does_not_fit_on_a_connection_goes_on_another_one() {
    for (streams, connections) in [(usize::MAX, 3), (2, 5)] {
        let cluster = start(ServerSpec { streams: 4, ..ServerSpec::new(constant(LONG), 5) });
        let load = ten(&cluster, 100, streams);
        wait_for(&cluster, |cluster| cluster.stats().in_service == 10);
        cluster.set_speed(FAST);
        let report = load.join().expect("a report");
        assert_eq!((report.total.admitted, report.generator.connections_opened), (10, connections), "{report}");
        assert!(report.warnings.iter().all(|warning| !warning.contains("connections")), "{report}");
    }
}

#[test]
fn what_does_not_fit_on_those_allowed_waits_in_turn_and_that_is_told() {
    let cluster = start(ServerSpec { streams: 4, ..ServerSpec::new(constant(LONG), 5) });
    let load = ten(&cluster, 2, usize::MAX);
    let progress = load.progress();
    wait_for(&cluster, |cluster| {
        cluster.stats().in_service == 8 && progress.borrow().classes.first().is_some_and(|class| class.in_flight == 10)
    });
    assert_eq!(cluster.stats().connections, 2);
    cluster.set_speed(FAST);
    let report = load.join().expect("a report");
    assert_eq!((report.total.admitted, report.generator.connection_waits), (10, 2), "{report}");
    assert!(report.warnings.iter().any(|warning| warning.contains("2 requests had to wait")), "{report}");
}

#[test]
fn who_never_gets_a_stream_was_held_back_by_the_limit() {
    let cluster = start(ServerSpec { streams: 1, ..ServerSpec::new(constant(LONG), 5) });
    let mut plan = plan(&cluster, "0s:20/s, 100ms:end", Protocol::H2);
    let mut late = stream(&cluster, "0s:0/s, 200ms:10/s").timeout(Duration::from_millis(300));
    late.class = "late".to_owned();
    plan.streams.push(late);
    let load = LoadRun::start(Plan { connections: 1, ..plan }).expect("a load");
    let progress = load.progress();
    wait_for(&cluster, |_| {
        let now = progress.borrow();
        now.elapsed >= SECOND && now.classes.get(1).is_some_and(|class| class.failed > 0 && class.in_flight == 0)
    });
    cluster.set_speed(FAST);
    let report = load.join().expect("a report");
    assert_conserved(&report);
    let late = &report.classes[1];
    assert_eq!((late.sent, late.not_sent.connection_limit), (0, late.offered), "{report}");
    assert_eq!(report.classes[0].admitted, report.classes[0].offered, "{report}");
}

fn after_all_left(abandoned: Abandoned, protocol: Protocol) -> (Report, ThreadedCluster) {
    let cluster = start(ServerSpec { abandoned, ..ServerSpec::new(constant(LONG), 5) });
    let mut plan = plan(&cluster, "10/s", protocol);
    plan.streams[0].timeout = Duration::from_millis(300);
    let report = run(plan);
    assert_eq!(report.total.errors, [(ErrorKind::Timeout, 10)].into(), "{report}");
    (report, cluster)
}

#[test]
fn a_server_that_stops_has_nothing_left_of_streams_that_were_reset() {
    for protocol in BOTH {
        let (report, cluster) = after_all_left(Abandoned::Stops, protocol);
        wait_for(&cluster, |cluster| cluster.stats().abandoned == 10);
        assert_eq!((cluster.stats().in_service, report.generator.connections_opened), (0, 1), "{protocol} {report}");
    }
}

#[test]
fn others_work_on() {
    for abandoned in [Abandoned::HangsUp, Abandoned::WorksOn] {
        let (_, cluster) = after_all_left(abandoned, Protocol::H2);
        wait_for(&cluster, |cluster| cluster.stats().requests == 10);
        assert_eq!((cluster.stats().in_service, cluster.stats().abandoned), (10, 0), "{abandoned:?}");
        cluster.set_speed(FAST);
        wait_for(&cluster, |cluster| cluster.stats().completed == 10);
    }
}

#[test]
fn failures_of_servers_have_their_status_in_grpc_too() {
    for (status, code, refused) in [(503, 14, 20), (500, 2, 0), (404, 12, 0)] {
        let cluster = start(ServerSpec::new(constant(0.0), 5));
        cluster.set_mode(Mode::Fail(status));
        let report = run(plan(&cluster, "20/s", Protocol::Grpc));
        assert_conserved(&report);
        assert_eq!((report.total.refused, &report.total.grpc_status), (refused, &[(code, 20)].into()), "{report}");
        let report = run(plan(&cluster, "20/s", Protocol::H2));
        assert_eq!((report.total.refused, &report.total.status), (refused, &[(status, 20)].into()), "{report}");
    }
}

#[test]
fn where_a_connection_would_be_closed_a_stream_is_reset_and_the_connection_stays() {
    let cluster = start(closing(constant(LONG)));
    let load = LoadRun::start(plan(&cluster, "10/s", Protocol::H2)).expect("a load");
    wait_for(&cluster, |cluster| cluster.stats().overflowed == 9);
    cluster.set_speed(FAST);
    let report = load.join().expect("a report");
    assert_eq!((report.total.admitted, &report.total.errors), (1, &[(ErrorKind::StreamReset, 9)].into()), "{report}");
    assert_eq!(report.generator.connections_opened, 1);
}
