//! The sentry's own health over gRPC, as load balancers and Kubernetes' probes ask for it: what `/readyz` says, of all
//! or of one application. `Watch` is not spoken: who asks for it is told so, and clients take that for health.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::Frame;

use super::Admin;
use super::pages::not_ready;
use crate::grpc::{self, PushBack};
use crate::health::grpc::{asked, says};
use crate::reject::is_grpc;

/// Bytes that a request may have: the name of an application, and what is around it.
pub(super) const LONGEST: usize = 4096;

/// How a call ends.
const OK: u8 = 0;
pub(super) const INVALID_ARGUMENT: u8 = 3;
pub(super) const NOT_FOUND: u8 = 5;

/// Whether the application that is named serves; without a name: whether the sentry does.
pub(super) async fn check(State(admin): State<Arc<Admin>>, headers: HeaderMap, body: Bytes) -> Response {
    if let Some(refused) = not_grpc(&headers) {
        return refused;
    }
    let board = &admin.board;
    match asked(&body).map(|service| (service, board.application(service))) {
        None => failed(INVALID_ARGUMENT, "this is no grpc.health.v1.HealthCheckRequest"),
        Some(("", _)) => serving(not_ready(board).is_none()),
        Some((_, Some(app))) => serving(!board.draining() && !app.draining()),
        Some((_, None)) => failed(NOT_FOUND, "no application has this name"),
    }
}

fn serving(serves: bool) -> Response {
    answered(says(serves))
}

/// What is said to who does not ask by gRPC.
pub(super) fn not_grpc(headers: &HeaderMap) -> Option<Response> {
    let why = "this is gRPC: /readyz and /api/state are for HTTP\n";
    (!is_grpc(headers)).then(|| (StatusCode::UNSUPPORTED_MEDIA_TYPE, why).into_response())
}

/// A call that went well: its message, behind its length.
pub(super) fn answered(message: Bytes) -> Response {
    let body = Body::new(Message { data: Some(message), is_over: false });
    ([(header::CONTENT_TYPE, "application/grpc")], body).into_response()
}

/// A call that did not.
pub(super) fn failed(status: u8, why: &str) -> Response {
    let mut response = Response::default();
    grpc::end(response.headers_mut(), status, why, PushBack::Unsaid);
    response
}

/// A message, and behind it that the call went well.
struct Message {
    data: Option<Bytes>,
    is_over: bool,
}

impl http_body::Body for Message {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(data) = self.data.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if std::mem::replace(&mut self.is_over, true) {
            return Poll::Ready(None);
        }
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert("grpc-status", HeaderValue::from(u16::from(OK)));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}
