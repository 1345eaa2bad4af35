//! The program from outside: exit statuses and messages.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

fn tidegate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = tidegate(arguments).output().expect("runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

/// A file of its own, removed at the end.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-cli-{name}-{}.toml", std::process::id()));
        std::fs::write(&path, text).expect("writes");
        File(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // The folder is temporary: leaving the file harms nobody.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A running sentry, stopped at the end whatever happens.
struct Running {
    child: Child,
    lines: BufReader<std::process::ChildStderr>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut child = tidegate(arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("starts");
        let lines = BufReader::new(child.stderr.take().expect("piped"));
        Running { child, lines }
    }

    /// Reads what it says up to a line with `wanted`; that line.
    fn until(&mut self, wanted: &str) -> String {
        let mut all = String::new();
        loop {
            let start = all.len();
            let read = self.lines.read_line(&mut all).expect("reads");
            assert!(read > 0, "it ended before saying {wanted:?}: {all}");
            if all[start..].contains(wanted) {
                return all[start..].to_owned();
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(id, signal).expect("it runs");
    }

    fn address(&mut self, what: &str) -> String {
        let line = self.until(what);
        line.trim().rsplit("http://").next().expect("a URL").trim_end_matches('/').to_owned()
    }

    /// Its exit status; it has ten seconds.
    fn end(mut self) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(status) = self.child.try_wait().expect("waits") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not stop");
            std::thread::yield_now();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("sends");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn check_prints_a_configuration_that_check_accepts() {
    let file = File::new("good", "[[application]]\nservers = \"127.0.0.1:9001\"\nshadow = true\n");
    let (status, printed, warnings) = output(&["check", file.path()]);
    assert_eq!(status, Some(0));
    assert!(warnings.contains(":1: \"default\" is in shadow mode"), "{warnings}");
    let again = File::new("again", &printed);
    assert_eq!(output(&["check", again.path()]).1, printed);
}

#[test]
fn mistakes_are_status_2_with_file_and_line() {
    let file = File::new("bad", "[[application]]\nservers = \"127.0.0.1:9001\"\ntagret = \"500ms\"\n");
    let message = format!("{}:3: unknown key \"tagret\" in [[application]]; did you mean \"target\"?\n", file.path());
    for command in [&["check", file.path()][..], &["run", "-c", file.path()]] {
        let (status, printed, said) = output(command);
        assert_eq!((status, printed.as_str(), said.as_str()), (Some(2), "", message.as_str()));
    }
    assert_eq!(output(&["check", "/nonexistent.toml"]).0, Some(2));
    for usage in [&["run"][..], &["run", "--to", "127.0.0.1:1", "--policy", "magic"], &["walk"]] {
        assert_eq!(output(usage).0, Some(2), "{usage:?}");
    }
}

#[test]
fn a_taken_port_is_status_1_and_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = taken.local_addr().expect("an address").to_string();
    let (status, _, said) = output(&["run", "--to", "127.0.0.1:1", "--listen", &address]);
    assert_eq!(status, Some(1));
    assert!(said.contains(&format!("cannot listen on {address}")) && said.contains("another program"), "{said}");
    let (status, _, said) = output(&["run", "--to", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin", &address]);
    assert_eq!(status, Some(1));
    assert!(said.contains(&format!("the admin API cannot listen on {address}")), "{said}");
}

#[test]
fn it_runs_reloads_and_drains() {
    let text = |target: &str| {
        format!(
            "[admin]\nlisten = \"127.0.0.1:0\"\n[[application]]\nlisten = \"127.0.0.1:0\"\nservers = \"127.0.0.1:9\"\n\
             target = \"{target}\"\n"
        )
    };
    let file = File::new("run", &text("500ms"));
    let mut running = Running::start(&["run", "-c", file.path()]);
    let service = running.address("listen");
    let admin = running.address("admin");
    assert!(get(&admin, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(&service, "/").starts_with("HTTP/1.1 50"), "no server is there");
    assert!(get(&admin, "/metrics").contains("tidegate_target_seconds{application=\"default\"} 0.5"));

    std::fs::write(&file.0, text("nonsense")).expect("writes");
    running.signal(Signal::HUP);
    running.until("target = \"nonsense\" is not a time");
    std::fs::write(&file.0, text("2500ms")).expect("writes");
    running.signal(Signal::HUP);
    running.until("is in force");
    assert!(get(&admin, "/metrics").contains("tidegate_target_seconds{application=\"default\"} 2.5"));

    running.signal(Signal::TERM);
    running.until("stopped");
    assert_eq!(running.end(), Some(0));
}
