//! A request's body on its way to a server: read ahead of the request's admission as far as there is room, then passed
//! on as it comes. Counted, bounded, and watched to its end.
//!
//! A client that sends slowly would hold a place for as long as it likes, while its server has nothing to do. So what
//! it sends is held here, and the request asks for a place when its body is complete, or when there is room for no
//! more.

mod source;

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use crate::body::BodyError;
use crate::client::{Client, Wait};
use crate::gate::head::Bad;
use crate::headers::lines::Lines;
use crate::headers::strays::clean_trailers;
use crate::http2::conduct::STREAM_BYTES;
use crate::mirror::Tee;
use crate::pace::Pace;
use crate::share::WorkerApp;

pub(crate) use source::Source;

/// A request's body.
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// What was read before the request was admitted, and is not passed on yet.
    ahead: Ahead,
    /// What follows; `None`: nothing.
    incoming: Option<Source>,
    client: Rc<Client>,
    worker: Rc<WorkerApp>,
    /// Where what its client's connection holds is counted; its application may be another.
    home: Rc<WorkerApp>,
    most: u64,
    /// Its length was not said before.
    is_chunked: bool,
    /// It is an upload by rule, whose time as a request begins when its body is there.
    is_upload: bool,
    pace: Pace,
    /// A shadow server gets it, too.
    tee: Option<Box<Tee>>,
    /// Fields of its head that stay lines, where the client takes an answer's so, too.
    lines: Option<Lines>,
}

/// What was read ahead.
#[derive(Clone, Debug, Default)]
struct Ahead {
    bytes: Bytes,
    trailers: Option<HeaderMap>,
    /// Shared with the copies of the request.
    _held: Option<Rc<Held>>,
}

/// Bytes in the books of what is held for clients, until dropped.
#[derive(Debug)]
struct Held {
    worker: Rc<WorkerApp>,
    bytes: u64,
}

impl RequestBody {
    pub(crate) fn new(
        incoming: Source,
        client: &Rc<Client>,
        (worker, home): (&Rc<WorkerApp>, &Rc<WorkerApp>),
        most: Option<u64>,
    ) -> Self {
        client.upload.fault.set(None);
        client.upload.is_starved.set(false);
        let is_empty = incoming.is_end_stream();
        let (incoming, lines) = match incoming {
            Source::Whole(lines) => (Source::None, Some(lines)),
            incoming => (incoming, None),
        };
        RequestBody {
            ahead: Ahead::default(),
            is_chunked: !is_empty && incoming.size_hint().exact().is_none(),
            incoming: (!is_empty).then_some(incoming),
            client: client.clone(),
            worker: worker.clone(),
            home: home.clone(),
            most: most.unwrap_or(u64::MAX),
            is_upload: false,
            pace: Pace::default(),
            tee: None,
            lines,
        }
    }

    /// Fields of its head that go on as they came; `None`: they are with the others, and the answer's must be.
    pub(crate) fn lines(&self) -> Option<&Lines> {
        self.lines.as_ref()
    }

    /// The same, for whoever reads or changes fields.
    pub(crate) fn take_lines(&mut self) -> Option<Lines> {
        self.lines.take()
    }

    /// The same body again, where all of it is here.
    pub(crate) fn copy(&self) -> Option<Self> {
        self.incoming.is_none().then(|| RequestBody {
            ahead: self.ahead.clone(),
            lines: self.lines.clone(),
            ..self.empty()
        })
    }

    /// What there is of it: nothing is left but what belongs to the head.
    pub(crate) fn take(&mut self) -> Self {
        let empty = RequestBody { lines: self.lines.clone(), ..self.empty() };
        std::mem::replace(self, empty)
    }

    /// The same as far as nothing came, and nothing comes.
    fn empty(&self) -> Self {
        RequestBody {
            ahead: Ahead::default(),
            incoming: None,
            client: self.client.clone(),
            worker: self.worker.clone(),
            home: self.home.clone(),
            most: self.most,
            is_chunked: self.is_chunked,
            is_upload: self.is_upload,
            pace: Pace::default(),
            tee: None,
            lines: None,
        }
    }

    /// A shadow server gets it, too.
    pub(crate) fn tee(&mut self, tee: Tee) {
        if self.is_end_stream() {
            return tee.end();
        }
        self.tee = Some(Box::new(tee));
    }

    /// A frame goes to the server; `None`: the end.
    fn tee_frame(&mut self, frame: Option<&Frame<Bytes>>) {
        let Some(tee) = self.tee.take() else { return };
        let tee = match frame.and_then(|frame| frame.data_ref()) {
            Some(bytes) => tee.more(bytes),
            None => Some(*tee),
        };
        match tee {
            Some(tee) if frame.is_none() || self.is_end_stream() => tee.end(),
            tee => self.tee = tee.map(Box::new),
        }
    }

    /// Its length was not said before it came.
    pub(crate) fn is_chunked(&self) -> bool {
        self.is_chunked
    }

    /// The most bytes of it that the client may still have to send; `None`: who knows.
    pub(crate) fn still_to_come(&self) -> Option<u64> {
        self.incoming.as_ref().map_or(Some(0), |incoming| incoming.size_hint().upper())
    }

    /// Its request's time as a whole begins when the server has all of it.
    pub(crate) fn is_upload_by_rule(&mut self) {
        self.is_upload = true;
        self.client.unbound_request();
    }

    /// Reads it, to its end or until `most` bytes are held, or all clients together hold too much. The client is to
    /// keep up the least rate.
    ///
    /// # Errors
    /// When it is not well formed, or too large.
    pub(crate) async fn read_ahead(&mut self, most: usize) -> Result<(), Bad> {
        self.client.wait(Wait::RequestBody, self.worker.deadline(|timeouts| timeouts.body_idle));
        let mut read = Read { first: Bytes::new(), all: BytesMut::new(), held: Held::new(&self.worker) };
        let end = poll_fn(|cx| self.poll_ahead(cx, &mut read, most)).await;
        self.ahead.bytes = read.take();
        self.ahead._held = (!self.ahead.bytes.is_empty()).then(|| Rc::new(read.held));
        end
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>, read: &mut Read, most: usize) -> Poll<Result<(), Bad>> {
        while read.len() < most && self.worker.may_read_ahead() {
            match ready!(self.poll_incoming(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(Err(bad)) => return Poll::Ready(Err(bad)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => read.push(data),
                    Err(frame) => self.ahead.trailers = frame.into_trailers().ok(),
                },
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The next frame from the client; `None` for the end, once.
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Bad>>> {
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        let polled = Pin::new(&mut *incoming).poll_frame(cx);
        let is_last = incoming.is_end_stream();
        self.client.upload.is_starved.set(polled.is_pending());
        if self.client.is_stream.get() {
            // Whoever begins bodies and does not go on is first to give way.
            let taken = if polled.is_pending() { STREAM_BYTES as usize } else { 0 };
            self.home.count_held(&self.client, taken);
        }
        if self.client.upload.is_lost.get() {
            return Poll::Ready(Some(Err(Bad::Body)));
        }
        let Poll::Ready(frame) = polled else {
            self.await_more();
            return Poll::Pending;
        };
        if is_last || frame.is_none() {
            self.incoming = None;
        }
        Poll::Ready(match frame {
            None => None,
            Some(Err(_)) => Some(Err(Bad::Body)),
            Some(Ok(frame)) => Some(self.take_in(frame)),
        })
    }

    /// Counts what came.
    fn take_in(&mut self, mut frame: Frame<Bytes>) -> Result<Frame<Bytes>, Bad> {
        if let Some(trailers) = frame.trailers_mut() {
            clean_trailers(trailers, &self.worker.local().live.config.forwarded.identity);
        }
        let length = frame.data_ref().map_or(0, Bytes::len);
        let rate = self.worker.local().live.config.limits.body_rate;
        self.pace.came(self.worker.lately(), length, rate);
        let total = self.client.upload.bytes.get() + length as u64;
        self.client.upload.bytes.set(total);
        if total > self.most { Err(Bad::BodyTooLarge) } else { Ok(frame) }
    }

    /// The client is to send more, and in time.
    fn await_more(&mut self) {
        if self.client.waits_for() == Wait::RequestBody {
            let idle = self.worker.local().live.config.timeouts.body_idle;
            let now = self.worker.lately();
            self.client.wait(Wait::RequestBody, now + self.pace.wait(now, idle));
        }
    }

    /// The server takes it: from now on it is to take the next part, or to answer.
    fn passed_on(&self) {
        if self.client.waits_for() != Wait::RequestBody {
            return;
        }
        if !self.is_end_stream() {
            return self.client.wait(Wait::RequestBody, self.worker.deadline(|timeouts| timeouts.body_idle));
        }
        self.client.wait(Wait::FirstByte, self.worker.deadline(|timeouts| timeouts.first_byte));
        if self.is_upload {
            self.client.bound_request(self.worker.lately(), self.worker.local().live.config.timeouts.request);
        }
    }

    /// What is held of it, while there is some.
    fn next_held(&mut self) -> Option<Frame<Bytes>> {
        if !self.ahead.bytes.is_empty() {
            return Some(Frame::data(std::mem::take(&mut self.ahead.bytes)));
        }
        self.ahead.trailers.take().map(Frame::trailers)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let held = self.next_held();
        let next = match held {
            Some(frame) => Some(Ok(frame)),
            None => ready!(self.poll_incoming(cx)),
        };
        if let Some(Err(bad)) = next {
            self.client.upload.fault.set(Some(bad));
            return Poll::Ready(Some(Err(BodyError::Request)));
        }
        if self.tee.is_some() {
            self.tee_frame(next.as_ref().and_then(|next| next.as_ref().ok()));
        }
        self.passed_on();
        Poll::Ready(next.map(|frame| frame.map_err(|_| BodyError::Request)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_none() && self.ahead.bytes.is_empty() && self.ahead.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let follows = self.incoming.as_ref().map_or(Some(0), |incoming| incoming.size_hint().exact());
        match follows {
            Some(follows) if !self.is_chunked => SizeHint::with_exact(self.ahead.bytes.len() as u64 + follows),
            _ => SizeHint::default(),
        }
    }
}

/// What was read so far. Most bodies come as one piece, which is not copied.
struct Read {
    first: Bytes,
    all: BytesMut,
    held: Held,
}

impl Read {
    fn len(&self) -> usize {
        self.first.len() + self.all.len()
    }

    fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
        } else {
            self.all.extend_from_slice(&std::mem::take(&mut self.first));
            self.all.extend_from_slice(&data);
        }
        self.held.count(self.first.len() + self.all.capacity());
    }

    fn take(&mut self) -> Bytes {
        if self.first.is_empty() { std::mem::take(&mut self.all).freeze() } else { std::mem::take(&mut self.first) }
    }
}

impl Held {
    fn new(worker: &Rc<WorkerApp>) -> Self {
        Held { worker: worker.clone(), bytes: 0 }
    }

    fn count(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes as u64);
        self.worker.lane().hold(before, self.bytes);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.count(0);
    }
}
