//! Delay without `netem`, which not every kernel has: relays that stand between two processes for the whole run, pass
//! at once while nothing strikes, and late while their lag is set.
//!
//! *Intuition.* What is read is kept until it is due, each piece for a time of its own, and goes on in the order in
//! which it came.
//!
//! *Awkward cases.* A relay must not hide that nobody is behind it: when connecting fails it stops listening, so that
//! who connects next is refused as by an empty port, and begins again when somebody is there. UDP has no connections:
//! each address that speaks gets a socket of its own towards the other side, so that answers find back.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::io::{ErrorKind, Read as _, Result, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// How long one piece is kept, at least and at most, while it strikes.
pub const LAG: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));

/// How often it is looked whether somebody is there again.
const LOOK: Duration = Duration::from_millis(20);
/// Pieces that are kept at most: then it is not read on, as with a full window.
const KEPT: usize = 1024;

/// A relay for as long as this program runs.
#[derive(Debug)]
pub struct Relay {
    /// Where it listens.
    pub address: SocketAddr,
    lag: Arc<Lag>,
}

#[derive(Debug, Default)]
struct Lag {
    is_set: AtomicBool,
    /// Pieces that were kept.
    late: AtomicU64,
    draws: AtomicU64,
}

impl Relay {
    /// Relays connections to an address.
    ///
    /// # Errors
    /// When `listen` is taken.
    pub fn of_connections(listen: SocketAddr, to: SocketAddr) -> Result<Relay> {
        let listener = TcpListener::bind(listen)?;
        let (address, lag) = (listener.local_addr()?, Arc::new(Lag::default()));
        let shared = lag.clone();
        thread::spawn(move || accept(listener, address, to, &shared));
        Ok(Relay { address, lag })
    }

    /// Relays datagrams to an address, and the answers back.
    ///
    /// # Errors
    /// When there is no port.
    pub fn of_datagrams(to: SocketAddr) -> Result<Relay> {
        let socket = UdpSocket::bind(("127.0.0.1", 0))?;
        let (address, lag) = (socket.local_addr()?, Arc::new(Lag::default()));
        let shared = lag.clone();
        thread::spawn(move || datagrams(&socket, to, &shared));
        Ok(Relay { address, lag })
    }

    /// From now on it passes late, or at once.
    pub fn lag(&self, is_set: bool) {
        self.lag.is_set.store(is_set, Relaxed);
    }

    /// How many pieces it has passed late.
    pub fn late(&self) -> u64 {
        self.lag.late.load(Relaxed)
    }
}

impl Lag {
    fn draw(&self) -> Duration {
        if !self.is_set.load(Relaxed) {
            return Duration::ZERO;
        }
        self.late.fetch_add(1, Relaxed);
        let bits = self.draws.fetch_add(1, Relaxed).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let (least, most) = LAG;
        least + (most - least).mul_f64((bits >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

/// What waits, in the order in which it came.
struct Queue<T> {
    lag: Arc<Lag>,
    waiting: VecDeque<(Instant, T)>,
}

impl<T> Queue<T> {
    fn new(lag: &Arc<Lag>) -> Queue<T> {
        Queue { lag: lag.clone(), waiting: VecDeque::new() }
    }

    fn push(&mut self, now: Instant, piece: T) {
        let due = now + self.lag.draw();
        // Nothing overtakes.
        let due = self.waiting.back().map_or(due, |(before, _)| due.max(*before));
        self.waiting.push_back((due, piece));
    }

    fn pop(&mut self, now: Instant) -> Option<T> {
        let is_due = self.waiting.front().is_some_and(|(due, _)| *due <= now);
        if is_due { self.waiting.pop_front().map(|(_, piece)| piece) } else { None }
    }

    /// How long until the next is due; `None`: there is none. Never zero, which sockets take for no bound.
    fn wait(&self, now: Instant) -> Option<Duration> {
        let (due, _) = self.waiting.front()?;
        Some(due.saturating_duration_since(now).max(Duration::from_millis(1)))
    }
}

fn accept(mut listener: TcpListener, address: SocketAddr, to: SocketAddr, lag: &Arc<Lag>) {
    loop {
        let Ok((client, _)) = listener.accept() else { continue };
        if let Ok(server) = TcpStream::connect(to) {
            // A connection that is gone already is found when it is read.
            let _gone = relay(client, server, lag);
            continue;
        }
        drop((client, listener));
        listener = loop {
            thread::sleep(LOOK);
            if TcpStream::connect(to).is_ok()
                && let Ok(listener) = TcpListener::bind(address)
            {
                break listener;
            }
        };
    }
}

fn relay(client: TcpStream, server: TcpStream, lag: &Arc<Lag>) -> Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        let lag = lag.clone();
        thread::spawn(move || {
            let ways = [from.try_clone(), to.try_clone()];
            match pass(from, to, &lag) {
                Ok(to) => drop(to.shutdown(Shutdown::Write)),
                Err(_) => ways.into_iter().flatten().for_each(|way| drop(way.shutdown(Shutdown::Both))),
            }
        });
    }
    Ok(())
}

/// One direction of a connection, until its end; gives back where it went.
fn pass(mut from: TcpStream, mut to: TcpStream, lag: &Arc<Lag>) -> Result<TcpStream> {
    let mut queue: Queue<Vec<u8>> = Queue::new(lag);
    let (mut buffer, mut is_open, mut patience) = (vec![0; 16 * 1024], true, None);
    loop {
        while let Some(piece) = queue.pop(Instant::now()) {
            to.write_all(&piece)?;
        }
        let wait = queue.wait(Instant::now());
        match wait {
            None if !is_open => return Ok(to),
            Some(wait) if !is_open || queue.waiting.len() >= KEPT => {
                thread::sleep(wait);
                continue;
            }
            _ => {}
        }
        if wait != patience {
            from.set_read_timeout(wait)?;
            patience = wait;
        }
        match from.read(&mut buffer) {
            Ok(0) => is_open = false,
            Ok(read) => queue.push(Instant::now(), buffer[..read].to_vec()),
            Err(error) if is_late(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// One direction of datagrams; who speaks first gets a way back.
fn datagrams(socket: &UdpSocket, to: SocketAddr, lag: &Arc<Lag>) {
    let mut ways: HashMap<SocketAddr, UdpSocket> = HashMap::new();
    pass_datagrams(socket, lag, |from, piece| {
        let way = match ways.entry(from) {
            Entry::Occupied(way) => way.into_mut(),
            Entry::Vacant(none) => match way_back(socket, from, to, lag) {
                Ok(way) => none.insert(way),
                Err(_) => return,
            },
        };
        // What is lost on its way is lost, as without a relay.
        let _lost = way.send(piece);
    });
}

/// A socket towards `to` for what `client` says; what comes back goes to the client.
fn way_back(socket: &UdpSocket, client: SocketAddr, to: SocketAddr, lag: &Arc<Lag>) -> Result<UdpSocket> {
    let way = UdpSocket::bind(("127.0.0.1", 0))?;
    way.connect(to)?;
    let (back, answers, lag) = (socket.try_clone()?, way.try_clone()?, lag.clone());
    thread::spawn(move || pass_datagrams(&answers, &lag, |_, piece| drop(back.send_to(piece, client))));
    Ok(way)
}

fn pass_datagrams(socket: &UdpSocket, lag: &Arc<Lag>, mut send: impl FnMut(SocketAddr, &[u8])) {
    let mut queue: Queue<(SocketAddr, Vec<u8>)> = Queue::new(lag);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        while let Some((from, piece)) = queue.pop(Instant::now()) {
            send(from, &piece);
        }
        // Of a socket that is open: it cannot fail.
        let _set = socket.set_read_timeout(queue.wait(Instant::now()));
        // That nobody listens there is said as an error of the next read: it is tried again with the next datagram.
        if let Ok((read, from)) = socket.recv_from(&mut buffer)
            && queue.waiting.len() < KEPT
        {
            queue.push(Instant::now(), (from, buffer[..read].to_vec()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends back what it gets, one connection after the other.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                let (mut stream, mut piece) = (stream.unwrap(), [0; 64]);
                while let Ok(read @ 1..) = stream.read(&mut piece) {
                    stream.write_all(&piece[..read]).unwrap();
                }
            }
        });
        address
    }

    fn anywhere() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[test]
    fn what_is_late_is_kept_for_its_time_and_nothing_overtakes() {
        let (lag, now) = (Arc::new(Lag::default()), Instant::now());
        let mut queue = Queue::new(&lag);
        queue.push(now, 0);
        assert_eq!((queue.pop(now), queue.pop(now), queue.wait(now)), (Some(0), None, None));
        lag.is_set.store(true, Relaxed);
        (1..100).for_each(|piece| queue.push(now, piece));
        assert_eq!(queue.pop(now + LAG.0 - Duration::from_nanos(1)), None);
        lag.is_set.store(false, Relaxed);
        queue.push(now, 100);
        assert_eq!(queue.pop(now), None, "what came before it is still kept");
        let all: Vec<i32> = std::iter::from_fn(|| queue.pop(now + LAG.1)).collect();
        assert_eq!(all, (1..=100).collect::<Vec<_>>());
    }

    #[test]
    fn what_passes_keeps_its_order_and_the_end_comes_last() {
        let relay = Relay::of_connections(anywhere(), echo()).unwrap();
        let mut client = TcpStream::connect(relay.address).unwrap();
        client.write_all(b"at once").unwrap();
        let mut back = [0; 7];
        client.read_exact(&mut back).unwrap();
        assert_eq!((&back, relay.late()), (b"at once", 0));
        relay.lag(true);
        for piece in 0..10_u8 {
            client.write_all(&[piece; 100]).unwrap();
        }
        client.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        assert_eq!(all, (0..10).flat_map(|piece| [piece; 100]).collect::<Vec<u8>>());
        assert!(relay.late() >= 2);
    }

    #[test]
    fn where_nobody_is_behind_it_it_refuses_and_it_listens_again_when_somebody_is() {
        let to = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let relay = Relay::of_connections(anywhere(), to).unwrap();
        let refuses = || TcpStream::connect(relay.address).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused);
        let until = |what: &str, condition: &dyn Fn() -> bool| {
            let deadline = Instant::now() + Duration::from_secs(60);
            while !condition() {
                assert!(Instant::now() < deadline, "{what}");
                thread::yield_now();
            }
        };
        until("it refuses", &refuses);
        let _somebody = TcpListener::bind(to).unwrap();
        until("it listens", &|| !refuses());
    }

    #[test]
    fn datagrams_find_back_to_who_sent_them() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let relay = Relay::of_datagrams(server.local_addr().unwrap()).unwrap();
        let clients = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let mut piece = [0; 64];
        for (at, client) in clients.iter().enumerate() {
            relay.lag(at == 1);
            client.send_to(&[at as u8], relay.address).unwrap();
            let (_, from) = server.recv_from(&mut piece).unwrap();
            server.send_to(&[piece[0] + 10], from).unwrap();
            client.recv_from(&mut piece).unwrap();
            assert_eq!(piece[0], at as u8 + 10);
        }
        assert_eq!(relay.late(), 2);
    }
}
