//! An answer that stays open: a first piece, and then nothing until it ends.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::Sleep;

/// One event, and then silence.
#[derive(Debug)]
pub(crate) struct Held {
    first: Option<Bytes>,
    rest: Pin<Box<Sleep>>,
}

impl Held {
    /// It ends after `time`, from now.
    pub(crate) fn new(time: Duration) -> Held {
        Held { first: Some(Bytes::from_static(b"data: open\n\n")), rest: Box::pin(tokio::time::sleep(time)) }
    }

    /// The same, with another first piece.
    pub(crate) fn saying(self, first: Bytes) -> Held {
        Held { first: Some(first), ..self }
    }
}

impl Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        ready!(self.rest.as_mut().poll(cx));
        Poll::Ready(None)
    }
}
