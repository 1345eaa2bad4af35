//! Requests to etcd's servers over connections that are kept.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::{EtcdError, EtcdTls};

/// One try, at one server.
const TRY: Duration = Duration::from_secs(1);
/// The longest answer that is taken.
const MOST: usize = 64 << 20;
/// Connections that are kept, for each server.
const KEPT: usize = 4;

type Sender = SendRequest<Full<Bytes>>;

/// Etcd's servers, and the connections to them.
#[derive(Debug)]
pub(crate) struct Client {
    servers: Vec<Server>,
    /// The one that answered last.
    at: AtomicUsize,
}

#[derive(Debug)]
struct Server {
    address: String,
    tls: Option<EtcdTls>,
    idle: Mutex<Vec<Sender>>,
}

/// Why a server did not do it.
enum Failure {
    /// Another one may.
    Other(String),
    /// None will.
    All(String),
}

impl Client {
    pub(super) fn new(endpoints: &[String], tls: Option<EtcdTls>) -> Client {
        let server = |address: &String| Server { address: address.clone(), tls: tls.clone(), idle: Mutex::default() };
        Client { servers: endpoints.iter().map(server).collect(), at: AtomicUsize::new(0) }
    }

    /// Asks one server after the other until one answers, for at most so long.
    pub(crate) async fn call(&self, path: &str, body: &Value, patience: Duration) -> Result<Value, EtcdError> {
        let deadline = Instant::now() + patience;
        let body = Bytes::from(body.to_string());
        let first = self.at.load(Relaxed);
        let mut problems = Vec::new();
        for turn in 0..self.servers.len() {
            let at = (first + turn) % self.servers.len();
            let server = &self.servers[at];
            let until = deadline.min(Instant::now() + TRY);
            match timeout_at(until, server.call(path, body.clone())).await {
                Ok(Ok(answer)) => {
                    self.at.store(at, Relaxed);
                    return Ok(answer);
                }
                Ok(Err(Failure::All(why))) => return Err(EtcdError::Answer(why)),
                Ok(Err(Failure::Other(why))) => problems.push(format!("{}: {why}", server.address)),
                Err(_) => problems.push(format!("{}: no answer in time", server.address)),
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        Err(EtcdError::Away(problems.join("; ")))
    }
}

impl Server {
    async fn call(&self, path: &str, body: Bytes) -> Result<Value, Failure> {
        let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
        let mut kept = self.kept();
        if let Some(sender) = &mut kept
            && sender.ready().await.is_err()
        {
            kept = None;
        }
        let (mut sender, was_idle) = match kept {
            Some(sender) => (sender, true),
            None => (self.connect().await?, false),
        };
        let answer = match sender.send_request(self.request(path, body.clone())?).await {
            // It was closed meanwhile: every call can be repeated.
            Err(_) if was_idle => {
                sender = self.connect().await?;
                sender.send_request(self.request(path, body)?).await
            }
            answer => answer,
        };
        let value = read(answer.map_err(|error| other(&error))?).await?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.push(sender);
        }
        Ok(value)
    }

    fn kept(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|sender| !sender.is_closed());
        idle.pop()
    }

    async fn connect(&self) -> Result<Sender, Failure> {
        let failed = |error: std::io::Error| Failure::Other(error.to_string());
        let stream = timeout(TRY, TcpStream::connect(&self.address)).await;
        let stream = stream.map_err(|_| Failure::Other(String::from("no connection in time")))?.map_err(failed)?;
        // Refused only by a connection that is gone already.
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => begin(stream).await,
            #[cfg(feature = "etcd-tls")]
            Some(tls) => begin(tls.wrap(&self.address, stream).await.map_err(failed)?).await,
            #[cfg(not(feature = "etcd-tls"))]
            Some(_) => Err(Failure::All(String::from("TLS needs a tidegate built with the feature etcd-tls"))),
        }
    }

    fn request(&self, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, Failure> {
        let request = Request::post(path).header(header::HOST, &self.address);
        let request = request.header(header::CONTENT_TYPE, "application/json").body(Full::new(body));
        request.map_err(|error| Failure::All(error.to_string()))
    }
}

async fn begin(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Sender, Failure> {
    let begun = handshake(TokioIo::new(stream)).await;
    let (sender, connection) = begun.map_err(|error| Failure::Other(error.to_string()))?;
    // Its errors show as those of the requests.
    drop(tokio::spawn(connection));
    Ok(sender)
}

async fn read(answer: Response<Incoming>) -> Result<Value, Failure> {
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MOST).collect().await;
    let body = body.map_err(|error| Failure::Other(error.to_string()))?.to_bytes();
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    if status == StatusCode::OK && value.is_object() && value["error"].is_null() {
        return Ok(value);
    }
    let said = || value["message"].as_str().or(value["error"]["message"].as_str());
    let text = said().map_or_else(|| format!("status {status}"), str::to_owned);
    // It has no leader, starts, lost its own servers, has too much to do or no room left: another one, or later. The
    // rest would be the same anywhere.
    let is_passing = status.is_server_error() || matches!(status, StatusCode::OK | StatusCode::TOO_MANY_REQUESTS);
    match is_passing || text.contains("timed out") {
        true => Err(Failure::Other(text)),
        false => Err(Failure::All(text)),
    }
}
