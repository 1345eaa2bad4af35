//! HTTP/2: one exchange as a stream of a shared connection; gRPC is the same, and reads its status from the trailers.
//!
//! On the `h2` crate itself: hyper's client would make a task of every request and a channel to each connection, which
//! a generator that is to be cheaper than what it measures does without.

mod connections;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{Request, Response, Uri, header};
use std::io;

use connections::Place;
pub(crate) use connections::{Bounds, Connections};

use crate::answer::Head;
use crate::exchange::{Page, Told, kind};
use crate::record::Outcome;
use crate::report::ErrorKind;

impl Connections {
    /// See [`Client::exchange`](crate::exchange::Client::exchange).
    pub(crate) async fn exchange(
        &self,
        make: impl Fn() -> Request<Bytes>,
        told: &Told<'_>,
        mut page: Option<&mut Page>,
    ) -> Result<Outcome, ErrorKind> {
        loop {
            let place = self.place(told).await?;
            told.sent();
            let response = match send(&place, make()) {
                Ok(response) => response.await,
                Err(error) => Err(error),
            };
            let outcome = match response {
                Ok(response) => read(response, self.is_grpc(), told, page.take()).await,
                Err(error) => Err(error),
            };
            match outcome {
                Ok(outcome) => return Ok(outcome),
                // The server goes away, and says that it has not seen this stream.
                Err(error) if is_unseen(&error) => place.leave(),
                Err(error) => return Err(place.why(classify(&error))),
            }
        }
    }
}

fn send(place: &Place, request: Request<Bytes>) -> Result<ResponseFuture, h2::Error> {
    let (parts, body) = request.into_parts();
    let mut sender = place.sender();
    let (response, mut stream) = sender.send_request(Request::from_parts(parts, ()), body.is_empty())?;
    if !body.is_empty() {
        stream.send_data(body, true)?;
    }
    Ok(response)
}

async fn read(
    response: Response<RecvStream>,
    is_grpc: bool,
    told: &Told<'_>,
    mut page: Option<&mut Page>,
) -> Result<Outcome, h2::Error> {
    let (parts, mut body) = response.into_parts();
    let read_head = if is_grpc { Head::grpc } else { Head::http };
    let mut head = read_head(parts.status, &parts.headers);
    if let Some(page) = &mut page {
        page.headers = parts.headers;
    }
    if body.is_end_stream() {
        return Ok(head.outcome(0));
    }
    if head.stays_open {
        (told.on_open)(head.outcome(0));
    }
    let mut bytes = 0;
    while let Some(data) = body.data().await {
        let data = data?;
        bytes += data.len() as u64;
        if let Some(page) = &mut page {
            page.add(&data);
        }
        // Fails only where the stream is over, which the next call tells.
        let _ = body.flow_control().release_capacity(data.len());
    }
    let trailers = body.trailers().await?;
    if is_grpc {
        head.end(trailers.as_ref());
    }
    Ok(head.outcome(bytes))
}

/// Brings a request into the form of HTTP/2: whom it asks is part of its target, and nothing is said of one hop.
pub(crate) fn fit<B>(request: &mut Request<B>, is_secure: bool) {
    let host = request.headers_mut().remove(header::HOST);
    request.headers_mut().remove(header::CONNECTION);
    let Some(authority) = host.and_then(|host| Authority::try_from(host.as_bytes()).ok()) else { return };
    let mut parts: Parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(if is_secure { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = Some(authority);
    parts.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from_parts(parts).expect("all three parts");
}

fn is_unseen(error: &h2::Error) -> bool {
    error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR)
}

/// What went wrong, and at which level.
fn classify(error: &h2::Error) -> ErrorKind {
    match (error.get_io(), error.reason()) {
        // So the library says that the connection ended.
        (Some(io), _) if io.kind() == io::ErrorKind::BrokenPipe => ErrorKind::Closed,
        (Some(io), _) => kind(io),
        _ if !error.is_remote() => ErrorKind::Protocol,
        _ if error.is_go_away() => ErrorKind::GoneAway,
        (None, Some(Reason::REFUSED_STREAM)) => ErrorKind::StreamRefused,
        _ => ErrorKind::StreamReset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_it_asks_is_part_of_the_target() {
        let mut request = Request::get("/a?b").header("host", "x:81").header("connection", "close").body(()).unwrap();
        fit(&mut request, true);
        assert_eq!((request.uri().to_string().as_str(), request.headers().len()), ("https://x:81/a?b", 0));
    }
}
