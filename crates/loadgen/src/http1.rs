//! HTTP/1.1: connections kept for reuse, bounded in number, each with one request at a time.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::answer::Head;
use crate::dial::{Dialer, Member};
use crate::exchange::{Page, Told, not_connected, of_io};
use crate::record::Outcome;
use crate::report::ErrorKind;

type Sender = SendRequest<Full<Bytes>>;

/// The connections to one destination.
pub(crate) struct Pool {
    pub(crate) dialer: Dialer,
    /// Kept connections, by member; `None`: there are no members.
    idle: RefCell<HashMap<Member, Vec<Sender>>>,
    permits: Semaphore,
    keep_alive: bool,
    /// Requests that found every connection busy.
    pub(crate) waits: Cell<u64>,
}

impl Pool {
    pub(crate) fn new(dialer: Dialer, connections: usize, keep_alive: bool) -> Pool {
        Pool {
            dialer,
            idle: RefCell::new(HashMap::new()),
            permits: Semaphore::new(connections.min(Semaphore::MAX_PERMITS)),
            keep_alive,
            waits: Cell::new(0),
        }
    }

    /// See [`Client::exchange`](crate::exchange::Client::exchange).
    pub(crate) async fn exchange(
        &self,
        make: impl Fn() -> Request<Bytes>,
        told: &Told<'_>,
        mut page: Option<&mut Page>,
    ) -> Result<Outcome, ErrorKind> {
        let _permit = self.permit(told).await;
        let member = self.dialer.member();
        let mut request = make().map(Full::new);
        loop {
            let idle = if self.keep_alive { self.take_idle(member).await } else { None };
            let reused = idle.is_some();
            let mut sender = match idle {
                Some(sender) => sender,
                None => self.connect(member).await.map_err(|error| not_connected(&error))?,
            };
            told.sent();
            match sender.try_send_request(request).await {
                Ok(response) => {
                    let outcome = read(response, told, page.take()).await?;
                    self.keep(member, sender);
                    return Ok(outcome);
                }
                // A kept connection may be closed by the server at any moment: nothing was sent, another one will do.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if reused => request = unsent,
                    _ => return Err(classify(error.error())),
                },
            }
        }
    }

    /// Waits for the right to use a connection. Whoever holds it takes an idle one or opens one, so that idle and busy
    /// ones together stay within the limit.
    async fn permit(&self, told: &Told<'_>) -> SemaphorePermit<'_> {
        if let Ok(permit) = self.permits.try_acquire() {
            return permit;
        }
        self.waits.set(self.waits.get() + 1);
        told.held.set(true);
        let permit = self.permits.acquire().await.expect("the semaphore is never closed");
        told.held.set(false);
        permit
    }

    /// A kept connection that is still good, the most recently used first.
    async fn take_idle(&self, member: Member) -> Option<Sender> {
        loop {
            let mut sender = self.idle.borrow_mut().get_mut(&member)?.pop()?;
            if sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    /// Keeps a connection for the next request.
    fn keep(&self, member: Member, sender: Sender) {
        if self.keep_alive && !sender.is_closed() {
            self.idle.borrow_mut().entry(member).or_default().push(sender);
        }
    }

    /// Opens a connection; its driver runs as a task of its own until it is closed.
    async fn connect(&self, member: Member) -> io::Result<Sender> {
        let transport = self.dialer.dial(member).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(transport)).await.map_err(io::Error::other)?;
        // Its errors reach the request that suffers them.
        tokio::task::spawn_local(async move { drop(connection.await) });
        Ok(sender)
    }
}

async fn read(
    response: Response<Incoming>,
    told: &Told<'_>,
    mut page: Option<&mut Page>,
) -> Result<Outcome, ErrorKind> {
    let head = Head::http(response.status(), response.headers());
    if let Some(page) = &mut page {
        page.headers.clone_from(response.headers());
    }
    if head.stays_open {
        (told.on_open)(head.outcome(0));
    }
    let mut body = response.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| classify(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        bytes += data.len() as u64;
        if let Some(page) = &mut page {
            page.add(data);
        }
    }
    Ok(head.outcome(bytes))
}

/// What went wrong, from the innermost cause that says it.
fn classify(error: &hyper::Error) -> ErrorKind {
    let of_connection = error.is_incomplete_message() || error.is_canceled() || error.is_closed();
    of_io(error).unwrap_or(if of_connection { ErrorKind::Closed } else { ErrorKind::Protocol })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use super::*;
    use socket2::{Domain, Socket, Type};
    use tokio::net::TcpStream;
    use tokio::runtime::Builder;
    use tokio::time::timeout;

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
            let dialer = Dialer { patience: Some(Duration::from_millis(20)), ..Dialer::new(vec![address]) };
            let pool = Pool::new(dialer, 1, true);
            let error = pool.connect(None).await.expect_err("nobody answers");
            assert_eq!((error.kind(), pool.dialer.opened.get()), (io::ErrorKind::TimedOut, 0));
        });
    }
}
