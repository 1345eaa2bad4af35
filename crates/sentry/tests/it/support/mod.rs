//! A real sentry, raw servers and raw clients, all on loopback.

mod client;
pub mod dns;
pub mod envoy;
pub mod haproxy;
pub mod hostile;
pub mod protobuf;
mod server;

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_classify::ClassifierSetup;
use tidegate_engine::{AdmissionConfig, ServerSetup, Setup, Sla, Statistic};
use tidegate_sentry::app::App;
use tidegate_sentry::config::{
    AccessLog, Admin, Application, Asker, Config, Forwarded, Health, Limits, Pool, ProxyOut, RejectionPages, Retry,
    SentryConfig, Server, Timeouts, Upgrade,
};
use tidegate_sentry::counters::Counter;
use tidegate_sentry::record::{NoRecords, RecordSink};
use tidegate_sentry::{Sentry, SentryHandle};

pub use client::{Answer, Client, find};
pub use server::{Asked, Peer, RawServer, ok};

/// Nothing in these tests takes this long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `condition` holds, or fails the test.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::yield_now();
        thread::park_timeout(Duration::from_millis(1));
    }
}

/// An application whose servers are known to who asks.
pub fn behind(asker: Asker) -> Application {
    let nowhere = ([192, 0, 2, 1], 1).into();
    let mut app = application(&[nowhere]);
    app.servers = vec![Server { name: String::from("s0"), address: String::from(asker.name()) }];
    app
}

/// One that has room for one request, and lets others wait.
pub fn with_one_place(mut app: Application) -> Application {
    app.setup.admission = admission(json!({"policy": "concurrency", "limit": 1, "queue": 10, "queue_timeout": "60s"}));
    app
}

/// An application named `app` in front of `servers`, that admits everything.
pub fn application(servers: &[SocketAddr]) -> Application {
    let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("a target");
    let names = (0..servers.len()).map(|i| ServerSetup::new(format!("s{i}")));
    let mut setup = Setup::simple("app", sla, names);
    setup.admission = admission(json!({"policy": "none"}));
    let server = |(i, address): (usize, &SocketAddr)| Server { name: format!("s{i}"), address: address.to_string() };
    Application {
        name: String::from("app"),
        listen: vec![([127, 0, 0, 1], 0).into()],
        routing: tidegate_sentry::config::Routing::default(),
        tls: None,
        server_tls: None,
        server_files: Vec::new(),
        server_proxy: ProxyOut::Off,
        setup,
        classifier: ClassifierSetup { classes: vec![Vec::new()], ..ClassifierSetup::default() },
        kinds: Vec::new(),
        class_kinds: Vec::new(),
        tags: Vec::new(),
        syn: tidegate_sentry::config::SynPolicing::default(),
        servers: servers.iter().enumerate().map(server).collect(),
        timeouts: patient(),
        limits: Limits::default(),
        health: Health {
            interval: Duration::from_secs(3600),
            timeout: PATIENCE,
            passive_failures: 0,
            ..Health::default()
        },
        mirror: None,
        retry: Retry::default(),
        pool: Pool::default(),
        forwarded: Forwarded::default(),
        rejection: RejectionPages { status: 503, pages: Vec::new(), details: true, decision_on_admitted: false },
        exempt: Vec::new(),
        paths: tidegate_classify::Paths::Strict,
        refused_below: Vec::new(),
        half_close: false,
    }
}

/// Nothing runs out of time, however slow the machine is: a client that waits in vain fails its test before.
fn patient() -> Timeouts {
    let long = 2 * PATIENCE;
    Timeouts {
        header: long,
        handshake: long,
        body_idle: long,
        connect: long,
        first_byte: long,
        request: None,
        client_idle: long,
        server_idle: long,
    }
}

/// An admission policy from its configuration.
pub fn admission(value: serde_json::Value) -> AdmissionConfig {
    serde_json::from_value(value).expect("an admission policy")
}

/// Refuses everything.
pub fn refuse_all() -> AdmissionConfig {
    admission(json!({"policy": "concurrency", "limit": 0}))
}

/// A configuration with one application and `workers` workers.
pub fn config(application: Application, workers: usize) -> Config {
    let is_told =
        |server: &Server| [Asker::Nginx, Asker::Haproxy].into_iter().any(|asker| asker.name() == server.address);
    let tells_ends = application.servers.iter().any(is_told);
    Config {
        sentry: SentryConfig { workers, drain: PATIENCE, resolvers: Vec::new() },
        admin: Admin::default(),
        reports: None,
        peers: None,
        ends: tells_ends.then_some(([127, 0, 0, 1], 0).into()),
        traces: None,
        control: None,
        access_log: AccessLog::Off,
        upgrade: Upgrade::default(),
        applications: vec![application],
        source: None,
    }
}

/// A running sentry with one application.
pub struct Running {
    pub handle: SentryHandle,
    pub address: SocketAddr,
}

impl Running {
    pub fn start(application: Application) -> Self {
        Running::with_workers(application, 1)
    }

    pub fn with_workers(application: Application, workers: usize) -> Self {
        Running::with_records(application, workers, Arc::new(NoRecords))
    }

    /// One that tells `records` of its requests.
    pub fn with_records(application: Application, workers: usize, records: Arc<dyn RecordSink>) -> Self {
        let handle = Sentry::start(config(application, workers), records).expect("a sentry");
        let address = handle.addresses("app")[0];
        Running { handle, address }
    }

    pub fn app(&self) -> &Arc<App> {
        &self.handle.apps()[0]
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// One request on a connection of its own.
    pub fn ask(&self, request: &str) -> Answer {
        let mut client = self.client();
        client.send(request);
        client.answer()
    }

    /// Tells of a request's end, as a line of syslog from this program.
    pub fn tell_end(&self, program: &str, fields: &str) {
        let to = self.handle.ends().expect("ends are listened for");
        let line = format!("<190>Nov 25 16:12:23 host {program}: {fields}");
        UdpSocket::bind("127.0.0.1:0").expect("a port").send_to(line.as_bytes(), to).expect("sent");
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.app().counters.get(counter)
    }

    /// Whatever happened, nothing may stay behind.
    #[track_caller]
    pub fn assert_quiet(&self) {
        until("in flight is back to 0", || self.app().in_flight() == 0 && self.app().waiting() == 0);
    }
}

/// A door that test threads wait at until the test opens it.
#[derive(Clone, Default)]
pub struct Door(Arc<(Mutex<bool>, Condvar)>);

impl Door {
    pub fn open(&self) {
        *self.0.0.lock().expect("a lock") = true;
        self.0.1.notify_all();
    }

    pub fn is_open(&self) -> bool {
        *self.0.0.lock().expect("a lock")
    }

    /// A server that answers once it is open.
    pub fn server(&self, answer: &'static str) -> RawServer {
        let door = self.clone();
        RawServer::answering(move |_| {
            door.wait();
            ok(answer)
        })
    }

    pub fn wait(&self) {
        let (open, bell) = &*self.0;
        let open = open.lock().expect("a lock");
        drop(bell.wait_timeout_while(open, PATIENCE, |open| !*open));
    }
}
