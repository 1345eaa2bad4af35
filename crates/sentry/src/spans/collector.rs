//! How spans get to the collector: HTTP/1.1 in clear text, on the exporter's own thread.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};

/// A collector that takes longer than this gets nothing.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of its answer that are read.
const ANSWER: usize = 64 * 1024;

/// Sends each batch over a connection of its own: there is one every few seconds.
#[derive(Debug)]
pub(super) struct Collector;

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // Called on the exporter's thread, which has no runtime and nothing else to do.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { tokio::time::timeout(PATIENCE, send(request)).await? })
    }
}

async fn send(request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let host = request.uri().authority().ok_or("the collector's address has no host")?.clone();
    let stream = tokio::net::TcpStream::connect((host.host(), host.port_u16().unwrap_or(80))).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let (mut parts, body) = request.into_parts();
    parts.headers.insert(header::HOST, host.as_str().parse()?);
    parts.uri = parts.uri.path().parse()?;
    let exchange = async {
        let answer = sender.send_request(Request::from_parts(parts, Full::new(body))).await?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER).collect().await?;
        Ok::<_, HttpError>(Response::from_parts(parts, body.to_bytes()))
    };
    tokio::select! {
        biased;
        answer = exchange => answer,
        ended = connection => Err(ended.err().map_or_else(|| "the collector hung up".into(), HttpError::from)),
    }
}
