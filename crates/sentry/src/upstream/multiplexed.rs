//! Connections to servers by HTTP/2: each carries many requests of its worker at once, and is driven by a task of its
//! own, for none of them can be made to wait for another one's client.
//!
//! *Bounds.* What a slow client leaves unread waits in its stream's window, and no stream can take the room of another
//! one: the connection's window is that of all of its streams. A connection on which a server let a request wait in
//! vain gets no more of them: it may hang, and closes when the last one is over.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::Poll;

use http::Request;
use http::header::{self, HeaderName};
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use hyper::client::conn::http2::{Builder, SendRequest};
use tidegate_engine::Timestamp;
use tokio::task::spawn_local;

use super::allowed::{Allowed, Frames};
use super::sharing::Shared;
use super::{ServerIo, Watching};
use crate::transport::Transport;
use crate::upload::RequestBody;

/// Requests at once on one connection, where the server does not allow fewer: as many as every server should (RFC 9113,
/// section 6.5.2).
pub(super) const STREAMS: usize = 100;

/// Bytes of an answer that a server may send before its client has taken them.
const WINDOW: u32 = 64 * 1024;

/// Bytes of a request's body that are kept for a server that does not take them yet.
const SEND_BUFFER: usize = 64 * 1024;

/// The largest head of an answer, fields decoded.
const HEAD: u32 = 64 * 1024;

/// Fields of one hop of HTTP/1, which HTTP/2 has no use for.
const OF_HTTP1: [HeaderName; 3] = [header::CONNECTION, header::UPGRADE, header::TRANSFER_ENCODING];

/// A connection that requests share. It closes when nobody holds it any more.
#[derive(Debug)]
pub(crate) struct Multiplexed {
    sender: SendRequest<RequestBody>,
    is_secure: bool,
    allowed: Rc<Allowed>,
    /// Where others may wait for a stream of it.
    home: Weak<Shared>,
    streams: Cell<usize>,
    /// It has answered a request before.
    reused: Cell<bool>,
    /// A request waited in vain.
    is_suspect: Cell<bool>,
    /// Since when it has no stream.
    since: Cell<Timestamp>,
}

impl Multiplexed {
    /// HTTP/2 begins on a socket. The server's SETTINGS are awaited: a server that hangs, or speaks something else, is
    /// known before it has a request, and no more is asked of it than it wants. That takes the time of one way and
    /// back at most, once for each connection.
    ///
    /// # Errors
    /// When the server ends it before that.
    pub(crate) async fn begin(socket: Transport, is_secure: bool, home: &Rc<Shared>) -> io::Result<Rc<Self>> {
        let mut builder = Builder::new(Local);
        builder
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW * STREAMS as u32)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(HEAD);
        let allowed = Allowed::new(home);
        let io = ServerIo { socket, watching: Watching::Frames(Frames::new(allowed.clone())) };
        let (sender, mut connection) = builder.handshake(io).await.map_err(io::Error::other)?;
        {
            let mut known = pin!(allowed.known());
            poll_fn(|cx| match known.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Ok(())),
                Poll::Pending => Pin::new(&mut connection).poll(cx).map(|ended| match ended {
                    Ok(()) => Err(io::ErrorKind::UnexpectedEof.into()),
                    Err(error) => Err(io::Error::other(error)),
                }),
            })
            .await?;
        }
        let home = Rc::downgrade(home);
        let at_home = home.clone();
        spawn_local(async move {
            // Requests on it hear of its end, each its own part of it.
            drop(connection.await);
            if let Some(home) = at_home.upgrade() {
                home.settle();
            }
        });
        Ok(Rc::new(Multiplexed {
            sender,
            is_secure,
            allowed,
            home,
            streams: Cell::new(0),
            reused: Cell::new(false),
            is_suspect: Cell::new(false),
            since: Cell::new(Timestamp::ZERO),
        }))
    }

    /// Whether another request can be sent on it.
    pub(crate) fn has_room(&self) -> bool {
        self.is_usable() && self.streams.get() < self.allowed.streams().min(STREAMS)
    }

    /// Whether the server allows all that we would send on one.
    pub(super) fn takes_all(&self) -> bool {
        self.allowed.streams() >= STREAMS
    }

    /// Whether it has none now, and had none since.
    pub(crate) fn rests_since(&self) -> Option<Timestamp> {
        (self.streams.get() == 0).then(|| self.since.get())
    }

    pub(crate) fn is_usable(&self) -> bool {
        !self.sender.is_closed() && !self.is_suspect.get()
    }
}

/// A request's part of a connection.
#[derive(Debug)]
pub(crate) struct Stream {
    of: Rc<Multiplexed>,
    pub(crate) sender: SendRequest<RequestBody>,
}

impl Stream {
    pub(crate) fn new(of: &Rc<Multiplexed>) -> Self {
        of.streams.update(|streams| streams + 1);
        Stream { of: of.clone(), sender: of.sender.clone() }
    }

    /// It is over, and went well.
    pub(crate) fn note_end(&self, now: Timestamp) {
        self.of.reused.set(true);
        self.of.since.set(now);
    }

    /// It waited in vain.
    pub(crate) fn suspect(&self) {
        self.of.is_suspect.set(true);
    }

    pub(crate) fn is_reused(&self) -> bool {
        self.of.reused.get()
    }

    /// Brings a request into the form of HTTP/2: whom it asks is part of its target, and nothing is said of one hop.
    pub(crate) fn fit(&self, request: &mut Request<RequestBody>) {
        let headers = request.headers_mut();
        for name in OF_HTTP1 {
            headers.remove(name);
        }
        let host = headers.remove(header::HOST);
        let authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
        let Some(authority) = authority else { return };
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = Some(if self.of.is_secure { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = Some(authority);
        parts.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
        *request.uri_mut() = Uri::from_parts(parts).expect("all three parts");
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.of.streams.update(|streams| streams - 1);
        if let Some(home) = self.of.home.upgrade() {
            home.settle();
        }
    }
}

/// Runs what belongs to a connection on the worker that has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for Local {
    fn execute(&self, future: F) {
        spawn_local(future);
    }
}
