//! Connections to servers. A connection has no task of its own: whoever uses it drives it, in the client's task, and
//! an idle one rests in its worker's pool until it is used again or swept.

mod answers;
pub(crate) mod connect;
pub(crate) mod pool;
pub(crate) mod send;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Connection, SendRequest};
use hyper::rt::ReadBufCursor;
use tidegate_engine::{Request, Timestamp};
use tokio::io::AsyncWrite;

use self::answers::Answers;
use self::pool::Pool;
use crate::gate::wire::{poll_read_watched, write_together};
use crate::share::WorkerApp;
use crate::transport::Transport;
use crate::upload::RequestBody;

/// A connection to a server, in use by one request or at rest in its pool.
#[derive(Debug)]
pub(crate) struct ServerConn {
    sender: SendRequest<RequestBody>,
    connection: Connection<ServerIo, RequestBody>,
    /// How its answers are written.
    answers: Rc<Answers>,
    /// hyper is done with the connection, and must not be asked again.
    over: bool,
    /// It has answered a request before.
    reused: bool,
    /// Where it rests; `None` while it does.
    home: Option<Rc<Pool>>,
    idle_since: Timestamp,
    /// This end of it: how the server's nucleus names it.
    local: SocketAddr,
}

impl ServerConn {
    /// Lets hyper read and write.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.over {
            self.over = Pin::new(&mut self.connection).poll(cx).is_ready();
        }
    }

    /// The next frame of an answer's body; lets hyper read when there is none yet.
    pub(crate) fn poll_frame(
        &mut self,
        mut body: Pin<&mut Incoming>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match body.as_mut().poll_frame(cx) {
            Poll::Pending => {
                self.drive(cx);
                body.poll_frame(cx)
            }
            ready => ready,
        }
    }

    /// A request begins on it.
    fn note_begin(&self) {
        self.answers.expect();
        if let Some(home) = &self.home {
            home.server.ledger.begin(self.local);
        }
    }

    /// A request ended on it.
    pub(crate) fn note_end(&self, request: &Request) {
        if let Some(home) = &self.home {
            home.server.ledger.end(self.local, request);
        }
    }

    /// Whether another request can be sent on it.
    fn usable(&self) -> bool {
        !self.over && self.sender.is_ready()
    }

    /// Its request is answered: back to the pool, unless the server or the request does not allow it.
    pub(crate) fn give_back(mut self: Box<Self>, cx: &mut Context<'_>, worker: &WorkerApp, now: Timestamp) {
        if !self.usable() {
            self.drive(cx);
        }
        if let Some(home) = self.home.take()
            && self.usable()
        {
            let most = worker.local().live.config.pool.idle_per_server;
            self.idle_since = now;
            self.reused = true;
            home.put(self, most);
        }
    }

    /// The socket, where a server owes an answer that nobody wants; `None`: it is closed.
    pub(crate) fn into_abandoned(self: Box<Self>) -> Option<Transport> {
        if self.over { None } else { Some(self.connection.into_parts().io.socket) }
    }

    /// The socket and what was read ahead, after the server agreed to another protocol.
    pub(crate) fn into_socket(self: Box<Self>) -> (Transport, Bytes) {
        let parts = self.connection.into_parts();
        (parts.io.socket, parts.read_buf)
    }
}

/// A server's socket as hyper sees it.
#[derive(Debug)]
pub(crate) struct ServerIo {
    socket: Transport,
    answers: Rc<Answers>,
}

impl hyper::rt::Read for ServerIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let ServerIo { socket, answers } = &mut *self;
        poll_read_watched(socket, cx, to, |bytes| answers.read(bytes))
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
