//! A real sentry, raw servers and raw clients, all on loopback.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown as Half, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_engine::{AdmissionConfig, ClassifierSetup, ServerSetup, Setup, Sla, Statistic};
use tidegate_sentry::app::App;
use tidegate_sentry::config::{
    AccessLog, Admin, Application, Config, Forwarded, Health, Limits, Pool, RejectionPages, Retry, SentryConfig,
    Server, Timeouts,
};
use tidegate_sentry::counters::Counter;
use tidegate_sentry::record::NoRecords;
use tidegate_sentry::{Sentry, SentryHandle};

/// Nothing in these tests takes this long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(10);

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
        setup,
        classifier: ClassifierSetup { classes: vec![Vec::new()], ..ClassifierSetup::default() },
        tags: Vec::new(),
        syn: tidegate_sentry::config::SynPolicing::default(),
        servers: servers.iter().enumerate().map(server).collect(),
        timeouts: Timeouts::default(),
        limits: Limits::default(),
        health: Health { interval: Duration::from_secs(3600), passive_failures: 0, ..Health::default() },
        retry: Retry::default(),
        pool: Pool::default(),
        forwarded: Forwarded::default(),
        rejection: RejectionPages { status: 503, pages: Vec::new(), decision_on_admitted: false },
        exempt: Vec::new(),
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
    Config {
        sentry: SentryConfig { workers, drain: Duration::from_secs(5) },
        admin: Admin::default(),
        reports: None,
        traces: None,
        control: None,
        access_log: AccessLog::Off,
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
        let handle = Sentry::start(config(application, workers), Arc::new(NoRecords)).expect("a sentry");
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

    pub fn count(&self, counter: Counter) -> u64 {
        self.app().counters.get(counter)
    }

    /// Whatever happened, nothing may stay behind.
    #[track_caller]
    pub fn assert_quiet(&self) {
        until("in flight is back to 0", || self.app().in_flight() == 0 && self.app().waiting() == 0);
    }
}

/// A raw client.
pub struct Client {
    pub io: TcpStream,
    read: Vec<u8>,
}

/// What a client got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// A field's value.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let io = TcpStream::connect(address).expect("a connection");
        io.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        io.set_nodelay(true).expect("no delay");
        Client { io, read: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.io.write_all(bytes.as_ref()).expect("a write");
    }

    pub fn close_sending(&self) {
        self.io.shutdown(Half::Write).expect("half a close");
    }

    /// The next answer to a request with a body.
    #[track_caller]
    pub fn answer(&mut self) -> Answer {
        self.try_answer(false).expect("an answer")
    }

    /// The next answer to a HEAD request.
    #[track_caller]
    pub fn head_answer(&mut self) -> Answer {
        self.try_answer(true).expect("an answer")
    }

    /// The next answer, or how the connection ended instead.
    pub fn try_answer(&mut self, head_only: bool) -> io::Result<Answer> {
        let end = loop {
            if let Some(at) = find(&self.read, b"\r\n\r\n") {
                break at + 4;
            }
            self.more()?;
        };
        let head = String::from_utf8_lossy(&self.read[..end]).into_owned();
        self.read.drain(..end);
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        let mut answer = Answer { status, head, body: Vec::new() };
        if head_only || status / 100 == 1 || status == 204 || status == 304 {
            return Ok(answer);
        }
        answer.body = if answer.field("transfer-encoding").is_some() {
            self.chunks()?
        } else if let Some(length) = answer.field("content-length").and_then(|l| l.parse().ok()) {
            self.exactly(length)?
        } else {
            while self.more().is_ok() {}
            std::mem::take(&mut self.read)
        };
        Ok(answer)
    }

    /// Everything up to the end of the connection.
    #[track_caller]
    pub fn rest(&mut self) -> Vec<u8> {
        loop {
            match self.more() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("the connection stays open"),
                Err(_) => return std::mem::take(&mut self.read),
            }
        }
    }

    /// Whether the other end has closed, with nothing more to read.
    #[track_caller]
    pub fn assert_closed(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "unexpected: {:?}", String::from_utf8_lossy(&rest));
    }

    pub fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.read.len() < length {
            self.more()?;
        }
        Ok(self.read.drain(..length).collect())
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let size = usize::from_str_radix(line.split(';').next().unwrap_or("").trim(), 16);
            let size = size.map_err(|_| io::Error::other(format!("bad chunk size {line:?}")))?;
            if size == 0 {
                while !self.line()?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.exactly(size)?);
            self.line()?;
        }
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = find(&self.read, b"\r\n") {
                let line = String::from_utf8_lossy(&self.read[..at]).into_owned();
                self.read.drain(..at + 2);
                return Ok(line);
            }
            self.more()?;
        }
    }

    fn more(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        match self.io.read(&mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                self.read.extend_from_slice(&buffer[..n]);
                Ok(())
            }
        }
    }
}

pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// A server whose connections are handled by a closure, each on a thread of its own.
pub struct RawServer {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    pub connections: Arc<AtomicUsize>,
    streams: Arc<Mutex<HashMap<usize, TcpStream>>>,
}

impl RawServer {
    pub fn start(handle: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, connections) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let streams = Arc::new(Mutex::new(HashMap::new()));
        let handle = Arc::new(handle);
        let (stopped, count, kept) = (stop.clone(), connections.clone(), streams.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let id = count.fetch_add(1, Ordering::SeqCst);
                if let Ok(clone) = stream.try_clone() {
                    kept.lock().expect("a lock").insert(id, clone);
                }
                let (handle, kept) = (handle.clone(), kept.clone());
                thread::spawn(move || {
                    handle(Peer::new(stream));
                    // The last handle: the connection ends here, in good order or not.
                    kept.lock().expect("a lock").remove(&id);
                });
            }
        });
        RawServer { address, stop, connections, streams }
    }

    /// Answers every request with what `answer` makes of it: head and body as text.
    pub fn answering(answer: impl Fn(&Asked) -> String + Send + Sync + 'static) -> Self {
        RawServer::start(move |mut peer| {
            while let Some(asked) = peer.request() {
                if peer.io.write_all(answer(&asked).as_bytes()).is_err() {
                    return;
                }
            }
        })
    }

    /// Answers 200 with the request's target.
    pub fn echo() -> Self {
        RawServer::answering(|asked| ok(&asked.target))
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Stops listening and breaks every connection.
    pub fn kill(&self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        for (_, stream) in self.streams.lock().expect("a lock").drain() {
            let _ = stream.shutdown(Half::Both);
        }
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A 200 with a body.
pub fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// A connection as a server sees it.
pub struct Peer {
    pub io: TcpStream,
    client: Client,
}

/// A request as a server sees it.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub target: String,
    pub head: String,
    pub body: Vec<u8>,
}

impl Asked {
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

impl Peer {
    fn new(io: TcpStream) -> Self {
        let _ = io.set_nodelay(true);
        let client = Client { io: io.try_clone().expect("a socket"), read: Vec::new() };
        Peer { io, client }
    }

    /// The next request's head, as a string.
    pub fn head(&mut self) -> Option<String> {
        let end = loop {
            if let Some(at) = find(&self.client.read, b"\r\n\r\n") {
                break at + 4;
            }
            self.client.more().ok()?;
        };
        let head = String::from_utf8_lossy(&self.client.read[..end]).into_owned();
        self.client.read.drain(..end);
        Some(head)
    }

    /// The next request with its body.
    pub fn request(&mut self) -> Option<Asked> {
        let head = self.head()?;
        let mut words = head.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut asked = Asked { method, target, head, body: Vec::new() };
        asked.body = if asked.field("transfer-encoding").is_some() {
            self.client.chunks().ok()?
        } else {
            let length = asked.field("content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
            self.client.exactly(length).ok()?
        };
        Some(asked)
    }

    pub fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        self.client.exactly(length)
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.io.write_all(bytes.as_ref()).is_ok()
    }

    /// Closes with a reset instead of a good end.
    pub fn reset(self) {
        let _ = socket2::SockRef::from(&self.io).set_linger(Some(Duration::ZERO));
        let _ = socket2::SockRef::from(&self.client.io).set_linger(Some(Duration::ZERO));
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

    pub fn wait(&self) {
        let (open, bell) = &*self.0;
        let open = open.lock().expect("a lock");
        drop(bell.wait_timeout_while(open, PATIENCE, |open| !*open));
    }
}
