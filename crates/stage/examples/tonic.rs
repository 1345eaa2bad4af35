//! A gRPC service whose controller answers `UNAVAILABLE` with `grpc-retry-pushback-ms`.
//!
//! Services usually come from `tonic-build`; this one is written by hand, so that the example needs no `protoc`. To the
//! layer it makes no difference: it goes around the whole server.
//!
//! `cargo run -p tidegate-stage --example tonic`.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut};
use tidegate_stage::{Admission, AdmissionLayer, Overloaded, Settings};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http;
use tonic::codegen::tokio_stream::wrappers::TcpListenerStream;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tower_service::Service;

/// Serves until the listener fails.
///
/// # Errors
/// When the server fails.
pub async fn serve(listener: TcpListener, admission: Admission) -> Result<(), tonic::transport::Error> {
    let guarded = AdmissionLayer::new(admission).answering(unavailable).until_body_end();
    Server::builder().layer(guarded).add_service(Echo).serve_with_incoming(TcpListenerStream::new(listener)).await
}

/// Clients that retry wait for so long (gRPC A6, server pushback).
fn unavailable<B: Default>(overloaded: Overloaded) -> http::Response<B> {
    let pushback = overloaded.retry_after.as_millis().clamp(1, u128::from(u32::MAX)) as u64;
    let mut response = Status::unavailable(overloaded.to_string()).into_http();
    response.headers_mut().insert("grpc-retry-pushback-ms", pushback.into());
    response
}

/// `/example.Echo/Say` answers what it was told.
#[derive(Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "example.Echo";
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        match request.uri().path() {
            "/example.Echo/Say" => Box::pin(async move { Ok(Grpc::new(Text).unary(Say, request).await) }),
            _ => Box::pin(ready(Ok(Status::unimplemented("there is only Say").into_http()))),
        }
    }
}

struct Say;

impl UnaryService<String> for Say {
    type Response = String;
    type Future = std::future::Ready<Result<Response<String>, Status>>;

    fn call(&mut self, request: Request<String>) -> Self::Future {
        ready(Ok(Response::new(request.into_inner())))
    }
}

/// Messages that are plain text.
#[derive(Clone, Copy, Default)]
pub struct Text;

impl Codec for Text {
    type Encode = String;
    type Decode = String;
    type Encoder = Text;
    type Decoder = Text;

    fn encoder(&mut self) -> Text {
        Text
    }

    fn decoder(&mut self) -> Text {
        Text
    }
}

impl Encoder for Text {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, text: String, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(text.as_bytes());
        Ok(())
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        let text = String::from_utf8(bytes.to_vec()).map_err(|_| Status::invalid_argument("the text is not UTF-8"))?;
        Ok(Some(text))
    }
}

#[tokio::main]
#[allow(dead_code, reason = "tests use the rest of this file as a module")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:50051").await?;
    println!("listening on http://{}", listener.local_addr()?);
    serve(listener, Admission::new("tonic", &Settings::target(Duration::from_millis(200)))?).await?;
    Ok(())
}
