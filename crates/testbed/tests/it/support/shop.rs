//! A sentry before two servers, with the dashboard, and an overload of it on real HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_engine::Snapshot;
use tidegate_loadgen::{LoadRun, Plan, Stream};
use tidegate_sentry::admin::AdminServer;
use tidegate_sentry::config::Config;
use tidegate_sentry::{Process, SentryHandle};
use tidegate_testbed::{EmulatedCluster, ServerSpec, ThreadedCluster, free_address};
use tidegate_workload::{ArrivalProcess, ServiceTime};

use super::PATIENCE;
use super::browser::Browser;

pub const TOKEN: &str = "a-token-of-24-characters";
/// Names that would do something if they became markup.
pub const GOLD: &str = "gold<script>window.hacked=1</script>";
pub const REST: &str = "\"><img src=x onerror=window.hacked=1>";
pub const SERVER: &str = "<b onclick=alert(1)>s0</b>";
/// Requests per second that arrive: five times what two servers of 30 do.
pub const RATES: [f64; 2] = [30.0, 270.0];

/// Servers, sentry and admin API in this process.
pub struct Service {
    pub admin: Option<AdminServer>,
    process: Process,
    _servers: ThreadedCluster,
}

impl Service {
    pub fn start() -> Self {
        let spec = ServerSpec::new(ServiceTime::lognormal(1.0 / 30.0, 0.5).expect("a distribution"), 512);
        let servers = EmulatedCluster::start_on_thread(2, spec).expect("servers");
        let [first, second] = servers.addresses()[..] else { panic!("two servers") };
        let text = format!(
            "[admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"{TOKEN}\"\n[[application]]\nname = \"shop\"\n\
             listen = \"127.0.0.1:0\"\ntarget = \"1s\"\n\
             servers = [{{ name = {SERVER:?}, address = \"{first}\" }}, \"{second}\"]\n\
             [[application.class]]\nname = {GOLD:?}\nmatch = {{ path_prefix = \"/gold\" }}\n\
             [[application.class]]\nname = {REST:?}\n"
        );
        let mut config = Config::parse(&text, "dashboard.toml".as_ref()).expect("valid").config;
        config.sentry.workers = 1;
        // Started below, and stopped and started again by tests.
        config.admin.listen = None;
        let process = Process::start(config, None).expect("a sentry");
        let mut service = Service { admin: None, process, _servers: servers };
        // One that nobody else is given while the API is away.
        service.listen(free_address().expect("an address"));
        service
    }

    pub fn listen(&mut self, at: SocketAddr) {
        let board = self.process.board();
        self.admin = Some(
            AdminServer::start(
                at,
                &board.config().admin,
                board.clone(),
                &mut tidegate_sentry::sockets::Sockets::default(),
            )
            .expect("an admin API"),
        );
    }

    pub fn sentry(&self) -> &SentryHandle {
        self.process.sentry()
    }

    pub fn admin(&self) -> SocketAddr {
        self.admin.as_ref().expect("it runs").address()
    }

    /// Runs until it is stopped.
    pub fn load(&self) -> LoadRun {
        let address = self.sentry().addresses("shop")[0];
        let stream = |(name, rate): (&str, f64)| {
            let stream = Stream::new(name, format!("{rate}/s").parse().expect("a profile"));
            let stream = stream.arrivals(ArrivalProcess::Constant).timeout(PATIENCE);
            stream.url(&format!("http://{address}/{name}/%3Cscript%3E"), 1.0).expect("a URL")
        };
        let streams = ["gold", "rest"].into_iter().zip(RATES).map(stream).collect();
        let plan =
            Plan { target: Some(Duration::from_secs(1)), connections: 2048, ..Plan::new(streams, 60 * PATIENCE) };
        LoadRun::start(plan).expect("a load")
    }

    pub fn snapshot(&self) -> Snapshot {
        self.sentry().apps()[0].snapshot()
    }

    /// A counter of `/metrics`, all classes and reasons together.
    pub fn metric(&self, name: &str) -> f64 {
        let text = http(self.admin(), &format!("GET /metrics HTTP/1.1\r\nauthorization: Bearer {TOKEN}"));
        let lines = text.lines().filter(|line| line.starts_with(&format!("{name}_total{{")));
        lines.map(|line| line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number")).sum()
    }
}

pub fn http(to: SocketAddr, head: &str) -> String {
    let mut stream = TcpStream::connect(to).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    let request = format!("{head}\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sends");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The page opens without a token, asks for it, and then shows figures.
pub fn log_in(browser: &mut Browser, admin: SocketAddr) {
    browser.open(&format!("http://{admin}/"));
    browser.until("document.querySelector('#dialog')?.open");
    // From here on it has the token, and no answer is a refusal.
    browser.fill("#dialog-token", TOKEN);
    browser.click("#dialog-confirm");
    browser.until("document.body.dataset.ready && document.body.dataset.link === 'live'");
    // The question for the token is a refusal, which browsers log.
    browser.forget();
}
