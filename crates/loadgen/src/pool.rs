//! Connections to one destination: kept for reuse, bounded in number.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

pub(crate) type Sender = SendRequest<Full<Bytes>>;

/// The connections to one destination.
pub(crate) struct Pool {
    addresses: Vec<SocketAddr>,
    /// Who stands for the destination, where that changes.
    members: Option<watch::Receiver<Vec<SocketAddr>>>,
    turn: Cell<usize>,
    /// Kept connections, by member; `None`: there are no members.
    idle: RefCell<HashMap<Member, Vec<Sender>>>,
    permits: Semaphore,
    /// Connections opened.
    pub(crate) opened: Cell<u64>,
    /// Requests that found every connection busy.
    pub(crate) waits: Cell<u64>,
}

/// Which of the members a request goes to.
pub(crate) type Member = Option<SocketAddr>;

impl Pool {
    pub(crate) fn new(addresses: Vec<SocketAddr>, connections: usize) -> Pool {
        Pool {
            addresses,
            members: None,
            turn: Cell::new(0),
            idle: RefCell::new(HashMap::new()),
            permits: Semaphore::new(connections.min(Semaphore::MAX_PERMITS)),
            opened: Cell::new(0),
            waits: Cell::new(0),
        }
    }

    /// The same pool, whose requests go to `members` in turn.
    pub(crate) fn with_members(self, members: Option<watch::Receiver<Vec<SocketAddr>>>) -> Pool {
        Pool { members, ..self }
    }

    /// Whose turn it is.
    pub(crate) fn member(&self) -> Member {
        let members = self.members.as_ref()?.borrow();
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        members.get(turn % members.len().max(1)).copied()
    }

    /// Waits for the right to use a connection. Whoever holds it takes an idle one or opens one, so that idle and busy
    /// ones together stay within the limit.
    pub(crate) async fn permit(&self) -> SemaphorePermit<'_> {
        if let Ok(permit) = self.permits.try_acquire() {
            return permit;
        }
        self.waits.set(self.waits.get() + 1);
        self.permits.acquire().await.expect("the semaphore is never closed")
    }

    /// A kept connection that is still good, the most recently used first.
    pub(crate) async fn take_idle(&self, member: Member) -> Option<Sender> {
        loop {
            let mut sender = self.idle.borrow_mut().get_mut(&member)?.pop()?;
            if sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    /// Keeps a connection for the next request.
    pub(crate) fn keep(&self, member: Member, sender: Sender) {
        if !sender.is_closed() {
            self.idle.borrow_mut().entry(member).or_default().push(sender);
        }
    }

    /// Opens a connection; its driver runs as a task of its own until it is closed.
    pub(crate) async fn connect(&self, member: Member) -> io::Result<Sender> {
        let stream = match member {
            Some(address) => TcpStream::connect(address).await?,
            None => TcpStream::connect(&self.addresses[..]).await?,
        };
        stream.set_nodelay(true)?;
        self.opened.set(self.opened.get() + 1);
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // Its errors reach the request that suffers them.
        tokio::task::spawn_local(async move { drop(connection.await) });
        Ok(sender)
    }
}
