//! What the machine's speed decides: a flood of handshakes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustls::HandshakeKind;
use rustls::pki_types::ServerName;

use rustls::ClientConnection;
use tidegate_sentry::counters::Counter;

use super::ONE;
use super::site::{Authority, Folder, ask, connect, mirror, start, status};
use crate::support::{Client, Running, until};

/// How long visits are timed, in turns without strangers and with them: what else happens here happens to both.
const TURN: Duration = Duration::from_millis(1250);
const TURNS: u32 = 4;

/// Threads of strangers, and how much faster than one processor can do handshakes they ask for them.
const STRANGERS: u32 = 32;
const TIMES: u32 = 5;

/// How far they give way to those whose answers are timed, as they would on other machines: nice(2).
const NICENESS: i32 = 10;

/// What the flood may add to the 95th percentile of those that it ought not to touch, in handshakes. To be accepted,
/// for its own handshake and for its answer each waits for the worker; were the flood's handshakes done there, that
/// would be one of them each time. It was 2, of visits timed once without the flood and once with it: 0.2 to 1.6 in 22
/// runs and 2.2 in one, a miss; with handshakes done by the worker 2.2 to 3.2 in eight. In turns it is 0.5 to 2.2 in 20
/// runs, and 6.5 to 14 in six where the worker does them, as a flood's beginning is the worst of it.
const MORE_AT_MOST: u32 = 3;

#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn a_flood_of_strangers_leaves_those_who_come_back_served() -> Result<(), String> {
    let (folder, authority, server) = (Folder::new("flood"), Authority::new("ca"), mirror());
    folder.pair("site", &authority.sign(&["shop.example"]));
    let sentry = start(folder.config(&[server.address], ONE));
    let clients = authority.clients(None);
    let visit = || {
        let begun = Instant::now();
        let asked = ask(connect(sentry.address, &clients, "shop.example"), "shop.example", "/");
        asked.map(|(answer, io)| (begun.elapsed(), status(&answer) == "200", io.conn.handshake_kind()))
    };
    visit().expect("a first ticket");
    let visit = || {
        let (time, is_good, kind) = visit().expect("who comes back is served");
        assert!(is_good && kind == Some(HandshakeKind::Resumed), "{kind:?}");
        time
    };
    let (calm, flooded) = p95_without_and_with_a_flood(&sentry, &authority, visit);
    judge(&sentry, calm, flooded)
}

/// The same with strangers on both sides: those of an important class, who are known by their network, and the flood.
#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn a_flood_of_one_class_leaves_strangers_of_the_one_before_it_served() -> Result<(), String> {
    let (folder, authority, server) = (Folder::new("class-flood"), Authority::new("ca"), mirror());
    folder.pair("site", &authority.sign(&["shop.example"]));
    let classes = "class = [{ name = \"partners\", match = { network = \"127.0.0.9\" } }, { name = \"rest\" }]";
    let sentry = start(folder.config(&[server.address], &format!("{ONE}\n{classes}")));
    let visit = || {
        let begun = Instant::now();
        let io = Client::connect_from([127, 0, 0, 9].into(), sentry.address).io;
        io.set_nodelay(true).expect("a socket");
        let name = ServerName::try_from("shop.example").expect("a name");
        // Without a ticket, each time.
        let session = ClientConnection::new(authority.clients(None), name).expect("a client");
        let asked = ask(rustls::StreamOwned::new(session, io), "shop.example", "/");
        asked.map(|(answer, io)| (begun.elapsed(), status(&answer) == "200", io.conn.handshake_kind()))
    };
    let visit = || {
        let (time, is_good, kind) = visit().expect("an important stranger is served");
        assert!(is_good && kind == Some(HandshakeKind::Full), "{kind:?}");
        time
    };
    let (calm, flooded) = p95_without_and_with_a_flood(&sentry, &authority, visit);
    judge(&sentry, calm, flooded)
}

/// The 95th percentile of visits in calm, and in a flood.
fn p95_without_and_with_a_flood(
    sentry: &Running,
    authority: &Authority,
    mut visit: impl FnMut() -> Duration,
) -> (Duration, Duration) {
    let mut time = |times: &mut Vec<Duration>| {
        let end = Instant::now() + TURN;
        while Instant::now() < end {
            times.push(visit());
            thread::park_timeout(Duration::from_millis(5));
        }
    };
    // What a full handshake takes is known after some.
    for _ in 0..STRANGERS {
        ask(connect(sentry.address, &authority.clients(None), "shop.example"), "shop.example", "/").expect("in calm");
    }
    let (mut calm, mut flooded) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        time(&mut calm);
        let refused = sentry.count(Counter::HandshakesRefused);
        let flood = Flood::start(sentry.address, authority, full_handshake(sentry) / TIMES);
        until("strangers are refused", || sentry.count(Counter::HandshakesRefused) > refused);
        time(&mut flooded);
        drop(flood);
    }
    (p95(calm), p95(flooded))
}

fn p95(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() * 95 / 100]
}

/// What a full handshake takes here.
fn full_handshake(sentry: &Running) -> Duration {
    let count = |counter| sentry.count(counter);
    Duration::from_nanos(count(Counter::NanosFull) / count(Counter::HandshakesFull).max(1))
}

fn judge(sentry: &Running, calm: Duration, flooded: Duration) -> Result<(), String> {
    let (full, at_most) = (full_handshake(sentry), calm + MORE_AT_MOST * full_handshake(sentry));
    println!("p95 {calm:?} without and {flooded:?} with the flood; {full:?} a full handshake");
    println!("{} refused, {} aside", sentry.count(Counter::HandshakesRefused), sentry.count(Counter::HandshakesAside));
    if flooded <= at_most {
        Ok(())
    } else {
        Err(format!("p95 {flooded:?} of those that the flood ought not to touch: more than {at_most:?}"))
    }
}

/// Strangers who begin handshakes and never finish one.
struct Flood {
    is_over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Flood {
    /// A handshake each `every`.
    fn start(address: SocketAddr, authority: &Authority, every: Duration) -> Flood {
        let name = ServerName::try_from("shop.example").expect("a name");
        let mut hello = Vec::new();
        ClientConnection::new(authority.clients(None), name).expect("a client").write_tls(&mut hello).expect("memory");
        let is_over = Arc::new(AtomicBool::new(false));
        let stranger = |number: u32| {
            let (is_over, hello) = (is_over.clone(), hello.clone());
            thread::spawn(move || {
                let _ = rustix::process::setpriority_process(None, NICENESS);
                let mut due = Instant::now() + number * every;
                while !is_over.load(Ordering::SeqCst) {
                    thread::park_timeout(due.saturating_duration_since(Instant::now()));
                    // Who is behind does not catch up.
                    due = (due + STRANGERS * every).max(Instant::now());
                    let Ok(mut io) = TcpStream::connect(address) else { continue };
                    // It is reset, or gets the server's first flight; either costs it nothing more.
                    if io.write_all(&hello).is_ok() {
                        let _ = io.read(&mut [0; 16]);
                    }
                }
            })
        };
        let threads = (0..STRANGERS).map(stranger).collect();
        Flood { is_over, threads }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
