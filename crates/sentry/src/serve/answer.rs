//! Answering one request that came whole ([`crate::gate::whole`]): the service is asked, and its answer written, with
//! no hyper between it and the gate.
//!
//! What hyper does for the others is done here, in the same order: while the answer is awaited the client may leave;
//! the body is let go of when its last byte is ready to be written, which is how its end becomes known; and the message
//! is over when all of it is flushed, which the gate hears as it does from hyper.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::{Method, Request, Response};
use http_body::{Body, Frame};
use hyper::rt::Write;

use super::framing::{Framing, head};
use super::{After, Over, poll_over};
use crate::body::{BodyError, ResponseBody};
use crate::client::Client;
use crate::door::Door;
use crate::gate::Gate;
use crate::gate::whole::Whole;
use crate::proxy::handle;
use crate::upload::Source;

/// So many bytes are made ready before they are written, if the server is that fast.
const TOGETHER: usize = 64 * 1024;

/// A body's piece of up to so many bytes is written with what stands before it in one piece: copying it costs less than
/// what the kernel spends on a list.
const COPIED: usize = 2048;

/// Pieces that are written at once.
const PIECES: usize = 16;

/// Answers the request.
pub(super) fn answer(
    mut gate: Gate,
    whole: Whole,
    door: Rc<Door>,
    client: Rc<Client>,
) -> Pin<Box<dyn Future<Output = After>>> {
    Box::pin(async move {
        let (is_head, close) = (whole.parts.method == Method::HEAD, whole.close);
        let response = {
            let request = Request::from_parts(whole.parts, Source::None);
            let mut service = pin!(handle(door.clone(), client.clone(), request));
            let asked = poll_fn(|cx| {
                client.remember(cx);
                match service.as_mut().poll(cx) {
                    Poll::Ready(Ok(response)) => Poll::Ready(Ok(response)),
                    Poll::Pending => poll_end(&mut gate, &door, &client, cx).map(Err),
                }
            });
            asked.await
        };
        let end = match response {
            Err(end) => end,
            Ok(response) => {
                let mut writing = Writing::begin(response, is_head, close, &door);
                let written = poll_fn(|cx| {
                    client.remember(cx);
                    match writing.poll(&mut gate, cx) {
                        Poll::Ready(Ok(())) => Poll::Ready(None),
                        Poll::Ready(Err(_)) => Poll::Ready(Some(End::Broken)),
                        Poll::Pending => poll_end(&mut gate, &door, &client, cx).map(Some),
                    }
                });
                match written.await {
                    None if writing.close => return After::Close(gate),
                    None => return After::Next(gate),
                    Some(end) => end,
                }
            }
        };
        match end {
            End::Cut => After::Cut,
            End::Broken => {
                // What the client has of an answer may not be all.
                gate.cut();
                After::Close(gate)
            }
        }
    })
}

/// Why an answer ends before it is whole.
enum End {
    /// It takes too long.
    Cut,
    /// The client has left, or the server broke off.
    Broken,
}

/// Whether there is any use in going on to wait.
fn poll_end(gate: &mut Gate, door: &Door, client: &Client, cx: &mut Context<'_>) -> Poll<End> {
    // Who may close its sending side is not gone when it does.
    let half_close = || door.local().live.config.half_close;
    if gate.poll_hold(cx).is_ready() && !half_close() {
        return Poll::Ready(End::Broken);
    }
    match ready!(poll_over(door, client)) {
        Over::Cut => Poll::Ready(End::Cut),
        Over::Idle | Over::Ended(_) => Poll::Pending,
    }
}

/// An answer on its way out.
struct Writing {
    /// What is ready to be written.
    ready: VecDeque<Bytes>,
    /// What comes before it, its head and small pieces of its body, from `at` on.
    front: Vec<u8>,
    at: usize,
    /// What is to follow; `None`: nothing.
    body: Option<ResponseBody>,
    framing: Framing,
    /// The connection closes after it.
    close: bool,
}

impl Writing {
    fn begin(response: Response<ResponseBody>, is_head: bool, close: bool, door: &Door) -> Writing {
        let (parts, body) = response.into_parts();
        let (mut front, mut close) = (Vec::with_capacity(COPIED), close);
        let framing = head(&parts, &body, is_head, &mut close, &mut door.scratch.borrow_mut().date, &mut front);
        let has_body = framing != Framing::None && !body.is_end_stream();
        let mut writing =
            Writing { ready: VecDeque::new(), front, at: 0, body: has_body.then_some(body), framing, close };
        if writing.body.is_none() && framing == Framing::Chunked {
            writing.push_end();
        }
        writing
    }

    /// Writes it to its last byte.
    fn poll(&mut self, gate: &mut Gate, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let is_pending = self.poll_body(cx)?.is_pending();
            while self.left() > 0 {
                ready!(self.poll_write(gate, cx))?;
            }
            if self.body.is_none() {
                return Pin::new(gate).poll_flush(cx);
            }
            if is_pending {
                // What was written may not be out yet.
                let _ = Pin::new(gate).poll_flush(cx)?;
                return Poll::Pending;
            }
        }
    }

    fn left(&self) -> usize {
        self.front.len() - self.at + self.ready.iter().map(Bytes::len).sum::<usize>()
    }

    /// Makes ready what of the body is here: ready when that is all, or enough.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Of a chunk there are three pieces.
        while self.left() < TOGETHER
            && self.ready.len() + 3 < PIECES
            && let Some(body) = &mut self.body
        {
            let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
            let is_last = frame.is_none() || body.is_end_stream();
            if let Some(data) =
                frame.transpose().map_err(broken)?.and_then(|frame: Frame<Bytes>| frame.into_data().ok())
            {
                self.push(data);
            }
            if is_last {
                self.body = None;
                self.end()?;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn push(&mut self, mut data: Bytes) {
        match &mut self.framing {
            Framing::None => {}
            _ if data.is_empty() => {}
            Framing::Length(left) => {
                data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= data.len() as u64;
                self.append(data);
            }
            Framing::Chunked => {
                self.append(Bytes::from(format!("{:x}\r\n", data.len())));
                self.append(data);
                self.append(Bytes::from_static(b"\r\n"));
            }
        }
    }

    fn append(&mut self, data: Bytes) {
        if self.ready.is_empty() && self.front.len() + data.len() <= COPIED {
            self.front.extend_from_slice(&data);
        } else {
            self.ready.push_back(data);
        }
    }

    /// The body is over.
    fn end(&mut self) -> io::Result<()> {
        match self.framing {
            Framing::Length(1..) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Framing::Chunked => self.push_end(),
            Framing::None | Framing::Length(0) => {}
        }
        Ok(())
    }

    fn push_end(&mut self) {
        self.append(Bytes::from_static(b"0\r\n\r\n"));
    }

    /// Writes some of what is ready.
    fn poll_write(&mut self, gate: &mut Gate, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let front = &self.front[self.at..];
        let mut written = if self.ready.is_empty() {
            ready!(Pin::new(gate).poll_write(cx, front))?
        } else {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let all = [front].into_iter().chain(self.ready.iter().map(|bytes| &bytes[..]));
            let all = all.filter(|piece| !piece.is_empty());
            let count = pieces.iter_mut().zip(all).map(|(slot, piece)| *slot = IoSlice::new(piece)).count();
            ready!(Pin::new(gate).poll_write_vectored(cx, &pieces[..count]))?
        };
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        let of_front = written.min(self.front.len() - self.at);
        self.at += of_front;
        written -= of_front;
        if self.at == self.front.len() {
            self.front.clear();
            self.at = 0;
        }
        while let Some(first) = self.ready.front_mut()
            && written > 0
        {
            let of_first = written.min(first.len());
            first.advance(of_first);
            written -= of_first;
            if first.is_empty() {
                self.ready.pop_front();
            }
        }
        Poll::Ready(Ok(()))
    }
}

fn broken(error: BodyError) -> io::Error {
    io::Error::other(error)
}
