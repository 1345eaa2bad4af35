//! One stream of HTTP/2 that was not refused: a task with the request's way through the sentry in it, and then its
//! answer on its way to the client, as fast as the client opens its windows. What it does not take yet is held, up to
//! `limits.ahead`, so that its server is done with it; and it must take some.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response, Version, header, response};
use http_body::Body;
use tidegate_engine::Timestamp;

use super::Shared;
use super::conduct::STREAM_BYTES;
use crate::body::ResponseBody;
use crate::client::{Client, Sharer, Wait};
use crate::counters::Counter;
use crate::permit::Arrival;
use crate::proxy::handle;
use crate::serve::{Over, count_cut, poll_over};
use crate::upload::Source;

/// What is read ahead of an answer that is not whole yet, on its server's connection.
const UNREAD: usize = 64 * 1024;

/// A stream.
pub(super) struct Stream {
    pub(super) shared: Rc<Shared>,
    pub(super) own: Sharer,
}

impl Stream {
    /// A request with this head, for which that was decided; `None`: nothing yet.
    pub(super) fn new(shared: &Rc<Shared>, arrival: Option<Arrival>, head: &HeaderMap) -> Self {
        let own = Sharer::new(&shared.worker, &shared.client, arrival, head);
        own.client.is_stream.set(true);
        shared.opened();
        Stream { shared: shared.clone(), own }
    }

    /// Serves it to its end.
    pub(super) async fn run(self, request: Request<Source>, mut answer: SendResponse<Piece>, is_head: bool) {
        let (worker, client) = (&self.shared.worker, &self.own.client);
        if request.headers().contains_key(header::EXPECT) && !http_body::Body::is_end_stream(request.body()) {
            let mut go_on = Response::new(());
            *go_on.status_mut() = http::StatusCode::CONTINUE;
            let _ = answer.send_informational(go_on);
        }
        let response = {
            let mut handling = std::pin::pin!(handle(worker.clone(), client.clone(), request));
            poll_fn(|cx| {
                client.remember(cx);
                if let Poll::Ready(reset) = answer.poll_reset(cx) {
                    // Else the connection is gone.
                    if reset.is_ok() {
                        self.shared.note_reset();
                    }
                    return Poll::Ready(None);
                }
                match handling.as_mut().poll(cx) {
                    Poll::Ready(Ok(response)) => Poll::Ready(Some(response)),
                    Poll::Pending => self.poll_over().map(|()| None),
                }
            })
            .await
        };
        let Some(response) = response else { return answer.send_reset(Reason::CANCEL) };
        let (mut parts, body) = response.into_parts();
        fit(&mut parts, &body, is_head);
        let body = Some(body).filter(|body| !is_head && !body.is_end_stream());
        let Ok(to) = answer.send_response(Response::from_parts(parts, ()), body.is_none()) else { return };
        let mut relay = Relay {
            stream: &self,
            is_ended: body.is_none(),
            body,
            to,
            queue: VecDeque::new(),
            queued: 0,
            trailers: None,
            taken: 0,
            since: worker.lately(),
        };
        if poll_fn(|cx| relay.poll(cx)).await.is_ok()
            && let Some(ending) = client.take_ending()
        {
            ending.report();
        }
    }

    /// Whether its time is up, and nobody who was polled took note.
    pub(super) fn poll_over(&self) -> Poll<()> {
        match poll_over(&self.shared.worker, &self.own.client) {
            Poll::Ready(Over::Cut) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.closed();
    }
}

/// Makes an answer fit for HTTP/2: no field of a connection, and a length where it is known.
fn fit(parts: &mut response::Parts, body: &ResponseBody, is_head: bool) {
    parts.version = Version::HTTP_2;
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE] {
        parts.headers.remove(name);
    }
    if let (Some(length @ 1..), false) = (body.size_hint().exact(), is_head) {
        parts.headers.entry(header::CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
}

/// The client left, or must.
struct Broken;

/// An answer's body on its way.
struct Relay<'a> {
    stream: &'a Stream,
    /// `None`: all of it was read.
    body: Option<ResponseBody>,
    to: SendStream<Piece>,
    queue: VecDeque<Bytes>,
    queued: usize,
    trailers: Option<HeaderMap>,
    /// The stream's end was said.
    is_ended: bool,
    /// Bytes that the client had room for since then.
    taken: u64,
    since: Timestamp,
}

impl Relay<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let client = &self.stream.own.client;
        client.remember(cx);
        if self.to.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(Broken));
        }
        let worker = &self.stream.shared.worker;
        if self.body.is_some() && self.stream.own.gives_way() {
            worker.lane().bump(Counter::ConnectionsShed);
            self.to.send_reset(Reason::ENHANCE_YOUR_CALM);
            return Poll::Ready(Err(Broken));
        }
        loop {
            if self.read(cx).is_err() {
                // The head said that there is more.
                self.to.send_reset(Reason::INTERNAL_ERROR);
                return Poll::Ready(Err(Broken));
            }
            let Ok(wrote) = self.write(cx) else { return Poll::Ready(Err(Broken)) };
            if !wrote {
                break;
            }
        }
        // Its server's connection has buffers of its own, which are as full as they get.
        let taken = match (client.unwritten.get() > 0, &self.body) {
            (false, _) => 0,
            (true, None) => STREAM_BYTES as usize,
            (true, Some(_)) => STREAM_BYTES as usize + UNREAD,
        };
        self.stream.shared.worker.count_held(client, taken);
        if self.is_ended && client.unwritten.get() == 0 {
            return Poll::Ready(Ok(()));
        }
        match self.poll_time() {
            Poll::Ready(()) => {
                self.to.send_reset(Reason::CANCEL);
                Poll::Ready(Err(Broken))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Reads on as far as there is room.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        let worker = &self.stream.shared.worker;
        let ahead = worker.local().live.config.limits.ahead;
        while let Some(body) = &mut self.body
            && (self.queued == 0 || (self.queued < ahead && worker.may_read_ahead()))
        {
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Some(Err(_))) => return Err(Broken),
                Poll::Ready(None) => self.body = None,
                Poll::Ready(Some(Ok(frame))) => {
                    let is_last = body.is_end_stream();
                    match frame.into_data() {
                        Ok(data) if data.is_empty() => {}
                        Ok(data) => {
                            self.queued += data.len();
                            self.queue.push_back(data);
                        }
                        Err(frame) => self.trailers = frame.into_trailers().ok(),
                    }
                    if is_last {
                        self.body = None;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes what there is room for; whether there may be more.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, Broken> {
        let mut wrote = false;
        while let Some(first) = self.queue.front_mut() {
            self.to.reserve_capacity(self.queued);
            let room = self.to.capacity();
            if room == 0 {
                match self.to.poll_capacity(cx) {
                    Poll::Ready(Some(Ok(_))) => continue,
                    Poll::Ready(_) => return Err(Broken),
                    Poll::Pending => return Ok(wrote && self.body.is_some()),
                }
            }
            let piece = first.split_to(room.min(first.len()));
            if first.is_empty() {
                self.queue.pop_front();
            }
            self.queued -= piece.len();
            self.taken += piece.len() as u64;
            self.is_ended = self.queue.is_empty() && self.body.is_none() && self.trailers.is_none();
            let piece = Piece { bytes: piece, client: Some(self.stream.own.client.clone()) };
            self.to.send_data(piece, self.is_ended).map_err(|_| Broken)?;
            wrote = true;
        }
        if self.body.is_none() && !self.is_ended {
            self.is_ended = true;
            let end = match self.trailers.take() {
                Some(trailers) => self.to.send_trailers(trailers),
                None => self.to.send_data(Piece::of(Bytes::new()), true),
            };
            end.map_err(|_| Broken)?;
        }
        Ok(wrote && self.body.is_some())
    }

    /// A client whose time is up has it again if it took what it must.
    fn poll_time(&mut self) -> Poll<()> {
        let Shared { worker, .. } = &*self.stream.shared;
        let client = &self.stream.own.client;
        if client.expired() != Some(Wait::ResponseBody) {
            return self.stream.poll_over();
        }
        client.take_expired();
        let now = worker.lately();
        let rate = worker.local().live.config.limits.body_rate as f64;
        if self.taken == 0 || (self.taken as f64) < rate * now.seconds_since(self.since) {
            count_cut(worker, Wait::ResponseBody);
            return Poll::Ready(());
        }
        (self.taken, self.since) = (0, now);
        client.wait(Wait::ResponseBody, worker.deadline(|timeouts| timeouts.body_idle));
        Poll::Pending
    }
}

/// A part of an answer, until the socket has it.
#[derive(Debug)]
pub(super) struct Piece {
    bytes: Bytes,
    client: Option<Rc<Client>>,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, bytes: usize) {
        self.bytes.advance(bytes);
        self.gone(bytes);
    }
}

impl Piece {
    /// One that no client is to be told of when it has gone.
    pub(super) fn of(bytes: Bytes) -> Self {
        Piece { bytes, client: None }
    }

    fn gone(&self, bytes: usize) {
        let Some(client) = &self.client else { return };
        let left = client.unwritten.get().saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX));
        client.unwritten.set(left);
        if left == 0 {
            client.wake();
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.gone(self.bytes.len());
        }
    }
}
