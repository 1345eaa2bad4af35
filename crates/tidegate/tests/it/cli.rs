//! The program from outside: exit statuses and messages.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::process::{Output, Stdio};

use rustix::fs::OFlags;
use rustix::process::Signal;

use crate::support::{Folder, Process, answer, free_port, loopback, signal, tidegate, until};

fn output(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = tidegate(arguments).output().expect("runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

/// A running sentry, stopped at the end whatever happens.
struct Running {
    process: Process,
    lines: BufReader<std::process::ChildStderr>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut child = tidegate(arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("starts");
        let lines = BufReader::new(child.stderr.take().expect("piped"));
        Running { process: Process(child), lines }
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

    fn signal(&self, what: Signal) {
        signal(self.process.id(), what).expect("it runs");
    }

    fn address(&mut self, what: &str) -> SocketAddr {
        let line = self.until(what);
        line.trim().rsplit("http://").next().expect("a URL").trim_end_matches('/').parse().expect("an address")
    }

    /// Its exit status.
    fn end(mut self) -> Option<i32> {
        let mut status = None;
        until("it stops", || {
            status = self.process.0.try_wait().expect("waits");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    answer(address, path).expect("an answer")
}

#[test]
fn check_prints_a_configuration_that_check_accepts() {
    let folder = Folder::new();
    let file = folder.write("good.toml", "[[application]]\nservers = \"127.0.0.1:9001\"\nshadow = true\n");
    let (status, printed, warnings) = output(&["check", &file]);
    assert_eq!(status, Some(0));
    assert!(warnings.contains(":1: \"default\" is in shadow mode"), "{warnings}");
    let again = folder.write("again.toml", &printed);
    assert_eq!(output(&["check", &again]).1, printed);
}

#[test]
fn check_tells_no_secrets_unless_asked() {
    let folder = Folder::new();
    folder.write("token", "SECRETTOKEN_0123456789");
    let text = "[admin]\ntoken_file = \"token\"\n[[application]]\nservers = \"127.0.0.1:9001\"\n";
    let file = folder.write("secret.toml", text);
    let (status, printed, _) = output(&["check", &file]);
    assert_eq!(status, Some(0));
    assert!(printed.contains("(hidden)") && !printed.contains("SECRETTOKEN"), "{printed}");
    let (_, printed, _) = output(&["check", "--show-secrets", &file]);
    assert!(printed.contains("SECRETTOKEN_0123456789"), "{printed}");
}

#[test]
fn mistakes_are_status_2_with_file_and_line() {
    let folder = Folder::new();
    let file = folder.write("bad.toml", "[[application]]\nservers = \"127.0.0.1:9001\"\ntagret = \"500ms\"\n");
    let message = format!("{file}:3: unknown key \"tagret\" in [[application]]; did you mean \"target\"?\n");
    for command in [&["check", &file][..], &["run", "-c", &file], &["run", &file]] {
        let (status, printed, said) = output(command);
        assert_eq!((status, printed.as_str(), said.as_str()), (Some(2), "", message.as_str()));
    }
    assert_eq!(output(&["check", "/nonexistent.toml"]).0, Some(2));
    for usage in [&["run"][..], &["run", "--to", "127.0.0.1:1", "--policy", "magic"], &["walk"]] {
        assert_eq!(output(usage).0, Some(2), "{usage:?}");
    }
}

#[test]
fn the_log_is_text_json_or_for_the_journal() {
    let missing = ["check", "/nonexistent.toml"];
    let (_, _, text) = output(&missing);
    assert!(text.starts_with("/nonexistent.toml: cannot be read"), "{text}");
    let (_, _, json) = output(&["check", "/nonexistent.toml", "--log-format", "json"]);
    let event: serde_json::Value = serde_json::from_str(&json).expect("one object");
    assert_eq!((&event["level"], &event["message"]), (&"ERROR".into(), &text.trim_end().into()));

    // As systemd starts it: the numbers of standard error are in the environment.
    let folder = Folder::new();
    let log = File::create(folder.path("log")).expect("a file");
    let own = log.metadata().expect("a file");
    for (stream, prefix) in [(format!("{}:{}", own.dev(), own.ino()), "<3>"), ("1:1".to_owned(), "")] {
        let error = log.try_clone().expect("a file");
        let ended = tidegate(&missing).env("JOURNAL_STREAM", stream).stderr(error).status().expect("runs");
        let said = folder.read("log");
        let line = said.lines().last().unwrap_or_default();
        assert_eq!((ended.code(), line), (Some(2), &*format!("{prefix}{}", text.trim_end())));
    }

    let (status, _, said) = output(&["check", "/nonexistent.toml", "--log", "verbose"]);
    assert!(status == Some(2) && said.contains("\"verbose\" is no level; there are off, error, warn"), "{said}");
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
    let folder = Folder::new();
    let file = folder.write("run.toml", &text("500ms"));
    let mut running = Running::start(&["run", "-c", &file]);
    let service = running.address("listen");
    let admin = running.address("admin");
    assert!(get(admin, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(service, "/").starts_with("HTTP/1.1 50"), "no server is there");
    assert!(get(admin, "/metrics").contains("tidegate_target_seconds{application=\"default\"} 0.5"));

    folder.write("run.toml", &text("nonsense"));
    running.signal(Signal::HUP);
    running.until("target = \"nonsense\" is not a time");
    folder.write("run.toml", &text("2500ms"));
    running.signal(Signal::HUP);
    running.until("is in force");
    assert!(get(admin, "/metrics").contains("tidegate_target_seconds{application=\"default\"} 2.5"));

    running.signal(Signal::TERM);
    running.until("stopped");
    assert_eq!(running.end(), Some(0));
}

/// A pipe that takes nothing more: who writes to it waits until somebody reads.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let wait = rustix::fs::fcntl_getfl(&writer).expect("flags");
    rustix::fs::fcntl_setfl(&writer, wait | OFlags::NONBLOCK).expect("flags");
    while writer.write(&[b'\n'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, wait).expect("flags");
    (reader, writer)
}

/// Starts it, gives it signals while it still says where it listens, and waits until it has ended: what it said.
fn signal_at_once(arguments: &[&str], listens: u16, signals: &[Signal]) -> (Option<i32>, String) {
    let (mut reader, writer) = full_pipe();
    let child = tidegate(arguments).stderr(writer).stdout(Stdio::null()).spawn().expect("starts");
    let mut process = Process(child);
    until("it listens", || TcpStream::connect(loopback(listens)).is_ok());
    signals.iter().for_each(|what| signal(process.id(), *what).expect("it runs"));
    let mut said = String::new();
    reader.read_to_string(&mut said).expect("UTF-8");
    (process.0.wait().expect("waits").code(), said)
}

#[test]
fn signals_that_come_as_soon_as_it_listens_are_heard() {
    let (folder, port) = (Folder::new(), free_port());
    let text = format!("[[application]]\nlisten = \"127.0.0.1:{port}\"\nservers = \"127.0.0.1:9\"\n");
    let file = folder.write("run.toml", &text);
    let (status, said) = signal_at_once(&["run", "-c", &file], port, &[Signal::HUP, Signal::TERM]);
    assert!(status == Some(0) && said.contains("tidegate: stopped"), "{status:?}: {said}");

    let text = format!(
        "listen = \"127.0.0.1:{port}\"\nkey_file = \"key\"\n[provider]\nkind = \"static\"\n\
         addresses = [\"127.0.0.1:9\"]\n[[application]]\nname = \"shop\"\ntarget = \"1s\"\n"
    );
    let file = folder.write("control.toml", &text);
    let (status, said) = signal_at_once(&["control", "-c", &file], port, &[Signal::TERM]);
    assert!(status == Some(0) && said.contains("the control plane stops"), "{status:?}: {said}");
}
