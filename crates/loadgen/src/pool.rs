//! Connections to one destination: kept for reuse, bounded in number.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::timeout;

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
    /// How long a connection may take; `None`: as long as the request.
    patience: Option<Duration>,
    /// Connections opened.
    pub(crate) opened: Cell<u64>,
    /// Requests that found every connection busy.
    pub(crate) waits: Cell<u64>,
}

/// Which of the members a request goes to.
pub(crate) type Member = Option<SocketAddr>;

impl Pool {
    pub(crate) fn new(addresses: Vec<SocketAddr>, connections: usize, patience: Option<Duration>) -> Pool {
        Pool {
            addresses,
            members: None,
            turn: Cell::new(0),
            idle: RefCell::new(HashMap::new()),
            permits: Semaphore::new(connections.min(Semaphore::MAX_PERMITS)),
            patience,
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
        let connecting = async {
            match member {
                Some(address) => TcpStream::connect(address).await,
                None => TcpStream::connect(&self.addresses[..]).await,
            }
        };
        let stream = match self.patience {
            Some(patience) => timeout(patience, connecting).await??,
            None => connecting.await?,
        };
        stream.set_nodelay(true)?;
        self.opened.set(self.opened.get() + 1);
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // Its errors reach the request that suffers them.
        tokio::task::spawn_local(async move { drop(connection.await) });
        Ok(sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};
    use tokio::runtime::Builder;

    #[test]
    fn who_is_impatient_gives_a_connection_up() {
        // Nobody accepts here, and only one or two may wait: the others' handshakes are not answered.
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
        socket.listen(0).expect("a listener");
        let address = socket.local_addr().ok().and_then(|address| address.as_socket()).expect("an address");
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            // One at least, however long that takes; then nobody or only one more.
            let mut waiting = vec![TcpStream::connect(address).await.expect("a connection")];
            for _ in 0..4 {
                let connecting = TcpStream::connect(address);
                if let Ok(connected) = timeout(Duration::from_millis(50), connecting).await {
                    waiting.push(connected.expect("a connection"));
                }
            }
            assert!(waiting.len() < 5, "the queue is full");
            let pool = Pool::new(vec![address], 1, Some(Duration::from_millis(20)));
            let error = pool.connect(None).await.expect_err("nobody answers");
            assert_eq!((error.kind(), pool.opened.get()), (io::ErrorKind::TimedOut, 0));
        });
    }
}
