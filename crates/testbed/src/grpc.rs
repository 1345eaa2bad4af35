//! Answers in gRPC: a message of as many bytes as the route gives, and how it went in the trailers; or that alone.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use http_body::{Body as HttpBody, Frame};
use http_body_util::Either;
use tidegate_loadgen::grpc::{STATUS, length, of_http, opening, prefix};

use crate::filler::Filler;
use crate::held::Held;
use crate::serve::Body;

/// Whether a request is a call.
pub(crate) fn is_call<B>(request: &Request<B>) -> bool {
    let says = |value: &HeaderValue| value.as_bytes().starts_with(b"application/grpc");
    request.version() == Version::HTTP_2 && request.headers().get(CONTENT_TYPE).is_some_and(says)
}

/// Says in gRPC what was to be said in HTTP.
pub(crate) fn say(mut response: Response<Body>) -> Response<Body> {
    let status = std::mem::replace(response.status_mut(), StatusCode::OK);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    if status != StatusCode::OK {
        response.headers_mut().insert(STATUS, HeaderValue::from(u16::from(of_http(status.as_u16()))));
        return response.map(|_| Body::Left(Filler::new(0)));
    }
    response.map(|body| match body {
        Either::Left(filler) => call(Call::message(filler.remaining())),
        Either::Right(Either::Right(Either::Left(held))) => call(Call::stream(held)),
        other => other,
    })
}

fn call(call: Call) -> Body {
    Either::Right(Either::Right(Either::Right(call)))
}

/// What a call that went well gives.
#[derive(Debug)]
pub(crate) struct Call {
    head: Option<Bytes>,
    rest: Either<Filler, Held>,
    trailers: Option<HeaderMap>,
}

impl Call {
    /// One message of so many bytes.
    fn message(bytes: u64) -> Call {
        let length = length(bytes);
        let opening = opening(length);
        let rest = Filler::new(length - opening.len() as u64);
        Call::new(Some([&prefix(length)[..], &opening].concat().into()), Either::Left(rest))
    }

    /// One message, and no other until it ends.
    fn stream(held: Held) -> Call {
        Call::new(None, Either::Right(held.saying(Bytes::copy_from_slice(&prefix(0)))))
    }

    fn new(head: Option<Bytes>, rest: Either<Filler, Held>) -> Call {
        let trailers = HeaderMap::from_iter([(STATUS, HeaderValue::from_static("0"))]);
        Call { head, rest, trailers: Some(trailers) }
    }
}

impl HttpBody for Call {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(head) = self.head.take() {
            return Poll::Ready(Some(Ok(Frame::data(head))));
        }
        let rest = match &mut self.rest {
            Either::Left(filler) => Pin::new(filler).poll_frame(cx),
            Either::Right(held) => Pin::new(held).poll_frame(cx),
        };
        if let Some(frame) = ready!(rest) {
            return Poll::Ready(Some(frame));
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }
}
