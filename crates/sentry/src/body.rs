//! Answers' bodies on their way to clients: counted, and watched to their end. Nothing is buffered here; what a slow
//! reader does not take yet is held by its gate, up to a bound, and beyond it slows the writer.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use thiserror::Error;
use tidegate_engine::{Outcome, Timestamp};

use crate::answered::{Answered, Refusal};
use crate::client::{Client, Wait};
use crate::counters::Counter;
use crate::ending::Ending;
use crate::grpc;
use crate::headers::lines::Lines;
use crate::record::RecordEnd;
use crate::reject::DECISION;
use crate::share::WorkerApp;
use crate::upstream::{Fault, Incoming, ServerConn};

/// Why a body broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum BodyError {
    /// The client's body is not well formed, too large, or ended early.
    #[error("the request's body broke off")]
    Request,
    /// The server's body is not well formed, or ended early.
    #[error("the server broke its answer off")]
    Response,
    /// No progress, or out of time.
    #[error("the answer took too long")]
    TimedOut,
}

/// An answer's body on its way to the client. Its drop is how the gate learns that hyper has all of it.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    kind: Kind,
    client: Rc<Client>,
    worker: Rc<WorkerApp>,
    ending: Option<Box<Ending>>,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all answers are a server's")]
enum Kind {
    Whole(Bytes),
    Relay(Relay),
}

/// A server's body, with the connection it comes from: both live in the client's task.
#[derive(Debug)]
struct Relay {
    /// Fields of the head that stay lines, until it is written.
    lines: Lines,
    /// What came with the head.
    first: Option<Frame<Bytes>>,
    incoming: Incoming,
    server: Option<Box<ServerConn>>,
    sent_at: Timestamp,
    /// What it says so far.
    answered: Answered,
    /// Of a refusal further down, where that is known before gRPC's status is.
    told: Option<Refusal>,
}

impl ResponseBody {
    /// A body that is all here. `ending` says already how the request ends; `None`: it does not end with this answer.
    pub(crate) fn whole(
        bytes: Bytes,
        client: &Rc<Client>,
        worker: &Rc<WorkerApp>,
        ending: impl Into<Option<Box<Ending>>>,
    ) -> Self {
        client.wait(Wait::ResponseBody, worker.deadline(|timeouts| timeouts.body_idle));
        let (client, worker) = (client.clone(), worker.clone());
        ResponseBody { kind: Kind::Whole(bytes), client, worker, ending: ending.into() }
    }

    /// A body that `server` sends. `answered`: what its head says, and of what refusal `told`.
    pub(crate) fn relay(
        (lines, first, incoming): (Lines, Option<Frame<Bytes>>, Incoming),
        server: Box<ServerConn>,
        sent_at: Timestamp,
        client: &Rc<Client>,
        worker: &Rc<WorkerApp>,
        mut ending: Box<Ending>,
        (answered, told): (Answered, Option<Refusal>),
    ) -> Self {
        let first_byte = worker.now();
        ending.begin_answer(first_byte);
        ending.watch_pace(first_byte);
        await_more(client, worker, Some(&ending));
        let relay = Relay { lines, first, incoming, server: Some(server), sent_at, answered, told };
        ResponseBody { kind: Kind::Relay(relay), client: client.clone(), worker: worker.clone(), ending: Some(ending) }
    }

    /// Fields of the server's head that stay lines.
    pub(crate) fn take_lines(&mut self) -> Lines {
        match &mut self.kind {
            Kind::Relay(relay) => std::mem::take(&mut relay.lines),
            Kind::Whole(_) => Lines::default(),
        }
    }

    /// For an answer without a body: the server is done already.
    pub(crate) fn finish_at_once(&mut self, cx: &mut Context<'_>) {
        if let Kind::Relay(relay) = &mut self.kind
            && relay.incoming.is_end_stream()
        {
            // The clock was read when its head came.
            relay.finish(cx, &self.worker, self.worker.lately(), self.ending.as_deref_mut());
        }
    }

    /// The server, or the time, broke the answer off: told at once, for the connection is lost.
    fn break_off(&mut self, end: RecordEnd) -> BodyError {
        let (outcome, error) = match end {
            RecordEnd::TimedOut | RecordEnd::Cancelled => (Outcome::timed_out(), BodyError::TimedOut),
            _ => (Outcome::failed(), BodyError::Response),
        };
        if let Some(mut ending) = self.ending.take() {
            if let (Kind::Relay(relay), RecordEnd::TimedOut | RecordEnd::Cancelled) = (&mut self.kind, end) {
                ending.place.left.put(relay.server.take());
            }
            ending.end = end;
            ending.outcome = outcome;
            ending.report();
        }
        error
    }
}

impl ResponseBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self;
        let relay = match &mut this.kind {
            Kind::Whole(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Kind::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                count(&this.client, this.ending.as_deref_mut(), bytes.len());
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            Kind::Relay(relay) => relay,
        };
        match relay.poll_frame(cx) {
            Poll::Ready(Some(Ok(mut frame))) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                count(&this.client, this.ending.as_deref_mut(), length);
                if let Some(trailers) = frame.trailers_mut() {
                    relay.read(trailers, &this.worker, this.ending.as_deref_mut());
                }
                if relay.incoming.is_end_stream() {
                    relay.finish(cx, &this.worker, this.worker.now(), this.ending.as_deref_mut());
                } else {
                    await_more(&this.client, &this.worker, this.ending.as_deref());
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                relay.finish(cx, &this.worker, this.worker.now(), this.ending.as_deref_mut());
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(_))) => {
                this.worker.lane().bump(Counter::ServerErrors);
                Poll::Ready(Some(Err(this.break_off(RecordEnd::ServerFailed))))
            }
            // Who polls hyper ends the connection.
            Poll::Pending if this.client.gives_way() => Poll::Pending,
            Poll::Pending => match this.client.take_expired() {
                None => Poll::Pending,
                Some(Wait::Look) => {
                    if let Some(ending) = &mut this.ending {
                        ending.look(this.worker.now());
                    }
                    await_more(&this.client, &this.worker, this.ending.as_deref());
                    Poll::Pending
                }
                Some(Wait::Cancelled) => Poll::Ready(Some(Err(this.break_off(RecordEnd::Cancelled)))),
                Some(wait) => {
                    let whole = wait == Wait::Request;
                    this.worker.lane().bump(if whole { Counter::TimeoutRequest } else { Counter::TimeoutBodyIdle });
                    Poll::Ready(Some(Err(this.break_off(RecordEnd::TimedOut))))
                }
            },
        }
    }

    /// While hyper asks for no more, the gate may see that the client is slow: it must reach what is known of the end.
    fn lend(&mut self) {
        if let Kind::Relay(_) = self.kind
            && let Some(ending) = self.ending.take()
        {
            self.client.lend(ending);
        }
    }

    fn take_back(&mut self) {
        if let (Kind::Relay(_), None) = (&self.kind, &self.ending) {
            self.ending = self.client.take_back();
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.take_back();
        let polled = self.poll_next(cx);
        self.lend();
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole(bytes) => bytes.is_empty(),
            Kind::Relay(relay) => relay.first.is_none() && relay.server.is_none() && relay.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Relay(relay) => relay.size_hint(),
        }
    }
}

impl Drop for ResponseBody {
    /// hyper drops the body when its last byte is in hyper's own buffer. What is left is the flush.
    fn drop(&mut self) {
        self.take_back();
        if let (Kind::Relay(relay), Some(ending)) = (&mut self.kind, &self.ending) {
            ending.place.left.put(relay.server.take());
        }
        if self.ending.as_ref().is_some_and(|ending| ending.end == RecordEnd::Cancelled) {
            self.ending.take().into_iter().for_each(|ending| ending.report());
        }
        self.client.answer(self.ending.take().filter(|ending| ending.end != RecordEnd::ClientGone));
    }
}

impl Relay {
    /// The next frame; drives the server's connection when there is none yet.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let first = self.first.take();
        match &mut self.server {
            _ if first.is_some() => Poll::Ready(first.map(Ok)),
            Some(server) => server.poll_frame(&mut self.incoming, cx),
            None => self.incoming.poll_alone(cx),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().and_then(Frame::data_ref).map_or(0, |data| data.len() as u64);
        match self.incoming.exact() {
            Some(rest) => SizeHint::with_exact(first + rest),
            None => SizeHint::default(),
        }
    }

    /// What follows the body is here.
    fn read(&mut self, trailers: &mut HeaderMap, worker: &WorkerApp, ending: Option<&mut Ending>) {
        let (status, before) = (grpc::status(trailers), self.answered);
        self.told = trailers.remove(DECISION).as_ref().and_then(Refusal::read).or(self.told);
        self.answered = before.with_grpc(status, self.told);
        let Some(ending) = ending else { return };
        ending.note_grpc(status);
        // What its head said already is not held against its server twice.
        if status.is_some() && before == Answered::Well {
            ending.judge(&worker.local().live, self.answered, status, || false);
        }
        if before != self.answered
            && let Some(why) = ending.explains(self.answered)
        {
            trailers.insert(DECISION, why);
        }
    }

    /// The server's last byte is here: its connection is free again, and so is the request's place, however long its
    /// client takes to read.
    fn finish(&mut self, cx: &mut Context<'_>, worker: &WorkerApp, now: Timestamp, ending: Option<&mut Ending>) {
        let Some(server) = self.server.take() else { return };
        if let Some(ending) = &ending {
            server.note_end(ending.request());
        }
        server.give_back(cx, worker, now);
        if let Some(ending) = ending {
            ending.outcome = Outcome { service_time: Some(now.since(self.sent_at)), ..self.answered.outcome() };
            ending.end = self.answered.end();
            ending.free_place(now);
        }
    }
}

/// The server is to go on; and it is looked, once, whether this is a stream.
fn await_more(client: &Client, worker: &WorkerApp, ending: Option<&Ending>) {
    client.await_more(worker.deadline(|timeouts| timeouts.body_idle), ending.and_then(Ending::look_at));
}

/// hyper gets so many bytes of an answer.
fn count(client: &Client, ending: Option<&mut Ending>, bytes: usize) {
    client.unwritten.update(|before| before.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX)));
    if let Some(ending) = ending {
        ending.bytes_out += bytes as u64;
    }
}
