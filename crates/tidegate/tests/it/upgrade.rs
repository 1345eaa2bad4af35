//! One process takes over from another, under a load of new connections.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Folder, Process, free_port, get, loopback, signal, tidegate, until};

/// A server, and a sentry in front of it that is started from a copy of the program.
struct Site {
    folder: Folder,
    listen: SocketAddr,
    admin: SocketAddr,
    server: SocketAddr,
    sentry: Option<Process>,
    _server: Process,
}

impl Site {
    fn new() -> Site {
        let folder = Folder::new();
        let (listen, admin, server) = (loopback(free_port()), loopback(free_port()), loopback(free_port()));
        let emulated = ["emulate", "--listen", &server.to_string(), "--service", "2ms", "--cores", "8"];
        let _server = Process::start(&emulated);
        let mut site = Site { folder, listen, admin, server, sentry: None, _server };
        site.configure(2, "");
        site.install(None);
        site.start();
        site
    }

    /// Writes the configuration of the next process.
    fn configure(&self, workers: usize, more: &str) {
        let Site { listen, admin, server, folder, .. } = self;
        // Renamed into its place: half a file is no configuration.
        folder.write(
            "next.toml",
            &format!(
                "[sentry]\nworkers = {workers}\ndrain = \"20s\"\n[admin]\nlisten = \"{admin}\"\n\
                 [upgrade]\nsocket = \"{}\"\nspread = \"500ms\"\n{more}\n\
                 [[application]]\nname = \"shop\"\nlisten = \"{listen}\"\nservers = \"{server}\"\n",
                folder.path("upgrade.sock")
            ),
        );
        fs::rename(folder.path("next.toml"), folder.path("sentry.toml")).expect("a file");
    }

    /// Puts the program in its place, or a script that is none.
    fn install(&self, script: Option<&str>) {
        let (program, fresh) = (self.folder.path("tidegate"), self.folder.path("fresh"));
        match script {
            Some(script) => drop(self.folder.write("fresh", &format!("#!/bin/sh\n{script}\n"))),
            None => drop(fs::copy(env!("CARGO_BIN_EXE_tidegate"), &fresh).expect("a copy")),
        }
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755)).expect("a mode");
        fs::rename(fresh, program).expect("a program");
    }

    /// The program, which writes what it says to a file.
    fn command(&self, arguments: &[&str]) -> Command {
        let log = fs::File::options().create(true).append(true).open(self.folder.path("log")).expect("a file");
        let mut command = Command::new(self.folder.path("tidegate"));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command
    }

    fn start(&mut self) {
        let file = self.folder.path("sentry.toml");
        self.sentry = Some(Process(self.command(&["run", "-c", &file]).spawn().expect("it starts")));
        self.is_ready();
        until("requests are answered", || get(self.listen, "/").is_some());
    }

    fn is_ready(&self) {
        until("the sentry is ready", || get(self.admin, "/readyz").is_some());
    }

    fn upgrade(&self) -> Output {
        let socket = self.folder.path("upgrade.sock");
        tidegate(&["upgrade", "--socket", &socket]).stdout(Stdio::null()).output().expect("it runs")
    }

    /// Who serves from now on.
    fn upgraded(&self) -> u32 {
        let done = self.upgrade();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{said}\n{}", self.folder.read("log"));
        let pid = said.split_whitespace().nth(1).and_then(|pid| pid.parse().ok());
        pid.unwrap_or_else(|| panic!("no process in {said:?}"))
    }

    /// Why there was no successor.
    fn refused(&self) -> String {
        let done = self.upgrade();
        assert_eq!(done.status.code(), Some(1));
        String::from_utf8_lossy(&done.stderr).into_owned()
    }

    /// The sockets, by inode, of a process that listen at the sentry's address.
    fn sockets(&self, pid: u32) -> BTreeSet<String> {
        let port = format!(":{:04X} 00000000:0000 0A", self.listen.port());
        let table = fs::read_to_string("/proc/net/tcp").expect("a table");
        let listening = table.lines().filter(|line| line.contains(&port));
        let listening: BTreeSet<String> =
            listening.filter_map(|line| Some(format!("socket:[{}]", line.split_whitespace().nth(9)?))).collect();
        let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("a process");
        let open = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()?.into_os_string().into_string().ok());
        open.filter(|link| listening.contains(link)).collect()
    }

    fn state(&self) -> Value {
        let state = get(self.admin, "/api/state").expect("an answer");
        serde_json::from_str::<Value>(&state).expect("JSON")["applications"][0].take()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // Successors are nobody's children: those that run from this folder are ours.
        let program = self.folder.path("tidegate");
        let ours = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).any(|word| word == program.as_bytes())
        };
        let pids = fs::read_dir("/proc").expect("/proc");
        let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        for pid in pids.filter(ours) {
            // It may have ended already.
            let _ = signal(pid, Signal::KILL);
        }
    }
}

/// Clients that open a connection for every request, until they are stopped.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    fn start(address: SocketAddr, clients: usize) -> Load {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let client = || {
            let (stop, answered) = (stop.clone(), answered.clone());
            std::thread::spawn(move || {
                let mut failures = Vec::new();
                while !stop.load(Relaxed) {
                    match ask(address) {
                        Ok(()) => _ = answered.fetch_add(1, Relaxed),
                        Err(error) => failures.push(error),
                    }
                }
                failures
            })
        };
        let clients = (0..clients).map(|_| client()).collect();
        Load { stop, answered, clients }
    }

    /// Waits for more answers.
    fn goes_on(&self) {
        let before = self.answered.load(Relaxed);
        until("requests are answered", || self.answered.load(Relaxed) > before + 50);
    }

    /// What failed.
    fn stop(self) -> Vec<String> {
        self.stop.store(true, Relaxed);
        self.clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
    }
}

/// A request on a connection of its own: a whole answer, be it a refusal.
fn ask(address: SocketAddr) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n").map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    let is_whole = ["HTTP/1.1 200", "HTTP/1.1 503"].iter().any(|head| answer.starts_with(head));
    if is_whole { Ok(()) } else { Err(format!("no answer: {answer:?}")) }
}

#[test]
fn upgrades_lose_no_connection_with_more_and_fewer_workers_and_a_restart_does() {
    let mut site = Site::new();
    let load = Load::start(site.listen, 8);
    load.goes_on();
    let mut before = site.sockets(site.sentry.as_ref().expect("it runs").id());
    assert_eq!(before.len(), 2);
    for workers in [1, 4, 2] {
        site.configure(workers, "");
        let pid = site.upgraded();
        let now = site.sockets(pid);
        assert!(before.is_subset(&now), "{before:?} are not all in {now:?}");
        assert_eq!(now.len(), before.len().max(workers));
        before = now;
        load.goes_on();
    }
    assert_eq!(load.stop(), [] as [String; 0], "{}", site.folder.read("log"));
    let log = site.folder.read("log");
    // Twice each: before it is ready, and when it is told to begin.
    assert!(log.matches("goes on with what was learned before").count() == 6, "{log}");
    let serving = site.upgraded();
    assert_eq!(site.state()["urls"], 2, "what was learned is known, although nobody asked for anything");
    // The same load notices a plain restart.
    let load = Load::start(site.listen, 8);
    load.goes_on();
    signal(serving, Signal::TERM).expect("it runs");
    // Its admin API is the last to go.
    let addresses = [site.listen, site.admin];
    until("nobody listens", || addresses.iter().all(|address| TcpStream::connect(address).is_err()));
    site.start();
    load.goes_on();
    assert!(!load.stop().is_empty(), "a restart is not noticed: this test would notice no loss");
}

#[test]
fn whatever_fails_the_old_process_serves_on_and_says_why() {
    let site = Site::new();
    let pid = site.sentry.as_ref().expect("it runs").id();
    let load = Load::start(site.listen, 2);
    let sockets = site.sockets(pid);
    site.configure(2, "spraed = \"1s\"");
    let why = site.refused();
    assert!(why.contains("its configuration is invalid") && why.contains("did you mean \"spread\"?"), "{why}");
    // What is bound later than the listeners, too, is found out before anything is accepted.
    let taken = TcpListener::bind(loopback(0)).expect("a port");
    let (admin, port) = (site.admin.to_string(), taken.local_addr().expect("an address").to_string());
    site.configure(2, "");
    site.folder.write("next.toml", &site.folder.read("sentry.toml").replace(&admin, &port));
    fs::rename(site.folder.path("next.toml"), site.folder.path("sentry.toml")).expect("a file");
    let why = site.refused();
    assert!(why.contains(&format!("the admin API cannot listen on {port}")), "{why}");
    site.configure(2, "");
    site.install(Some("exit 7"));
    let why = site.refused();
    assert!(why.contains("the successor ended before it was ready: exit status: 7"), "{why}");
    site.install(Some("echo nonsense >&2; kill -SEGV $$"));
    let why = site.refused();
    assert!(why.contains("the successor ended before it was ready: signal: 11"), "{why}");
    // The time limit in force is that of the process that serves.
    site.configure(2, "timeout = \"300ms\"");
    until("the time limit is in force", || {
        get(site.admin, "/api/config").is_some_and(|config| config.contains("300ms"))
    });
    site.install(Some("exec sleep 600"));
    let why = site.refused();
    assert!(why.contains("the successor is not ready in time"), "{why}");
    assert_eq!(load.stop(), [] as [String; 0]);
    assert_eq!(site.sockets(pid), sockets, "it is still the one that listens");
    let metrics = get(site.admin, "/metrics").expect("metrics");
    assert!(metrics.contains("tidegate_upgrade_failures_total 5\n"), "{metrics}");
    // And can be replaced by one that is fit.
    site.configure(2, "");
    until("there is time again", || get(site.admin, "/api/config").is_some_and(|config| !config.contains("300ms")));
    site.install(None);
    assert_ne!(site.upgraded(), pid);
}

#[test]
fn there_is_one_successor_at_a_time_and_none_for_a_process_that_stops() {
    let mut site = Site::new();
    let pid = site.sentry.as_ref().expect("it runs").id();
    let marker = site.folder.path("successor");
    site.install(Some(&format!("echo $$ > {marker}.tmp && mv {marker}.tmp {marker} && exec sleep 600")));
    signal(pid, Signal::USR2).expect("it runs");
    until("a successor starts", || fs::exists(&marker).expect("a folder"));
    let why = site.refused();
    assert!(why.contains("an upgrade is under way already"), "{why}");
    let successor: u32 = fs::read_to_string(&marker).expect("a file").trim().parse().expect("a process");
    signal(pid, Signal::TERM).expect("it runs");
    let ended = site.sentry.take().expect("it runs").0.wait().expect("it ends");
    assert!(ended.success());
    until("the successor is gone, too", || !fs::exists(format!("/proc/{successor}")).expect("/proc"));
    assert!(!fs::exists(site.folder.path("upgrade.sock")).expect("a folder"), "nobody listens there");
}

/// As another service manager starts it: not as a child of the one that serves.
#[test]
fn a_process_takes_over_from_one_that_did_not_start_it() {
    let mut site = Site::new();
    let first = site.sentry.take().expect("it runs");
    let sockets = site.sockets(first.id());
    let load = Load::start(site.listen, 4);
    load.goes_on();
    let (file, socket) = (site.folder.path("sentry.toml"), site.folder.path("upgrade.sock"));
    let second = Process(site.command(&["run", "-c", &file, "--take-over", &socket]).spawn().expect("it starts"));
    let ended = { first }.0.wait().expect("it ends");
    assert!(ended.success(), "{}", site.folder.read("log"));
    load.goes_on();
    assert_eq!(site.sockets(second.id()), sockets);
    assert_eq!(load.stop(), [] as [String; 0]);
    site.sentry = Some(second);
    assert!(get(site.admin, "/readyz").is_some());
}

/// As systemd starts it: with a socket that it opened, which others may not join.
#[test]
fn a_service_manager_may_open_the_sockets() {
    let mut site = Site::new();
    drop(site.sentry.take());
    let opened = TcpListener::bind(site.listen).expect("the port is free again");
    // Whoever connects now is served by the process that is to come.
    let address = site.listen;
    let early = std::thread::spawn(move || ask(address));
    let command = "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=web; exec \"$@\"";
    let program = site.folder.path("tidegate");
    let mut shell = Command::new("sh");
    shell.args(["-c", command, "sh", &program, "run", "-c", &site.folder.path("sentry.toml")]);
    shell.stdin(Stdio::from(OwnedFd::from(opened))).stdout(Stdio::null());
    site.sentry = Some(Process(shell.spawn().expect("it starts")));
    assert_eq!(early.join().expect("no panic"), Ok(()));
    let pid = site.sentry.as_ref().expect("it runs").id();
    assert_eq!(site.sockets(pid).len(), 1, "two workers share it");
    let next = site.upgraded();
    assert_eq!(site.sockets(next).len(), 1);
}
