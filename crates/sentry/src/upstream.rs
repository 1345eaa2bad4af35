//! Connections to servers. One of HTTP/1.1 has no task of its own: whoever uses it drives it, in the client's task, and
//! an idle one rests in its worker's pool until it is used again or swept. Those of HTTP/2 are [`multiplexed`].

mod allowed;
pub(crate) mod connect;
pub(crate) mod failure;
mod http1;
pub(crate) mod multiplexed;
pub(crate) mod pool;
pub(crate) mod send;
mod sharing;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::rt::ReadBufCursor;
use tidegate_engine::{Request, Timestamp};
use tokio::io::AsyncWrite;

use self::allowed::Frames;
pub(crate) use self::http1::Fault;
use self::http1::{Conn, Rest};
use self::multiplexed::Stream;
use self::pool::Pool;
use crate::gate::wire::{poll_read_watched, write_together};
use crate::proxy_protocol::out::Ends;
use crate::share::WorkerApp;
use crate::transport::Transport;

/// What a request has of a connection to a server, or a connection at rest in its pool.
#[derive(Debug)]
pub(crate) struct ServerConn {
    line: Line,
    /// Where it rests; `None` while it does.
    home: Option<Rc<Pool>>,
}

/// How a request and its answer go over a connection.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "the connection of which it is a part is in a box")]
enum Line {
    /// It has the connection to itself: HTTP/1.1.
    Own(Own),
    /// It has a stream of it: HTTP/2.
    Stream(Stream),
}

/// A connection of HTTP/1.1. It has no task: whoever uses it drives it.
#[derive(Debug)]
struct Own {
    conn: Conn,
    /// It has answered a request before.
    reused: bool,
    idle_since: Timestamp,
    /// This end of it: how the server's nucleus names it.
    local: SocketAddr,
    /// The client's connection that it is for, where its PROXY header said so: it is for no other.
    ends: Option<Ends>,
}

/// An answer's body, as far as it is not read. The connection that it comes from knows nothing of it.
#[derive(Debug)]
pub(crate) enum Incoming {
    Http1(Rest),
    Http2(hyper::body::Incoming),
}

impl Incoming {
    /// Whether it is known that no more comes.
    pub(crate) fn is_end_stream(&self) -> bool {
        match self {
            Incoming::Http1(rest) => rest.is_over(),
            Incoming::Http2(body) => body.is_end_stream(),
        }
    }

    /// How many bytes are still to come, where the server said so.
    pub(crate) fn exact(&self) -> Option<u64> {
        match self {
            Incoming::Http1(rest) => rest.exact(),
            Incoming::Http2(body) => body.size_hint().exact(),
        }
    }

    /// What comes of it when its connection is no longer here: that is free for others, or shared with them.
    pub(crate) fn poll_alone(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        match self {
            Incoming::Http1(_) => Poll::Ready(None),
            Incoming::Http2(body) => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(|_| Fault::Broken)))
            }
        }
    }
}

impl ServerConn {
    /// The next frame of an answer's body.
    pub(crate) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        match (body, &mut self.line) {
            (Incoming::Http1(rest), Line::Own(own)) => own.conn.poll_frame(rest, cx),
            (body, _) => body.poll_alone(cx),
        }
    }

    /// A request begins on it.
    fn note_begin(&self) {
        if let (Line::Own(own), Some(home)) = (&self.line, &self.home) {
            home.server.ledger.begin(own.local);
        }
    }

    /// A request ended on it.
    pub(crate) fn note_end(&self, request: &Request) {
        if let (Line::Own(own), Some(home)) = (&self.line, &self.home) {
            home.server.ledger.end(own.local, request);
        }
    }

    /// Its request is answered: back to the pool, unless the server or the request does not allow it.
    pub(crate) fn give_back(mut self: Box<Self>, cx: &mut Context<'_>, worker: &WorkerApp, now: Timestamp) {
        let own = match &mut self.line {
            Line::Own(own) => own,
            Line::Stream(stream) => return stream.note_end(now),
        };
        if own.conn.finish(cx)
            && let Some(home) = self.home.take()
        {
            let most = worker.local().live.config.pool.idle_per_server;
            own.idle_since = now;
            own.reused = true;
            home.put(self, most);
        }
    }

    /// The socket, where a server owes an answer that nobody wants; `None`: it is closed, or others use it.
    pub(crate) fn into_abandoned(self: Box<Self>) -> Option<Transport> {
        match self.line {
            Line::Own(own) if !own.conn.is_over() => Some(own.conn.into_parts().0),
            _ => None,
        }
    }

    /// The socket and what was read ahead, after the server agreed to another protocol; `None`: it cannot have.
    pub(crate) fn into_socket(self: Box<Self>) -> Option<(Transport, Bytes)> {
        let Line::Own(own) = self.line else { return None };
        Some(own.conn.into_parts())
    }

    /// It has answered a request before, so it may just have been closed.
    fn is_reused(&self) -> bool {
        match &self.line {
            Line::Own(own) => own.reused,
            Line::Stream(stream) => stream.is_reused(),
        }
    }
}

/// A server's socket as hyper sees it.
#[derive(Debug)]
pub(crate) struct ServerIo {
    socket: Transport,
    watching: Watching,
}

/// What is made of the bytes that come from a server, besides what hyper makes of them.
#[derive(Debug)]
enum Watching {
    /// How many streams there may be. Frames can be read in one way only.
    Frames(Frames),
    /// Nothing.
    Nothing,
}

impl ServerIo {
    /// For whoever reads the answer as it comes.
    pub(crate) fn unwatched(socket: Transport) -> Self {
        ServerIo { socket, watching: Watching::Nothing }
    }
}

impl hyper::rt::Read for ServerIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let ServerIo { socket, watching } = &mut *self;
        poll_read_watched(socket, cx, to, |bytes| match watching {
            Watching::Frames(frames) => {
                frames.read(bytes);
                Ok(())
            }
            Watching::Nothing => Ok(()),
        })
    }
}

impl hyper::rt::Write for ServerIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        write_together(&mut self.socket, cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
