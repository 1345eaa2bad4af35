//! Load on emulated servers.

use std::time::Duration;

use tidegate_loadgen::{LoadRun, Plan, Report, Stream};
use tidegate_testbed::{EmulatedCluster, ServerSpec, Stats, ThreadedCluster};
use tidegate_workload::{Discipline, ServiceTime};

use super::PATIENCE;

pub const SECOND: Duration = Duration::from_secs(1);

pub fn exponential(mean: f64) -> ServiceTime {
    ServiceTime::exponential(mean).expect("more than zero")
}

pub fn constant(seconds: f64) -> ServiceTime {
    ServiceTime::constant(seconds).expect("not less than zero")
}

pub fn start(spec: ServerSpec) -> ThreadedCluster {
    EmulatedCluster::start_on_thread(1, spec).expect("a server")
}

/// Patient clients of the first server.
pub fn stream(cluster: &ThreadedCluster, rate: &str) -> Stream {
    let stream = Stream::new("all", rate.parse().expect("a profile")).timeout(PATIENCE);
    stream.url(&cluster.servers()[0].url("/"), 1.0).expect("a URL")
}

pub fn run(plan: Plan) -> Report {
    LoadRun::start(plan).expect("a load").join().expect("a report")
}

/// Each offered request has exactly one fate.
pub fn assert_conserved(report: &Report) {
    for c in report.classes.iter().chain([&report.total]) {
        let fates = c.admitted + c.refused + c.other + c.errors_total() + c.not_sent.total() + c.unfinished;
        assert_eq!(c.offered, fates, "{c:?}");
        assert_eq!(c.offered, c.seconds.iter().map(|s| s.offered).sum::<u64>());
        assert_eq!(c.admitted, c.seconds.iter().map(|s| s.admitted).sum::<u64>());
    }
}

/// Mean service time 2 ms on one core that is asked 250 times a second: half load. Beside it requests that need no
/// service: what they take is what the machine adds on the way there and back.
pub fn half_load(seed: u64, duration: Duration) -> (Report, Stats) {
    let cluster = start(ServerSpec::new(exponential(0.002), 1000).route("/nothing", constant(0.0), 1000));
    let url = cluster.servers()[0].url("/nothing");
    let without = Stream::new("without", "50/s".parse().expect("a profile")).timeout(PATIENCE);
    let without = without.url(&url, 1.0).expect("a URL");
    let report = run(Plan { seed, ..Plan::new(vec![stream(&cluster, "250/s"), without], duration) });
    assert_conserved(&report);
    assert_eq!(report.total.admitted, report.total.offered, "{report}");
    assert_eq!(report.total.bytes, 1000 * report.total.admitted);
    let stats = cluster.stats();
    assert_eq!((stats.completed, stats.in_service, stats.abandoned), (report.total.admitted, 0, 0));
    (report, stats)
}

/// Two cores, FIFO, 5 ms each: 400/s, and twice that is asked for. Those that find the queue of 50 full are refused.
pub fn double_load(seed: u64, duration: Duration) -> Report {
    let spec = ServerSpec {
        cores: 2,
        discipline: Discipline::Fifo,
        accept_queue: Some(50),
        ..ServerSpec::new(constant(0.005), 100)
    };
    let cluster = start(spec);
    let plan = Plan::new(vec![stream(&cluster, "800/s")], duration);
    let report = run(Plan { seed, target: Some(SECOND), ..plan });
    assert_conserved(&report);
    // Nobody worked after the last answer.
    let most = 400.0 * (duration.as_secs_f64() + report.total.latency.max) + 2.0;
    assert!(report.total.admitted as f64 <= most, "{report}");
    assert_eq!(report.total.refused, cluster.stats().overflowed);
    assert_eq!((report.total.refused_by_sentry, report.total.errors_total()), (0, 0));
    report
}

/// Requests by server and the work done, all per second of `duration`, with which 28 servers of 60/s are asked 2200
/// times a second: 79/s each on average.
pub fn saturated_cluster(seed: u64, duration: Duration) -> (Report, [f64; 3]) {
    let spec = ServerSpec {
        discipline: Discipline::Fifo,
        accept_queue: Some(10),
        ..ServerSpec::new(constant(1.0 / 60.0), 1000)
    };
    let cluster = EmulatedCluster::start_on_thread(28, spec).expect("servers");
    let mut all = Stream::new("all", "2200/s".parse().expect("a profile")).timeout(PATIENCE);
    for server in cluster.servers() {
        all = all.url(&server.url("/"), 1.0).expect("a URL");
    }
    let report = run(Plan { seed, ..Plan::new(vec![all], duration) });
    assert_conserved(&report);
    // Nobody worked after the last answer. The first requests find a server idle, the last ones outlive the sending.
    let seconds = duration.as_secs_f64();
    let longest = seconds + report.total.latency.max;
    let completed: Vec<f64> = cluster.servers().iter().map(|server| server.stats().completed as f64).collect();
    let most = completed.iter().copied().fold(0.0, f64::max);
    let least = completed.iter().copied().fold(f64::INFINITY, f64::min);
    let work = cluster.stats().work_done;
    assert!(most <= 60.0 * longest + 1.0 && work <= 28.0 * longest + 0.1, "{most}, {work} s of work\n{report}");
    (report, [least / seconds, most / seconds, work / seconds])
}

/// A server with one place and no queue, 20 ms each, that closes the connections of all others; asked 200 times a
/// second.
pub fn closing_server(seed: u64) -> Report {
    let cluster = start(closing(constant(0.02)));
    let report = run(Plan { seed, ..Plan::new(vec![stream(&cluster, "200/s")], SECOND) });
    assert_conserved(&report);
    assert_eq!((report.total.errors_total(), report.total.refused), (cluster.stats().overflowed, 0), "{report}");
    report
}

/// One place, no queue, and nobody is told why.
pub fn closing(service: ServiceTime) -> ServerSpec {
    ServerSpec {
        concurrency: Some(1),
        accept_queue: Some(0),
        overflow: tidegate_testbed::Overflow::Close,
        ..ServerSpec::new(service, 10)
    }
}
