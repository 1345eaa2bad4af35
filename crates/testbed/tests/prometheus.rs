//! A real Prometheus scrapes a sentry under overload, with the configuration and rules of `deploy/`.

#[path = "support/program.rs"]
mod program;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_loadgen::{LoadRun, Plan, Stream};
use tidegate_sentry::admin::AdminServer;
use tidegate_sentry::board::Board;
use tidegate_sentry::config::Config;
use tidegate_sentry::record::NoRecords;
use tidegate_sentry::{Sentry, SentryHandle};
use tidegate_testbed::{EmulatedCluster, ServerSpec, free_address};
use tidegate_workload::{ArrivalProcess, ServiceTime};

const PROGRAM: &str = "prometheus";
const TOKEN: &str = "a-token-of-24-characters";
/// Requests per second: three times what a server of 30 does.
const RATE: f64 = 90.0;
const PATIENCE: Duration = Duration::from_secs(60);
/// A minute under load by hand: `TIDEGATE_SCRAPE_SECONDS=60`.
const SECONDS: u64 = 20;

#[test]
fn prometheus_scrapes_an_overloaded_sentry_and_no_scrape_fails() {
    if !program::is_present(PROGRAM) {
        return println!("skipped: no prometheus");
    }
    let seconds = std::env::var("TIDEGATE_SCRAPE_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(SECONDS);
    let spec = ServerSpec::new(ServiceTime::lognormal(1.0 / 30.0, 0.5).expect("a distribution"), 512);
    let servers = EmulatedCluster::start_on_thread(1, spec).expect("a server");
    let (sentry, admin) = sentry(servers.addresses()[0]);
    let prometheus = Prometheus::start(admin.address());
    prometheus.until("up", |up| up == 1.0);

    let load = load(sentry.addresses("shop")[0], Duration::from_secs(seconds));
    let report = load.join().expect("a report");
    // One more scrape, so that the last second is in it.
    let counted = report.total.offered as f64;
    let metric = |family: &str| format!("sum(tidegate_requests_{family}_total)");
    prometheus.until(&metric("offered"), |offered| offered == counted);

    let window = format!("[{seconds}s]");
    // Each scrape has the whole interval of five seconds, and most take much less. How many there are is up to
    // Prometheus: on a busy machine it leaves out those that it is late for.
    assert_eq!(prometheus.query(&format!("min_over_time(up{window})")), Some(1.0), "no scrape failed");
    let scrapes = prometheus.query(&format!("count_over_time(up{window})")).expect("scrapes");
    assert!(scrapes >= 2.0, "{scrapes} scrapes in {seconds} s");
    let took = format!("quantile_over_time(0.5, scrape_duration_seconds{window})");
    let took = prometheus.query(&took).expect("scrapes");
    assert!(took < 1.0, "half of the scrapes take {took} s or more");
    let rejected = prometheus.query(&metric("rejected")).expect("refusals");
    let admitted = prometheus.query(&metric("admitted")).expect("admissions");
    assert_eq!(rejected + admitted, counted, "who was not refused was admitted");
    assert!(rejected > 0.3 * counted, "an overload: {rejected} of {counted} refused");
    let recorded = prometheus.query(&format!("max_over_time(tidegate:load:ratio{window})")).expect("a recording rule");
    assert!(recorded > 1.5, "the load was three times the capacity, the rule recorded {recorded}");
    promtool_takes_the_metrics(admin.address());
    sentry.shutdown(Duration::from_secs(1));
}

/// In the format that promtool reads, which is also what curl gets.
fn promtool_takes_the_metrics(admin: SocketAddr) {
    if !program::is_present("promtool") {
        return println!("skipped: no promtool");
    }
    let request = format!("GET /metrics HTTP/1.0\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    let text = answer(admin, &request).expect("metrics");
    assert!(text.contains("tidegate_requests_rejected_total{"), "{text}");
    let mut promtool = Command::new("promtool");
    let piped = promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("starts");
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    let ended = child.wait_with_output().expect("it ends");
    let said = [ended.stdout, ended.stderr].concat();
    assert!(ended.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

/// The body of what is answered.
fn answer(to: SocketAddr, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(to).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

fn sentry(server: SocketAddr) -> (SentryHandle, AdminServer) {
    let text = format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"{TOKEN}\"\n[[application]]\nname = \"shop\"\n\
         listen = \"127.0.0.1:0\"\ntarget = \"1s\"\nservers = \"{server}\"\n"
    );
    let mut config = Config::parse(&text, "prometheus.toml".as_ref()).expect("valid").config;
    config.sentry.workers = 1;
    let sentry = Sentry::start(config.clone(), Arc::new(NoRecords)).expect("a sentry");
    let board = Arc::new(Board::new(config.clone(), sentry.apps().to_vec(), Arc::default()));
    let admin = AdminServer::start(SocketAddr::from(([127, 0, 0, 1], 0)), &config.admin, board).expect("an admin API");
    (sentry, admin)
}

fn load(to: SocketAddr, duration: Duration) -> LoadRun {
    let stream = Stream::new("all", format!("{RATE}/s").parse().expect("a profile"));
    let stream = stream.arrivals(ArrivalProcess::Poisson).timeout(Duration::from_secs(10));
    let stream = stream.url(&format!("http://{to}/"), 1.0).expect("a URL");
    LoadRun::start(Plan { connections: 512, ..Plan::new(vec![stream], duration) }).expect("a load")
}

/// A Prometheus with data of its own, stopped at the end.
struct Prometheus {
    process: Child,
    folder: PathBuf,
    address: SocketAddr,
}

impl Prometheus {
    fn start(target: SocketAddr) -> Prometheus {
        let folder = std::env::temp_dir().join(format!("tidegate-prometheus-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus");
        let read = |name: &str| fs::read_to_string(deploy.join(name)).expect("a file");
        let config = read("prometheus.yml")
            .replace("127.0.0.1:9900", &target.to_string())
            .replace("# authorization:", "authorization:")
            .replace("#   credentials_file: /etc/prometheus/tidegate.token", "  credentials_file: token");
        fs::write(folder.join("prometheus.yml"), config).expect("a file");
        fs::write(folder.join("token"), TOKEN).expect("a file");
        fs::write(folder.join("tidegate.rules.yml"), read("tidegate.rules.yml")).expect("a file");
        // Prometheus cannot be asked which port it took.
        let address = free_address().expect("an address");
        let said = fs::File::create(folder.join("said")).expect("a file");
        let process = Command::new(PROGRAM)
            .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .expect("starts");
        Prometheus { process, folder, address }
    }

    /// The value of a query that has one; `None` where nothing is known yet.
    fn query(&self, query: &str) -> Option<f64> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let body = answer(self.address, &format!("GET /api/v1/query?query={escaped} HTTP/1.0\r\n\r\n"))?;
        let value: Value = serde_json::from_str(&body).ok()?;
        value["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }

    #[track_caller]
    fn until(&self, query: &str, wanted: impl Fn(f64) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.query(query);
            if seen.is_some_and(&wanted) {
                return;
            }
            let said = fs::read_to_string(self.folder.join("said")).unwrap_or_default();
            assert!(Instant::now() < deadline, "waited in vain: {query} is {seen:?}\n{said}");
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended already, and the folder is temporary.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
