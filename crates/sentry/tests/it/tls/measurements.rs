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
use crate::support::{Client, until};

/// How long strangers come.
const FLOOD: Duration = Duration::from_secs(5);

/// Threads of strangers, each with a new handshake as soon as the last is refused or under way: with two they ask for
/// several times what one worker can do.
const STRANGERS: usize = 2;

/// The time from connecting to the answer that 95 % of those who come back have at most. The bucket of the handshakes'
/// budget is a tenth of a second, so nobody waits for longer than that for handshakes begun before; the strangers' own
/// threads take as much of a machine of two processors again.
const P95_AT_MOST: Duration = Duration::from_millis(200);

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
    let flood = Flood::start(sentry.address, &authority);
    until("strangers are refused", || sentry.count(Counter::HandshakesRefused) > 0);
    let (end, mut times) = (Instant::now() + FLOOD, Vec::new());
    while Instant::now() < end {
        let (time, is_good, kind) = visit().expect("who comes back is served");
        assert!(is_good && kind == Some(HandshakeKind::Resumed), "{kind:?}");
        times.push(time);
        thread::park_timeout(Duration::from_millis(5));
    }
    drop(flood);
    times.sort_unstable();
    let p95 = times[times.len() * 95 / 100];
    let count = |counter| sentry.count(counter);
    println!(
        "{} visits of one who comes back, p95 {p95:?}; strangers: {} served, {} refused; {:.0} us a full handshake, {:.0} us a resumed one",
        times.len(),
        count(Counter::HandshakesFull),
        count(Counter::HandshakesRefused),
        count(Counter::NanosFull) as f64 / 1e3 / count(Counter::HandshakesFull).max(1) as f64,
        count(Counter::NanosResumed) as f64 / 1e3 / count(Counter::HandshakesResumed).max(1) as f64,
    );
    if p95 <= P95_AT_MOST {
        Ok(())
    } else {
        Err(format!("p95 {p95:?} of those who come back: more than {P95_AT_MOST:?}"))
    }
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
        let name = ServerName::try_from("shop.example").expect("a name");
        // Without a ticket, each time.
        let session = ClientConnection::new(authority.clients(None), name).expect("a client");
        let asked = ask(rustls::StreamOwned::new(session, io), "shop.example", "/");
        asked.map(|(answer, io)| (begun.elapsed(), status(&answer) == "200", io.conn.handshake_kind()))
    };
    let flood = Flood::start(sentry.address, &authority);
    until("strangers are refused", || sentry.count(Counter::HandshakesRefused) > 0);
    let (end, mut times) = (Instant::now() + FLOOD, Vec::new());
    while Instant::now() < end {
        let (time, is_good, kind) = visit().expect("an important stranger is served");
        assert!(is_good && kind == Some(HandshakeKind::Full), "{kind:?}");
        times.push(time);
        thread::park_timeout(Duration::from_millis(5));
    }
    drop(flood);
    times.sort_unstable();
    let p95 = times[times.len() * 95 / 100];
    let (served, refused) = (sentry.count(Counter::HandshakesFull), sentry.count(Counter::HandshakesRefused));
    println!("{} visits of important strangers, p95 {p95:?}; {served} served of all, {refused} refused", times.len());
    if p95 <= P95_AT_MOST {
        Ok(())
    } else {
        Err(format!("p95 {p95:?} of important strangers: more than {P95_AT_MOST:?}"))
    }
}

/// Strangers who begin handshakes and never finish one.
struct Flood {
    is_over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Flood {
    fn start(address: SocketAddr, authority: &Authority) -> Flood {
        let name = ServerName::try_from("shop.example").expect("a name");
        let mut hello = Vec::new();
        ClientConnection::new(authority.clients(None), name).expect("a client").write_tls(&mut hello).expect("memory");
        let is_over = Arc::new(AtomicBool::new(false));
        let stranger = |_| {
            let (is_over, hello) = (is_over.clone(), hello.clone());
            thread::spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
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
