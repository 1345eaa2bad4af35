//! A response body of a given size, made of nothing.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// `remaining` bytes of text, in pieces of at most 16 KiB that share one buffer.
#[derive(Debug)]
pub(crate) struct Filler {
    remaining: u64,
}

impl Filler {
    pub(crate) fn new(bytes: u64) -> Filler {
        Filler { remaining: bytes }
    }

    /// Bytes that are still to come.
    pub(crate) fn remaining(&self) -> u64 {
        self.remaining
    }
}

impl Body for Filler {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.remaining == 0 {
            return Poll::Ready(None);
        }
        let length = self.remaining.min(PATTERN.len() as u64);
        self.remaining -= length;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&PATTERN[..length as usize])))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}

static PATTERN: [u8; 16 * 1024] = pattern();

/// Lines of 64 bytes, so that the body can be looked at.
const fn pattern() -> [u8; 16 * 1024] {
    let mut bytes = [b'.'; 16 * 1024];
    let mut i = 63;
    while i < bytes.len() {
        bytes[i] = b'\n';
        i += 64;
    }
    bytes
}
