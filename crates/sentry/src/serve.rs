//! One client's connection as a task: hyper is there while it has something to do, and gone while the client is idle.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Client, Wait};
use crate::counters::Counter;
use crate::gate::head::Bad;
use crate::gate::{Gate, Turn};
use crate::proxy::handle;
use crate::tunnel;
use crate::worker::WorkerApp;

/// How long a closed connection is kept so that the client reads its last answer before anything resets it.
const LINGER: Duration = Duration::from_secs(2);

/// How much of what the client still sends is thrown away meanwhile.
const LINGER_BYTES: usize = 1 << 20;

/// Registers a connection with its worker, and takes it off again at its end.
pub(crate) struct Registered {
    worker: Rc<WorkerApp>,
    client: Rc<Client>,
    key: usize,
}

impl Registered {
    pub(crate) fn new(worker: &Rc<WorkerApp>, client: &Rc<Client>) -> Self {
        let key = worker.clients.borrow_mut().insert(client.clone());
        Registered { worker: worker.clone(), client: client.clone(), key }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.worker.clients.borrow_mut().remove(self.key);
        self.worker.lane().bump(Counter::ConnectionsClosed);
        // An answer that was never flushed, a request that hyper never got: both mean the client left.
        drop(self.client.ending.borrow_mut().take());
        drop(self.client.arrival.borrow_mut().take());
    }
}

/// Serves a connection to its end.
pub(crate) async fn serve(mut gate: Gate, registered: Registered) {
    let (worker, client) = (&registered.worker, &registered.client);
    loop {
        match next(&mut gate, worker, client).await {
            Ok(Turn::Pass) => {}
            // Boxed, so that the idle connection's task does not carry the buffers of its end.
            Ok(Turn::End) => return Box::pin(close(gate, worker, client)).await,
            Err(_) => return,
        }
        match with_hyper(gate, worker, client).await {
            After::Rest(rested) => gate = rested,
            After::Close(last) => return Box::pin(close(last, worker, client)).await,
            After::Tunnel(last, read) => {
                let end = client.tunnel.borrow_mut().take();
                let Some(end) = end else { return };
                let (io, held) = last.into_parts();
                let ahead = [&read, &held[..]].concat();
                return Box::pin(tunnel::run(worker, client, io, &ahead, end)).await;
            }
            After::Cut => return,
        }
    }
}

/// Without hyper: refusals are answered, until a request comes that hyper must have.
async fn next(gate: &mut Gate, worker: &WorkerApp, client: &Client) -> io::Result<Turn> {
    client.shed.set(true);
    gate.release_buffers();
    poll_fn(|cx| {
        client.remember(cx);
        let polled = gate.poll_next(cx);
        match (polled, client.take_expired()) {
            (Poll::Pending, Some(Wait::Header)) => {
                gate.fail(Bad::HeaderTimeout);
                gate.poll_next(cx)
            }
            (Poll::Pending, Some(_)) => {
                if !worker.app.draining() {
                    worker.lane().bump(Counter::TimeoutClientIdle);
                }
                Poll::Ready(Ok(Turn::End))
            }
            (polled, _) => polled,
        }
    })
    .await
}

/// How hyper's part ended.
enum After {
    /// Nothing happens: hyper can go until something does.
    Rest(Gate),
    /// The connection is over; what is written is flushed.
    Close(Gate),
    /// Both sides changed protocol.
    Tunnel(Gate, Bytes),
    /// The connection failed, or took too long.
    Cut,
}

async fn with_hyper(gate: Gate, worker: &Rc<WorkerApp>, client: &Rc<Client>) -> After {
    client.shed.set(false);
    let service = service_fn(|request| handle(worker.clone(), client.clone(), request));
    let limits = worker.local().live.head;
    let mut builder = http1::Builder::new();
    // The gate bounds heads and their time itself; these are hyper's own bounds on the same bytes.
    builder.header_read_timeout(None).max_header_size(limits.bytes.max(1));
    if limits.headers != 100 {
        builder.max_headers(limits.headers);
    }
    let mut hyper = Box::new(builder.serve_connection(gate, service));
    let over = poll_fn(|cx| {
        client.remember(cx);
        if let Poll::Ready(result) = Pin::new(&mut *hyper).poll(cx) {
            return Poll::Ready(Over::Ended(result));
        }
        let between = matches!(client.waits_for(), Wait::Idle | Wait::Header);
        match client.expired() {
            // The time between requests is the affair of [`next`].
            _ if between && client.shed.get() => Poll::Ready(Over::Idle),
            Some(_) if between => Poll::Ready(Over::Idle),
            Some(wait) => {
                count_cut(worker, wait);
                Poll::Ready(Over::Cut)
            }
            None => Poll::Pending,
        }
    })
    .await;
    let parts = hyper.into_parts();
    let (gate, read) = (parts.io, parts.read_buf);
    match over {
        Over::Cut => After::Cut,
        Over::Ended(_) if client.tunnel.borrow().is_some() => After::Tunnel(gate, read),
        Over::Idle if gate.at_rest() && read.is_empty() => After::Rest(gate),
        Over::Ended(Err(error)) if error.is_parse() => {
            worker.lane().bad(Bad::Syntax);
            After::Close(gate)
        }
        Over::Idle | Over::Ended(_) => After::Close(gate),
    }
}

/// Why hyper is no longer polled.
enum Over {
    /// It has said its last word.
    Ended(hyper::Result<()>),
    /// There is nothing for it to do.
    Idle,
    /// It takes too long.
    Cut,
}

/// A deadline passed and the service did not take note: the client does not read its answer.
fn count_cut(worker: &WorkerApp, wait: Wait) {
    worker.lane().bump(if wait == Wait::Request { Counter::TimeoutRequest } else { Counter::TimeoutBodyIdle });
}

/// Closes a connection so that the client gets what was written. A client that is still sending would be reset, and
/// might lose the answer: so its bytes are read, for a while, and thrown away.
async fn close(gate: Gate, worker: &WorkerApp, client: &Client) {
    if !gate.must_linger() {
        return;
    }
    let (mut io, _) = gate.into_parts();
    client.take_expired();
    client.wait(Wait::Linger, worker.deadline(|_| LINGER));
    let mut linger = std::pin::pin!(drain(&mut io));
    poll_fn(|cx| {
        client.remember(cx);
        if client.take_expired().is_some() { Poll::Ready(()) } else { linger.as_mut().poll(cx) }
    })
    .await;
}

async fn drain(io: &mut TcpStream) {
    let mut left = LINGER_BYTES;
    let mut buffer = [0; 4096];
    if io.shutdown().await.is_err() {
        return;
    }
    while let Ok(n @ 1..) = io.read(&mut buffer).await {
        match left.checked_sub(n) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}
