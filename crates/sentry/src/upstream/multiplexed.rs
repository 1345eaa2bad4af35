//! Connections to servers by HTTP/2: each carries many requests of its worker at once, and is driven by a task of its
//! own, for none of them can be made to wait for another one's client.
//!
//! *Bounds.* What a slow client leaves unread waits in its stream's window, and no stream can take the room of another
//! one: the connection's window is that of all of its streams. A connection on which a server let a request wait in
//! vain gets no more of them: it may hang, and closes when the last one is over.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use http::header::{self, HeaderName};
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{HeaderValue, Request};
use hyper::client::conn::http2::{Builder, SendRequest};
use tidegate_engine::Timestamp;
use tokio::sync::Notify;
use tokio::task::spawn_local;

use super::send::Failure;
use super::{ServerIo, Watching};
use crate::transport::Transport;
use crate::upload::RequestBody;

/// Requests at once on one connection: as many as every server should allow (RFC 9113, section 6.5.2). With a server
/// that allows fewer, the others wait here.
const STREAMS: usize = 100;

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
    streams: Cell<usize>,
    /// It has answered a request before.
    reused: Cell<bool>,
    /// A request waited in vain.
    is_suspect: Cell<bool>,
    /// Since when it has no stream.
    since: Cell<Timestamp>,
}

impl Multiplexed {
    /// HTTP/2 begins on a socket.
    ///
    /// # Errors
    /// When the server ends it at once.
    pub(crate) async fn begin(socket: Transport, is_secure: bool) -> io::Result<Rc<Self>> {
        let mut builder = Builder::new(Local);
        builder
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW * STREAMS as u32)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(HEAD);
        let io = ServerIo { socket, watching: Watching::Nothing };
        let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
        // Requests on it hear of its end, each its own part of it.
        spawn_local(async move { drop(connection.await) });
        Ok(Rc::new(Multiplexed {
            sender,
            is_secure,
            streams: Cell::new(0),
            reused: Cell::new(false),
            is_suspect: Cell::new(false),
            since: Cell::new(Timestamp::ZERO),
        }))
    }

    /// Whether another request can be sent on it.
    pub(crate) fn has_room(&self) -> bool {
        self.is_usable() && self.streams.get() < STREAMS
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
    }
}

/// Brings a request that was not sent back into the form of HTTP/1, for whichever server is next.
pub(crate) fn unfit(request: &mut Request<RequestBody>) {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    let authority = parts.authority.take();
    parts.scheme = None;
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    if let Some(host) = authority.and_then(|authority| HeaderValue::from_str(authority.as_str()).ok()) {
        request.headers_mut().insert(header::HOST, host);
    }
}

/// A worker's connections to one server, and the one that is being opened: others wait for it, instead of opening one
/// for each of them.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    connections: RefCell<Vec<Rc<Multiplexed>>>,
    opening: RefCell<Option<Rc<Opening>>>,
}

/// A connection that is being opened.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    is_over: Notify,
    failed: Cell<Option<Failure>>,
}

/// Who has to open a connection.
#[derive(Debug)]
pub(crate) enum Turn<'a> {
    /// Nobody: there is one.
    Ready(Stream),
    /// The caller.
    Open(Opener<'a>),
    /// Somebody does.
    Wait(Rc<Opening>),
}

impl Shared {
    /// A stream on a connection that has room; `fresh`: on none that was there before.
    pub(crate) fn turn(&self, fresh: bool) -> Turn<'_> {
        if !fresh && let Some(found) = self.connections.borrow().iter().find(|connection| connection.has_room()) {
            return Turn::Ready(Stream::new(found));
        }
        let mut opening = self.opening.borrow_mut();
        match &*opening {
            Some(opening) => Turn::Wait(opening.clone()),
            None => {
                *opening = Some(Rc::default());
                Turn::Open(Opener(self))
            }
        }
    }

    /// Lets go of those that rest: how many.
    pub(crate) fn close_resting(&self) -> usize {
        let mut connections = self.connections.borrow_mut();
        let before = connections.len();
        connections.retain(|connection| connection.rests_since().is_none());
        before - connections.len()
    }

    /// Lets go of those that are closed, and of those that rest for as long as `is_old` says.
    pub(crate) fn sweep(&self, is_old: impl Fn(Timestamp) -> bool) {
        self.connections
            .borrow_mut()
            .retain(|connection| connection.is_usable() && !connection.rests_since().is_some_and(&is_old));
    }
}

impl Opening {
    /// Until there is a connection, or why there is none; `None` also when who opened it has left.
    pub(crate) async fn wait(&self) -> Option<Failure> {
        self.is_over.notified().await;
        self.failed.get()
    }
}

/// Opens a connection for all who wait for it.
#[derive(Debug)]
pub(crate) struct Opener<'a>(&'a Shared);

impl Opener<'_> {
    /// There it is.
    pub(crate) fn opened(self, connection: Rc<Multiplexed>) -> Stream {
        let stream = Stream::new(&connection);
        self.0.connections.borrow_mut().push(connection);
        stream
    }

    /// There is none.
    pub(crate) fn failed(self, why: Failure) {
        if let Some(opening) = &*self.0.opening.borrow() {
            opening.failed.set(Some(why));
        }
    }
}

impl Drop for Opener<'_> {
    fn drop(&mut self) {
        if let Some(opening) = self.0.opening.take() {
            opening.is_over.notify_waiters();
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
