//! Real processes: a sentry, its nuclei, and what happens when they are killed.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::support::{Folder, Process, free_port, get, loopback, tidegate, until};

/// A server that can be killed and started again at its address; counts what it is asked.
struct Server {
    address: SocketAddr,
    asked: Arc<AtomicU64>,
    running: Option<Running>,
}

/// How to stop it: the flag, its open connections, and its thread.
type Running = (Arc<AtomicBool>, Arc<Mutex<Vec<TcpStream>>>, thread::JoinHandle<()>);

impl Server {
    fn new() -> Server {
        let address = loopback(free_port());
        let mut server = Server { address, asked: Arc::default(), running: None };
        server.start();
        server
    }

    fn start(&mut self) {
        let listener = listen(self.address);
        let (stop, streams) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (stopped, kept, asked) = (stop.clone(), streams.clone(), self.asked.clone());
        let accept = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                kept.lock().expect("a lock").push(stream.try_clone().expect("a socket"));
                let asked = asked.clone();
                thread::spawn(move || answer(stream, &asked));
            }
        });
        self.running = Some((stop, streams, accept));
    }

    fn kill(&mut self) {
        let Some((stop, streams, accept)) = self.running.take() else { return };
        stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        accept.join().expect("the server");
        for stream in streams.lock().expect("a lock").drain(..) {
            // Its client may have gone.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The port was used a moment ago, which `std` allows for on its own.
fn listen(address: SocketAddr) -> TcpListener {
    let mut listener = None;
    until("the port is free", || {
        listener = TcpListener::bind(address).ok();
        listener.is_some()
    });
    listener.expect("a listener")
}

fn answer(stream: TcpStream, asked: &AtomicU64) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|length| length > 0) {
        if line == "\r\n" {
            asked.fetch_add(1, Ordering::SeqCst);
            if reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
        line.clear();
    }
}

/// Two servers, a sentry before them, a nucleus beside each.
pub struct Site {
    folder: Folder,
    servers: Vec<Server>,
    listen: SocketAddr,
    admin: SocketAddr,
    reports: u16,
    sentry: Option<Process>,
    nuclei: Vec<Option<Process>>,
}

impl Site {
    pub fn new() -> Site {
        let servers = vec![Server::new(), Server::new()];
        let (listen, admin) = (loopback(free_port()), loopback(free_port()));
        let reports = free_port();
        let folder = Folder::new();
        let mut text = format!("[admin]\nlisten = \"{admin}\"\n[sentry]\nworkers = 1\n");
        write!(text, "[reports]\nlisten = \"127.0.0.1:{reports}\"\nkey_file = \"key\"\nsilent_after = \"2s\"\n")
            .expect("a string");
        text.push_str("when_silent = \"exclude\"\n");
        let names: Vec<String> = servers.iter().map(|server| format!("\"{}\"", server.address)).collect();
        write!(text, "[[application]]\nlisten = \"{listen}\"\nservers = [{}]\n", names.join(", ")).expect("a string");
        text.push_str("[application.health]\ninterval = \"100ms\"\n");
        folder.write("sentry.toml", &text);
        let mut site = Site { folder, servers, listen, admin, reports, sentry: None, nuclei: vec![None, None] };
        site.start_sentry();
        site.start_nucleus(0);
        site.start_nucleus(1);
        site
    }

    fn start_sentry(&mut self) {
        self.sentry = Some(Process::start(&["run", "-c", &self.folder.path("sentry.toml")]));
        until("the sentry answers", || self.state().is_some());
    }

    fn start_nucleus(&mut self, at: usize) {
        let (server, to) = (self.servers[at].address.to_string(), format!("127.0.0.1:{}", self.reports));
        let key = self.folder.path("key");
        let arguments = ["nucleus", "--server", &server, "--to", &to, "--key-file", &key];
        self.nuclei[at] = Some(Process::start(&arguments));
    }

    pub fn state(&self) -> Option<Value> {
        let body = get(self.admin, "/api/state")?;
        serde_json::from_str(&body).ok()
    }

    fn nucleus_state(&self, at: usize) -> String {
        let state = self.state().unwrap_or_default();
        state["reports"]["nuclei"][at]["state"].as_str().unwrap_or("none").to_owned()
    }

    pub fn until_state(&self, at: usize, wanted: &str) {
        until(wanted, || self.nucleus_state(at) == wanted);
    }

    fn in_flight(&self) -> u64 {
        let state = self.state().unwrap_or_default();
        state["applications"][0]["in_flight"].as_u64().unwrap_or(u64::MAX)
    }

    /// The process of a nucleus.
    pub fn nucleus(&self, at: usize) -> u32 {
        self.nuclei[at].as_ref().expect("running").id()
    }

    /// How many reports of a nucleus have come.
    pub fn reports(&self, at: usize) -> u64 {
        self.state().and_then(|state| state["reports"]["nuclei"][at]["reports"].as_u64()).unwrap_or(0)
    }

    /// Answers with status 200 of so many requests.
    fn ask(&self, times: usize) -> usize {
        (0..times).filter(|_| get(self.listen, "/").is_some()).count()
    }
}

#[test]
fn everything_recovers_from_kill_9_by_itself() {
    let mut site = Site::new();
    site.until_state(0, "speaks");
    site.until_state(1, "speaks");
    assert_eq!(site.ask(20), 20);

    // A nucleus.
    site.nuclei[0].take().expect("running").kill();
    site.until_state(0, "silent");
    let before = site.servers[0].asked();
    assert_eq!(site.ask(50), 50);
    assert_eq!(site.servers[0].asked(), before, "no request to an excluded server");
    site.start_nucleus(0);
    site.until_state(0, "speaks");
    until("both are asked again", || {
        site.ask(1);
        site.servers[0].asked() > before
    });

    // A server: its nucleus sees that nothing listens.
    site.servers[1].kill();
    site.until_state(1, "not-listening");
    let before = site.servers[1].asked();
    assert_eq!(site.ask(50), 50);
    assert_eq!(site.servers[1].asked(), before);
    site.servers[1].start();
    site.until_state(1, "speaks");
    until("it is asked again", || {
        site.ask(1);
        site.servers[1].asked() > before
    });

    // The sentry: it knows nobody, and nuclei find it again.
    site.sentry.take().expect("running").kill();
    site.start_sentry();
    site.until_state(0, "speaks");
    site.until_state(1, "speaks");
    assert_eq!(site.ask(20), 20);
    until("nothing stays in flight", || site.in_flight() == 0);
}

/// Under 10 MiB; an unoptimised build takes more. What it takes of a processor is a measurement.
#[test]
fn a_nucleus_is_small() {
    let site = Site::new();
    site.until_state(0, "speaks");
    let sent = site.reports(0);
    until("some samples", || site.reports(0) >= sent + 20);
    let kib = resident_kib(site.nucleus(0));
    println!("{kib} KiB resident");
    let most = if cfg!(debug_assertions) { 24 } else { 10 };
    assert!(kib < most * 1024, "{kib} KiB");
}

fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.split_ascii_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number")
}

#[test]
fn one_sample_as_json_and_mistakes() {
    let output = |arguments: &[&str]| tidegate(&[&["nucleus"], arguments].concat()).output().expect("runs");
    let once = output(&["--once", "--server", "127.0.0.1:1"]);
    assert!(once.status.success());
    let json: Value = serde_json::from_slice(&once.stdout).expect("JSON");
    assert_eq!((&json["server"], &json["measured"]["listeners"]), (&"127.0.0.1:1".into(), &0.0.into()));
    assert!(json["measured"]["cpu"].as_f64().is_some_and(|cpu| cpu >= 0.0));
    for (arguments, expected) in [
        (vec!["--server", "a:1"], "--to"),
        (vec!["--to", "127.0.0.1:1"], "--key-file"),
        (vec!["--to", "127.0.0.1:1", "--key-file", "/nonexistent/key"], "/nonexistent/key"),
        (vec!["--once", "--interval", "0s"], "interval"),
    ] {
        let refused = output(&arguments);
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
}
