//! Thousands of hostile connections of each kind against a sentry that is a process of its own, with as much memory and
//! as many descriptors as a test gives it: it lives, honest clients are served, and the memory comes back.

use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_classify::{PathMatch, Rule};
use tidegate_sentry::Process;
use tidegate_sentry::config::{Application, Page, Timeouts};

use crate::support::hostile::{Honest, Kind};
use crate::support::{Client, RawServer, application, config, ok, refuse_all, until};
use crate::tls::hostile::secured;

/// What the issue gives a sentry.
pub const MEMORY: u64 = 256 << 20;
/// Of each kind, unless `TIDEGATE_HOSTILE` says how many.
const MANY: usize = 2000;
/// Honest clients, and how many requests of theirs are awaited while it goes on.
pub const CLIENTS: usize = 4;
const REQUESTS: usize = 400;
/// What servers answer to hostile clients.
const LARGE: usize = 4 << 20;
/// What answers are made of.
const PART: &str = match std::str::from_utf8(&[b'x'; 16_384]) {
    Ok(part) => part,
    Err(_) => panic!(),
};
/// A refused request's page.
const PAGE: usize = 20_000;
/// How the process says where it listens.
const SAYS: &str = "the sentry listens on ";

/// How such a sentry is set up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup<'a> {
    /// It refuses all that is not exempt.
    pub refuses: bool,
    /// The descriptors that it may have.
    pub descriptors: Option<u64>,
    /// It listens by TLS, with the pair `site` of this folder.
    pub tls: Option<&'a Path>,
}

/// A sentry in a process of its own.
pub struct Limited {
    child: Child,
    out: BufReader<ChildStdout>,
    pub address: SocketAddr,
    admin: SocketAddr,
    group: Option<PathBuf>,
}

impl Limited {
    /// Before `server`, with [`MEMORY`].
    fn start(server: SocketAddr, setup: Setup<'_>) -> Limited {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args(["--exact", "hostile::the_sentry", "--ignored", "--nocapture"])
            .env("HOSTILE_SERVER", server.to_string())
            .env("HOSTILE_REFUSES", u8::from(setup.refuses).to_string())
            .env("HOSTILE_DESCRIPTORS", setup.descriptors.unwrap_or(0).to_string())
            .env("HOSTILE_TLS", setup.tls.unwrap_or(Path::new("")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let group = group(child.id(), MEMORY);
        // It waits for this line, so that all it ever takes is counted.
        child.stdin.as_mut().expect("its input").write_all(b"start\n").expect("it reads");
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        let addresses = loop {
            let mut line = String::new();
            assert_ne!(out.read_line(&mut line).expect("its output"), 0, "it ended");
            if let Some((_, said)) = line.split_once(SAYS) {
                break said.trim().to_owned();
            }
        };
        let (address, admin) = addresses.split_once(' ').expect("two addresses");
        let (address, admin) = (address.parse().expect("an address"), admin.parse().expect("an address"));
        Limited { child, out, address, admin, group }
    }

    /// A line of `/proc/<pid>/status`, in bytes.
    fn memory(&self, line: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it lives");
        let value = status.lines().find_map(|text| text.strip_prefix(line)).expect("the line");
        value.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }

    /// How many descriptors it has open.
    fn descriptors(&self) -> u64 {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("it lives").count() as u64
    }

    /// A metric's value.
    fn metric(&self, name: &str) -> u64 {
        let mut client = Client::connect(self.admin);
        client.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let text = client.answer().text();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}"));
        line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number") as u64
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = io::copy(&mut self.out, &mut io::sink());
        if let Some(group) = &self.group {
            let _ = std::fs::remove_dir(group);
        }
    }
}

/// Puts a process into a group that has so much memory, where this machine lets a test do it. Elsewhere the process
/// limits its own data.
fn group(process: u32, memory: u64) -> Option<PathBuf> {
    let group = PathBuf::from(format!("/sys/fs/cgroup/memory/tidegate-test-{process}"));
    std::fs::create_dir(&group).ok()?;
    let put = |file: &str, text: String| std::fs::write(group.join(file), text);
    let done = put("memory.limit_in_bytes", memory.to_string()).and_then(|()| put("cgroup.procs", process.to_string()));
    if done.is_err() {
        let _ = std::fs::remove_dir(&group);
    }
    done.ok().map(|()| group)
}

/// What is at `/honest` is exempt; the rest is refused with a large page where it `refuses`.
fn guarded(server: SocketAddr, refuses: bool) -> Application {
    let mut app = application(&[server]);
    if refuses {
        app.setup.admission = refuse_all();
    }
    app.exempt = vec![Rule { path: Some(PathMatch::Prefix(String::from("/honest"))), ..Rule::default() }];
    let page = Page {
        content_type: String::from("text/plain"),
        body: Bytes::from(vec![b'x'; PAGE]),
        path: PathBuf::from("page.txt"),
    };
    app.rejection.pages = vec![Some(page)];
    app.timeouts = Timeouts::default();
    app
}

fn many() -> usize {
    as_many_as(MANY)
}

/// How many hostile clients: what `TIDEGATE_HOSTILE` says, or so many.
pub fn as_many_as(usual: usize) -> usize {
    std::env::var("TIDEGATE_HOSTILE").ok().and_then(|many| many.parse().ok()).unwrap_or(usual)
}

#[test]
#[ignore = "is the process that the tests of hostile clients start"]
fn the_sentry() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let Some(server) = std::env::var("HOSTILE_SERVER").ok().and_then(|text| text.parse().ok()) else { return };
    let mut line = String::new();
    io::stdin().read_line(&mut line).expect("a line");
    let limit = |resource, most| {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).expect("a limit that is lower");
    };
    limit(Resource::Data, MEMORY);
    if number("HOSTILE_DESCRIPTORS") > 0 {
        limit(Resource::Nofile, number("HOSTILE_DESCRIPTORS"));
    }
    let mut app = guarded(server, number("HOSTILE_REFUSES") > 0);
    if let Some(folder) = std::env::var_os("HOSTILE_TLS").filter(|folder| !folder.is_empty()) {
        (app.listen, app.tls) = secured(Path::new(&folder));
    }
    let mut config = config(app, 2);
    config.admin.listen = Some(([127, 0, 0, 1], 0).into());
    let process = Process::start(config, None).expect("a sentry");
    println!("{SAYS}{} {}", process.sentry().addresses("app")[0], process.admin_address().expect("an address"));
    // Until the test ends, or kills it.
    let _ = io::stdin().read_line(&mut line);
}

/// Both ends of each connection of the test are its own.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// What came of an attack.
#[derive(Debug)]
struct Outcome {
    /// The process's memory: before, at most, after.
    before: u64,
    most: u64,
    after: u64,
    /// Requests of honest clients, and those answered.
    asked: usize,
    answered: usize,
}

/// `count` hostile clients of a kind, and honest ones beside them; then without them, until the memory is back.
fn assert_withstood(kind: Kind, count: usize) {
    let honest = |sentry: &Limited| Honest::start(sentry.address, CLIENTS);
    withstand(&format!("{kind:?}"), Setup { refuses: true, ..Setup::default() }, honest, |sentry| {
        let target = if kind == Kind::Admin { sentry.admin } else { sentry.address };
        let hostile = kind.attack(target, count);
        assert!(hostile.len() > count / 2, "{} of {count} connected", hostile.len());
        hostile
    });
}

/// A sentry lives within its memory, and serves honest clients, while what `attack` gives lasts.
pub fn withstand<T>(
    name: &str,
    setup: Setup<'_>,
    honest: impl FnOnce(&Limited) -> Honest,
    attack: impl FnOnce(&Limited) -> T,
) {
    // One after the other, where tests share a process: it has descriptors for one.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    raise_descriptors();
    let server = RawServer::start(|mut peer| {
        while let Some(asked) = peer.request() {
            // In parts: thousands may be under way, and this process lives on the same machine.
            let parts = if asked.target.ends_with("/large") { LARGE / PART.len() } else { 0 };
            let length = if parts > 0 { LARGE } else { 100 };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
            let small = if parts > 0 { "" } else { &PART[..100] };
            if !peer.send(head + small) || !(0..parts).all(|_| peer.send(PART)) {
                return;
            }
        }
    });
    let sentry = Limited::start(server.address, setup);
    let honest = honest(&sentry);
    until("honest clients are served", || honest.answered() >= REQUESTS);
    let before = sentry.memory("VmRSS");
    let hostile = attack(&sentry);
    let answered = honest.answered();
    until("honest clients are served still", || honest.answered() >= answered + REQUESTS);
    let most = sentry.memory("VmHWM");
    drop(hostile);
    let (asked, answered) = honest.stop();
    until("nothing is held for who has left", || {
        sentry.metric("tidegate_connections_open{") == 0 && sentry.metric("tidegate_held_bytes{") == 0
    });
    // Half of what it took, or as much as a process moves by anyway.
    let enough = before + ((most - before) / 2).max(8 << 20);
    until("memory comes back", || sentry.memory("VmRSS") <= enough);
    let outcome = Outcome { before, most, after: sentry.memory("VmRSS"), asked, answered };
    println!("{name}: {outcome:?}");
    assert!(outcome.most <= MEMORY, "{name}: {outcome:?}");
    assert!(outcome.after <= outcome.before + (MEMORY - outcome.before) / 2, "{name}: {outcome:?}");
    assert!(outcome.answered * 100 >= outcome.asked * 95, "{name}: {outcome:?}");
}

#[test]
fn requests_sent_ahead_hurt_nobody() {
    assert_withstood(Kind::Pipelining, many());
}

#[test]
fn answers_that_are_not_read_hurt_nobody() {
    assert_withstood(Kind::Unread, many() / 2);
}

#[test]
fn slow_heads_hurt_nobody() {
    assert_withstood(Kind::SlowHead, many());
}

#[test]
fn empty_lines_hurt_nobody() {
    assert_withstood(Kind::EmptyLines, many());
}

#[test]
fn chunk_extensions_hurt_nobody() {
    assert_withstood(Kind::ChunkExtension, many());
}

#[test]
fn idle_connections_hurt_nobody() {
    assert_withstood(Kind::Idle, many());
}

#[test]
fn connections_to_the_admin_port_hurt_nobody() {
    assert_withstood(Kind::Admin, many());
}

#[test]
fn a_process_short_of_descriptors_serves_on() {
    let server = RawServer::answering(|_| ok("here"));
    let sentry = Limited::start(server.address, Setup { refuses: true, descriptors: Some(400), ..Setup::default() });
    let hostile = Kind::Idle.attack(sentry.address, 800);
    // Whoever is still served gives way to nobody.
    until("all came, and those who stay rest", || {
        let count = |what: &str| sentry.metric(&format!("tidegate_connections_{what}_total{{"));
        count("accepted") + count("refused") == 800 && sentry.metric("tidegate_server_in_flight{") == 0
    });
    let honest = Honest::start(sentry.address, CLIENTS);
    until("honest clients are served", || honest.answered() >= REQUESTS);
    let (asked, answered) = honest.stop();
    assert!(answered * 100 >= asked * 95, "{answered} of {asked}");
    // Half of what is not kept for everything else.
    assert!(sentry.metric("tidegate_connections_open{") <= 150);
    let turned_away = sentry.metric("tidegate_connections_refused_total{");
    let made_room = sentry.metric("tidegate_connections_made_room_total{");
    assert!(made_room > 0 && made_room + turned_away >= 650, "{made_room} made room, {turned_away} were turned away");
    assert_eq!((sentry.metric("tidegate_local_errors_total{"), sentry.metric("tidegate_server_up{")), (0, 1));
    drop(hostile);
}

#[test]
fn a_process_without_descriptors_closes_what_rests_and_blames_no_server() {
    let server = RawServer::answering(|_| ok("here"));
    let sentry = Limited::start(server.address, Setup { refuses: true, ..Setup::default() });
    let own = sentry.descriptors();
    let hostile = Kind::Idle.attack(sentry.address, 100);
    until("all rest", || sentry.metric("tidegate_connections_open{") == 100);
    // From now on there are far fewer than it has, whatever it counted on.
    let pid = rustix::process::Pid::from_raw(sentry.child.id() as i32);
    let few = Rlimit { current: Some(own + 20), maximum: Some(own + 20) };
    rustix::process::prlimit(pid, Resource::Nofile, few).expect("a limit that is lower");
    let honest = Honest::start(sentry.address, 2);
    until("honest clients are served", || honest.answered() >= REQUESTS);
    let (asked, answered) = honest.stop();
    assert!(answered * 100 >= asked * 95, "{answered} of {asked}");
    assert!(sentry.metric("tidegate_accept_errors_total{") > 0, "it was short");
    assert_eq!(sentry.metric("tidegate_server_up{"), 1);
    drop(hostile);
}
