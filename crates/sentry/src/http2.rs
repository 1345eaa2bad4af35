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

pub(crate) mod conduct;
mod ext_proc;
mod gather;
pub(crate) mod head;
pub(crate) mod preface;
mod refuse;
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
use http::{HeaderMap, Method, Request, header, request};
use tidegate_engine::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};

use self::gather::{Gathered, TOGETHER};
use self::refuse::{bad_head, crowded, refuse};
use self::stream::{Piece, Stream};
use self::watch::Watched;
use crate::client::{Client, Wait};
use crate::config::Asker;
use crate::counters::Counter;
use crate::door::Door;
use crate::ending::{self, Refused};
use crate::gate::head::{Bad, Framing};
use crate::grpc;
use crate::permit::{BodyIs, Policed, police};
use crate::proxy::View;
use crate::record::Protocol;
use crate::reject;
use crate::serve::LINGER;
use crate::share::WorkerApp;
use crate::upload::Source;

/// Bytes that a client may send on one stream before they are read.
const WINDOW: u32 = 64 * 1024;

/// The same of all streams of a connection: what one connection can make `h2` keep. It is as much as a connection of
/// HTTP/1 has, until there is a body and room for more ([`WIDE_WINDOW`]).
const CONNECTION_WINDOW: u32 = 65_535;

/// The same once there was a body and room; what it is more is in the books of what is held, for as long as the
/// connection lives: what was given cannot be taken back.
const WIDE_WINDOW: u32 = 256 * 1024;
const WIDENED_KIB: u16 = 192;

/// What a connection takes as soon as there is one: `h2`'s buffers for what it writes and reads, which are 24 KiB,
/// tables of fields, its task. 23 KiB of an idle one are in memory; a limit on a process's data counts the rest, too.
const CONNECTION_KIB: u16 = 32;

/// What waits for a socket that takes no more.
const TOGETHER_KIB: u16 = (TOGETHER / 1024) as u16;

/// What `h2` takes for each stream of as many as there ever were at once, for as long as the connection lives: a place
/// in its tables of streams, of what comes and of what goes. An estimate by the sizes of their entries.
const STREAM_KIB: u16 = 1;

/// Bytes of an answer that `h2` keeps for one stream; what is beyond is held, or waits at its server.
const SEND_BUFFER: usize = 64 * 1024;

/// Streams that a client may make us reset by its errors (CVE-2025-8671), and reset itself before they are accepted
/// (CVE-2023-44487), before the connection is closed.
const LOCAL_RESETS: usize = 100;
const PENDING_RESETS: usize = 20;

/// The first while the worker is short of time.
const LOCAL_RESETS_SHORT: usize = 20;

/// Streams that a client may reset before their answers begin, a second, for each that it may have open: who leaves a
/// page resets all of its requests at once, and does not do so again and again.
const MOST_RESETS: u32 = 2;

/// While the worker is short of time, one in so many of these.
const RESETS_SHORT: u32 = 4;

/// Streams accepted before other tasks get their turn; besides those whose heads are read by then. A head is in no book
/// before it is accepted, and may be 160 times what it was on the wire: none is left lying until the next turn, unless
/// all streams that there may be are taken.
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
    worker: Rc<Door>,
    /// The connection.
    client: Rc<Client>,
    /// Streams with tasks.
    open: Cell<usize>,
    /// A request with a body came.
    has_body: Cell<bool>,
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
        let most = u32::try_from(self.most_open()).unwrap_or(u32::MAX).saturating_mul(MOST_RESETS);
        let resets = self.resets.get();
        resets > most || (resets > most / RESETS_SHORT && self.strictness() > 1)
    }

    fn strictness(&self) -> u32 {
        self.worker.conduct.strictness(self.worker.now())
    }

    fn most_open(&self) -> usize {
        self.worker.local().live.config.limits.streams
    }

    fn opened(&self) {
        if self.open.replace(self.open.get() + 1) > 0 {
            return;
        }
        match self.client.waits_for() {
            Wait::Linger | Wait::Leaving => self.client.wait(Wait::Leaving, self.worker.deadline(|_| LINGER)),
            _ => self.client.wait(Wait::Queue, self.worker.lately() + TICK),
        }
    }

    fn closed(&self) {
        if self.open.replace(self.open.get() - 1) >= self.most_open() {
            // Others may come again.
            self.client.wake();
        }
        self.rest();
    }

    /// Without a request it waits for the next one.
    fn rest(&self) {
        if self.open.get() > 0 {
            return;
        }
        match self.client.waits_for() {
            Wait::Linger => {}
            Wait::Leaving => self.client.wait(Wait::Linger, self.worker.deadline(|_| LINGER)),
            _ => self.worker.idle(&self.client),
        }
    }
}

/// Serves a connection to its end. `ahead`: what was read of it, the preface first. `client` is registered, and polled
/// by the same task from its first poll on.
pub(crate) async fn serve<T>(io: T, ahead: Bytes, worker: Rc<Door>, client: Rc<Client>)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    client.close.set(false);
    client.says_goodbye.set(true);
    client.wait(Wait::Header, worker.deadline(|timeouts| timeouts.header));
    worker.lane().bump(Counter::Http2Connections);
    worker.count_held(&client, 0);
    worker.count_own(&client, client.own.get() + CONNECTION_KIB);
    let local_resets = if worker.conduct.strictness(worker.now()) > 1 { LOCAL_RESETS_SHORT } else { LOCAL_RESETS };
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(conduct::streams(&worker))
        .max_header_list_size(u32::try_from(worker.head().bytes).unwrap_or(u32::MAX))
        .initial_window_size(WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER)
        .max_local_error_reset_streams(Some(local_resets))
        .max_pending_accept_reset_streams(PENDING_RESETS);
    let io = Gathered::new(io);
    let (watched, oddities) = Watched::new(io.clone(), ahead);
    let mut shaking = std::pin::pin!(builder.handshake::<_, Piece>(watched));
    let shaken = poll_fn(|cx| {
        client.remember(cx);
        match client.take_expired() {
            Some(_) => Poll::Ready(None),
            None => {
                let shaken = shaking.as_mut().poll(cx).map(Result::ok);
                // An error is seen by whoever reads or writes next.
                let _ = io.poll_out(cx);
                shaken
            }
        }
    });
    let Some(h2) = shaken.await else { return };
    let since = Cell::new(worker.lately());
    let (open, has_body, resets) = (Cell::new(0), Cell::new(false), Cell::new(0));
    let shared = Rc::new(Shared { worker, client, open, has_body, resets, since });
    shared.rest();
    let mut connection = Served {
        h2,
        io,
        shared,
        oddities,
        leaving: false,
        is_abused: false,
        is_wide: false,
        is_full: false,
        most_at_once: 0,
    };
    poll_fn(|cx| connection.poll(cx)).await;
}

/// A connection after its handshake.
struct Served<T> {
    h2: Connection<Watched<Gathered<T>>, Piece>,
    io: Gathered<T>,
    shared: Rc<Shared>,
    oddities: Rc<watch::Oddities>,
    /// It was told to go.
    leaving: bool,
    /// For what its client did: nothing of it is waited for.
    is_abused: bool,
    /// Its window is.
    is_wide: bool,
    /// The socket takes no more, and what was gathered for it stays.
    is_full: bool,
    /// Streams that there were at once, at most.
    most_at_once: u16,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Served<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let turn = self.poll_turn(cx);
        let out = self.io.poll_out(cx);
        if out.is_pending() != self.is_full {
            self.is_full = out.is_pending();
            let Shared { worker, client, .. } = &*self.shared;
            let own = client.own.get();
            worker.count_own(client, if self.is_full { own + TOGETHER_KIB } else { own.saturating_sub(TOGETHER_KIB) });
        }
        if matches!(out, Poll::Ready(Err(_))) { Poll::Ready(()) } else { turn }
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.oddities.begin_turn();
        let mut accepted = 0;
        let open = self.shared.open.get();
        loop {
            if accepted == BATCH {
                self.oddities.end_turn();
            }
            accepted += 1;
            self.judge();
            // Those that were reset have tasks until these had their turn; streams are not counted without them.
            let next = if self.shared.open.get() < self.shared.most_open() {
                self.h2.poll_accept(cx)
            } else {
                self.h2.poll_closed(cx).map(|closed| closed.err().map(Err))
            };
            match next {
                Poll::Ready(Some(Ok((request, answer)))) => self.take(request, answer),
                Poll::Ready(Some(Err(error))) => {
                    if error.reason() == Some(Reason::ENHANCE_YOUR_CALM) && error.is_library() {
                        self.note_abuse();
                    }
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => {
                    self.count_streams(open + accepted - 1);
                    return self.poll_time(cx);
                }
            }
        }
    }

    /// There may have been so many streams at once.
    fn count_streams(&mut self, at_once: usize) {
        let Shared { worker, client, .. } = &*self.shared;
        let at_once = u16::try_from(at_once.min(self.shared.most_open())).unwrap_or(u16::MAX);
        if let Some(more @ 1..) = at_once.checked_sub(self.most_at_once) {
            self.most_at_once = at_once;
            worker.count_own(client, client.own.get().saturating_add(more.saturating_mul(STREAM_KIB)));
        }
    }

    /// Ends the connection where its client does too much that asks for nothing.
    fn judge(&mut self) {
        let Shared { worker, .. } = &*self.shared;
        let strictness = || self.shared.strictness();
        let is_odd = self.oddities.are_too_many(worker.lately(), strictness);
        if !self.leaving && (is_odd || self.shared.resets_too_much()) {
            self.note_abuse();
            self.h2.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
            self.is_abused = true;
            self.leave();
        }
    }

    fn note_abuse(&self) {
        let Shared { worker, client, .. } = &*self.shared;
        worker.lane().bump(Counter::Http2Abuse);
        conduct::note_offence(worker, client.peer().ip());
    }

    /// There are bodies: they get more room, where there is some.
    fn widen(&mut self) {
        let Shared { worker, client, has_body, .. } = &*self.shared;
        if has_body.get() && !self.is_wide && worker.may_read_ahead() {
            self.is_wide = true;
            self.h2.set_target_window_size(WIDE_WINDOW);
            worker.count_own(client, client.own.get() + WIDENED_KIB);
        }
    }

    /// `GOAWAY` is said, or about to be: what is under way goes on.
    fn leave(&mut self) {
        self.leaving = true;
        let wait = if self.goes_on() { Wait::Leaving } else { Wait::Linger };
        self.shared.client.wait(wait, self.shared.worker.deadline(|_| LINGER));
        self.shared.client.wake();
    }

    /// Whether something is under way. It has time-outs of its own.
    fn goes_on(&self) -> bool {
        self.shared.open.get() > 0 && !self.is_abused
    }

    fn poll_time(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Shared { worker, client, .. } = &*self.shared;
        match client.take_expired() {
            None => return Poll::Pending,
            Some(Wait::Leaving) if self.goes_on() => client.wait(Wait::Leaving, worker.deadline(|_| LINGER)),
            // A request came before it was to go.
            Some(Wait::GiveWay) if self.goes_on() => {}
            Some(Wait::Queue) if !worker.is_closing(client.peer()) => client.wait(Wait::Queue, worker.lately() + TICK),
            Some(Wait::Idle | Wait::Queue) => {
                if !worker.is_closing(client.peer()) {
                    worker.lane().bump(Counter::TimeoutClientIdle);
                }
                self.h2.graceful_shutdown();
                self.leave();
            }
            Some(Wait::GiveWay) => {
                // What it asks from now on was not served, and may be asked elsewhere. Its hearing is not waited for.
                self.h2.abrupt_shutdown(Reason::NO_ERROR);
                let _ = self.h2.poll_closed(cx);
                return Poll::Ready(());
            }
            Some(_) => return Poll::Ready(()),
        }
        Poll::Pending
    }

    /// Settles what a request asks for, and whose it is.
    fn settle(&self, parts: &mut request::Parts) -> Result<Rc<WorkerApp>, Bad> {
        let Shared { worker, client, .. } = &*self.shared;
        head::settle(parts, &worker.head())?;
        let found = worker.find(&View { parts, client }, client.facts())?;
        let length = parts.headers.get(header::CONTENT_LENGTH).and_then(head::length);
        found.takes(length.map_or(Framing::Chunked, Framing::Length))?;
        Ok(found.clone())
    }

    /// Answers a refused request, and gives any other a task.
    fn take(&mut self, request: Request<RecvStream>, answer: SendResponse<Piece>) {
        let shared = &self.shared;
        shared.worker.lane().bump(Counter::Http2Requests);
        let (mut parts, stream) = request.into_parts();
        if ext_proc::is_call(&parts) && shared.worker.is_asked_by(Asker::Envoy) {
            return self.accompany(&parts.headers, stream, answer);
        }
        let settled = self.settle(&mut parts);
        let is_head = parts.method == Method::HEAD;
        let worker = &match settled {
            Ok(worker) => worker,
            Err(bad) => {
                shared.worker.lane().bad(bad);
                let head = bad_head(bad, &parts.headers);
                shared.worker.lane().status(head.status().as_u16());
                self.oddities.note();
                return refuse(answer, head);
            }
        };
        if !conduct::has_room(&shared.worker, shared.client.peer().ip()) {
            let head = crowded(&parts.headers);
            worker.lane().status(head.status().as_u16());
            return refuse(answer, head);
        }
        let is = if stream.is_end_stream() { BodyIs::Here } else { BodyIs::ToCome };
        let view = View { parts: &parts, client: &shared.client };
        let arrival = police(worker, &view, worker.now(), is);
        if let Policed::Refused(rejection) = &arrival.policed {
            let is_grpc = reject::is_grpc(&parts.headers);
            let head = worker.refusals.borrow_mut().head(&arrival.local.live, rejection, is_grpc);
            let (status, grpc_status) = (head.status().as_u16(), grpc::status(head.headers()));
            let refused = Refused { status, grpc_status, bytes_out: 0, protocol: Protocol::Http2 };
            ending::record_refusal(worker, &arrival, &view, shared.client.peer(), refused);
            refuse(answer, head);
            return shared.rest();
        }
        let left = parts.headers.get(header::CONTENT_LENGTH).and_then(head::length);
        let task = Stream::new(shared, Some(arrival), &parts.headers);
        let request = Request::from_parts(parts, Source::Http2 { stream, left });
        tokio::task::spawn_local(Box::pin(task.run(request, answer, is_head)));
        if is == BodyIs::ToCome {
            shared.has_body.set(true);
            self.widen();
        }
    }

    /// Gives what Envoy asks a task. Who has too many of these is told so as those are who ask for themselves.
    fn accompany(&self, head: &HeaderMap, stream: RecvStream, answer: SendResponse<Piece>) {
        let shared = &self.shared;
        if !conduct::has_room(&shared.worker, shared.client.peer().ip()) {
            return refuse(answer, crowded(head));
        }
        tokio::task::spawn_local(ext_proc::serve(Stream::new(shared, None, head), stream, answer));
    }
}
