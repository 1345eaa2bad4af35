//! Accepting connections. A request is usually there when `accept` returns (TCP_DEFER_ACCEPT), so it is read at once:
//! one that is refused and asks for no more is answered and closed before the runtime ever hears of its socket.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::net::SocketFlags;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use crate::client::{Client, Wait};
use crate::config::{Listen, ProxyIn};
use crate::counters::Counter;
use crate::doorstep::{self, NOT_TLS, Refused};
use crate::gate::Gate;
use crate::gate::sift::{Origin, Step, sift};
use crate::http2::{self, preface};
use crate::serve::{Registered, Serve};
use crate::share::{Scratch, WorkerApp};
use crate::shed;
use crate::syn_policing::reset;
use crate::transport::Transport;

/// Connections the kernel keeps until they are accepted.
const BACKLOG: i32 = 4096;

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
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    // Accepted sockets inherit it.
    socket.set_tcp_nodelay(true)?;
    // Best effort: without it an unread answer takes as much of the kernel's memory as the system allows.
    let _ = socket.set_tcp_notsent_lowat(UNSENT);
    socket.bind(&SockAddr::from(address))?;
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
    worker: Rc<WorkerApp>,
    listener: TcpListener,
    listen: Listen,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    // SAFETY: the listener owns its descriptor, and nothing here closes or replaces it while `AsyncFd` owns it.
    let listener = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) };
    let listener = listener.map_err(io::Error::from)?;
    loop {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => {
                while let Round::More = accept_batch(&worker, listener.get_ref(), listen) {}
                return Ok(());
            }
            ready = listener.readable() => {
                let mut ready = ready?;
                match accept_batch(&worker, listener.get_ref(), listen) {
                    Round::More => {}
                    Round::Empty => ready.clear_ready(),
                    Round::Exhausted => {
                        drop(ready);
                        // Whoever was told to go does so while this waits.
                        let given_back = shed::give_back_descriptors(&worker);
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

fn accept_batch(worker: &Rc<WorkerApp>, listener: &TcpListener, listen: Listen) -> Round {
    use rustix::io::Errno;
    for _ in 0..BATCH {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match rustix::net::acceptfrom_with(listener.as_fd(), flags) {
            Ok((socket, peer)) => {
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                welcome(worker, TcpStream::from(socket), peer.unwrap_or(([0, 0, 0, 0], 0).into()), listen);
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
pub(crate) fn welcome(worker: &Rc<WorkerApp>, mut socket: TcpStream, peer: SocketAddr, listen: Listen) {
    let lane = worker.lane();
    let limit = worker.local().live.config.limits.connections;
    if worker.app.counters.connections_open() >= worker.app.may_have(limit) && !shed::make_room(worker) {
        lane.bump(Counter::ConnectionsRefused);
        return;
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
    let Scratch { input, out } = &mut *scratch.borrow_mut();
    if listen.tls || listen.proxy != ProxyIn::Off || listen.redirect.is_some() {
        return knock(begun, worker, socket, peer, listen, input);
    }
    let read = match socket.read(input) {
        Ok(read @ 1..) => read,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return start(begun, worker, socket, peer, (&[], &[]), None);
        }
        // It left without a word.
        Ok(0) | Err(_) => return,
    };
    if preface::begins(&input[..read]).is_some() && http2::is_spoken(worker) {
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
fn knock(
    mut begun: Begun<'_>,
    worker: &Rc<WorkerApp>,
    mut socket: TcpStream,
    peer: SocketAddr,
    listen: Listen,
    input: &mut [u8],
) {
    let read = match socket.read(input) {
        Ok(read @ 1..) => read,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        // It left without a word.
        Ok(0) | Err(_) => return,
    };
    let first = &input[..read];
    let shaking = match doorstep::judge(worker, listen, peer, first) {
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
    client.wait(Wait::Handshake, deadline);
    let registered = Registered::new(worker, &client);
    begun.0 = None;
    let entering = doorstep::enter(worker.clone(), client, listen, socket, first, shaking);
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

/// Gives the connection a task of its own. `left` of what it sent, and what it is owed. `step`: how far the pass over
/// that came; `None`: there was none.
fn start(
    mut begun: Begun<'_>,
    worker: &Rc<WorkerApp>,
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
