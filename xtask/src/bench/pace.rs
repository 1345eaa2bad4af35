//! Requests at a given rate, whether or not earlier ones were answered: an open loop on one core.
//!
//! Every response time counts from the instant at which its request was due. A request that finds all connections busy
//! waits, and its waiting counts: nothing is left out because an answer before it was late (what is known as
//! coordinated omission). The instants are those of independent users (Poisson), the same for everyone who is asked.
//!
//! It shares its core with the origin, so that it must take little itself. `tidegate load`, which keeps count of much
//! more, takes so much of that core that at 25,000 requests a second to the origin alone its own lateness was most of
//! what it found (tried by hand on 2026-11-29, two cores). `h2load --rps` sends what is due in bursts, one request
//! behind the other on each connection; and its log has the instants of sending, from which those at which requests
//! were due cannot be had.
//!
//! It takes that little because the answer is known: a body of [`BODY`] bytes `x`, so that one look at the right place
//! finds its end.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::load::CONNECTIONS;

/// Bytes of an answer's body.
pub const BODY: usize = 1024;
/// What is asked for; it has such a body.
pub const PATH: &str = "/1k";
/// Before what is counted, at the same rate.
const WARM_UP: Duration = Duration::from_millis(500);
/// Behind it: for answers that are late.
const GRACE: Duration = Duration::from_secs(2);
/// How long to sleep at most.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
const TIMER: u64 = u64::MAX;

/// What is put.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Requests a second.
    pub rate: f64,
    /// How long what counts takes.
    pub seconds: f64,
    /// Of the instants.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Paced {
    /// Requests that were due a second, and answers of 200 that came in the same time.
    pub asked: f64,
    /// See `asked`.
    pub reached: f64,
    /// Answers with another status, and requests without any.
    pub refused: u64,
    /// See `refused`.
    pub unanswered: u64,
    /// The 99th percentile of how late a request left though a connection was free, microseconds; not a number when
    /// none ever was.
    pub late_us: f64,
    /// Response times in microseconds, in order.
    pub response_us: Vec<f64>,
}

impl Paced {
    /// The response time below which `share` of them are.
    pub fn quantile(&self, share: f64) -> f64 {
        quantile(&self.response_us, share)
    }
}

/// Sends what was asked for from a thread on `core`.
///
/// # Errors
/// When a connection fails or is closed.
pub fn put(address: SocketAddr, pace: Pace, core: usize) -> Result<Paced> {
    let run = || {
        let mut cores = CpuSet::new();
        cores.set(core);
        sched_setaffinity(None, &cores)?;
        Loop::open(address, pace)?.run()
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

/// A connection with at most one request on its way.
struct Connection {
    stream: TcpStream,
    /// When the request was due.
    due: Duration,
    answer: Box<[u8; 8192]>,
    filled: usize,
}

struct Loop {
    request: String,
    due: Vec<Duration>,
    /// How many of these have left.
    sent: usize,
    /// What was due from the first of these times on counts, before the second.
    counted: (Duration, Duration),
    connections: Vec<Connection>,
    /// The one that rested longest comes first, so that all have something to do.
    free: VecDeque<usize>,
    events: OwnedFd,
    timer: OwnedFd,
    /// Whether requests that are due wait for a connection to become free.
    is_held: bool,
    late_us: Vec<f64>,
    /// By the instant of the answer: in the time that counts.
    in_time: u64,
    refused: u64,
    response_us: Vec<f64>,
}

impl Loop {
    fn open(address: SocketAddr, pace: Pace) -> Result<Self> {
        let seconds = Duration::from_secs_f64(pace.seconds);
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&events, &timer, EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET)?;
        let mut connections = Vec::new();
        for number in 0..u64::from(CONNECTIONS) {
            let stream = TcpStream::connect(address).context("a connection for the load")?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            epoll::add(&events, &stream, EventData::new_u64(number), EventFlags::IN)?;
            connections.push(Connection { stream, due: Duration::ZERO, answer: Box::new([0; 8192]), filled: 0 });
        }
        Ok(Self {
            request: format!("GET {PATH} HTTP/1.1\r\nHost: {address}\r\n\r\n"),
            due: instants(pace.rate, WARM_UP + seconds, pace.seed),
            sent: 0,
            counted: (WARM_UP, WARM_UP + seconds),
            free: (0..connections.len()).collect(),
            connections,
            events,
            timer,
            is_held: false,
            late_us: Vec::new(),
            in_time: 0,
            refused: 0,
            response_us: Vec::new(),
        })
    }

    fn run(mut self) -> Result<Paced> {
        let begun = Instant::now();
        let mut ready = Vec::with_capacity(self.connections.len() + 1);
        loop {
            self.send_due(begun)?;
            let is_done = self.sent == self.due.len() && self.free.len() == self.connections.len();
            if is_done || begun.elapsed() > self.counted.1 + GRACE {
                return Ok(self.finish());
            }
            self.set_timer(begun)?;
            ready.clear();
            match epoll::wait(&self.events, rustix::buffer::spare_capacity(&mut ready), Some(&LOOK)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &ready {
                let number = event.data.u64();
                if number != TIMER {
                    self.read(number as usize, begun)?;
                }
            }
        }
    }

    /// Sends all that is due, as far as there are connections.
    fn send_due(&mut self, begun: Instant) -> Result<()> {
        while let Some(&due) = self.due.get(self.sent) {
            let now = begun.elapsed();
            if due > now {
                self.is_held = false;
                break;
            }
            let Some(number) = self.free.pop_front() else {
                self.is_held = true;
                break;
            };
            let connection = &mut self.connections[number];
            connection.due = due;
            // It has nothing under way, so there is room for all of it.
            connection.stream.write_all(self.request.as_bytes()).context("a request cannot be sent")?;
            self.sent += 1;
            if !self.is_held && due >= self.counted.0 {
                self.late_us.push((now - due).as_secs_f64() * 1e6);
            }
        }
        Ok(())
    }

    /// Wakes us when the next request is due, if it could be sent then.
    fn set_timer(&self, begun: Instant) -> Result<()> {
        let Some(due) = self.due.get(self.sent).filter(|_| !self.free.is_empty()) else { return Ok(()) };
        // All zero would be never.
        let left = due.saturating_sub(begun.elapsed()).max(Duration::from_nanos(1));
        let it_value = Timespec::try_from(left).context("a time to wait")?;
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    fn read(&mut self, number: usize, begun: Instant) -> Result<()> {
        let connection = &mut self.connections[number];
        match connection.stream.read(&mut connection.answer[connection.filled..]) {
            Ok(0) => bail!("a connection was closed, or an answer is longer than expected"),
            Ok(read) => connection.filled += read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(()),
            Err(error) => return Err(error).context("an answer cannot be read"),
        }
        let Some(is_good) = whole_answer(&connection.answer[..connection.filled]) else { return Ok(()) };
        let (now, due) = (begun.elapsed(), connection.due);
        connection.filled = 0;
        self.free.push_back(number);
        if is_good && (self.counted.0..self.counted.1).contains(&now) {
            self.in_time += 1;
        }
        if due >= self.counted.0 {
            if is_good {
                self.response_us.push((now - due).as_secs_f64() * 1e6);
            } else {
                self.refused += 1;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Paced {
        let seconds = (self.counted.1 - self.counted.0).as_secs_f64();
        let due = self.due.iter().filter(|due| **due >= self.counted.0).count() as u64;
        self.late_us.sort_by(f64::total_cmp);
        self.response_us.sort_by(f64::total_cmp);
        Paced {
            asked: due as f64 / seconds,
            reached: self.in_time as f64 / seconds,
            refused: self.refused,
            unanswered: due - self.refused - self.response_us.len() as u64,
            late_us: quantile(&self.late_us, 0.99),
            response_us: self.response_us,
        }
    }
}

/// Whether a whole answer is there, and if so whether it is the one that was asked for.
fn whole_answer(answer: &[u8]) -> Option<bool> {
    const GAP: &[u8] = b"\r\n\r\n";
    let is_good = answer.starts_with(b"HTTP/1.1 200");
    let head = answer.len().checked_sub(BODY + GAP.len());
    if is_good && head.is_some_and(|head| answer[head..].starts_with(GAP)) {
        return Some(true);
    }
    if is_good || answer.len() < 12 {
        return None;
    }
    // Few, if any: these may take their time.
    let (head, body) = std::str::from_utf8(answer).ok()?.split_once("\r\n\r\n")?;
    let is_length = |line: &&str| line.to_ascii_lowercase().starts_with("content-length:");
    let length = head.lines().find(is_length).and_then(|line| line.split_once(':')?.1.trim().parse().ok());
    (body.len() >= length.unwrap_or(0)).then_some(false)
}

/// When independent users ask: as many instants as the rate demands, each anywhere.
fn instants(rate: f64, within: Duration, seed: u64) -> Vec<Duration> {
    let mut state = seed;
    let count = (rate * within.as_secs_f64()).round() as usize;
    let mut all: Vec<_> = (0..count).map(|_| within.mul_f64(uniform(&mut state))).collect();
    all.sort_unstable();
    all
}

/// The next of a sequence from 0 to 1 (SplitMix64, by Sebastiano Vigna).
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Of values in order; not a number of none.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn answers_end_where_they_end() {
        let good = [&b"HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n"[..], &[b'x'; BODY]].concat();
        let cases: &[(&[u8], Option<bool>)] = &[
            (&good, Some(true)),
            (&good[..good.len() - 1], None),
            (&good[..20], None),
            (b"HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno", Some(false)),
            (b"HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nn", None),
            (b"HTTP/1.1 503 No\r\ncontent-le", None),
            (b"", None),
        ];
        for (answer, wanted) in cases {
            assert_eq!(whole_answer(answer), *wanted, "{:?}", String::from_utf8_lossy(answer));
        }
    }

    #[test]
    fn instants_are_as_many_as_asked_for_in_order_and_the_same_again() {
        let all = instants(1000.0, Duration::from_secs(2), 7);
        assert_eq!(all.len(), 2000);
        assert!(all.is_sorted() && all[1999] < Duration::from_secs(2));
        assert_eq!(all, instants(1000.0, Duration::from_secs(2), 7));
        assert_ne!(all, instants(1000.0, Duration::from_secs(2), 8));
        let early = all.iter().filter(|at| **at < Duration::from_secs(1)).count();
        assert!((850..1150).contains(&early), "{early} of 2000 in the first half");
    }

    #[test]
    fn quantiles() {
        let values: Vec<_> = (1..=1000).map(f64::from).collect();
        for (share, wanted) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0), (1.0, 1000.0), (0.0, 1.0)] {
            assert_eq!(quantile(&values, share), wanted);
        }
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn who_comes_while_the_server_answers_nobody_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &[b'x'; BODY]].concat();
        // No answer before every connection has a request.
        let all_busy = Arc::new(Barrier::new(CONNECTIONS as usize));
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (answer, all_busy) = (answer.clone(), Arc::clone(&all_busy));
                thread::spawn(move || {
                    for request in 0.. {
                        let Ok(1..) = stream.read(&mut [0; 512]) else { break };
                        if request == 0 {
                            all_busy.wait();
                        }
                        if stream.write_all(&answer).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        let paced = put(address, Pace { rate: 400.0, seconds: 0.5, seed: 1 }, 0).unwrap();
        assert_eq!((paced.refused, paced.unanswered), (0, 0));
        assert_eq!(paced.response_us.len() as f64, paced.asked * 0.5);
    }
}
