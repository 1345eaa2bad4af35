//! Ends of requests that others send on: a proxy that asked tells of each by a line of its access log, sent as a
//! datagram of syslog.
//!
//! *Intuition.* Who asks by a request of its own has its answer at once and goes; when the client's request is over,
//! only the proxy knows. Its access log says just that, for every request, with the times that its server took; so a
//! place is kept under the request's id until the line with that id comes. *Awkward cases.* Datagrams get lost, and a
//! proxy that dies tells nothing: a place that nobody speaks of is given up after a while. A line of a request that
//! nobody waits for is one that passed unasked, or was refused; it is ignored. Ids are the proxy's own and random, so
//! who can send datagrams but not read requests can end none.

mod line;

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::oneshot;

pub(crate) use self::line::{Served, Told};
use crate::sockets::{Sockets, name};

/// Whose it is in the table of sockets.
const NAME: &str = "ends";
/// How often a listener looks whether it is to stop.
const TICK: Duration = Duration::from_millis(50);
/// Room for lines that come while nobody reads.
const RECEIVE_BUFFER: usize = 4 << 20;
/// The longest id that is waited for, bytes.
const LONGEST: usize = 128;

/// Where it is known which ends are waited for, by the request's id.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    waiting: Mutex<HashMap<Box<[u8]>, oneshot::Sender<Told>>>,
    heard: AtomicU64,
}

impl Desk {
    /// The end of the request with this id is waited for from now on. `None`: it is no id. Who waited under it before
    /// waits for nothing any more.
    pub(crate) fn expect(self: &Arc<Self>, id: &[u8]) -> Option<Expected> {
        if id.is_empty() || id.len() > LONGEST {
            return None;
        }
        let (tell, told) = oneshot::channel();
        self.lock().insert(id.into(), tell);
        Some(Expected { desk: self.clone(), id: id.into(), told })
    }

    /// How many ends were told that somebody waited for.
    pub(crate) fn heard(&self) -> u64 {
        self.heard.load(Relaxed)
    }

    /// A datagram came.
    fn hear(&self, datagram: &[u8]) {
        let Some((id, told)) = line::read(datagram) else { return };
        let waiting = self.lock().remove(id);
        if let Some(tell) = waiting {
            self.heard.fetch_add(1, Relaxed);
            // An error means that its time was just up.
            let _ = tell.send(told);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, oneshot::Sender<Told>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request's end, once it is told; `None`: another took its id.
#[derive(Debug)]
pub(crate) struct Expected {
    desk: Arc<Desk>,
    id: Box<[u8]>,
    told: oneshot::Receiver<Told>,
}

impl Future for Expected {
    type Output = Option<Told>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.told).poll(cx).map(Result::ok)
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.told.close();
        let mut waiting = self.desk.lock();
        if waiting.get(&self.id).is_some_and(oneshot::Sender::is_closed) {
            waiting.remove(&self.id);
        }
    }
}

/// Listens for ends, on a thread of its own: a busy worker would let the kernel's queue overflow. Dropped, it stops.
#[derive(Debug)]
pub(crate) struct Ends {
    address: SocketAddr,
    sockets: Sockets,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ends {
    /// Listens with the socket that was given, or with a new one.
    ///
    /// # Errors
    /// When the address cannot be listened on, or the thread cannot be started.
    pub(crate) fn start(address: SocketAddr, desk: Arc<Desk>, given: &mut Sockets) -> io::Result<Ends> {
        let socket = match given.take(Type::DGRAM, NAME, address).into_iter().next() {
            Some(socket) => UdpSocket::from(socket),
            None => bind(address)?,
        };
        socket.set_read_timeout(Some(TICK))?;
        let address = socket.local_addr()?;
        let mut sockets = Sockets::default();
        sockets.add(name(NAME, address, 0), socket.try_clone()?);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let listen = move || listen(&socket, &desk, &stopped);
        let thread = std::thread::Builder::new().name(String::from("tidegate-ends")).spawn(listen)?;
        Ok(Ends { address, sockets, stop, thread: Some(thread) })
    }

    /// Where it listens, with the port that the system chose if 0 was asked for.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its socket, for the table.
    pub(crate) fn sockets(&self) -> &Sockets {
        &self.sockets
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed.
            let _ = thread.join();
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    // What the system does not give is missed under load only.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn listen(socket: &UdpSocket, desk: &Desk, stop: &AtomicBool) {
    let mut buffer = [0; 2048];
    while !stop.load(Relaxed) {
        // An error is a time-out, or what became of a datagram that was sent.
        if let Ok((length, _)) = socket.recv_from(&mut buffer) {
            desk.hear(&buffer[..length]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &[u8] = b"<190>Nov 25 16:12:23 a tidegate: id=7 status=200 bytes=5 done=OK head=[0 : 1] whole=[0 : 1]";

    fn now<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Poll<T> {
        Pin::new(future).poll(&mut Context::from_waker(std::task::Waker::noop()))
    }

    #[test]
    fn who_waits_for_an_end_is_told_of_it_once() {
        let desk = Arc::new(Desk::default());
        let mut one = desk.expect(b"7").expect("an id");
        let mut other = desk.expect(b"8").expect("an id");
        assert!(now(&mut one).is_pending());
        desk.hear(LINE);
        desk.hear(LINE);
        assert!(matches!(now(&mut one), Poll::Ready(Some(told)) if told.status == 200));
        assert!(now(&mut other).is_pending());
        drop((one, other));
        assert!(desk.lock().is_empty());
    }

    #[test]
    fn an_id_that_comes_again_is_the_last_ones() {
        let desk = Arc::new(Desk::default());
        let mut first = desk.expect(b"7").expect("an id");
        let mut last = desk.expect(b"7").expect("an id");
        assert_eq!(now(&mut first).map(|told| told.is_none()), Poll::Ready(true));
        drop(first);
        desk.hear(LINE);
        assert!(matches!(now(&mut last), Poll::Ready(Some(_))));
        assert!(desk.expect(b"").is_none() && desk.expect(&[b'a'; LONGEST + 1]).is_none());
    }
}
