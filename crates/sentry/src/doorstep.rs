//! What comes before a connection's first request, where anything does: a PROXY header, a TLS handshake.
//!
//! What can be decided from the first bytes is decided in the accept loop: a handshake for which there is no processor
//! time is refused by a reset before the runtime hears of the socket, and before any cryptography. What takes longer is
//! a future in the connection's task, bounded in time (`timeouts.handshake`) and in number (`limits.handshakes`).

mod redirect;
mod shake;
mod standing;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::acme::challenge;
use crate::client::{Client, Wait};
use crate::config::ProxyIn;
use crate::counters::Counter;
use crate::door::Door;
use crate::gate::Gate;
use crate::proxy_protocol::{self, Header};
use crate::share::WorkerApp;
use crate::shed;
use crate::tls::aside::{Aside, Waits};
use crate::tls::budget::{Budget, Kind, Paid, Took};
use crate::tls::hello::{self, Hello, Seen};
use crate::tls::rank::Claim;
use crate::tls::session::usage;
use crate::transport::Transport;
use standing::Standing;

/// What all of a worker's applications have together for handshakes.
#[derive(Debug)]
pub(crate) struct Doorstep {
    budget: RefCell<Budget>,
    aside: Aside,
    /// Handshakes of this worker that are under way.
    under_way: Cell<usize>,
}

/// A connection that is not let in: what becomes of its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is reset: nothing is left of it here.
    Reset,
    /// It is told, in plain text, that this is not plain HTTP, and closed.
    NotTls,
}

/// Reads of what a client still sends that was sent elsewhere.
const MOST_READS: usize = 64;

/// What clients are told that speak plain HTTP where TLS is spoken.
pub(crate) const NOT_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 54\r\n\
    connection: close\r\n\r\nThis is plain HTTP, and this port speaks TLS: https.\r\n";

/// What a TLS session takes while its handshake is under way, and afterwards. The latter
/// is 10 KiB in memory, by hand with 2,000 of them; the former an estimate.
const SHAKING_KIB: u16 = 24;
const TLS_KIB: u16 = 12;

impl Doorstep {
    pub(crate) fn new(now: tidegate_engine::Timestamp) -> Rc<Self> {
        let budget = RefCell::new(Budget::new(now, usage()));
        Rc::new(Doorstep { budget, aside: Aside::default(), under_way: Cell::new(0) })
    }

    /// Processor time that other threads than the worker's had for its handshakes.
    pub(crate) fn used_aside(&self) -> Duration {
        self.aside.used()
    }
}

/// What the first bytes of a connection allow: `None`: they do not decide anything yet.
pub(crate) fn judge(worker: &Rc<Door>, peer: SocketAddr, first: &[u8]) -> Result<Option<Begun>, Refused> {
    let listen = worker.listen();
    if listen.proxy == ProxyIn::Required && !is_trusted(worker, peer) {
        worker.lane().bump(Counter::ProxyHeadersRefused);
        return Err(Refused::Reset);
    }
    if !listen.tls || listen.proxy != ProxyIn::Off || first.is_empty() {
        return Ok(None);
    }
    match hello::read(first) {
        Seen::Partial => Ok(None),
        Seen::Whole(hello) => begin(worker, peer, hello).map(Some),
        Seen::Alien => {
            worker.lane().bump(Counter::HandshakesFailed);
            Err(alien(first))
        }
    }
}

fn alien(first: &[u8]) -> Refused {
    if first.first().is_some_and(u8::is_ascii_uppercase) { Refused::NotTls } else { Refused::Reset }
}

fn is_trusted(worker: &WorkerApp, peer: SocketAddr) -> bool {
    let address = peer.ip().to_canonical();
    worker.local().live.config.forwarded.trust.iter().any(|network| network.contains(&address))
}

/// Takes a place among the handshakes under way, and pays for one.
fn begin(worker: &Rc<Door>, peer: SocketAddr, hello: Hello) -> Result<Begun, Refused> {
    let doorstep = &worker.doorstep;
    let most = worker.local().live.config.limits.handshakes;
    let refused = || {
        worker.lane().bump(Counter::HandshakesRefused);
        Refused::Reset
    };
    if doorstep.under_way.get() >= most && !shed::make_handshake_room(worker) {
        return Err(refused());
    }
    let mut budget = doorstep.budget.borrow_mut();
    let now = worker.now();
    budget.look(now, usage);
    #[cfg(feature = "faults")]
    worker.app.faults.bind(&mut budget, now);
    let validates = hello.validates && challenge::is_pending();
    let full = Kind::full(hello.verifies_ecdsa);
    let (is_short, is_close) = (budget.is_short(now, full), budget.is_close(now, full));
    let standing = is_close.then(|| match validates || is_trusted(worker, peer) {
        true => Standing::best(),
        false => Standing::of(worker, peer, &hello, now),
    });
    let claim = standing.as_ref().map_or(Claim::NONE, Standing::claim);
    // An authority's is done here, whoever waits elsewhere.
    let waiting = if validates { 0 } else { doorstep.aside.waiting() };
    let paid = budget.pay(now, claim, full, waiting);
    if let Some(standing) = standing.filter(|_| is_short || paid.is_none()) {
        standing.note(paid.is_none());
    }
    let paid = paid.ok_or_else(refused)?;
    doorstep.under_way.update(|n| n + 1);
    let waits = (paid.gives_way() && !validates).then(|| doorstep.aside.enter());
    Ok(Begun { worker: Rc::clone(worker), paid: Some(paid), name: hello.name, full, validates, waits })
}

/// A handshake that is paid for. Dropped, it is over.
#[derive(Debug)]
pub(crate) struct Begun {
    worker: Rc<WorkerApp>,
    paid: Option<Paid>,
    /// The host that the client asks for.
    name: Option<Box<str>>,
    /// What it is if the client was not here before.
    full: Kind,
    /// It is one of an authority, whose question is under way.
    validates: bool,
    /// Others go before it: it is done aside, and waits for that.
    waits: Option<Waits>,
}

impl Begun {
    /// What it took is known.
    fn settle(mut self, kind: Option<Kind>, took: Took) {
        if let Some(paid) = self.paid.take() {
            self.worker.doorstep.budget.borrow_mut().settle(paid, kind, took);
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.worker.doorstep.under_way.update(|n| n - 1);
    }
}

/// A connection on its way in: `None`: it is not let in, or left.
pub(crate) type Entering = Pin<Box<dyn Future<Output = Option<Gate>>>>;

/// Brings a connection to its first request. `first`: what it has sent already.
pub(crate) fn enter(
    worker: Rc<Door>,
    client: Rc<Client>,
    socket: TcpStream,
    first: &[u8],
    begun: Option<Begun>,
) -> Entering {
    let (first, listen) = (first.to_vec(), worker.listen());
    Box::pin(async move {
        let mut visitor = Visitor { worker: worker.clone(), client: client.clone(), socket, bytes: first };
        visitor.count_held();
        let entered = client.in_time(visitor.introduce(listen, begun)).await;
        let begun = match entered {
            Ok(Ok(begun)) => begun,
            Ok(Err(_)) => return None,
            Err(wait) => {
                note_late(&worker, wait);
                return None;
            }
        };
        if let Some(port) = listen.redirect {
            if let Err(wait) = client.in_time(visitor.redirect(port.get())).await {
                note_late(&worker, wait);
            }
            return None;
        }
        let Visitor { socket, bytes, .. } = visitor;
        let (transport, held) = match begun {
            None => (Transport::Plain(socket), bytes),
            Some(begun) if begun.validates => {
                shake::validate(&worker, &client, socket, bytes).await;
                return None;
            }
            Some(begun) => (Transport::Tls(shake::shake(&worker, &client, socket, bytes, begun).await?), Vec::new()),
        };
        // Nothing was asked yet: the head's time runs from here.
        client.idle(worker.deadline(|timeouts| timeouts.header));
        let mut gate = Gate::new(transport, worker, client);
        gate.hold(held);
        Some(gate)
    })
}

fn note_late(worker: &WorkerApp, wait: Wait) {
    // Who was told to make room was counted then.
    if wait == Wait::Handshake {
        worker.lane().bump(Counter::TimeoutHandshake);
    }
}

/// Who is on the doorstep.
struct Visitor {
    worker: Rc<Door>,
    client: Rc<Client>,
    socket: TcpStream,
    bytes: Vec<u8>,
}

impl Visitor {
    /// Reads the PROXY header where there may be one, and what the client says of itself where TLS is spoken. What is
    /// left in `bytes` is the handshake's, or the first request's.
    async fn introduce(&mut self, listen: crate::config::Listen, begun: Option<Begun>) -> io::Result<Option<Begun>> {
        if listen.proxy != ProxyIn::Off && is_trusted(&self.worker, self.client.peer()) {
            self.read_proxy_header(listen.proxy).await?;
            if self.worker.keeps_out(self.client.peer().ip()) {
                self.worker.lane().bump(Counter::ConnectionsDenied);
                return self.turn_away(Refused::Reset);
            }
        }
        if !listen.tls || begun.is_some() {
            return Ok(begun);
        }
        loop {
            match hello::read(&self.bytes) {
                Seen::Whole(hello) => return self.begin(hello).map(Some),
                Seen::Alien => {
                    self.worker.lane().bump(Counter::HandshakesFailed);
                    return self.turn_away(alien(&self.bytes));
                }
                Seen::Partial => self.more().await?,
            }
        }
    }

    fn begin(&self, hello: Hello) -> io::Result<Begun> {
        begin(&self.worker, self.client.peer(), hello).or_else(|refused| self.turn_away(refused))
    }

    async fn read_proxy_header(&mut self, wanted: ProxyIn) -> io::Result<()> {
        loop {
            match proxy_protocol::read(&self.bytes) {
                Header::Partial => self.more().await?,
                Header::Absent if wanted == ProxyIn::Optional => return Ok(()),
                Header::Absent | Header::Broken => {
                    self.worker.lane().bump(Counter::ProxyHeadersRefused);
                    return self.turn_away(Refused::Reset);
                }
                Header::Whole { length, source } => {
                    self.bytes.drain(..length);
                    if let Some(source) = source {
                        self.client.speaks_for(source);
                    }
                    return Ok(());
                }
            }
        }
    }

    async fn more(&mut self) -> io::Result<()> {
        let read = self.socket.read_buf(&mut self.bytes).await?;
        self.count_held();
        if read == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn count_held(&self) {
        self.worker.count_held(&self.client, self.bytes.capacity());
    }

    /// Sends whoever asks to https, and closes.
    async fn redirect(&mut self, port: u16) -> io::Result<()> {
        let limits = self.worker.local().live.head;
        let (status, answer) = loop {
            match redirect::answer(&self.bytes, &limits, port) {
                Some(answer) => break answer,
                None => self.more().await?,
            }
        };
        self.worker.lane().status(status);
        self.socket.write_all(&answer).await?;
        self.socket.shutdown().await?;
        // Who is still sending would be reset, and might lose the answer.
        for _ in 0..MOST_READS {
            self.bytes.clear();
            self.more().await?;
        }
        Ok(())
    }

    fn turn_away<T>(&self, refused: Refused) -> io::Result<T> {
        match refused {
            Refused::NotTls => drop(self.socket.try_write(NOT_TLS)),
            Refused::Reset => drop(socket2::SockRef::from(&self.socket).set_linger(Some(Duration::ZERO))),
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}
