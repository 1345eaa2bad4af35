//! What the machine's speed decides.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::slow::{GET, narrow, post};
use crate::support::{Client, RawServer, Running, admission, application, ok, until};

/// Of the answers that honest clients get without slow ones, with them at least.
const LEAST: f64 = 0.95;
/// Slow clients of each kind.
const SLOW: usize = 500;
/// What is at work at most.
const LIMIT: u32 = 4;
/// The server's work on a request.
const WORK: Duration = Duration::from_millis(5);
/// How long is counted, each time.
const ROUND: Duration = Duration::from_secs(2);

#[test]
#[ignore = "a measurement: cargo xtask test runs it alone and watches the machine"]
fn a_thousand_slow_clients_cost_honest_ones_nothing() -> Result<(), String> {
    let server = RawServer::answering(|asked| {
        // tidy-allow(sleeping-tests): it is the server's work, of which each place has its share
        thread::sleep(WORK);
        ok(&"x".repeat(if asked.target == "/page" { 100_000 } else { 10 }))
    });
    let mut application = application(&[server.address]);
    application.setup.admission =
        admission(json!({"policy": "concurrency", "limit": LIMIT, "queue": 10_000, "queue_timeout": 60.0}));
    let sentry = Running::start(application);
    let without = answers(sentry.address);
    let slow = Slow::start(&sentry);
    let with = answers(sentry.address);
    drop(slow);
    let again = answers(sentry.address);
    let before = (without + again) as f64 / 2.0;
    println!("answers in {ROUND:?}: {without} without, {with} with {} slow clients, {again} after", 2 * SLOW);
    assert_eq!(sentry.app().snapshot().classes[0].rejected_total(), 0);
    if with as f64 >= LEAST * before {
        return Ok(());
    }
    Err(format!("{with} answers with slow clients, {before} without: less than {LEAST} of them"))
}

/// Answers of 200 that eight honest clients get, each asking again when it is answered.
fn answers(address: SocketAddr) -> usize {
    let end = Instant::now() + ROUND;
    let ask = move |number: usize| {
        let mut client = Client::connect(address);
        let request = if number.is_multiple_of(2) { GET.to_owned() } else { post(2) + "hi" };
        let mut count = 0;
        while Instant::now() < end {
            client.send(&request);
            count += usize::from(client.answer().status == 200);
        }
        count
    };
    let clients: Vec<_> = (0..8).map(|number| thread::spawn(move || ask(number))).collect();
    clients.into_iter().map(|client| client.join().expect("no panic")).sum()
}

/// Clients that send, and clients that read, a byte a second each.
struct Slow {
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Slow {
    /// All of them are under way when this returns.
    fn start(sentry: &Running) -> Slow {
        let mut senders: Vec<TcpStream> = (0..SLOW).map(|_| Client::connect(sentry.address).io).collect();
        for sender in &mut senders {
            sender.write_all((post(1000) + "x").as_bytes()).expect("a write");
        }
        let before = sentry.app().snapshot().classes[0].completed;
        let mut readers: Vec<TcpStream> = (0..SLOW).map(|_| narrow(sentry)).collect();
        for reader in &mut readers {
            reader.write_all(b"GET /page HTTP/1.1\r\nHost: t\r\n\r\n").expect("a write");
        }
        until("their server is done", || sentry.app().snapshot().classes[0].completed == before + SLOW as u64);
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = is_over.clone();
        let drip = move || {
            while !stop.load(Ordering::SeqCst) {
                for (sender, reader) in senders.iter_mut().zip(&mut readers) {
                    sender.write_all(b"x").expect("a write");
                    reader.read_exact(&mut [0]).expect("a byte");
                }
                thread::park_timeout(Duration::from_secs(1));
            }
        };
        Slow { is_over, thread: Some(thread::spawn(drip)) }
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
