//! Answering one request that came whole ([`crate::gate::whole`]): the service is asked, and its answer written, with
//! no hyper between it and the gate.
//!
//! What hyper does for the others is done here, in the same order: while the answer is awaited the client may leave;
//! the body is let go of when its last byte is ready to be written, which is how its end becomes known; and the message
//! is over when all of it is flushed, which the gate hears as it does from hyper.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::{Body, Frame};
use hyper::rt::Write;

use super::head::head;
use super::{After, Over, poll_over};
use crate::body::{BodyError, ResponseBody};
use crate::client::Client;
use crate::door::Door;
use crate::gate::Gate;
use crate::gate::head::Framing;
use crate::gate::whole::Whole;
use crate::headers::spare;
use crate::out::Out;
use crate::proxy::handle;
use crate::upload::Source;

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
            let request = Request::from_parts(whole.parts, Source::Whole(whole.lines));
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
    out: Out,
    /// What is to follow; `None`: nothing.
    body: Option<ResponseBody>,
    framing: Framing,
    /// The connection closes after it.
    close: bool,
}

impl Writing {
    fn begin(response: Response<ResponseBody>, is_head: bool, close: bool, door: &Door) -> Writing {
        let (parts, mut body) = response.into_parts();
        let lines = body.take_lines();
        let (mut out, mut close) = (Out::default(), close);
        let framing =
            head(&parts, &lines, &body, is_head, &mut close, &mut door.scratch.borrow_mut().date, out.front());
        spare::give(parts.headers);
        let has_body = framing != Framing::None && !body.is_end_stream();
        if !has_body && framing == Framing::Chunked {
            // There is nothing that could be missing.
            let _ = out.end(framing, [].into_iter());
        }
        Writing { out, body: has_body.then_some(body), framing, close }
    }

    /// Writes it to its last byte.
    fn poll(&mut self, gate: &mut Gate, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let is_pending = self.poll_body(cx)?.is_pending();
            while !self.out.is_empty() {
                ready!(self.out.poll_write(cx, |cx, pieces| Pin::new(&mut *gate).poll_write_vectored(cx, pieces)))?;
            }
            if self.body.is_none() {
                return Pin::new(gate).poll_flush(cx);
            }
            if is_pending {
                // What was written may not be out yet.
                let _ = Pin::new(&mut *gate).poll_flush(cx)?;
                return Poll::Pending;
            }
        }
    }

    /// Makes ready what of the body is here: ready when that is all, or enough.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.out.has_room()
            && let Some(body) = &mut self.body
        {
            let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
            let is_last = frame.is_none() || body.is_end_stream();
            if let Some(data) =
                frame.transpose().map_err(broken)?.and_then(|frame: Frame<Bytes>| frame.into_data().ok())
            {
                self.out.push(data, &mut self.framing);
            }
            if is_last {
                self.body = None;
                self.out.end(self.framing, [].into_iter()).map_err(|_| io::ErrorKind::UnexpectedEof)?;
            }
        }
        Poll::Ready(Ok(()))
    }
}

fn broken(error: BodyError) -> io::Error {
    io::Error::other(error)
}
