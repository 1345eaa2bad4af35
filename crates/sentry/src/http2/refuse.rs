//! Answers of HTTP/2 that no server gave.

use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Response, header};

use super::stream::Piece;
use crate::gate::head::Bad;
use crate::grpc::{self, PushBack};
use crate::reject;

/// Says why in the head alone. What the client still sends of a body is not wanted: `h2` says so when both ends of the
/// stream are dropped.
pub(super) fn refuse(mut answer: SendResponse<Piece>, head: Response<()>) {
    // An error means that the client is gone.
    let _ = answer.send_response(head, true);
}

/// There are too many streams. It is no decision of a policy, and nothing is learned of it.
pub(super) fn crowded(asked: &HeaderMap) -> Response<()> {
    let mut response = Response::new(());
    let headers = response.headers_mut();
    if reject::is_grpc(asked) {
        grpc::end(headers, grpc::UNAVAILABLE, "too many streams are open", PushBack::Milliseconds(1000));
        return response;
    }
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
    response
}

/// The same for what is no acceptable request.
pub(super) fn bad_head(bad: Bad, asked: &HeaderMap) -> Response<()> {
    let mut response = Response::new(());
    if reject::is_grpc(asked) {
        grpc::end(response.headers_mut(), bad.grpc_status(), bad.name(), PushBack::Unsaid);
        return response;
    }
    *response.status_mut() = http::StatusCode::from_u16(bad.status()).unwrap_or(http::StatusCode::BAD_REQUEST);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
