//! A connection of HTTP/1.1 to a server: one request, and one answer, after the other.
//!
//! It has no task, and nothing in it waits for something else in it: whoever uses it polls it, and is woken by its
//! socket. What is read is read into memory of its own size, so that neither an idle connection nor an answer that
//! somebody keeps holds more than it needs.

mod framing;
mod head;
mod sending;
#[cfg(test)]
mod tests;

use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderName, Method, Response, StatusCode, request};
use http_body::{Body, Frame};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

pub(crate) use self::framing::Rest;
use self::head::Read;
use self::sending::{may_follow, write};
use crate::gate::head::{Framing, has_grown};
use crate::gate::wire::write_together;
use crate::headers::lines::Lines;
use crate::out::Out;
use crate::transport::Transport;
use crate::upload::RequestBody;

/// Bytes of an answer's head, and bytes that are read at once.
const BUFFER: usize = 64 * 1024;

/// Bytes that are read at once where it is not known that there are so many. They are copied.
const LITTLE: usize = 16 * 1024;

/// Why there is no answer, or no more of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// What the server sent is no answer.
    Garbage,
    /// The answer says in several ways where its body ends.
    Ambiguous,
    /// The connection, or the request's body, broke off.
    Broken,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Conn<B = RequestBody> {
    socket: Transport,
    /// What was read and not used yet.
    read: Bytes,
    /// How much of it was looked at, where it is the beginning of a head, and how much when it was last parsed.
    checked: usize,
    parsed: usize,
    /// The last read was as large as it could be: there is more.
    is_ample: bool,
    out: Out,
    /// What is not sent of the request's body, how it is framed, and which fields may follow it.
    upload: Option<B>,
    framing: Framing,
    announced: Vec<HeaderName>,
    /// All that was written may still be here: it is sealed.
    is_unflushed: bool,
    /// The request's method.
    asked: Method,
    /// Whether fields of the answer may stay lines, and those that do.
    lines_pass: bool,
    lines: Lines,
    /// The current answer is not all read.
    owes: bool,
    /// Another request may follow.
    keeps: bool,
    /// It has failed.
    is_over: bool,
}

/// Why a request is not sent on.
enum Stop {
    /// Its body broke off.
    Body,
    /// The server takes no more.
    Socket,
}

impl<B: Body<Data = Bytes> + Unpin> Conn<B> {
    pub(super) fn new(socket: Transport) -> Self {
        Conn {
            socket,
            read: Bytes::new(),
            checked: 0,
            parsed: 0,
            is_ample: false,
            out: Out::default(),
            upload: None,
            framing: Framing::None,
            announced: Vec::new(),
            is_unflushed: false,
            asked: Method::GET,
            lines_pass: false,
            lines: Lines::default(),
            owes: false,
            keeps: true,
            is_over: false,
        }
    }

    /// Whether the server has neither closed it nor sent what nobody asked for, as far as can be known. A socket on
    /// which nothing has happened is not even asked.
    pub(super) fn is_quiet(&mut self, cx: &mut Context<'_>) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        self.read.is_empty() && Pin::new(&mut self.socket).poll_read(cx, &mut ReadBuf::uninit(&mut byte)).is_pending()
    }

    /// Takes a request, of which nothing is sent yet. `body`: where it has one.
    /// `lines`: fields of its head that go on as they came, where the answer's may come back so.
    pub(super) fn begin(&mut self, parts: &request::Parts, lines: Option<&Lines>, body: Option<B>) {
        let length = body.as_ref().map(|body| body.size_hint().exact());
        let said = write(self.out.front(), parts, lines, length);
        self.lines_pass = lines.is_some();
        (self.framing, self.announced, self.keeps) = (said.framing, said.announced, said.keeps);
        self.upload = body;
        self.is_unflushed = true;
        self.owes = true;
        (self.checked, self.parsed) = (0, 0);
        self.asked.clone_from(&parts.method);
    }

    /// The answer's head; sends the request meanwhile. An answer may come before all of that is out.
    pub(super) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<Rest>, Fault>> {
        let sent = self.poll_send(cx);
        let polled = match sent {
            Poll::Ready(Err(Stop::Body)) => Poll::Ready(Err(Fault::Broken)),
            // Who takes no more may have said why.
            Poll::Ready(Err(Stop::Socket)) => match self.poll_head(cx) {
                Poll::Pending => Poll::Ready(Err(Fault::Broken)),
                polled => polled,
            },
            _ => self.poll_head(cx),
        };
        self.is_over |= matches!(polled, Poll::Ready(Err(_)));
        polled
    }

    /// The fields of the answer's head that stay lines.
    pub(super) fn take_lines(&mut self) -> Lines {
        std::mem::take(&mut self.lines)
    }

    /// The next frame of the answer's body; sends meanwhile what is left of the request.
    pub(super) fn poll_frame(
        &mut self,
        rest: &mut Rest,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        if let Poll::Ready(Err(Stop::Body)) = self.poll_send(cx) {
            return self.fail(rest);
        }
        loop {
            match rest.next(&mut self.read) {
                Err(_) => return self.fail(rest),
                Ok(frame) => {
                    self.owes = !rest.is_over();
                    if frame.is_some() || !self.owes {
                        return Poll::Ready(frame.map(Ok));
                    }
                }
            }
            match ready!(self.poll_body(rest.exact(), cx)) {
                Ok(1..) => {}
                Ok(0) if rest.close().is_ok() => {
                    self.owes = false;
                    return Poll::Ready(None);
                }
                _ => return self.fail(rest),
            }
        }
    }

    fn fail(&mut self, rest: &mut Rest) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        *rest = Rest::NONE;
        self.is_over = true;
        Poll::Ready(Some(Err(Fault::Broken)))
    }

    /// The current answer is all there: whether another request can be sent. Where not, it is closed.
    pub(super) fn finish(&mut self, cx: &mut Context<'_>) -> bool {
        if self.is_sending() {
            let _ = self.poll_send(cx);
        }
        let is_done = !self.is_over && !self.owes && !self.is_sending();
        if is_done && self.keeps && self.read.is_empty() {
            return true;
        }
        // It goes, and is told so as far as that is possible at once.
        let _ = Pin::new(&mut self.socket).poll_shutdown(cx);
        self.is_over = true;
        false
    }

    /// Whether it has failed.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The socket, and what was read and not used.
    pub(super) fn into_parts(self) -> (Transport, Bytes) {
        (self.socket, self.read)
    }

    fn is_sending(&self) -> bool {
        self.is_unflushed || self.upload.is_some()
    }

    /// Sends what there is of the request, until all of it is out. Whatever stops it stops it for good.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        if !self.is_sending() {
            return Poll::Ready(Ok(()));
        }
        let polled = self.poll_send_on(cx);
        if polled.is_ready() {
            self.keeps &= matches!(polled, Poll::Ready(Ok(())));
            self.upload = None;
            self.is_unflushed = false;
            self.out = Out::default();
        }
        polled
    }

    fn poll_send_on(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        loop {
            self.gather(cx)?;
            if self.out.is_empty() {
                let flushed = Pin::new(&mut self.socket).poll_flush(cx).map_err(|_| Stop::Socket)?;
                return if self.upload.is_some() { Poll::Pending } else { flushed.map(Ok) };
            }
            let Conn { out, socket, .. } = self;
            ready!(out.poll_write(cx, |cx, pieces| write_together(socket, cx, pieces))).map_err(|_| Stop::Socket)?;
        }
    }

    /// Takes what is there of the request's body, as far as there is room.
    fn gather(&mut self, cx: &mut Context<'_>) -> Result<(), Stop> {
        while let Some(body) = &mut self.upload
            && self.out.has_room()
        {
            let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) else { return Ok(()) };
            let is_last = frame.is_none() || body.is_end_stream();
            let trailers = match frame.transpose().map_err(|_| Stop::Body)?.map(Frame::into_data) {
                None => None,
                Some(Ok(data)) => {
                    self.out.push(data, &mut self.framing);
                    None
                }
                Some(Err(frame)) => frame.into_trailers().ok(),
            };
            if is_last || trailers.is_some() {
                self.upload = None;
                let follows =
                    trailers.iter().flatten().filter(|(name, _)| self.announced.contains(name) && may_follow(name));
                self.out.end(self.framing, follows).map_err(|_| Stop::Body)?;
            }
        }
        Ok(())
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<Rest>, Fault>> {
        loop {
            match self.take_head() {
                Ok(Some(response)) => return Poll::Ready(Ok(response)),
                Ok(None) if self.read.len() < BUFFER => {}
                Ok(None) => return Poll::Ready(Err(Fault::Garbage)),
                Err(fault) => return Poll::Ready(Err(fault)),
            }
            match ready!(self.poll_little(BUFFER - self.read.len(), cx)) {
                Ok(1..) => {}
                _ => return Poll::Ready(Err(Fault::Broken)),
            }
        }
    }

    /// The head at the start of what was read, where all of it is there.
    fn take_head(&mut self) -> Result<Option<Response<Rest>>, Fault> {
        while self.read.len() > self.checked {
            if self.parsed > 0 && !has_grown(&self.read, self.parsed) {
                head::lines_end(&self.read, self.checked)?;
                self.checked = self.read.len();
                break;
            }
            let read = head::read(&self.read, self.checked, &self.asked, self.lines_pass)?;
            (self.checked, self.parsed) = (0, 0);
            match read {
                Read::Interim(length) => drop(self.read.split_to(length)),
                Read::Whole(head) => return Ok(Some(self.answer(head))),
                Read::Part => {
                    (self.checked, self.parsed) = (self.read.len(), self.read.len());
                    break;
                }
            }
        }
        Ok(None)
    }

    fn answer(&mut self, head: head::Head) -> Response<Rest> {
        if head.length == self.read.len() {
            self.read = Bytes::new();
        } else {
            drop(self.read.split_to(head.length));
        }
        self.keeps &= head.keeps;
        self.lines = head.lines;
        // After `101` what follows is something else.
        self.owes = !head.rest.is_over() || head.status == StatusCode::SWITCHING_PROTOCOLS;
        let mut response = Response::new(head.rest);
        *response.status_mut() = head.status;
        *response.version_mut() = head.version;
        *response.headers_mut() = head.headers;
        if let Some(reason) = head.reason {
            response.extensions_mut().insert(reason);
        }
        response
    }

    /// Reads more of a body of which there are `left` bytes, where that is known; how many bytes.
    fn poll_body(&mut self, left: Option<u64>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // With a byte more than is needed it is seen that there are no more, and need not be asked.
        let left = left.map(|left| usize::try_from(left).unwrap_or(usize::MAX).saturating_add(1));
        let is_large = left.map_or(self.is_ample, |left| left > LITTLE);
        if !is_large {
            return self.poll_little(left.unwrap_or(LITTLE), cx);
        }
        ready!(self.socket.poll_readable(cx))?;
        self.poll_much(left.unwrap_or(BUFFER).min(BUFFER), cx)
    }

    /// Reads up to `most` bytes, and not many: they are copied behind what is there.
    fn poll_little(&mut self, most: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = [MaybeUninit::uninit(); LITTLE];
        let most = most.min(LITTLE);
        let mut buffer = ReadBuf::uninit(&mut room[..most]);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer))?;
        let fresh = buffer.filled();
        self.is_ample = fresh.len() == LITTLE;
        if self.read.is_empty() {
            self.read = Bytes::copy_from_slice(fresh);
        } else {
            let mut all = BytesMut::from(std::mem::take(&mut self.read));
            all.extend_from_slice(fresh);
            self.read = all.freeze();
        }
        Poll::Ready(Ok(fresh.len()))
    }

    /// Reads up to `most` bytes into memory of their own. All that was read before is used.
    fn poll_much(&mut self, most: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = BytesMut::with_capacity(most);
        let filled = ready!(pin!(self.socket.read_buf(&mut room)).poll(cx))?;
        self.is_ample = filled >= most;
        // Who keeps a few bytes is not to keep the room around them.
        self.read = if filled < most / 2 { Bytes::copy_from_slice(&room) } else { room.freeze() };
        Poll::Ready(Ok(filled))
    }
}
