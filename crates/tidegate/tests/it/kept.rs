//! What was learned is kept over restarts, in a file; and systemd is told of reloads.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Folder, Process, free_port, get, loopback, signal, tidegate, until};

/// A server, and a sentry in front of it that keeps what it learns.
struct Site {
    folder: Folder,
    /// The application, but for its addresses.
    application: &'static str,
    listen: SocketAddr,
    admin: SocketAddr,
    server: SocketAddr,
    _server: Process,
}

impl Site {
    fn new() -> Site {
        let (listen, admin, server) = (loopback(free_port()), loopback(free_port()), loopback(free_port()));
        let _server = Process::start(&["emulate", "--listen", &server.to_string(), "--service", "2ms"]);
        Site { folder: Folder::new(), application: "name = \"shop\"", listen, admin, server, _server }
    }

    /// A sentry of this site; what it says goes to `log`.
    fn command(&self, state: &str) -> Command {
        let log = fs::File::options().create(true).append(true).open(self.folder.path("log")).expect("a file");
        let [listen, admin, server] = [self.listen, self.admin, self.server].map(|address| address.to_string());
        let file = self.folder.write(
            "sentry.toml",
            &format!(
                "[sentry]\ndrain = \"1s\"\n[admin]\nlisten = \"{admin}\"\n\
                 [[application]]\nlisten = \"{listen}\"\nservers = \"{server}\"\n{}\n",
                self.application
            ),
        );
        let mut command = tidegate(&["run", "-c", &file, "--state", state]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command
    }

    fn start(&self, state: &str) -> Process {
        let sentry = Process(self.command(state).spawn().expect("it starts"));
        until("the sentry is ready", || get(self.admin, "/readyz").is_some());
        sentry
    }

    /// URLs whose costs are known.
    fn urls(&self) -> u64 {
        let state = get(self.admin, "/api/state").expect("an answer");
        serde_json::from_str::<Value>(&state).expect("JSON")["applications"][0]["urls"].as_u64().expect("a number")
    }

    fn stop(&self, sentry: Process, how: Signal) {
        signal(sentry.id(), how).expect("it runs");
        // It is waited for.
        let _ = { sentry }.0.wait();
    }
}

#[test]
fn what_was_learned_outlives_a_stop_and_a_crash() {
    let site = Site::new();
    let state = site.folder.path("state");
    let first = site.start(&state);
    until("requests are answered", || get(site.listen, "/").is_some());
    assert!(get(site.listen, "/other").is_some());
    until("costs are learned", || site.urls() == 2);
    site.stop(first, Signal::TERM);
    assert_eq!(fs::metadata(&state).expect("a file").permissions().mode() & 0o777, 0o600);
    let second = site.start(&state);
    assert_eq!(site.urls(), 2, "{}", site.folder.read("log"));
    site.stop(second, Signal::KILL);
    let third = site.start(&state);
    assert_eq!(site.urls(), 2, "{}", site.folder.read("log"));
    site.stop(third, Signal::KILL);
    // Half of it is none of it; and the service is there nevertheless.
    let whole = fs::read(&state).expect("a file");
    fs::write(&state, &whole[..whole.len() / 2]).expect("a file");
    let fourth = site.start(&state);
    assert_eq!(site.urls(), 0);
    assert_eq!(fs::read(format!("{state}.set-aside")).expect("it is kept"), whole[..whole.len() / 2]);
    let log = site.folder.read("log");
    assert!(log.contains("is not used: it makes no sense") && log.contains("it is put aside as"), "{log}");
    until("requests are answered", || get(site.listen, "/").is_some());
    site.stop(fourth, Signal::KILL);
}

/// What fits is used, and nobody fails for the rest.
#[test]
fn a_state_of_another_configuration_is_used_as_far_as_it_fits() {
    let mut site = Site::new();
    let state = site.folder.path("state");
    let first = site.start(&state);
    until("requests are answered", || get(site.listen, "/").is_some());
    until("costs are learned", || site.urls() == 1);
    site.stop(first, Signal::TERM);
    let kept = fs::read(&state).expect("a file");
    let anew = "there was no application of that name before: it begins anew";
    site.application = "name = \"store\"";
    let second = site.start(&state);
    assert_eq!(site.urls(), 0);
    assert!(site.folder.read("log").contains(anew), "{}", site.folder.read("log"));
    site.stop(second, Signal::TERM);
    fs::write(&state, kept).expect("a file");
    site.application = "name = \"shop\"\nadmission = \"threshold\"\ntarget = \"1s\"\n\
                        class = [{ name = \"gold\", match = { path = \"/gold\" } }, { name = \"rest\" }]";
    let third = site.start(&state);
    assert_eq!(site.urls(), 1, "{}", site.folder.read("log"));
    until("requests are answered", || get(site.listen, "/gold").is_some());
    site.stop(third, Signal::TERM);
    assert_eq!(site.folder.read("log").matches(anew).count(), 1);
}

#[test]
fn a_state_that_cannot_be_written_is_said_once_and_the_service_is_there() {
    let site = Site::new();
    let sentry = site.start(&site.folder.path("none/state"));
    until("it is said", || site.folder.read("log").contains("the state cannot be written to"));
    until("requests are answered", || get(site.listen, "/").is_some());
    site.stop(sentry, Signal::TERM);
    assert_eq!(site.folder.read("log").matches("the state cannot be written to").count(), 1);
}

/// As a unit of `Type=notify-reload`: systemd waits from a signal for `RELOADING=1`, with a time that is not before the
/// signal, and then for `READY=1`.
#[test]
fn systemd_hears_that_a_reload_begins_and_ends() {
    let site = Site::new();
    let path = site.folder.path("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    let hear = || {
        let mut buffer = [0; 4096];
        let length = socket.recv(&mut buffer).expect("systemd is told");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let state = site.folder.path("state");
    let sentry = Process(site.command(&state).env("NOTIFY_SOCKET", &path).spawn().expect("it starts"));
    assert!(hear().starts_with("READY=1\n"));
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    signal(sentry.id(), Signal::HUP).expect("it runs");
    let begins = hear();
    assert!(begins.starts_with("RELOADING=1\n"), "{begins}");
    let at = begins.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")?.parse::<i64>().ok());
    assert!(at.is_some_and(|at| at >= since.tv_sec * 1_000_000 + since.tv_nsec / 1000), "{begins}");
    assert!(hear().starts_with("READY=1\n"));
    // One that fails ends, too: the service is as it was.
    site.folder.write("sentry.toml", "nonsense = 1\n");
    signal(sentry.id(), Signal::HUP).expect("it runs");
    assert!(hear().starts_with("RELOADING=1\n"));
    assert!(hear().starts_with("READY=1\n"));
    signal(sentry.id(), Signal::TERM).expect("it runs");
    assert!(hear().starts_with("STOPPING=1"));
}
