//! A place is work at a server: a storm of clients that give up and try again, and a thousand streams that are open.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_loadgen::{Plan, Report, Stream};
use tidegate_sentry::Process;
use tidegate_sentry::config::{Config, OPEN_BYTES};
use tidegate_testbed::{ServerSpec, ThreadedCluster};
use tidegate_workload::ArrivalProcess;

use super::tell_disturbance;
use crate::support::front::{EVENTS, Front};
use crate::support::load::{SECOND, assert_conserved, constant, run, start};
use crate::support::{PATIENCE, until};

/// A server, what stands before it, and a sentry before that.
struct Site {
    process: Process,
    front: Front,
    _server: ThreadedCluster,
}

impl Site {
    /// `more`: lines of the application in the sentry's file.
    fn start(server: ServerSpec, more: &str) -> Site {
        let server = start(server);
        let front = Front::start(server.servers()[0].address());
        let text = format!(
            "[sentry]\nworkers = 1\n[[application]]\nname = \"shop\"\nlisten = \"127.0.0.1:0\"\ntarget = \"1s\"\n\
             servers = \"{}\"\n{more}\n\
             [[application.class]]\nname = \"patient\"\nmatch = {{ path_prefix = \"/patient\" }}\n\
             [[application.class]]\nname = \"rest\"\n",
            front.address
        );
        let config = Config::parse(&text, "work.toml".as_ref()).expect("valid").config;
        let process = Process::start(config, None).expect("a sentry");
        Site { process, front, _server: server }
    }

    fn address(&self) -> SocketAddr {
        self.process.sentry().addresses("shop")[0]
    }

    fn stream(&self, class: &str, rate: f64, timeout: Duration) -> Stream {
        let stream = Stream::new(class, format!("{rate}/s").parse().expect("a profile")).timeout(timeout);
        stream.url(&format!("http://{}/{class}", self.address()), 1.0).expect("a URL")
    }

    fn open(&self) -> u64 {
        self.process.sentry().apps()[0].snapshot().streams
    }
}

/// Four cores, of which a request takes one for 100 ms: 40 a second.
const PLACES: usize = 4;
const SERVICE: f64 = 0.1;
/// Of that, clients that wait ask for so much.
const PATIENT: f64 = 32.0;
/// Tries a second of clients that give up after 50 ms and try again.
const TRIES: f64 = 400.0;

/// Clients that give up before any server could answer, beside some that wait.
fn storm(policy: &str, duration: Duration) -> (Report, Site) {
    let server = ServerSpec { cores: PLACES as u32, ..ServerSpec::new(constant(SERVICE), 10) };
    let site = Site::start(server, &format!("admission = {policy}"));
    let patient = site.stream("patient", PATIENT, PATIENCE);
    let hasty = site.stream("rest", TRIES, Duration::from_millis(50));
    let plan = Plan::new(vec![patient, hasty], duration);
    let report = run(Plan { seed: 5, keep_alive: false, target: Some(SECOND), ..plan });
    tell_disturbance(&report);
    assert_conserved(&report);
    (report, site)
}

/// The server, which does not notice who leaves, never has more than its limit; and those who wait have at least 95 %
/// of what they would have alone, which is all that they ask for.
#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn a_storm_of_retries_is_held_at_the_limit() -> Result<(), String> {
    let policy = format!("{{ policy = \"concurrency\", limit = {PLACES}, queue = 1000 }}");
    let (report, site) = storm(&policy, 6 * SECOND);
    assert!(site.front.most() <= PLACES, "{} at work", site.front.most());
    until("the last ghost is over", || site.front.at_work() == 0);
    let (patient, hasty) = (&report.classes[0], &report.classes[1]);
    assert_eq!(hasty.admitted, 0, "nobody is answered within 50 ms: {report}");
    let kept = patient.good as f64 / patient.offered as f64;
    println!("{} at work at most; those who wait: {:.1} % of {}", site.front.most(), kept * 1e2, patient.offered);
    if kept >= 0.95 { Ok(()) } else { Err(format!("{kept} of what was asked for:\n{report}")) }
}

/// The same without a limit: what the test before looks for can be seen.
#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn a_storm_of_retries_without_a_limit_buries_the_server() -> Result<(), String> {
    let (_, site) = storm("\"none\"", 2 * SECOND);
    let most = site.front.most();
    if most > 4 * PLACES { Ok(()) } else { Err(format!("{most} at work at most")) }
}

/// One core, of which a request takes 40 ms, asked 12 times a second.
fn ordinary(site: &Site) -> Report {
    let stream = site.stream("patient", 12.0, PATIENCE).arrivals(ArrivalProcess::Constant);
    let report = run(Plan { target: Some(SECOND), ..Plan::new(vec![stream], 5 * SECOND) });
    tell_disturbance(&report);
    assert_conserved(&report);
    report
}

fn open_stream(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    stream.write_all(b"GET /events HTTP/1.1\r\nhost: t\r\n\r\n").expect("sends");
    let status = EVENTS.split("\r\n").next().expect("a line");
    let mut begins = vec![0; status.len()];
    stream.read_exact(&mut begins).expect("an answer");
    assert_eq!(String::from_utf8_lossy(&begins), status);
    stream
}

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = pages.split(' ').nth(1).and_then(|field| field.parse().ok()).expect("a number");
    pages * 4096
}

/// With the default policy: goodput within 3 % and the 95th percentile within 10 % of what they are without streams.
/// And no stream takes more memory than it is taken to; what stands before the server and the clients are counted in
/// that.
#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn a_thousand_idle_streams_cost_ordinary_requests_nothing() -> Result<(), String> {
    const STREAMS: u64 = 1000;
    let site = Site::start(ServerSpec::new(constant(0.04), 10), "");
    let without = ordinary(&site);
    let before = resident();
    let streams: Vec<TcpStream> = (0..STREAMS).map(|_| open_stream(site.address())).collect();
    until("all are open", || site.open() == STREAMS);
    let each = resident().saturating_sub(before) / STREAMS;
    let with = ordinary(&site);
    drop(streams);
    until("all are closed", || site.open() == 0);
    assert!(each < OPEN_BYTES, "{each} bytes for each stream");
    let [alone, beside] = [&without, &with].map(|report| (report.total.goodput_per_s, report.total.latency.p95));
    println!("goodput and p95 alone {alone:?}, beside {STREAMS} streams {beside:?}; {each} bytes for each stream");
    let as_before = beside.0 >= 0.97 * alone.0 && beside.1 <= 1.1 * alone.1;
    as_before.then_some(()).ok_or_else(|| format!("alone:\n{without}\nbeside streams:\n{with}"))
}
