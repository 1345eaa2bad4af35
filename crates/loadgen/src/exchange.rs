//! Exchange of one request and its answer, over a connection of whichever protocol.

use std::cell::Cell;
use std::error::Error;
use std::io;

use bytes::Bytes;
use http::{HeaderMap, Request};
use rustix::io::Errno;

use crate::dial::Dialer;
use crate::http1::Pool;
use crate::http2::Connections;
use crate::record::Outcome;
use crate::report::ErrorKind;

/// So much of a page is searched for what later requests need, bytes.
const MOST_KEPT: usize = 1 << 20;

/// What a user reads of an answer.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Its header fields.
    pub(crate) headers: HeaderMap,
    /// Its body, or the beginning of it, if it is wanted.
    pub(crate) body: Vec<u8>,
    /// Whether it is.
    pub(crate) keeps_body: bool,
}

impl Page {
    /// Takes a piece of the body.
    pub(crate) fn add(&mut self, data: &[u8]) {
        if self.keeps_body {
            let room = MOST_KEPT.saturating_sub(self.body.len());
            self.body.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
}

/// Who is told how far a request is.
pub(crate) struct Told<'a> {
    /// Whether a limit of the generator holds it back just now.
    pub(crate) held: &'a Cell<bool>,
    /// Its head was given to a connection: told once, whatever comes of it.
    on_send: &'a dyn Fn(),
    sent: Cell<bool>,
    /// What it is when an answer begins that stays open, at most once.
    pub(crate) on_open: &'a dyn Fn(Outcome),
}

impl<'a> Told<'a> {
    pub(crate) fn new(held: &'a Cell<bool>, on_send: &'a dyn Fn(), on_open: &'a dyn Fn(Outcome)) -> Told<'a> {
        Told { held, on_send, sent: Cell::new(false), on_open }
    }

    pub(crate) fn sent(&self) {
        if !self.sent.replace(true) {
            (self.on_send)();
        }
    }
}

/// The connections of clients to one destination.
pub(crate) enum Client {
    Http1(Pool),
    Http2(Connections),
}

impl Client {
    /// Sends what `make` makes, and reads the whole answer, into `page` where there is one. By HTTP/2 it is made again
    /// where it is sure that nobody has looked at it: when the server closes the connection in an orderly way.
    pub(crate) async fn exchange(
        &self,
        make: impl Fn() -> Request<Bytes>,
        told: &Told<'_>,
        page: Option<&mut Page>,
    ) -> Result<Outcome, ErrorKind> {
        match self {
            Client::Http1(pool) => pool.exchange(make, told, page).await,
            Client::Http2(connections) => connections.exchange(make, told, page).await,
        }
    }

    pub(crate) fn dialer(&self) -> &Dialer {
        match self {
            Client::Http1(pool) => &pool.dialer,
            Client::Http2(connections) => connections.dialer(),
        }
    }

    /// Requests that found every connection busy, and no further one allowed.
    pub(crate) fn waits(&self) -> u64 {
        match self {
            Client::Http1(pool) => pool.waits.get(),
            Client::Http2(connections) => connections.waits(),
        }
    }
}

/// Whose fault it is that there is no connection.
pub(crate) fn not_connected(error: &io::Error) -> ErrorKind {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ADDRNOTAVAIL | Errno::MFILE | Errno::NFILE) => ErrorKind::LocalLimit,
        _ => ErrorKind::Connect,
    }
}

/// What an error of a connection is: the innermost cause that says it. `None`: none does.
pub(crate) fn of_io(error: &(dyn Error + 'static)) -> Option<ErrorKind> {
    let mut cause = Some(error);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            return Some(kind(io));
        }
        cause = inner.source();
    }
    None
}

pub(crate) fn kind(io: &io::Error) -> ErrorKind {
    match io.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => {
            ErrorKind::Reset
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::NotConnected => ErrorKind::Closed,
        _ => ErrorKind::Protocol,
    }
}
