//! A whole connection: any bytes, in any pieces, through the real gate, hyper and the service behind it, to a server
//! that writes down what it reads.
//!
//! *What holds.* What the client framed is what the server framed: requests go out in their order, none twice, none
//! that the client did not send, bodies included. What the rules read is what the server read, and so is what it was
//! found its application by. Each answer belongs to its request, and each whole request gets one, or the connection
//! ends. What is owed has a bound; and when the client is gone nothing is open, in flight, waiting or held.
//!
//! *How.* One thread, and pairs of sockets in place of TCP, on which bytes are there at once: what happens follows from
//! the bytes alone. The first byte picks what is admitted, and whether two applications share the listener; the next
//! two seed how the client cuts its bytes, when it reads, how it ends, and what the server does; the rest is what it
//! sends.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Once};
use std::time::Duration;

use tidegate_classify::RequestView;
use tidegate_engine::Rng;
use tokio::net::TcpStream;
use tokio::runtime::LocalRuntime;
use tokio::task::{spawn_local, yield_now};

use super::judge;
use super::naive::Head;
use super::origin::{self, Record};
use crate::accept::welcome;
use crate::app::App;
use crate::config::Config;
use crate::door::Door;
use crate::doorstep::Doorstep;
use crate::plan::Plan;
use crate::record::NoRecords;
use crate::share::{Scratch, WorkerApp};

/// What may be kept for one client here: requests and refusals (`docs/security.md`), `ahead` of an answer, and what
/// hyper has of it.
const OWED: u64 = 512 * 1024;

/// So often in a row nothing happens before it is taken for done.
const QUIET: usize = 12;

/// Turns after which nobody waits any more.
const PATIENCE: usize = 20_000;

/// Only gold gets in, or what is exempt.
const GUARDED: &str = "admission = { policy = \"concurrency\", limit = 0 }\n";
/// Everything gets in, and answers say which class they were taken for.
const OPEN: &str = "admission = \"none\"\nrejection = { decision_on_admitted = true }\n";
const COMMON: &str = "name = \"fuzz\"\nservers = \"127.0.0.1:1\"\nretry = { attempts = 0 }\n\
    limits = { ahead = \"16KiB\" }\nhealth = { passive_failures = 0 }\nexempt = [{ path_prefix = \"/healthz\" }]\n";
const CLASSES: &str = "[[application.class]]\nname = \"gold\"\nmin_rate = \"1000000000/s\"\nburst = 1e9\n\
    match = [{ path_prefix = \"/gold\" }, { host = \"vip.example\" }, { header = { name = \"x-tier\", value = \"gold\" } }, \
    { cookie = { name = \"tier\", value = \"gold\" } }]\n[[application.class]]\nname = \"low\"\n";

/// Another application behind the same listener. Both say to servers who they are.
const OTHER: &str = "route = [{ host = \"other.example\" }, { host = \"*.example\", path = \"/gold\" }, { path = \"/other\" }]\n\
    request_header = { set = \"X-App\", value = \"other\" }\n";
const FIRST: &str = "request_header = { set = \"X-App\", value = \"fuzz\" }\n";

/// A thread's sentry, one for each kind of admission, and one of two applications.
struct World {
    runtime: LocalRuntime,
    doors: [Rc<Door>; 3],
}

thread_local! {
    static WORLD: World = World::new();
    /// The servers' ends of connections that the sentry opened.
    static DIALLED: RefCell<VecDeque<UnixStream>> = RefCell::default();
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    /// A task panicked: its runtime catches that.
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

impl World {
    fn new() -> World {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                PANICKED.set(true);
                before(info);
            }));
        });
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build_local(Default::default()).expect("a runtime");
        let application = |keys: &str| format!("[[application]]\n{COMMON}{keys}{CLASSES}");
        let door = |text: String| {
            let checked = Config::parse(&text, Path::new("fuzz.toml")).expect("it makes sense");
            let applications = checked.config.applications;
            let plan = Plan::of(&applications, Duration::ZERO, &Plan::default()).expect("it makes sense");
            let (origin, scratch) = (std::time::Instant::now(), Scratch::shared());
            let worker = |(number, application)| {
                let app = App::new(application, 1, 1, Arc::new(NoRecords)).expect("it makes sense");
                let app = app.with_origin(origin);
                let doorstep = Doorstep::new(app.now());
                WorkerApp::new((number, Arc::new(app)), 0, (scratch.clone(), doorstep), 1)
            };
            let workers: Rc<[_]> = (0..).zip(applications).map(worker).collect();
            Door::new(0, &workers, plan.fronts[0].clone())
        };
        let other = application(&[OPEN, OTHER].concat()).replacen("\"fuzz\"", "\"other\"", 1);
        let two = application(&[OPEN, FIRST].concat()) + &other;
        World { doors: [door(application(GUARDED)), door(application(OPEN)), door(two)], runtime }
    }
}

/// A connection to the server that listens in this thread; `None`: there is none.
pub(crate) fn dial() -> Option<io::Result<TcpStream>> {
    let pair = || {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        DIALLED.with_borrow_mut(|dialled| dialled.push_back(theirs));
        TcpStream::from_std(std::net::TcpStream::from(OwnedFd::from(ours)))
    };
    IS_INSIDE.get().then(pair)
}

/// One client's connection from its first byte to its last. How many requests the server read of it.
///
/// # Panics
/// When something does not hold: that is the finding.
pub fn connection(data: &[u8]) -> usize {
    let [kind, seed @ ..] = data else { return 0 };
    let [high, low, sent @ ..] = seed else { return 0 };
    let seed = u64::from(*high) << 8 | u64::from(*low);
    let served = WORLD.with(|world| {
        let which = if *kind >= 128 { 2 } else { usize::from(kind & 1) };
        let worker = world.doors[which].clone();
        PANICKED.set(false);
        IS_INSIDE.set(true);
        let served = world.runtime.block_on(Drive::new(worker, sent, seed).run());
        IS_INSIDE.set(false);
        served
    });
    assert!(!PANICKED.get(), "a task panicked: {}", data.escape_ascii());
    served
}

/// How the client ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It reads all it gets.
    Reads,
    /// It closes its sending side, and reads on.
    HalfCloses,
    /// It leaves.
    Leaves,
}

/// A connection under way.
struct Drive<'a> {
    worker: Rc<Door>,
    sent: &'a [u8],
    rng: Rng,
    client: UnixStream,
    inner: Option<UnixStream>,
    record: Rc<RefCell<Record>>,
    /// What it wants to send by now, and how much of it the sockets took.
    due: usize,
    taken: usize,
    /// What the client got, and whether that was all.
    got: Vec<u8>,
    closed: bool,
}

impl<'a> Drive<'a> {
    fn new(worker: Rc<Door>, sent: &'a [u8], seed: u64) -> Self {
        let (client, inner) = UnixStream::pair().expect("a pair of sockets");
        for io in [&client, &inner] {
            io.set_nonblocking(true).expect("no waiting");
        }
        let record = Rc::new(RefCell::new(Record::default()));
        let (rng, inner, got) = (Rng::new(seed), Some(inner), Vec::new());
        Drive { worker, sent, rng, client, inner, record, due: 0, taken: 0, got, closed: false }
    }

    async fn run(mut self) -> usize {
        // Answers come to lie in the sentry, not in the kernel.
        if self.rng.below(2) == 0 {
            let inner = self.inner.as_ref().expect("not given away yet");
            socket2::SockRef::from(inner).set_send_buffer_size(4096).expect("a smaller buffer");
        }
        let reads = self.rng.below(3) > 0;
        let most = 1 << self.rng.below(13);
        loop {
            self.due = (self.due + 1 + self.rng.below(most)).min(self.sent.len());
            self.send();
            if let Some(inner) = self.inner.take() {
                let socket = std::net::TcpStream::from(OwnedFd::from(inner));
                welcome(&self.worker, socket, ([192, 0, 2, 7], 7).into());
            }
            for _ in 0..self.rng.below(6) {
                self.turn(reads).await;
            }
            if self.due == self.sent.len() {
                break;
            }
        }
        self.settle(reads).await;
        let end = [End::Reads, End::Reads, End::HalfCloses, End::Leaves][self.rng.below(4)];
        match end {
            End::Reads => {}
            End::HalfCloses => drop(self.client.shutdown(std::net::Shutdown::Write)),
            End::Leaves => return self.over(end).await,
        }
        self.settle(true).await;
        self.over(end).await
    }

    /// The client sends what it can.
    fn send(&mut self) {
        if let Ok(sent) = self.client.write(&self.sent[self.taken..self.due]) {
            self.taken += sent;
        }
    }

    /// What changes when something happens.
    fn course(&self) -> (u64, usize, usize, bool) {
        (self.record.borrow().steps, self.taken, self.got.len(), self.closed)
    }

    /// Everybody has a turn; whether anything happened.
    async fn turn(&mut self, reads: bool) -> bool {
        let before = self.course();
        yield_now().await;
        self.send();
        while let Some(io) = DIALLED.with_borrow_mut(VecDeque::pop_front) {
            let io = tokio::net::UnixStream::from_std(io).expect("a socket");
            spawn_local(origin::serve(io, self.record.clone(), Rng::new(self.rng.next_u64())));
        }
        let mut buffer = [0; 4096];
        if reads && !self.closed {
            match self.client.read(&mut buffer) {
                Ok(0) => self.closed = true,
                Ok(read) => self.got.extend_from_slice(&buffer[..read]),
                Err(error) => self.closed = error.kind() != io::ErrorKind::WouldBlock,
            }
        }
        let held = self.worker.app.counters.held();
        assert!(held <= OWED, "{held} bytes are held for {} that were sent", self.sent.len());
        before != self.course()
    }

    /// Until nothing happens any more.
    async fn settle(&mut self, reads: bool) {
        let mut quiet = 0;
        for _ in 0..PATIENCE {
            quiet = if self.turn(reads).await { 0 } else { quiet + 1 };
            if quiet > QUIET {
                return;
            }
        }
        panic!("it goes on and on");
    }

    /// The client is gone: what is left, and what was said.
    async fn over(mut self, end: End) -> usize {
        drop(std::mem::replace(&mut self.client, UnixStream::pair().expect("a pair of sockets").0));
        let is_over = |drive: &Self| {
            drive.worker.apps().iter().all(|worker| {
                let app = &worker.app;
                let rest = (app.counters.connections_open(), app.counters.held(), worker.ghosts.get());
                rest == (0, 0, 0) && app.in_flight() == 0 && app.waiting() == 0
            })
        };
        let mut turns = 0;
        while !is_over(&self) {
            let app = &self.worker.app;
            let (open, held) = (app.counters.connections_open(), app.counters.held());
            let (in_flight, waiting) = (app.in_flight(), app.waiting());
            assert!(
                turns < PATIENCE,
                "left behind: {open} open, {held} bytes, {in_flight} in flight, {waiting} waiting, {} ghosts",
                self.worker.ghosts.get()
            );
            turns += 1;
            self.turn(false).await;
        }
        for worker in self.worker.apps() {
            worker.close_resting();
        }
        while self.record.borrow().open > 0 {
            turns += 1;
            assert!(turns < 2 * PATIENCE, "connections to the server stay open");
            self.turn(false).await;
        }
        let class = |head: &Head| {
            let view = Asked { head, target: judge::target(head) };
            let found = self.worker.find(&view, None).expect("nothing is nobody's");
            if self.worker.apps().len() > 1 {
                let told = head.values("x-app").first().map(|name| String::from_utf8_lossy(name));
                assert_eq!(told.as_deref(), Some(found.app.name()), "another application had {head:?}");
            }
            let live = found.local().live.clone();
            (!live.is_exempt(&view)).then(|| live.class_name(live.classify(&view).class).to_owned())
        };
        let seen = std::mem::take(&mut self.record.borrow_mut().seen);
        let is_open = self.worker.local().live.config.rejection.decision_on_admitted;
        let exchange = judge::Exchange { sent: self.sent, seen: &seen, got: &self.got, closed: self.closed };
        exchange.judge(&class, !is_open, end == End::Reads && self.taken == self.sent.len());
        seen.len()
    }
}

/// A request as its server read it, for the rules.
struct Asked<'a> {
    head: &'a Head,
    target: String,
}

impl RequestView for Asked<'_> {
    fn method(&self) -> &str {
        &self.head.words[0]
    }

    fn host(&self) -> Option<&str> {
        self.head.values("host").first().and_then(|host| std::str::from_utf8(host).ok())
    }

    fn path(&self) -> &str {
        &self.target
    }

    fn header(&self, lowercase_name: &str) -> Option<&[u8]> {
        self.head.values(lowercase_name).first().copied()
    }

    fn client(&self) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, 7]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many requests the server read in all.
    fn of(kind: u8, sent: &str) -> usize {
        let one = |seed: u16| {
            let [high, low] = seed.to_be_bytes();
            connection(&[&[kind, high, low], sent.as_bytes()].concat())
        };
        (0..200).map(one).sum()
    }

    #[test]
    fn ordinary_connections_hold() {
        for kind in [0, 1, 128] {
            assert_eq!(of(kind, "GET /gold HTTP/1.1\r\nHost: t\r\n\r\n"), 200);
            of(kind, "GET /other HTTP/1.1\r\nHost: t\r\n\r\nGET /%6fther/ HTTP/1.1\r\nHost: t\r\n\r\n");
            of(
                kind,
                "GET http://Other.example./x HTTP/1.1\r\nHost: t\r\n\r\nGET /gold HTTP/1.1\r\nHost: a.example:8\r\n\r\n",
            );
            of(kind, "GET / HTTP/1.1\r\nHost: t\r\n\r\nHEAD /gold/b HTTP/1.1\r\nHost: t\r\n\r\n");
            of(
                kind,
                "POST /gold HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nhiGET /gold HTTP/1.1\r\nHost: t\r\n\r\n",
            );
            of(kind, "PUT /gold HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\nGET /");
            assert_eq!(of(kind, ""), 0);
        }
    }

    #[test]
    fn refusals_in_a_row_hold() {
        let served = of(0, &"GET / HTTP/1.1\r\nHost:t\r\n\r\n".repeat(150));
        assert_eq!(served, 0);
    }
}
