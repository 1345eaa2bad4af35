//! Copies of requests for a shadow server: a new version is tried with real requests, and nobody waits for it.
//!
//! *Intuition.* A copy is sent and forgotten. *Awkward cases.* A shadow that is slow or down must cost the original
//! nothing: a copy that finds no place is not made, and goes out when the server has all of the request. So copies are
//! bounded in number, each in time and in bytes, and what a shadow answers is read and thrown away. A copy takes the
//! worker's processor time, as a request does.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri, Version, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::Instant;

use crate::app::App;
use crate::config::{Application, Mirror, Spoken};
use crate::tls::client::ToServer;
use crate::transport::Transport;
use crate::upload::RequestBody;
use crate::upstream::ServerIo;
use crate::upstream::multiplexed::Local;

/// Tells the shadow that it is one: nobody waits for its answer.
const MARK: HeaderName = HeaderName::from_static("tidegate-mirror");

/// Bytes of an answer that are read for the sake of its connection.
const LONGEST_ANSWER: usize = 1 << 20;

/// Connections that rest, and for how long.
const MOST_RESTING: usize = 16;
const LONGEST_REST: Duration = Duration::from_secs(10);

/// What became of requests that were to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The shadow answered with a status below 500.
    Answered,
    /// It answered with another one.
    Error,
    /// It could not be reached, or broke off.
    Failed,
    /// It took too long.
    Timeout,
    /// Not copied: too many were under way.
    Busy,
    /// Not copied: the body was too large.
    Body,
}

impl Fate {
    const NAMES: [&str; 6] = ["answered", "error", "failed", "timeout", "busy", "body"];
}

/// An application's copies.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    fates: [AtomicU64; Fate::NAMES.len()],
    /// From the copy to the end of the shadow's answer, of those that were answered.
    nanos: AtomicU64,
}

impl Counts {
    fn note(&self, fate: Fate) {
        self.fates[fate as usize].fetch_add(1, Relaxed);
    }

    /// How often each fate came, by its name.
    pub(crate) fn fates(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Fate::NAMES.into_iter().zip(&self.fates).map(|(name, count)| (name, count.load(Relaxed)))
    }

    /// How long the shadow took for all that it answered.
    pub(crate) fn answering(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Relaxed))
    }
}

/// A worker's way to an application's shadow server.
#[derive(Debug)]
pub(crate) struct Shadow {
    settings: Mirror,
    at: String,
    tls: Option<Result<ToServer, String>>,
    http2: bool,
    under_way: Cell<usize>,
    /// Connections of HTTP/1.1 that rest, and since when.
    resting: RefCell<Vec<(http1::SendRequest<Whole>, Instant)>>,
    /// The one of HTTP/2 that all copies share.
    shared: RefCell<Option<http2::SendRequest<Whole>>>,
}

impl Shadow {
    /// The shadow of an application, if it has one; `before` goes on if it is the same.
    pub(crate) fn of(config: &Application, before: Option<&Rc<Shadow>>) -> Option<Rc<Shadow>> {
        let settings = config.mirror.clone()?;
        let (Spoken { tls, http2 }, at) = Spoken::of(&settings.to);
        let tls = tls.then(|| ToServer::new(config.server_tls.as_ref(), at, http2));
        if let Some(before) = before.filter(|before| before.settings == settings && before.tls == tls) {
            return Some(before.clone());
        }
        let (at, resting, shared) = (at.to_owned(), RefCell::default(), RefCell::default());
        Some(Rc::new(Shadow { settings, at, tls, http2, under_way: Cell::new(0), resting, shared }))
    }

    /// Copies a request that is about to be sent, if it is its turn: `draw` is random, 0 to 1. A body that is not all
    /// here is copied as it goes to the server.
    pub(crate) fn copy(self: &Rc<Self>, app: &Arc<App>, parts: &Parts, body: &mut RequestBody, draw: f64) {
        if draw >= self.settings.share || parts.method == Method::CONNECT || wants_another_protocol(parts) {
            return;
        }
        if self.under_way.get() >= self.settings.in_flight {
            return app.mirror.note(Fate::Busy);
        }
        let tee = Tee { head: self.fit(parts, body), to: UnderWay::new(self), app: app.clone(), body: BytesMut::new() };
        body.tee(tee);
    }

    fn begin(to: UnderWay, app: Arc<App>, copy: Request<Whole>) {
        spawn_local(async move {
            let began = Instant::now();
            let answer = tokio::time::timeout(to.0.settings.timeout, to.0.send(copy)).await;
            let fate = match answer {
                Ok(Ok(status)) => {
                    let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    app.mirror.nanos.fetch_add(nanos, Relaxed);
                    if status < 500 { Fate::Answered } else { Fate::Error }
                }
                Ok(Err(_)) => Fate::Failed,
                Err(_) => Fate::Timeout,
            };
            app.mirror.note(fate);
        });
    }

    /// The same request with a mark, in the form of the protocol that the shadow speaks.
    fn fit(&self, parts: &Parts, body: &RequestBody) -> Request<()> {
        let mut copy = Request::from_parts(parts.clone(), ());
        copy.extensions_mut().clear();
        let headers = copy.headers_mut();
        if let Some(lines) = body.lines() {
            lines.add_to(headers);
        }
        headers.insert(MARK, HeaderValue::from_static("copy"));
        headers.remove(header::TRANSFER_ENCODING);
        if !self.http2 {
            return copy;
        }
        headers.remove(header::CONNECTION);
        let host = headers.remove(header::HOST);
        let authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
        let mut parts = std::mem::take(copy.uri_mut()).into_parts();
        parts.scheme = Some(if self.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = authority.or_else(|| self.at.parse().ok());
        parts.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
        *copy.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
        *copy.version_mut() = Version::HTTP_2;
        copy
    }

    /// Sends a copy and reads what comes: the status.
    async fn send(&self, copy: Request<Whole>) -> io::Result<u16> {
        if self.http2 {
            let mut sender = self.shared().await?;
            let answer = sender.send_request(copy).await.map_err(io::Error::other)?;
            return read(answer).await.map(|(status, _)| status);
        }
        let mut sender = match self.resting() {
            Some(sender) => sender,
            None => {
                let io = ServerIo::unwatched(self.open().await?);
                let (sender, connection) = http1::handshake(io).await.map_err(io::Error::other)?;
                spawn_local(async move { drop(connection.await) });
                sender
            }
        };
        let answer = sender.send_request(copy).await.map_err(io::Error::other)?;
        let (status, is_whole) = read(answer).await?;
        let mut resting = self.resting.borrow_mut();
        if is_whole && resting.len() < MOST_RESTING {
            resting.push((sender, Instant::now()));
        }
        Ok(status)
    }

    fn resting(&self) -> Option<http1::SendRequest<Whole>> {
        let mut resting = self.resting.borrow_mut();
        resting.retain(|(sender, since)| sender.is_ready() && since.elapsed() < LONGEST_REST);
        resting.pop().map(|(sender, _)| sender)
    }

    async fn shared(&self) -> io::Result<http2::SendRequest<Whole>> {
        if let Some(sender) = self.shared.borrow().as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let io = ServerIo::unwatched(self.open().await?);
        let (sender, connection) = http2::Builder::new(Local).handshake(io).await.map_err(io::Error::other)?;
        spawn_local(async move { drop(connection.await) });
        *self.shared.borrow_mut() = Some(sender.clone());
        Ok(sender)
    }

    async fn open(&self) -> io::Result<Transport> {
        let socket = TcpStream::connect(&*self.at).await?;
        socket.set_nodelay(true)?;
        match &self.tls {
            None => Ok(Transport::Plain(socket)),
            Some(Ok(tls)) => Ok(Transport::Tls(tls.shake(socket).await?)),
            Some(Err(problem)) => Err(io::Error::new(io::ErrorKind::InvalidData, problem.clone())),
        }
    }
}

/// A copy whose body is not complete yet: what the server gets of it is put here, too.
#[derive(Debug)]
pub(crate) struct Tee {
    head: Request<()>,
    to: UnderWay,
    app: Arc<App>,
    body: BytesMut,
}

impl Tee {
    /// More of the body; `None`: it is more than is copied.
    pub(crate) fn more(mut self, bytes: &[u8]) -> Option<Self> {
        if self.body.len() + bytes.len() > self.to.0.settings.body {
            self.app.mirror.note(Fate::Body);
            return None;
        }
        self.body.extend_from_slice(bytes);
        Some(self)
    }

    /// That was all of it: the copy is sent.
    pub(crate) fn end(self) {
        let Tee { head, to, app, body } = self;
        Shadow::begin(to, app, head.map(|()| Whole(body.freeze())));
    }
}

/// A body that is all here.
#[derive(Debug)]
pub(crate) struct Whole(Bytes);

/// A place among the copies that are under way.
#[derive(Debug)]
struct UnderWay(Rc<Shadow>);

impl UnderWay {
    fn new(shadow: &Rc<Shadow>) -> Self {
        shadow.under_way.update(|n| n + 1);
        UnderWay(shadow.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.update(|n| n - 1);
    }
}

/// Reads an answer to its end: its status, and whether all of it came within the bound.
async fn read(answer: Response<Incoming>) -> io::Result<(u16, bool)> {
    let status = answer.status().as_u16();
    let mut body = answer.into_body();
    let mut read = 0;
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        read += frame.map_err(io::Error::other)?.data_ref().map_or(0, Bytes::len);
        if read > LONGEST_ANSWER {
            return Ok((status, false));
        }
    }
    Ok((status, true))
}

fn wants_another_protocol(parts: &Parts) -> bool {
    parts.headers.contains_key(header::UPGRADE)
}

impl Body for Whole {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let bytes = std::mem::take(&mut self.0);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}
