//! A call of gRPC whose messages go both ways, over a stream of HTTP/2.

use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue};
use prost::Message;

use super::message::{ProcessingRequest, ProcessingResponse, Say, Told};
use crate::grpc::framed;
use crate::http2::stream::Piece;

/// A byte that says whether it is compressed, and four with its length.
const PREFIX: usize = 5;

// Statuses of gRPC.
pub(super) const INVALID_ARGUMENT: u8 = 3;
const RESOURCE_EXHAUSTED: u8 = 8;
pub(super) const FAILED_PRECONDITION: u8 = 9;
const UNIMPLEMENTED: u8 = 12;
const INTERNAL: u8 = 13;

/// How a call ends before everything is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The other side is gone, or its time was up.
    Gone,
    /// It says what cannot be understood: the status of gRPC, and why.
    Failed(u8, &'static str),
}

/// What Envoy tells of one request, and is told.
pub(super) struct Talk {
    heard: RecvStream,
    read: BytesMut,
    /// The largest message, bytes.
    most: usize,
    to: SendStream<Piece>,
}

impl Talk {
    pub(super) fn new(heard: RecvStream, to: SendStream<Piece>, most: usize) -> Self {
        Talk { heard, read: BytesMut::new(), most, to }
    }

    /// The next message; `None`: there is no more.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Told>, End>> {
        loop {
            match self.take() {
                Ok(Some(told)) => return Poll::Ready(Ok(Some(told))),
                Ok(None) => {}
                Err(end) => return Poll::Ready(Err(end)),
            }
            match self.heard.poll_data(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) if self.read.is_empty() => return Poll::Ready(Ok(None)),
                Poll::Ready(None) => return Poll::Ready(Err(End::Failed(INTERNAL, "a message breaks off"))),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(End::Gone)),
                Poll::Ready(Some(Ok(data))) => {
                    let _ = self.heard.flow_control().release_capacity(data.len());
                    self.read.extend_from_slice(&data);
                }
            }
        }
    }

    /// A message that is here, as far as it is one that means something.
    fn take(&mut self) -> Result<Option<Told>, End> {
        while let Some(mut prefix) = self.read.get(..PREFIX) {
            let (compressed, length) = (prefix.get_u8(), prefix.get_u32() as usize);
            if compressed != 0 {
                return Err(End::Failed(UNIMPLEMENTED, "messages are compressed"));
            }
            if length > self.most {
                return Err(End::Failed(RESOURCE_EXHAUSTED, "a message is larger than limits.header_bytes allows"));
            }
            if self.read.len() < PREFIX + length {
                break;
            }
            self.read.advance(PREFIX);
            let message = self.read.split_to(length).freeze();
            let message = ProcessingRequest::decode(message);
            let message = message.map_err(|_| End::Failed(INVALID_ARGUMENT, "this is no ProcessingRequest"))?;
            if message.told.is_some() {
                return Ok(message.told);
            }
        }
        Ok(None)
    }

    /// How many bytes of a message are here that is not whole.
    pub(super) fn unread(&self) -> usize {
        self.read.len()
    }

    pub(super) fn say(&mut self, say: Say) -> Result<(), End> {
        let message = ProcessingResponse { say: Some(say) };
        self.to.send_data(Piece::of(framed(&message)), false).map_err(|_| End::Gone)
    }

    /// Ends the call with what it came to.
    pub(super) fn end(mut self, status: u8, why: &'static str) {
        let mut trailers = HeaderMap::with_capacity(2);
        trailers.insert("grpc-status", HeaderValue::from(u16::from(status)));
        if !why.is_empty() {
            trailers.insert("grpc-message", HeaderValue::from_static(why));
        }
        // An error means that the other side is gone.
        let _ = self.to.send_trailers(trailers);
    }

    /// Ends it at once.
    pub(super) fn reset(mut self) {
        self.to.send_reset(h2::Reason::CANCEL);
    }
}
