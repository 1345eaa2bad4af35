//! Bodies on their way through, both ways: counted, bounded, and watched to their end. Nothing is buffered here, so a
//! slow reader slows the writer.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use thiserror::Error;
use tidegate_engine::{End, Open, Outcome, Timestamp};

use crate::client::{Client, Wait};
use crate::counters::Counter;
use crate::ending::Ending;
use crate::gate::head::Bad;
use crate::headers::strays::clean_trailers;
use crate::record::RecordEnd;
use crate::share::WorkerApp;
use crate::upstream::ServerConn;

/// A request's body on its way to a server.
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// `None`: empty.
    incoming: Option<Incoming>,
    client: Rc<Client>,
    worker: Rc<WorkerApp>,
    most: u64,
}

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

impl RequestBody {
    pub(crate) fn new(incoming: Incoming, client: &Rc<Client>, worker: &Rc<WorkerApp>, most: Option<u64>) -> Self {
        client.upload.fault.set(None);
        client.upload.is_starved.set(false);
        RequestBody {
            incoming: Some(incoming),
            client: client.clone(),
            worker: worker.clone(),
            most: most.unwrap_or(u64::MAX),
        }
    }

    /// A body without a byte.
    pub(crate) fn empty(client: &Rc<Client>, worker: &Rc<WorkerApp>) -> Self {
        RequestBody { incoming: None, client: client.clone(), worker: worker.clone(), most: 0 }
    }

    fn fault(&self, bad: Bad) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.client.upload.fault.set(Some(bad));
        Poll::Ready(Some(Err(BodyError::Request)))
    }

    /// The server has all of it: from now on its answer is awaited.
    fn sent(&self) {
        if self.client.waits_for() == Wait::RequestBody {
            self.client.wait(Wait::FirstByte, self.worker.deadline(|timeouts| timeouts.first_byte));
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        let polled = Pin::new(&mut *incoming).poll_frame(cx);
        let last = incoming.is_end_stream();
        self.client.upload.is_starved.set(polled.is_pending());
        match polled {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => {
                self.sent();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(_))) => self.fault(Bad::Body),
            Poll::Ready(Some(Ok(mut frame))) => {
                if let Some(trailers) = frame.trailers_mut() {
                    clean_trailers(trailers, &self.worker.local().live.config.forwarded.identity);
                }
                let length = frame.data_ref().map_or(0, Bytes::len) as u64;
                let total = self.client.upload.bytes.get() + length;
                self.client.upload.bytes.set(total);
                if total > self.most {
                    return self.fault(Bad::BodyTooLarge);
                }
                if last {
                    self.sent();
                }
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or(SizeHint::with_exact(0), Incoming::size_hint)
    }
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
enum Kind {
    Whole(Bytes),
    Relay(Relay),
}

/// A server's body, with the connection it comes from: both live in the client's task.
#[derive(Debug)]
struct Relay {
    incoming: Incoming,
    server: Option<Box<ServerConn>>,
    sent_at: Timestamp,
    /// When the answer began.
    first_byte: Timestamp,
    /// When it is looked whether the answer is a stream.
    look_at: Option<Timestamp>,
    failed: bool,
}

/// Open for so many times the target and mostly idle: a stream.
const STREAM_TARGETS: u32 = 8;
/// An answer that brings fewer bytes per second is mostly idle.
const IDLE_RATE: f64 = 16_384.0;

impl ResponseBody {
    /// A body that is all here. `ending` says already how the request ends.
    pub(crate) fn whole(bytes: Bytes, client: &Rc<Client>, worker: &Rc<WorkerApp>, ending: Box<Ending>) -> Self {
        ResponseBody { kind: Kind::Whole(bytes), client: client.clone(), worker: worker.clone(), ending: Some(ending) }
    }

    /// A body that `server` sends. `failed`: it counts as a failure whatever follows, by its status.
    pub(crate) fn relay(
        incoming: Incoming,
        server: Box<ServerConn>,
        sent_at: Timestamp,
        client: &Rc<Client>,
        worker: &Rc<WorkerApp>,
        ending: Box<Ending>,
    ) -> Self {
        let failed = ending.status >= 500;
        let first_byte = worker.now();
        let target = || ending.longest_target();
        let look_at = ending.is_in_flight().then(|| first_byte + target() * STREAM_TARGETS);
        let relay = Relay { incoming, server: Some(server), sent_at, first_byte, look_at, failed };
        relay.await_more(client, worker);
        ResponseBody { kind: Kind::Relay(relay), client: client.clone(), worker: worker.clone(), ending: Some(ending) }
    }

    /// For an answer without a body: the server is done already.
    pub(crate) fn finish_at_once(&mut self, cx: &mut Context<'_>) {
        if let Kind::Relay(relay) = &mut self.kind
            && relay.incoming.is_end_stream()
        {
            relay.finish(cx, &self.worker, self.ending.as_deref_mut());
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

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let relay = match &mut this.kind {
            Kind::Whole(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Kind::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                count(this.ending.as_deref_mut(), bytes.len());
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            Kind::Relay(relay) => relay,
        };
        match relay.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                count(this.ending.as_deref_mut(), frame.data_ref().map_or(0, Bytes::len));
                if relay.incoming.is_end_stream() {
                    relay.finish(cx, &this.worker, this.ending.as_deref_mut());
                } else {
                    relay.await_more(&this.client, &this.worker);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                relay.finish(cx, &this.worker, this.ending.as_deref_mut());
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(_))) => {
                this.worker.lane().bump(Counter::ServerErrors);
                Poll::Ready(Some(Err(this.break_off(RecordEnd::ServerFailed))))
            }
            Poll::Pending => match this.client.take_expired() {
                None => Poll::Pending,
                Some(Wait::Look) => {
                    relay.look(&this.worker, this.ending.as_deref_mut());
                    relay.await_more(&this.client, &this.worker);
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

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole(bytes) => bytes.is_empty(),
            Kind::Relay(relay) => relay.server.is_none() && relay.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Relay(relay) => relay.incoming.size_hint(),
        }
    }
}

impl Drop for ResponseBody {
    /// hyper drops the body when its last byte is in hyper's own buffer. What is left is the flush.
    fn drop(&mut self) {
        if let (Kind::Relay(relay), Some(ending)) = (&mut self.kind, &self.ending) {
            ending.place.left.put(relay.server.take());
        }
        self.client.answer(self.ending.take().filter(|ending| ending.end != RecordEnd::ClientGone));
    }
}

impl Relay {
    /// The next frame; drives the server's connection when there is none yet.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let first = Pin::new(&mut self.incoming).poll_frame(cx);
        match (&mut self.server, first) {
            (Some(server), Poll::Pending) => {
                server.drive(cx);
                Pin::new(&mut self.incoming).poll_frame(cx)
            }
            (_, first) => first,
        }
    }

    /// The server is to go on; and it is looked, once, whether this is a stream.
    fn await_more(&self, client: &Client, worker: &WorkerApp) {
        let idle = worker.deadline(|timeouts| timeouts.body_idle);
        match self.look_at {
            Some(at) if at < idle => client.wait(Wait::Look, at),
            _ => client.wait(Wait::ResponseBody, idle),
        }
    }

    /// The answer has been open for many times the target, and the server has nothing to send just now.
    fn look(&mut self, worker: &WorkerApp, ending: Option<&mut Ending>) {
        self.look_at = None;
        let Some(ending) = ending else { return };
        let open = worker.now().seconds_since(self.first_byte);
        if (ending.bytes_out as f64) < open * IDLE_RATE {
            ending.open(Open::Stream, self.first_byte);
        }
    }

    /// The server's last byte is here: its connection is free again.
    fn finish(&mut self, cx: &mut Context<'_>, worker: &WorkerApp, ending: Option<&mut Ending>) {
        let Some(server) = self.server.take() else { return };
        let now = worker.now();
        if let Some(ending) = &ending {
            server.note_end(ending.request());
        }
        server.give_back(cx, worker, now);
        if let Some(ending) = ending {
            let end = if self.failed { End::Failed } else { End::Answered };
            ending.outcome = Outcome { end, service_time: Some(now.since(self.sent_at)), bytes: None };
            ending.end = RecordEnd::Complete;
        }
    }
}

fn count(ending: Option<&mut Ending>, bytes: usize) {
    if let Some(ending) = ending {
        ending.bytes_out += bytes as u64;
    }
}
