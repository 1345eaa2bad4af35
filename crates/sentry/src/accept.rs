//! Accepting connections. A request is usually there when `accept` returns (TCP_DEFER_ACCEPT), so it is read at once:
//! one that is refused and asks for no more is answered and closed before the runtime ever hears of its socket.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::net::SocketFlags;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use crate::client::{Client, Wait};
use crate::config::ProxyIn;
use crate::counters::Counter;
use crate::door::Door;
use crate::doorstep::{self, NOT_TLS, Refused};
use crate::gate::Gate;
use crate::gate::sift::{Origin, Step, sift};
use crate::http2::{self, preface};
use crate::serve::{Registered, Serve};
use crate::share::{Scratch, WorkerApp};
use crate::shed;
use crate::spop;
use crate::syn_policing::reset;
use crate::transport::Transport;

/// Connections the kernel keeps until they are accepted.
pub(crate) const BACKLOG: i32 = 4096;

/// Bytes of answers that the kernel takes beyond what a client's window lets it send. Accepted sockets inherit it.
const UNSENT: u32 = 128 * 1024;

/// How long the kernel waits for a connection's first bytes before handing it over regardless.
const DEFER_ACCEPT: Duration = Duration::from_secs(1);

/// Connections accepted before other tasks get their turn.
const BATCH: usize = 64;

/// How long to wait when there are no file descriptors left.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(50);

/// The same when some are being given back.
const SOON: Duration = Duration::from_millis(1);

/// Opens a listener that shares its address with those of the other workers.
///
/// # Errors
/// What the system says: address in use, not permitted, not ours.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        // Whatever the system's default is: every address of both families.
        socket.set_only_v6(false)?;
    }
    socket.bind(&SockAddr::from(address))?;
    prepare(socket)
}

/// Takes over a listener that was opened elsewhere.
///
/// # Errors
/// What the system says.
pub(crate) fn adopt(socket: OwnedFd) -> io::Result<TcpListener> {
    prepare(Socket::from(socket))
}

/// Makes a socket a listener as workers need it, whoever opened it.
fn prepare(socket: Socket) -> io::Result<TcpListener> {
    socket.set_nonblocking(true)?;
    // Accepted sockets inherit it.
    socket.set_tcp_nodelay(true)?;
    // Best effort: without it an unread answer takes as much of the kernel's memory as the system allows.
    let _ = socket.set_tcp_notsent_lowat(UNSENT);
    // Of one that listens already, this sets the length of its queue.
    socket.listen(BACKLOG)?;
    defer_accept(&socket);
    Ok(socket.into())
}

/// Best effort: without it the request is there a little later, so a failure is no error.
#[expect(unsafe_code, reason = "a socket's option, and `AsyncFd` of a listener")]
fn defer_accept(socket: &Socket) {
    let seconds = DEFER_ACCEPT.as_secs() as libc::c_int;
    // SAFETY: the descriptor is open for as long as `socket` is borrowed, and the option's value is a `c_int` whose
    // address and size are given; the kernel copies it and keeps neither.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}

/// Accepts until `stop` says so; then once more whatever the kernel has ready, and closes the listener.
#[expect(unsafe_code, reason = "a socket's option, and `AsyncFd` of a listener")]
pub(crate) async fn accept(
    door: Rc<RefCell<Rc<Door>>>,
    listener: TcpListener,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    // SAFETY: the listener owns its descriptor, and nothing here closes or replaces it while `AsyncFd` owns it.
    let listener = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) };
    let listener = listener.map_err(io::Error::from)?;
    loop {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => {
                while let Round::More = accept_batch(&door, listener.get_ref()) {}
                return Ok(());
            }
            ready = listener.readable() => {
                let mut ready = ready?;
                match accept_batch(&door, listener.get_ref()) {
                    Round::More => {}
                    Round::Empty => ready.clear_ready(),
                    Round::Exhausted => {
                        drop(ready);
                        // Whoever was told to go does so while this waits.
                        let given_back = shed::give_back_descriptors(&door.borrow().clone());
                        tokio::time::sleep(if given_back > 0 { SOON } else { OUT_OF_DESCRIPTORS }).await;
                    }
                }
            }
        }
        tokio::task::yield_now().await;
    }
}

enum Round {
    /// There may be more.
    More,
    /// There is nothing to accept.
    Empty,
    /// There is, but the system has no room for it.
    Exhausted,
}

fn accept_batch(door: &RefCell<Rc<Door>>, listener: &TcpListener) -> Round {
    use rustix::io::Errno;
    let worker = &door.borrow().clone();
    for _ in 0..BATCH {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match rustix::net::acceptfrom_with(listener.as_fd(), flags) {
            Ok((socket, peer)) => {
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                // By a socket for both families, IPv4 comes as IPv6; by a Unix socket there is no address.
                let peer = peer
                    .map_or(([0, 0, 0, 0], 0).into(), |peer| SocketAddr::new(peer.ip().to_canonical(), peer.port()));
                welcome(worker, TcpStream::from(socket), peer);
            }
            Err(Errno::AGAIN) => return Round::Empty,
            // The client gave up before it was accepted.
            Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => {}
            Err(_) => {
                worker.lane().bump(Counter::AcceptErrors);
                return Round::Exhausted;
            }
        }
    }
    Round::More
}

/// Serves a new connection; at once, when its request is here and refused.
pub(crate) fn welcome(worker: &Rc<Door>, mut socket: TcpStream, peer: SocketAddr) {
    let listen = worker.listen();
    let lane = worker.lane();
    if worker.keeps_out(peer.ip()) {
        lane.bump(Counter::ConnectionsDenied);
        return reset(socket);
    }
    let limit = worker.local().live.config.limits.connections;
    if (!worker.app.has_place(limit) || worker.is_full()) && !shed::make_room(worker) {
        lane.bump(Counter::ConnectionsRefused);
        return;
    }
    if http2::conduct::turns_away(worker, peer.ip()) {
        lane.bump(Counter::Http2TurnedAway);
        return reset(socket);
    }
    if !worker.app.syn.lets_in(|| worker.app.now(), peer) {
        lane.bump(Counter::ConnectionsRefused);
        return reset(socket);
    }
    lane.bump(Counter::ConnectionsAccepted);
    let begun = Begun(Some(worker));
    #[cfg(feature = "faults")]
    worker.app.faults.strike(crate::faults::Fault::Accept);
    let scratch = worker.scratch.clone();
    let Scratch { input, out, .. } = &mut *scratch.borrow_mut();
    if listen.tls || listen.proxy != ProxyIn::Off || listen.redirect.is_some() {
        return knock(begun, worker, socket, peer, input);
    }
    let read = match socket.read(input) {
        Ok(read @ 1..) => read,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return start(begun, worker, socket, peer, (&[], &[]), None);
        }
        // It left without a word.
        Ok(0) | Err(_) => return,
    };
    let first = &input[..read];
    let is_http2 = || preface::begins(first).is_some() && http2::is_spoken(worker);
    if is_http2() || (spop::begins(first) && spop::is_spoken(worker)) {
        return start(begun, worker, socket, peer, (&input[..read], &[]), None);
    }
    out.clear();
    let sifted = sift(worker, Origin::plain(peer), &input[..read], out);
    let mut owed = &out[..];
    if !owed.is_empty() {
        // A new socket's buffer is empty: this takes all but the largest answers.
        if let Ok(written) = socket.write(owed) {
            owed = &owed[written..];
        }
    }
    if owed.is_empty() && matches!(sifted.step, Step::Close { unread: false }) && sifted.consumed == read {
        return;
    }
    start(begun, worker, socket, peer, (&input[sifted.consumed..read], owed), Some(sifted.step));
}

/// Lets a new connection begin with what comes before requests; at once refused where its first bytes say enough.
fn knock(mut begun: Begun<'_>, worker: &Rc<Door>, mut socket: TcpStream, peer: SocketAddr, input: &mut [u8]) {
    let read = match socket.read(input) {
        Ok(read @ 1..) => read,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        // It left without a word.
        Ok(0) | Err(_) => return,
    };
    let first = &input[..read];
    let shaking = match doorstep::judge(worker, peer, first) {
        Ok(shaking) => shaking,
        Err(Refused::Reset) => return reset(socket),
        // A new socket's buffer takes it.
        Err(Refused::NotTls) => return drop(socket.write(NOT_TLS)),
    };
    let Ok(socket) = tokio::net::TcpStream::from_std(socket) else {
        return worker.lane().bump(Counter::AcceptErrors);
    };
    let deadline = worker.deadline(|timeouts| timeouts.handshake);
    let client = Client::new(peer, deadline);
    note_end(worker, &client, &socket);
    client.wait(Wait::Handshake, deadline);
    let registered = Registered::new(worker, &client);
    begun.0 = None;
    let entering = doorstep::enter(worker.clone(), client, socket, first, shaking);
    tokio::task::spawn_local(Serve::entering(entering, registered));
}

/// A connection that counts as open. Dropped before it is registered, in a panic too, it counts as closed.
struct Begun<'a>(Option<&'a WorkerApp>);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let Some(worker) = self.0 {
            worker.lane().bump(Counter::ConnectionsClosed);
        }
    }
}

/// Notes what a client connected to, where servers are told.
fn note_end(worker: &Door, client: &Client, socket: &tokio::net::TcpStream) {
    if worker.tells_servers()
        && let Ok(local) = socket.local_addr()
    {
        client.came_to(SocketAddr::new(local.ip().to_canonical(), local.port()));
    }
}

/// Gives the connection a task of its own. `left` of what it sent, and what it is owed. `step`: how far the pass over
/// that came; `None`: there was none.
fn start(
    mut begun: Begun<'_>,
    worker: &Rc<Door>,
    socket: TcpStream,
    peer: SocketAddr,
    (left, owed): (&[u8], &[u8]),
    step: Option<Step>,
) {
    let Ok(socket) = tokio::net::TcpStream::from_std(socket) else {
        return worker.lane().bump(Counter::AcceptErrors);
    };
    // Nothing was asked yet: the head's time runs from here.
    let client = Client::new(peer, worker.deadline(|timeouts| timeouts.header));
    note_end(worker, &client, &socket);
    let registered = Registered::new(worker, &client);
    begun.0 = None;
    let mut gate = Gate::new(Transport::Plain(socket), worker.clone(), client);
    match step {
        None => gate.hold(left.to_vec()),
        Some(Step::More) if left.is_empty() => gate.owe(owed),
        Some(step) => gate.resume(left, owed, step),
    }
    tokio::task::spawn_local(Serve::new(gate, registered));
}
