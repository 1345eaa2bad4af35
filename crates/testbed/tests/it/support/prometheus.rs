//! A sentry under overload, and a real Prometheus that scrapes it with the configuration and rules of `deploy/`.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_loadgen::{LoadRun, Plan, Stream};
use tidegate_sentry::Process;
use tidegate_sentry::config::Config;
use tidegate_testbed::{EmulatedCluster, ServerSpec, ThreadedCluster, free_address};
use tidegate_workload::{ArrivalProcess, ServiceTime};

use super::{PATIENCE, temporary};

pub const PROGRAM: &str = "prometheus";
pub const TOKEN: &str = "a-token-of-24-characters";
/// Requests per second: three times what a server of 30 does.
const RATE: f64 = 90.0;

/// A server of 30/s.
pub fn server() -> ThreadedCluster {
    let spec = ServerSpec::new(ServiceTime::lognormal(1.0 / 30.0, 0.5).expect("a distribution"), 512);
    EmulatedCluster::start_on_thread(1, spec).expect("a server")
}

/// All classes and reasons of a count of requests together, as Prometheus is asked for it.
pub fn count(of: &str) -> String {
    format!("sum(tidegate_requests_{of}_total)")
}

/// The body of what is answered.
pub fn answer(to: SocketAddr, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(to).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

/// A sentry, where its service is, and where its admin API is.
pub fn sentry(server: SocketAddr) -> (Process, SocketAddr, SocketAddr) {
    let text = format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"{TOKEN}\"\n[[application]]\nname = \"shop\"\n\
         listen = \"127.0.0.1:0\"\ntarget = \"1s\"\nservers = \"{server}\"\n"
    );
    let mut config = Config::parse(&text, "prometheus.toml".as_ref()).expect("valid").config;
    config.sentry.workers = 1;
    let sentry = Process::start(config, None).expect("a sentry");
    let (service, admin) = (sentry.sentry().addresses("shop")[0], sentry.admin_address().expect("an admin API"));
    (sentry, service, admin)
}

pub fn load(to: SocketAddr, seed: u64, duration: Duration) -> LoadRun {
    let stream = Stream::new("all", format!("{RATE}/s").parse().expect("a profile"));
    let stream = stream.arrivals(ArrivalProcess::Poisson).timeout(PATIENCE);
    let stream = stream.url(&format!("http://{to}/"), 1.0).expect("a URL");
    LoadRun::start(Plan { seed, connections: 512, ..Plan::new(vec![stream], duration) }).expect("a load")
}

/// A Prometheus with data of its own, stopped at the end.
pub struct Prometheus {
    process: Child,
    folder: PathBuf,
    address: SocketAddr,
}

impl Prometheus {
    /// With the times between scrapes that `deploy/` has, or with another one.
    pub fn start(target: SocketAddr, interval: Option<&str>) -> Prometheus {
        let folder = temporary("prometheus");
        fs::create_dir_all(&folder).expect("a folder");
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus");
        let read = |name: &str| fs::read_to_string(deploy.join(name)).expect("a file");
        let config = read("prometheus.yml")
            .replace("127.0.0.1:9900", &target.to_string())
            .replace("5s", interval.unwrap_or("5s"))
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
    pub fn query(&self, query: &str) -> Option<f64> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let body = answer(self.address, &format!("GET /api/v1/query?query={escaped} HTTP/1.0\r\n\r\n"))?;
        let value: Value = serde_json::from_str(&body).ok()?;
        value["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }

    #[track_caller]
    pub fn until(&self, query: &str, wanted: impl Fn(f64) -> bool) {
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
