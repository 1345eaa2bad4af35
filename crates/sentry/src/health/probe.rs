//! One check of one server: how it is asked, and what its answer means.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, Version, header};
use tokio::net::{TcpStream, lookup_host};

use super::grpc::{self, Serving};
use super::record::Verdict;
use crate::answered::{Answered, Refusal};
use crate::config::{Asks, CheckWith, Health, ServerTls, Spoken};
use crate::in_force::Server;
use crate::proxy_protocol::out;
use crate::tls::client::ToServer;
use crate::transport::Transport;
use crate::upstream::ServerIo;
use crate::upstream::connect::{dial, is_local, open};

const AGENT: &str = "tidegate-health";

/// How a server is checked.
#[derive(Debug)]
pub(super) struct Probe {
    with: CheckWith,
    /// `host:port` that is asked.
    at: String,
    /// The same where it is not that of the server, or spoken to otherwise; with how to speak TLS.
    elsewhere: Option<Option<Result<ToServer, String>>>,
    /// The request without its body; `None`: a connection is enough.
    request: Option<Asked>,
    health: Health,
}

/// A request as it is sent: its target is a path for HTTP/1, else a whole address.
#[derive(Clone, Debug)]
struct Asked {
    method: http::Method,
    target: Uri,
    headers: HeaderMap,
}

impl Probe {
    pub(super) fn new(health: &Health, server: &Server, settings: Option<&ServerTls>) -> Self {
        let spoken = Spoken { tls: server.tls.is_some(), http2: server.http2 };
        let with = health.with(spoken);
        let at = match health.port {
            Some(port) => format!("{}:{port}", server.at.rsplit_once(':').map_or(&*server.at, |(host, _)| host)),
            None => server.at.clone(),
        };
        let http2 = matches!(with.asks, Asks::Http2 | Asks::Grpc);
        // A connection as requests have it, unless something is said that makes it another one.
        let as_requests =
            with.tls == spoken.tls && (!with.tls || http2 == spoken.http2 || with.asks == Asks::Connection);
        let elsewhere =
            (health.port.is_some() || !as_requests).then(|| with.tls.then(|| ToServer::new(settings, &at, http2)));
        let request = asked(health, with, &at);
        Probe { with, at, elsewhere, request, health: health.clone() }
    }

    /// Asks.
    pub(super) async fn check(&self, server: &Server) -> Verdict {
        let io = match self.open(server).await {
            Ok(io) => io,
            Err(error) if is_local(&error) => return Verdict::Local(error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Verdict::Tls(error.to_string()),
            Err(error) => return Verdict::Unreachable(error.to_string()),
        };
        let Some(asked) = &self.request else { return Verdict::Good };
        let verdict = match self.with.asks {
            Asks::Connection => Ok(Verdict::Good),
            Asks::Http1 => self.ask_http1(io, asked).await,
            Asks::Http2 => self.ask_http2(io, asked).await,
            Asks::Grpc => self.ask_grpc(io, asked).await,
        };
        verdict.unwrap_or_else(|verdict| verdict)
    }

    async fn open(&self, server: &Server) -> io::Result<Transport> {
        // A check speaks for nobody.
        let head = out::header(server.proxy, None, None);
        let dial = async || match self.health.port {
            Some(_) => dial_at(&self.at).await,
            None => dial(server, &head).await,
        };
        match &self.elsewhere {
            None => open(server, &head).await.map(|(io, _)| io),
            Some(None) => dial().await.map(Transport::Plain),
            Some(Some(Ok(tls))) => Ok(Transport::Tls(tls.shake(dial().await?).await?)),
            Some(Some(Err(problem))) => Err(io::Error::new(io::ErrorKind::InvalidData, problem.clone())),
        }
    }

    async fn ask_http1(&self, io: Transport, asked: &Asked) -> Result<Verdict, Verdict> {
        let broken = |error: hyper::Error| {
            if error.is_parse() { Verdict::Garbage(error.to_string()) } else { Verdict::Unreachable(error.to_string()) }
        };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(ServerIo::unwatched(io)).await.map_err(broken)?;
        let answer = async { sender.send_request(asked.to_send(String::new())).await };
        let answer = beside(answer, connection).await.map_err(broken)?;
        Ok(self.judge(answer.status().as_u16(), answer.headers()))
    }

    async fn ask_http2(&self, io: Transport, asked: &Asked) -> Result<Verdict, Verdict> {
        let (sender, connection) = h2::client::handshake(io).await.map_err(http2_broken)?;
        let answer = async {
            let mut sender = sender.ready().await?;
            sender.send_request(asked.to_send(()), true)?.0.await
        };
        let answer = beside(answer, connection).await.map_err(http2_broken)?;
        Ok(self.judge(answer.status().as_u16(), answer.headers()))
    }

    async fn ask_grpc(&self, io: Transport, asked: &Asked) -> Result<Verdict, Verdict> {
        let message = grpc::request(self.health.service.as_deref().unwrap_or_default());
        let (sender, connection) = h2::client::handshake(io).await.map_err(http2_broken)?;
        let answer = async {
            let mut sender = sender.ready().await?;
            let (answer, mut stream) = sender.send_request(asked.to_send(()), false)?;
            stream.send_data(message, true)?;
            let (head, mut body) = answer.await?.into_parts();
            let mut message = Vec::new();
            while let Some(data) = body.data().await {
                let data: Bytes = data?;
                body.flow_control().release_capacity(data.len())?;
                message.extend_from_slice(&data);
                if message.len() > grpc::LONGEST {
                    return Ok((head, message, None));
                }
            }
            Ok((head, message, body.trailers().await?))
        };
        let (head, message, trailers) = beside(answer, connection).await.map_err(http2_broken)?;
        if head.status.as_u16() != 200 {
            return Err(Verdict::Status(head.status.as_u16()));
        }
        let said = trailers.as_ref().and_then(grpc_status).or_else(|| grpc_status(&head.headers));
        if said.is_some_and(|status| status != 0) && Refusal::among(&head.headers).is_some() {
            return Ok(Verdict::Good);
        }
        match (said, grpc::answer(&message)) {
            (Some(0) | None, Some(Serving::Yes)) => Ok(Verdict::Good),
            (Some(0) | None, Some(Serving::No(word))) => Err(Verdict::NotServing(word)),
            (Some(0) | None, None) => Err(Verdict::Garbage("what it says is no answer of grpc.health.v1".to_owned())),
            (Some(5), _) => Err(Verdict::NotServing("NOT_FOUND: it knows no such service")),
            (Some(12), _) => Err(Verdict::NotServing("UNIMPLEMENTED: it has no grpc.health.v1")),
            (Some(14), _) => Err(Verdict::NotServing("UNAVAILABLE")),
            (Some(_), _) => Err(Verdict::NotServing("an error of gRPC")),
        }
    }

    /// Who has a sentry refuse a check is there, and does what it can.
    fn judge(&self, status: u16, headers: &HeaderMap) -> Verdict {
        let is_refusal = || Answered::of(status, Refusal::among(headers), &[]).refusal().is_some();
        if self.health.is_good(status) || is_refusal() { Verdict::Good } else { Verdict::Status(status) }
    }
}

impl fmt::Display for Probe {
    /// As people would say it: `GET http://10.0.0.1:9000/healthz`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (with, at) = (self.with, &self.at);
        match (&self.request, &self.health.service) {
            (Some(_), Some(service)) if with.asks == Asks::Grpc && !service.is_empty() => {
                write!(f, "{with}://{at} {service}")
            }
            (Some(asked), _) if with.asks != Asks::Grpc => {
                let path = self.health.path.as_deref().unwrap_or("/");
                write!(f, "{} {with}://{at}{path}", asked.method)
            }
            _ => write!(f, "{with}://{at}"),
        }
    }
}

impl Asked {
    fn to_send<B>(&self, body: B) -> Request<B> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.target.clone();
        *request.headers_mut() = self.headers.clone();
        *request.version_mut() = if self.target.scheme().is_some() { Version::HTTP_2 } else { Version::HTTP_11 };
        request
    }
}

/// What is asked; `None`: a connection is enough, or what was configured makes no address, which was checked before.
fn asked(health: &Health, with: CheckWith, at: &str) -> Option<Asked> {
    let host = health.host.as_deref().unwrap_or(at);
    let scheme = if with.tls { "https" } else { "http" };
    let path = health.path.as_deref().unwrap_or("/");
    let mut headers: HeaderMap = health.headers.iter().cloned().collect();
    let mut add = |name: HeaderName, value: &str| {
        if let (false, Ok(value)) = (headers.contains_key(&name), HeaderValue::from_str(value)) {
            headers.insert(name, value);
        }
    };
    add(header::USER_AGENT, AGENT);
    let (method, target) = match with.asks {
        Asks::Connection => return None,
        Asks::Http1 => {
            add(header::HOST, host);
            add(header::CONNECTION, "close");
            (health.method.clone(), path.parse().ok()?)
        }
        Asks::Http2 => (health.method.clone(), format!("{scheme}://{host}{path}").parse().ok()?),
        Asks::Grpc => {
            add(header::CONTENT_TYPE, "application/grpc");
            add(header::TE, "trailers");
            add(HeaderName::from_static("grpc-timeout"), &format!("{}m", health.timeout.as_millis().min(99_999_999)));
            (http::Method::POST, format!("{scheme}://{host}{}", grpc::PATH).parse().ok()?)
        }
    };
    Some(Asked { method, target, headers })
}

/// Lets a connection get on until what is awaited of it is here.
async fn beside<T>(answer: impl Future<Output = T>, connection: impl Future) -> T {
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => return answer,
        _ = connection => {}
    }
    // What came before the connection's end is still there to be taken, and so is why nothing did.
    answer.await
}

fn http2_broken(error: h2::Error) -> Verdict {
    if error.is_io() { Verdict::Unreachable(error.to_string()) } else { Verdict::Garbage(error.to_string()) }
}

fn grpc_status(headers: &HeaderMap) -> Option<u32> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// Opens a connection to a port that is for checks alone.
async fn dial_at(at: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the server's name has no address");
    let addresses: Vec<SocketAddr> = match at.parse() {
        Ok(address) => vec![address],
        Err(_) => lookup_host(at).await?.collect(),
    };
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
