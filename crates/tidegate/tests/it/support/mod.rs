//! Processes, folders and ports for tests of the program.

#[cfg(feature = "kubernetes")]
#[path = "../../../../control/tests/it/support/cluster/api.rs"]
pub mod api;
#[path = "../../../../control/tests/it/support/folder.rs"]
pub mod folder;
#[cfg(feature = "kubernetes")]
pub mod pair;
pub mod pool;
pub mod ports;
#[path = "../../../../testbed/tests/it/support/program.rs"]
pub mod program;

use std::fs::Permissions;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long a test waits for what must come; a machine that has much to do gets there later.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long it waits for one answer, where it can ask again.
const ANSWER: Duration = Duration::from_secs(30);

/// Waits for a condition.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::park_timeout(Duration::from_millis(10));
    }
}

/// The seed of what a test draws: `TIDEGATE_SEED`, else any; printed, so that a test that fails shows it.
pub fn seed() -> u64 {
    let given = std::env::var("TIDEGATE_SEED").ok();
    let given = given.map(|text| text.parse().expect("TIDEGATE_SEED is a number"));
    let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("TIDEGATE_SEED={seed}");
    seed
}

/// The program with these arguments.
pub fn tidegate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A process, killed at the end.
pub struct Process(pub Child);

impl Process {
    pub fn start(arguments: &[&str]) -> Process {
        Process(tidegate(arguments).stdout(Stdio::null()).spawn().expect("starts"))
    }

    /// Another program that does nothing for longer than any test takes.
    pub fn idle() -> Process {
        Process(Command::new("sleep").arg("3600").stdout(Stdio::null()).spawn().expect("sleep starts"))
    }

    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Sends a signal; an error when there is no such process.
pub fn signal(process: u32, signal: Signal) -> rustix::io::Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, signal)
}

/// A folder of its own with a key in it, removed at the end.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Folder {
        let folder = Folder(folder::folder());
        folder.write("key", "the secret of the tests\n");
        folder
    }

    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Writes a file: its path.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a file");
        // Keys and tokens are among them, and others should not read those.
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a mode");
        path
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("a file")
    }
}

pub fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

pub fn free_port() -> u16 {
    free_ports(1)
}

/// The first of so many in a row, which no other test gets while this process lives.
pub fn free_ports(count: u16) -> u16 {
    loop {
        let first = tidegate_testbed::free_addresses(count).expect("ports that are free").port();
        let is_free = |port: u16| ports::take(port) && TcpListener::bind(loopback(port)).is_ok();
        // Else another test has one of them, perhaps with nothing there yet.
        if (first..first + count).all(is_free) {
            return first;
        }
    }
}

/// The body of an answer with status 200.
pub fn get(address: SocketAddr, path: &str) -> Option<String> {
    let answer = answer(address, path)?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}

/// A whole answer.
pub fn answer(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}
