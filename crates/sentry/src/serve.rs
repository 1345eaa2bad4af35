//! One client's connection as a task. A plain request that came whole is answered from here; for the others hyper is
//! there while it has something to do, and gone while the client is idle.

mod answer;
mod head;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use self::answer::answer;
pub(crate) use self::head::Date;
use crate::client::{Client, Wait};
use crate::counters::Counter;
use crate::door::Door;
use crate::doorstep::Entering;
use crate::gate::head::Bad;
use crate::gate::{Gate, Turn};
use crate::http2;
use crate::proxy::handle;
use crate::share::WorkerApp;
use crate::spop;
use crate::transport::Transport;
use crate::tunnel;

/// How long a closed connection is kept so that the client reads its last answer before anything resets it.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// Bytes that hyper keeps of a request, and of an answer.
const BUFFER: usize = 64 * 1024;

/// How much of what the client still sends is thrown away meanwhile.
const LINGER_BYTES: usize = 1 << 20;

/// Serves a connection to its end. Written by hand, not as an `async fn`: an idle connection's task then is no larger
/// than what an idle connection needs.
pub(crate) struct Serve {
    part: Part,
    // Dropped last: it reports what the other left unreported.
    registered: Registered,
}

/// Who has the connection.
enum Part {
    /// Nobody yet: a handshake comes first.
    Entering(Entering),
    /// The gate alone, until a request comes that hyper must have.
    Gate(Gate),
    /// The service: by hyper, with the gate under its read side, or for one request by itself.
    Service(Pin<Box<dyn Future<Output = After>>>),
    /// Whatever comes last: the client is to read its answer, or a tunnel.
    Last(Pin<Box<dyn Future<Output = ()>>>),
    /// Nobody any more.
    Over,
}

impl Serve {
    pub(crate) fn new(gate: Gate, registered: Registered) -> Self {
        Serve { part: Part::Gate(gate), registered }
    }

    /// A connection that begins with more than a request.
    pub(crate) fn entering(entering: Entering, registered: Registered) -> Self {
        Serve { part: Part::Entering(entering), registered }
    }
}

impl Future for Serve {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Serve { part, registered } = &mut *self;
        let Registered { worker, client, .. } = registered;
        loop {
            *part = match part {
                Part::Entering(entering) => {
                    client.remember(cx);
                    ready!(entering.as_mut().poll(cx)).map_or(Part::Over, Part::Gate)
                }
                Part::Gate(gate) => {
                    let turn = ready!(poll_gate(gate, worker, client, cx));
                    let Part::Gate(gate) = std::mem::replace(part, Part::Over) else { return Poll::Ready(()) };
                    match turn {
                        Ok(Turn::Pass) => Part::Service(with_hyper(gate, worker.clone(), client.clone())),
                        Ok(Turn::Serve) => Part::serve(gate, worker, client),
                        Ok(Turn::Http2) => Part::http2(gate, worker, client),
                        Ok(Turn::Spop) => Part::spop(gate, worker, client),
                        Ok(Turn::End) => Part::close(gate, worker, client),
                        Err(_) => Part::Over,
                    }
                }
                Part::Service(service) => match ready!(service.as_mut().poll(cx)) {
                    After::Next(gate) => Part::Gate(gate),
                    After::Rest(mut gate) => {
                        client.rest();
                        gate.release_buffers();
                        Part::Gate(gate)
                    }
                    After::Close(gate) => Part::close(gate, worker, client),
                    After::Tunnel(gate, read) => Part::tunnel(gate, &read, worker, client),
                    After::Cut => Part::Over,
                },
                Part::Last(last) => {
                    ready!(last.as_mut().poll(cx));
                    Part::Over
                }
                Part::Over => return Poll::Ready(()),
            }
        }
    }
}

impl Part {
    fn serve(mut gate: Gate, worker: &Rc<Door>, client: &Rc<Client>) -> Part {
        client.shed.set(false);
        match gate.take_whole() {
            Some(whole) => Part::Service(answer(gate, *whole, worker.clone(), client.clone())),
            None => Part::Over,
        }
    }

    fn close(gate: Gate, worker: &Rc<Door>, client: &Rc<Client>) -> Part {
        if !gate.must_linger() && !gate.says_farewell() {
            return Part::Over;
        }
        Part::Last(Box::pin(linger(gate, worker.clone(), client.clone())))
    }

    fn http2(gate: Gate, worker: &Rc<Door>, client: &Rc<Client>) -> Part {
        let (io, held) = gate.into_parts();
        Part::Last(Box::pin(http2::serve(io, held.into(), worker.clone(), client.clone())))
    }

    fn spop(gate: Gate, worker: &Rc<Door>, client: &Rc<Client>) -> Part {
        let (io, held) = gate.into_parts();
        let (worker, client) = (worker.clone(), client.clone());
        Part::Last(Box::pin(async move { spop::serve(io, &held, worker, client).await }))
    }

    fn tunnel(gate: Gate, read: &[u8], worker: &Rc<Door>, client: &Rc<Client>) -> Part {
        let Some(end) = client.take_tunnel() else { return Part::Over };
        let (io, held) = gate.into_parts();
        let ahead = [read, &held[..]].concat();
        let (worker, client) = (worker.clone(), client.clone());
        Part::Last(Box::pin(async move { tunnel::run(&worker, &client, io, &ahead, end).await }))
    }
}

/// A connection in its worker's list; off it again when dropped.
pub(crate) struct Registered {
    worker: Rc<Door>,
    client: Rc<Client>,
    key: usize,
}

impl Registered {
    pub(crate) fn new(worker: &Rc<Door>, client: &Rc<Client>) -> Self {
        client.entrance.set(worker.number());
        let key = worker.clients.borrow_mut().insert(client.clone());
        Registered { worker: worker.clone(), client: client.clone(), key }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.worker.clients.borrow_mut().remove(self.key);
        self.worker.count_gone(&self.client);
        self.worker.lane().bump(Counter::ConnectionsClosed);
        self.client.end_message();
    }
}

/// Without hyper: refusals are answered, until a request comes that hyper must have.
fn poll_gate(gate: &mut Gate, worker: &Door, client: &Client, cx: &mut Context<'_>) -> Poll<io::Result<Turn>> {
    client.remember(cx);
    let polled = gate.poll_next(cx);
    if polled.is_pending() && client.shed.get() && client.has_kept() {
        // Nothing came for a while.
        client.rest();
        gate.release_buffers();
    }
    match (polled, client.take_expired()) {
        (Poll::Pending, Some(Wait::Header)) => {
            gate.fail(Bad::HeaderTimeout);
            gate.poll_next(cx)
        }
        // At once: one that lingers keeps its descriptor.
        (Poll::Pending, Some(Wait::GiveWay)) => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
        (Poll::Pending, Some(wait @ Wait::ResponseBody)) => {
            count_cut(worker, wait);
            Poll::Ready(Ok(Turn::End))
        }
        (Poll::Pending, Some(_)) => {
            if !worker.is_closing(client.peer()) {
                worker.lane().bump(Counter::TimeoutClientIdle);
            }
            Poll::Ready(Ok(Turn::End))
        }
        (polled, _) => polled,
    }
}

/// How the service's part ended, with hyper or without.
enum After {
    /// The request is answered.
    Next(Gate),
    /// Nothing happens: hyper can go until something does.
    Rest(Gate),
    /// The connection is over; what is written is flushed.
    Close(Gate),
    /// Both sides changed protocol.
    Tunnel(Gate, Bytes),
    /// The connection failed, or took too long.
    Cut,
}

fn with_hyper(gate: Gate, worker: Rc<Door>, client: Rc<Client>) -> Pin<Box<dyn Future<Output = After>>> {
    client.shed.set(false);
    let live = worker.local().live.clone();
    let limits = worker.head();
    let (for_worker, for_client) = (worker.clone(), client.clone());
    let service = service_fn(move |request| handle(for_worker.clone(), for_client.clone(), request));
    let mut builder = http1::Builder::new();
    // The gate bounds heads and their time itself; these are hyper's own bounds on the same bytes.
    builder.header_read_timeout(None).max_header_size(limits.bytes.max(1));
    builder.half_close(live.config.half_close);
    // What hyper reads ahead, and what it keeps of an answer that the client does not take.
    builder.max_buf_size(BUFFER.max(limits.bytes + 1024));
    if limits.headers != 100 {
        builder.max_headers(limits.headers);
    }
    let mut hyper = builder.serve_connection(gate, service);
    let counted = Counted::new(&worker);
    Box::pin(async move {
        let _counted = counted;
        let over = poll_fn(|cx| {
            client.remember(cx);
            match Pin::new(&mut hyper).poll(cx) {
                Poll::Ready(result) => Poll::Ready(Over::Ended(result)),
                Poll::Pending => poll_over(&worker, &client),
            }
        })
        .await;
        let parts = hyper.into_parts();
        let (gate, read) = (parts.io, parts.read_buf);
        match over {
            Over::Cut => After::Cut,
            Over::Ended(_) if client.is_upgrading() => After::Tunnel(gate, read),
            Over::Idle if gate.at_rest() && read.is_empty() => After::Rest(gate),
            Over::Ended(Err(error)) if error.is_parse() => {
                worker.lane().bad(Bad::Syntax);
                After::Close(gate)
            }
            Over::Ended(Err(_)) => {
                // What the client has of an answer may not be all.
                let mut gate = gate;
                gate.cut();
                After::Close(gate)
            }
            Over::Idle | Over::Ended(_) => After::Close(gate),
        }
    })
}

/// Counts a connection that has hyper, until dropped.
struct Counted(Rc<WorkerApp>);

impl Counted {
    fn new(worker: &Rc<WorkerApp>) -> Self {
        worker.hypers.update(|hypers| hypers + 1);
        Counted(worker.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.hypers.update(|hypers| hypers - 1);
    }
}

/// Why hyper is no longer polled.
pub(crate) enum Over {
    /// The connection ended.
    Ended(hyper::Result<()>),
    /// There is nothing for it to do.
    Idle,
    /// It takes too long.
    Cut,
}

/// Whether hyper, which waits, is to be polled no more.
pub(crate) fn poll_over(worker: &WorkerApp, client: &Client) -> Poll<Over> {
    let between = matches!(client.waits_for(), Wait::Idle | Wait::Header);
    match client.expired() {
        // The time between requests is the affair of the gate.
        _ if between && client.shed.get() => Poll::Ready(Over::Idle),
        Some(_) if between => Poll::Ready(Over::Idle),
        // The service had no turn, so it is the client that is slow.
        Some(Wait::Look) => {
            client.take_expired();
            client.wait(Wait::ResponseBody, worker.deadline(|timeouts| timeouts.body_idle));
            Poll::Pending
        }
        // Its client is slow, or its server is done with it: then there is no work to be ended.
        Some(Wait::Cancelled) => {
            client.take_expired();
            if client.cancel_lent() { Poll::Ready(Over::Cut) } else { Poll::Pending }
        }
        Some(wait) => {
            count_cut(worker, wait);
            Poll::Ready(Over::Cut)
        }
        None => Poll::Pending,
    }
}

/// A deadline passed and the service did not take note: the client does not read its answer.
pub(crate) fn count_cut(worker: &WorkerApp, wait: Wait) {
    worker.lane().bump(match wait {
        // It was counted when it was told.
        Wait::GiveWay => return,
        Wait::Request => Counter::TimeoutRequest,
        _ => Counter::TimeoutBodyIdle,
    });
}

/// Closes a connection so that the client gets what was written. A client that is still sending would be reset, and
/// might lose the answer: so its bytes are read, for a while, and thrown away.
async fn linger(gate: Gate, worker: Rc<Door>, client: Rc<Client>) {
    let (mut io, _) = gate.into_parts();
    client.take_expired();
    client.wait(Wait::Linger, worker.deadline(|_| LINGER));
    let mut drained = std::pin::pin!(drain(&mut io));
    poll_fn(|cx| {
        client.remember(cx);
        if client.take_expired().is_some() { Poll::Ready(()) } else { drained.as_mut().poll(cx) }
    })
    .await;
}

async fn drain(io: &mut Transport) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// With tokio's own part of a task 160 bytes make 256, and one more makes each of ten thousand take 384.
    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Serve>() <= 160, "{}", size_of::<Serve>());
        assert!(size_of::<Client>() <= 144, "{}", size_of::<Client>());
    }
}
