//! Clients that mean harm, many at once, each in one of the ways of `docs/security.md`; and honest ones beside them.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::Client;

/// What a hostile client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sends requests that are refused, and reads no refusal.
    Pipelining,
    /// Asks for what is large, and does not read it.
    Unread,
    /// Sends half of a large head.
    SlowHead,
    /// Sends empty lines.
    EmptyLines,
    /// Sends a chunk whose extension does not end.
    ChunkExtension,
    /// Asks once, and rests.
    Idle,
    /// Connects to the admin port, and sends half a head or nothing.
    Admin,
}

impl Kind {
    /// What one such client sends.
    fn bytes(self) -> Vec<u8> {
        match self {
            Kind::Pipelining => b"GET /refused HTTP/1.1\r\nHost:t\r\n\r\n".repeat(2000),
            Kind::Unread => b"GET /honest/large HTTP/1.1\r\nHost: t\r\n\r\n".to_vec(),
            Kind::SlowHead => format!("GET / HTTP/1.1\r\nHost: t\r\nX: {}", "x".repeat(15_000)).into_bytes(),
            Kind::EmptyLines => b"\r\n".repeat(10_000),
            Kind::ChunkExtension => {
                let head = "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n1;";
                format!("{head}{}", "x".repeat(60_000)).into_bytes()
            }
            Kind::Idle => b"GET /honest HTTP/1.1\r\nHost: t\r\n\r\n".to_vec(),
            Kind::Admin => b"GET /healthz HTTP/1.1\r\nHost: loc".to_vec(),
        }
    }

    /// Opens `count` connections, from some addresses that honest clients do not have, and sends on each what the
    /// sentry takes without a wait. Those that it closes at once are missing.
    pub fn attack(self, address: SocketAddr, count: usize) -> Vec<TcpStream> {
        let bytes = self.bytes();
        let attack = |number| {
            let io = connect_from(hostile_address(number), address).ok()?;
            io.set_nonblocking(true).ok()?;
            let mut sent = 0;
            while let Ok(more @ 1..) = (&io).write(&bytes[sent..]) {
                sent += more;
            }
            Some(io)
        };
        (0..count).filter_map(attack).collect()
    }
}

/// Addresses that hostile clients come from.
const ADDRESSES: usize = 20;

/// The address of the hostile client of that number.
pub fn hostile_address(number: usize) -> IpAddr {
    Ipv4Addr::new(127, 0, 7, (number % ADDRESSES) as u8).into()
}

/// A connection from an address, which the kernel reads ahead for as little as it can.
///
/// # Errors
/// When there is none.
pub fn connect_from(own: IpAddr, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    // Without it, each address and port that was used once would be taken for a minute.
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    // What lies in the kernel is not what is tested.
    socket.set_recv_buffer_size(4096)?;
    socket.bind(&SocketAddr::new(own, 0).into())?;
    socket.connect(&address.into())?;
    Ok(socket.into())
}

/// What came of honest clients' requests.
#[derive(Debug, Default)]
pub struct Tally {
    asked: AtomicUsize,
    answered: AtomicUsize,
}

impl Tally {
    /// One more was asked; whether it was answered well.
    pub fn note(&self, good: bool) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.answered.fetch_add(usize::from(good), Ordering::SeqCst);
        good
    }
}

/// Honest clients, which ask again and again until told to stop.
pub struct Honest {
    stop: Arc<AtomicBool>,
    tally: Arc<Tally>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Honest {
    /// `clients` of them, each at an address of its own. Each asks ten times on a connection, then on a new one.
    pub fn start(address: SocketAddr, clients: usize) -> Honest {
        Honest::start_with(clients, move |own, tally| {
            let mut client = connect_from(own, address).ok().map(Client::over);
            for _ in 0..10 {
                if !tally.note(client.as_mut().is_some_and(ask)) {
                    break;
                }
            }
        })
    }

    /// `clients` of them, each at an address of its own, which have one connection after the other.
    pub fn start_with(clients: usize, connection: impl Fn(IpAddr, &Tally) + Clone + Send + 'static) -> Honest {
        let mut honest = Honest { stop: Arc::default(), tally: Arc::default(), threads: Vec::new() };
        for number in 0..clients {
            let own = IpAddr::from(Ipv4Addr::new(127, 0, 9, number as u8));
            let (stop, tally, connection) = (honest.stop.clone(), honest.tally.clone(), connection.clone());
            honest.threads.push(thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    connection(own, &tally);
                }
            }));
        }
        honest
    }

    /// How many requests were answered so far.
    pub fn answered(&self) -> usize {
        self.tally.answered.load(Ordering::SeqCst)
    }

    /// Ends them: how many requests they made, and how many of them were answered well.
    pub fn stop(self) -> (usize, usize) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            // A panic was printed.
            let _ = thread.join();
        }
        (self.tally.asked.load(Ordering::SeqCst), self.tally.answered.load(Ordering::SeqCst))
    }
}

fn ask(client: &mut Client) -> bool {
    client.io.write_all(b"GET /honest HTTP/1.1\r\nHost: t\r\n\r\n").is_ok()
        && client.try_answer(false).is_ok_and(|answer| answer.status == 200)
}
