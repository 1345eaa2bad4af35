//! HTTP/2 from clients. A connection is one task, which reads, writes and accepts streams; a request that is refused is
//! answered right there. One that is not becomes a task of its own and goes the way of every request
//! ([`crate::proxy`]), with a [`Client`] of its own: the same time-outs, the same books on what is held, the same
//! sweep.
//!
//! *Awkward cases.* A refusal is an answer, never `REFUSED_STREAM`: that would say "ask again at once". A client may
//! cause work and reset it ([`MOST_RESETS`]), or send frames that ask for nothing ([`watch`]): such a connection is
//! told
//! `ENHANCE_YOUR_CALM` and closed. The first preface of a connection counts, never a later one: who relays others'
//! requests could be made to send it.

mod head;
pub(crate) mod preface;
mod stream;
mod watch;

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::{HeaderValue, Method, Request, Response, header, request};
use tidegate_classify::RequestView;
use tidegate_engine::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};

use self::stream::{Piece, Stream};
use self::watch::Watched;
use crate::client::{Client, Wait};
use crate::counters::Counter;
use crate::ending;
use crate::gate::head::Bad;
use crate::permit::{BodyIs, Policed, police};
use crate::proxy::View;
use crate::reject;
use crate::serve::LINGER;
use crate::share::WorkerApp;
use crate::upload::Source;

/// Bytes that a client may send on one stream before they are read.
const WINDOW: u32 = 64 * 1024;

/// The same of all streams of a connection: what one connection can make `h2` keep.
const CONNECTION_WINDOW: u32 = 1 << 20;

/// Bytes of an answer that `h2` keeps for one stream; what is beyond is held, or waits at its server.
const SEND_BUFFER: usize = 64 * 1024;

/// Streams that a client may make us reset by its errors (CVE-2025-8671), and reset itself before they are accepted
/// (CVE-2023-44487), before the connection is closed.
const LOCAL_RESETS: usize = 100;
const PENDING_RESETS: usize = 20;

/// Streams that a client may reset before their answers begin, a second, for each that it may have open: who leaves a
/// page resets all of its requests at once, and does not do so again and again.
const MOST_RESETS: u32 = 2;

/// Streams accepted before other tasks get their turn.
const BATCH: usize = 64;

/// How often a connection with requests looks whether the sentry drains.
const TICK: Duration = Duration::from_secs(1);

/// Whether this application speaks HTTP/2.
pub(crate) fn is_spoken(worker: &WorkerApp) -> bool {
    worker.local().live.config.limits.streams > 0
}

/// What a connection and its streams share.
#[derive(Debug)]
struct Shared {
    worker: Rc<WorkerApp>,
    /// The connection.
    client: Rc<Client>,
    open: Cell<usize>,
    /// Resets before answers in the second that began then.
    resets: Cell<u32>,
    since: Cell<Timestamp>,
}

impl Shared {
    /// The client reset a stream before its answer began.
    fn note_reset(&self) {
        self.worker.lane().bump(Counter::Http2Resets);
        let now = self.worker.lately();
        if now.since(self.since.get()) >= Duration::from_secs(1) {
            self.since.set(now);
            self.resets.set(0);
        }
        self.resets.update(|resets| resets.saturating_add(1));
        if self.resets_too_much() {
            self.client.wake();
        }
    }

    fn resets_too_much(&self) -> bool {
        let streams = u32::try_from(self.worker.local().live.config.limits.streams).unwrap_or(u32::MAX);
        self.resets.get() > streams.saturating_mul(MOST_RESETS)
    }

    fn opened(&self) {
        if self.open.replace(self.open.get() + 1) == 0 {
            self.client.wait(Wait::Queue, self.worker.lately() + TICK);
        }
    }

    fn closed(&self) {
        self.open.update(|open| open - 1);
        self.rest();
    }

    /// Without a request it waits for the next one.
    fn rest(&self) {
        if self.open.get() == 0 && self.client.waits_for() != Wait::Linger {
            self.worker.idle(&self.client);
        }
    }
}

/// Serves a connection to its end. `ahead`: what was read of it, the preface first. `client` is registered, and polled
/// by the same task from its first poll on.
pub(crate) async fn serve<T>(io: T, ahead: Bytes, worker: Rc<WorkerApp>, client: Rc<Client>)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    client.close.set(false);
    client.wait(Wait::Header, worker.deadline(|timeouts| timeouts.header));
    worker.lane().bump(Counter::Http2Connections);
    let limits = worker.local().live.config.limits.clone();
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(u32::try_from(limits.streams).unwrap_or(u32::MAX))
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .initial_window_size(WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER)
        .max_local_error_reset_streams(Some(LOCAL_RESETS))
        .max_pending_accept_reset_streams(PENDING_RESETS);
    let (io, oddities) = Watched::new(io, ahead);
    let mut shaking = std::pin::pin!(builder.handshake::<_, Piece>(io));
    let shaken = poll_fn(|cx| {
        client.remember(cx);
        match client.take_expired() {
            Some(_) => Poll::Ready(None),
            None => shaking.as_mut().poll(cx).map(Result::ok),
        }
    });
    let Some(h2) = shaken.await else { return };
    let since = Cell::new(worker.lately());
    let (open, resets) = (Cell::new(0), Cell::new(0));
    let shared = Rc::new(Shared { worker, client, open, resets, since });
    shared.rest();
    let mut connection = Served { h2, shared, oddities, leaving: false, is_abused: false };
    poll_fn(|cx| connection.poll(cx)).await;
}

/// A connection after its handshake.
struct Served<T> {
    h2: Connection<Watched<T>, Piece>,
    shared: Rc<Shared>,
    oddities: Rc<watch::Oddities>,
    /// It was told to go.
    leaving: bool,
    /// For what its client did: nothing of it is waited for.
    is_abused: bool,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Served<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..BATCH {
            if !self.leaving
                && (self.oddities.are_too_many(self.shared.worker.lately()) || self.shared.resets_too_much())
            {
                self.shared.worker.lane().bump(Counter::Http2Abuse);
                self.h2.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                self.is_abused = true;
                self.leave();
            }
            match self.h2.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, answer)))) => self.take(request, answer),
                Poll::Ready(Some(Err(error))) => {
                    if error.reason() == Some(Reason::ENHANCE_YOUR_CALM) && error.is_library() {
                        self.shared.worker.lane().bump(Counter::Http2Abuse);
                    }
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => return self.poll_time(),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// `GOAWAY` is said, or about to be: what is under way goes on.
    fn leave(&mut self) {
        self.leaving = true;
        self.shared.client.wait(Wait::Linger, self.shared.worker.deadline(|_| LINGER));
        self.shared.client.wake();
    }

    fn poll_time(&mut self) -> Poll<()> {
        let Shared { worker, client, open, .. } = &*self.shared;
        match client.take_expired() {
            None => return Poll::Pending,
            Some(Wait::Queue) if !worker.app.draining() => client.wait(Wait::Queue, worker.lately() + TICK),
            // What is under way has its own time-outs.
            Some(Wait::Linger) if open.get() > 0 && !self.is_abused => {
                client.wait(Wait::Linger, worker.deadline(|_| LINGER))
            }
            Some(Wait::Idle | Wait::Queue) => {
                if !worker.app.draining() {
                    worker.lane().bump(Counter::TimeoutClientIdle);
                }
                self.h2.graceful_shutdown();
                self.leave();
            }
            Some(_) => return Poll::Ready(()),
        }
        Poll::Pending
    }

    /// Whether the request is for a host that the handshake named, if there was one.
    fn belongs(&self, parts: &request::Parts) -> Result<(), Bad> {
        let Shared { worker, client, .. } = &*self.shared;
        let is_elsewhere = |facts| !worker.belongs(facts, View { parts, client }.host());
        if client.facts().is_some_and(is_elsewhere) { Err(Bad::Misdirected) } else { Ok(()) }
    }

    /// Answers a refused request, and gives any other a task.
    fn take(&mut self, request: Request<RecvStream>, answer: SendResponse<Piece>) {
        let shared = &self.shared;
        let worker = &shared.worker;
        worker.lane().bump(Counter::Http2Requests);
        let (mut parts, stream) = request.into_parts();
        let limits = worker.local().live.head;
        let settled = head::settle(&mut parts, &limits).and_then(|()| self.belongs(&parts));
        let is_head = parts.method == Method::HEAD;
        if let Err(bad) = settled {
            worker.lane().bad(bad);
            worker.lane().status(bad.status());
            return refuse_bad(answer, bad);
        }
        let is = if stream.is_end_stream() { BodyIs::Here } else { BodyIs::ToCome };
        let view = View { parts: &parts, client: &shared.client };
        let arrival = police(worker, &view, worker.now(), is);
        if let Policed::Refused(rejection) = &arrival.policed {
            let is_grpc = reject::is_grpc(&parts.headers);
            let head = worker.refusals.borrow_mut().head(&arrival.local.live, rejection, is_grpc);
            ending::record_refusal(worker, &arrival, &view, shared.client.peer(), (head.status().as_u16(), 0));
            refuse(answer, head);
            return shared.rest();
        }
        let left = parts.headers.get(header::CONTENT_LENGTH).and_then(head::length);
        let request = Request::from_parts(parts, Source::Http2 { stream, left });
        let stream = Stream::new(shared, arrival);
        tokio::task::spawn_local(stream.run(request, answer, is_head));
    }
}

/// Says why in the head alone. What the client still sends of a body is not wanted: `h2` says so when both ends of the
/// stream are dropped.
fn refuse(mut answer: SendResponse<Piece>, head: Response<()>) {
    // An error means that the client is gone.
    let _ = answer.send_response(head, true);
}

/// The same for what is no acceptable request.
fn refuse_bad(answer: SendResponse<Piece>, bad: Bad) {
    let mut response = Response::new(());
    *response.status_mut() = http::StatusCode::from_u16(bad.status()).unwrap_or(http::StatusCode::BAD_REQUEST);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    refuse(answer, response);
}
