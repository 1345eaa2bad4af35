//! Where a request's body comes from: hyper reads it from HTTP/1, `h2` from a stream of HTTP/2.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::headers::lines::Lines;

/// A request's body as it comes from its client.
#[derive(Debug)]
pub(crate) enum Source {
    /// There is none here.
    None,
    /// There is none: the request came whole, with fields that stay lines, and its client takes an answer's so.
    Whole(Lines),
    Http1(Incoming),
    /// `left`: bytes still to come, where the client said how many.
    Http2 {
        stream: RecvStream,
        left: Option<u64>,
    },
}

/// It is not well formed, or broke off.
#[derive(Debug)]
pub(crate) struct Broken;

impl From<Incoming> for Source {
    fn from(incoming: Incoming) -> Self {
        Source::Http1(incoming)
    }
}

impl Body for Source {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let (stream, left) = match &mut *self {
            Source::None | Source::Whole(_) => return Poll::Ready(None),
            Source::Http1(incoming) => {
                return Pin::new(incoming).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(|_| Broken)));
            }
            Source::Http2 { stream, left } => (stream, left),
        };
        Poll::Ready(match ready!(stream.poll_data(cx)) {
            Some(Ok(data)) => {
                if let Some(left) = left {
                    *left = left.saturating_sub(data.len() as u64);
                }
                // Whoever polls has room for it: the client may send as much again.
                Some(stream.flow_control().release_capacity(data.len()).map(|()| Frame::data(data)).map_err(|_| Broken))
            }
            Some(Err(_)) => Some(Err(Broken)),
            None => match ready!(stream.poll_trailers(cx)) {
                Ok(trailers) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
                Err(_) => Some(Err(Broken)),
            },
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Source::None | Source::Whole(_) => true,
            Source::Http1(incoming) => incoming.is_end_stream(),
            Source::Http2 { stream, .. } => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Source::None | Source::Whole(_) => SizeHint::with_exact(0),
            Source::Http1(incoming) => incoming.size_hint(),
            Source::Http2 { left: Some(left), .. } => SizeHint::with_exact(*left),
            Source::Http2 { .. } => SizeHint::default(),
        }
    }
}
