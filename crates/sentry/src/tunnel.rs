//! Tunnels: after `101 Switching Protocols` the sentry copies bytes both ways and understands nothing of them.
//!
//! A tunnel is not a request in flight: it was answered with the `101`, and has no place from then on. It counts in the
//! pool of what is open and among its server's connections, and ends when either side does, when nothing passes for as
//! long as an idle connection may live, or at a drain's end. Where the pool is full, it keeps its place.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional};

use crate::client::{Client, Wait};
use crate::counters::Counter;
use crate::permit::Permit;
use crate::share::WorkerApp;
use crate::transport::Transport;

/// The server's side of a tunnel.
#[derive(Debug)]
pub(crate) struct ServerEnd {
    io: Transport,
    ahead: Bytes,
    /// Stands for the tunnel in the pool of its server; dropped with it. `None`: it is exempt.
    _permit: Option<Permit>,
}

impl ServerEnd {
    /// `ahead`: what was read of it already.
    pub(crate) fn new((io, ahead): (Transport, Bytes), permit: Option<Permit>) -> Self {
        ServerEnd { io, ahead, _permit: permit }
    }
}

/// Copies both ways until one side ends, or nothing has passed for too long. `ahead`: what the client sent already.
pub(crate) async fn run(
    worker: &WorkerApp,
    client: &Rc<Client>,
    mut io: Transport,
    ahead: &[u8],
    mut server: Box<ServerEnd>,
) {
    worker.lane().bump(Counter::TunnelsOpened);
    // The request is over: its own bound on time no longer holds.
    worker.idle(client);
    touch(worker, client);
    let copy = async {
        server.io.write_all(ahead).await?;
        io.write_all(&server.ahead).await?;
        io.flush().await?;
        server.io.flush().await?;
        let mut a = Watched { io: &mut io, worker, client };
        let mut b = Watched { io: &mut server.io, worker, client };
        copy_bidirectional(&mut a, &mut b).await
    };
    let mut copy = pin!(copy);
    let _: io::Result<_> = poll_fn(|cx| {
        client.remember(cx);
        match client.take_expired() {
            Some(_) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            None => copy.as_mut().poll(cx),
        }
    })
    .await;
    worker.lane().bump(Counter::TunnelsClosed);
}

fn touch(worker: &WorkerApp, client: &Client) {
    client.wait(Wait::Tunnel, worker.deadline(|timeouts| timeouts.client_idle));
}

/// A socket whose traffic moves the deadline.
struct Watched<'a> {
    io: &'a mut Transport,
    worker: &'a WorkerApp,
    client: &'a Client,
}

impl AsyncRead for Watched<'_> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut *self.io).poll_read(cx, to);
        if polled.is_ready() {
            touch(self.worker, self.client);
        }
        polled
    }
}

impl AsyncWrite for Watched<'_> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_shutdown(cx)
    }
}
