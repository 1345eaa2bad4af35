//! HTTP: connections accepted, requests routed, answers made. A connection that begins with the preface of HTTP/2 is
//! served so, and gRPC on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderName, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Either};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tidegate_workload::Abandoned;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::compute::compute;
use crate::filler::Filler;
use crate::grpc::{self, Call};
use crate::held::Held;
use crate::memcached::Memcached;
use crate::service::{Full, Service};
use crate::spec::{Lasts, LastsAs, Mode, Overflow, Route, ServerSpec};

/// What all connections of a server share.
pub(crate) struct Site {
    pub(crate) service: Arc<Service>,
    mode: watch::Receiver<Mode>,
    /// The longest prefix first, each with its number in the spec.
    routes: Vec<(usize, Route)>,
    name: HeaderValue,
    overflow: Overflow,
    abandoned: Abandoned,
    streams: u32,
    cost_header: bool,
    memcached: Option<Memcached>,
    computes: bool,
    status_path: Option<String>,
}

impl Site {
    pub(crate) fn new(spec: &ServerSpec, service: Arc<Service>, mode: watch::Receiver<Mode>) -> Site {
        let mut routes: Vec<(usize, Route)> = spec.routes.iter().cloned().enumerate().collect();
        routes.sort_by_key(|(_, route)| std::cmp::Reverse(route.prefix.len()));
        let name = HeaderValue::from_str(&spec.name).unwrap_or(HeaderValue::from_static("server"));
        Site {
            service,
            mode,
            routes,
            name,
            overflow: spec.overflow,
            abandoned: spec.abandoned,
            streams: spec.streams,
            cost_header: spec.cost_header,
            memcached: spec.look_ups.map(Memcached::new),
            computes: spec.computes,
            status_path: spec.status_path.clone(),
        }
    }
}

/// Accepts until `draining` turns true, then waits for the connections to end.
pub(crate) async fn accept(listener: TcpListener, site: Arc<Site>, draining: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    let mut stop = draining.clone();
    loop {
        tokio::select! {
            biased;
            () = turned_true(&mut stop) => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    count(&site.service.counters.connections);
                    connections.spawn(connection(stream, Arc::clone(&site), draining.clone()));
                }
                // Out of descriptors, most likely: let others end first.
                Err(_) => tokio::time::sleep(RETRY).await,
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn connection(stream: TcpStream, site: Arc<Site>, mut draining: watch::Receiver<bool>) {
    // Refused only by a connection that is gone already.
    let _ = stream.set_nodelay(true);
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // In HTTP/1.1 a closed half then goes unnoticed until the answer is written.
    builder.http1().header_read_timeout(None).half_close(site.abandoned == Abandoned::WorksOn);
    builder.http2().max_concurrent_streams(site.streams);
    let handler = service_fn(move |request| answer(Arc::clone(&site), request));
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), handler));
    tokio::select! {
        _ = connection.as_mut() => return,
        () = turned_true(&mut draining) => connection.as_mut().graceful_shutdown(),
    }
    // How a connection ends is its client's affair.
    let _ = connection.await;
}

/// Waits until the flag is true, or nobody can change it any more.
async fn turned_true(flag: &mut watch::Receiver<bool>) {
    let _ = flag.wait_for(|flag| *flag).await;
}

/// What a route gives, the status page, what stays open; or what is said of one of them in gRPC.
pub(crate) type Body = Either<Filler, Either<http_body_util::Full<Bytes>, Either<Held, Call>>>;

/// The connection is closed, or the stream reset, without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the accept queue is full")]
struct Closed;

async fn answer(site: Arc<Site>, request: Request<Incoming>) -> Result<Response<Body>, Closed> {
    let is_call = grpc::is_call(&request);
    let response = answer_in_http(&site, request).await?;
    Ok(if is_call { grpc::say(response) } else { response })
}

async fn answer_in_http(site: &Site, mut request: Request<Incoming>) -> Result<Response<Body>, Closed> {
    if site.status_path.as_deref() == Some(request.uri().path()) {
        return Ok(status(site));
    }
    count(&site.service.counters.requests);
    while let Some(Ok(_)) = request.body_mut().frame().await {}
    if let Some(status) = failing(site).await {
        count(&site.service.counters.failed);
        return Ok(respond(site, status, 0));
    }
    let path = request.uri().path();
    let Some((number, route)) = site.routes.iter().find(|(_, route)| path.starts_with(&route.prefix)) else {
        return Ok(respond(site, StatusCode::NOT_FOUND, 0));
    };
    let Some(cost) = cost(site, &request, route) else { return Ok(respond(site, StatusCode::BAD_REQUEST, 0)) };
    // What the sentry asks for, if this can be had cheaper at all.
    let quality = request.headers().get(QUALITY).and_then(read_quality).filter(|_| route.degrades_to < 1.0);
    let share = quality.map_or(1.0, |quality| route.degrades_to + (1.0 - route.degrades_to) * quality);
    if let Some(memcached) = &site.memcached
        && memcached.look_up().await.is_err()
    {
        count(&site.service.counters.failed);
        return Ok(respond(site, StatusCode::BAD_GATEWAY, 0));
    }
    if site.computes {
        compute(cost * share).await;
        return Ok(degraded(respond(site, StatusCode::OK, route.response_bytes), quality));
    }
    match work(site, *number, cost * share, request.version()).await {
        Ok(()) => {
            let response = degraded(respond(site, StatusCode::OK, route.response_bytes), quality);
            Ok(match &route.lasts {
                Some(lasts) => last(site, lasts, response).await,
                None => response,
            })
        }
        Err(Full) => {
            count(&site.service.counters.overflowed);
            match site.overflow {
                Overflow::Answer => Ok(respond(site, StatusCode::SERVICE_UNAVAILABLE, 0)),
                Overflow::Close => Err(Closed),
            }
        }
    }
}

/// The time on a core, and what follows at the machine.
async fn work(site: &Site, route: usize, cost: f64, version: Version) -> Result<(), Full> {
    let service = Arc::clone(&site.service);
    let goes_on = match site.abandoned {
        Abandoned::Stops => false,
        Abandoned::HangsUp => true,
        // In HTTP/1.1 such a server does not read what would tell it. A reset stream is gone all the same.
        Abandoned::WorksOn => version == Version::HTTP_2,
    };
    if !goes_on {
        return service.serve(route, cost).await;
    }
    // On its own: when the connection is closed or the stream reset, the work goes on.
    tokio::spawn(async move { service.serve(route, cost).await }).await.unwrap_or(Err(Full))
}

/// The rest of a request that is open without being work.
async fn last(site: &Site, lasts: &Lasts, mut response: Response<Body>) -> Response<Body> {
    let seconds = site.service.draw(&lasts.time);
    let time = Duration::from_secs_f64(seconds);
    let (name, value) = match lasts.kind {
        LastsAs::Poll => {
            tokio::time::sleep(time).await;
            (WAITED, HeaderValue::from_str(&format!("{seconds:.6}")).ok())
        }
        LastsAs::Stream => {
            *response.body_mut() = Body::Right(Either::Right(Either::Left(Held::new(time))));
            if lasts.told {
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            }
            (LASTS, Some(HeaderValue::from_static("stream")))
        }
    };
    response.headers_mut().extend(value.map(|value| (name, value)));
    response
}

/// What a request costs, seconds of a core: what it states, where it may, or what its route says. `None` when what it
/// states makes no sense.
fn cost(site: &Site, request: &Request<Incoming>, route: &Route) -> Option<f64> {
    let stated = |name| request.headers().get(name).filter(|_| site.cost_header).map(read_cost);
    let cost = stated(COST).unwrap_or_else(|| Some(site.service.draw(&route.service)))?;
    Some(cost + stated(MORE_COST).unwrap_or(Some(0.0))?)
}

/// The status page.
fn status(site: &Site) -> Response<Body> {
    let mut response = Response::new(Body::Right(Either::Left(site.service.status().to_string().into())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The status to fail with, if the mode says so; waits while it says to hang.
async fn failing(site: &Site) -> Option<StatusCode> {
    let mut mode = site.mode.clone();
    // Without a handle nobody can end the hanging: serve.
    let settled = mode.wait_for(|mode| *mode != Mode::Hang).await.map_or(Mode::Serve, |mode| *mode);
    match settled {
        Mode::Fail(status) => {
            let status = StatusCode::from_u16(status).ok().filter(|s| s.is_client_error() || s.is_server_error());
            Some(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
        }
        _ => None,
    }
}

fn respond(site: &Site, status: StatusCode, bytes: u64) -> Response<Body> {
    let mut response = Response::new(Body::Left(Filler::new(bytes)));
    *response.status_mut() = status;
    response.headers_mut().insert(SERVER_NAME, site.name.clone());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// Says at which quality it was answered, where that was asked for.
fn degraded(mut response: Response<Body>, quality: Option<f64>) -> Response<Body> {
    if let Some(value) = quality.and_then(|quality| HeaderValue::from_str(&format!("{quality:.2}")).ok()) {
        response.headers_mut().insert(QUALITY, value);
    }
    response
}

/// The quality the sentry asks for, when it is a number from 0 to 1.
fn read_quality(value: &HeaderValue) -> Option<f64> {
    let quality: f64 = value.to_str().ok()?.trim().parse().ok()?;
    (0.0..=1.0).contains(&quality).then_some(quality)
}

/// The cost a request states, when it is a number of seconds up to an hour.
fn read_cost(value: &HeaderValue) -> Option<f64> {
    let cost: f64 = value.to_str().ok()?.trim().parse().ok()?;
    (0.0..=3600.0).contains(&cost).then_some(cost)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

const QUALITY: HeaderName = HeaderName::from_static("tidegate-quality");
const MORE_COST: HeaderName = HeaderName::from_static("x-more-cost");
const COST: HeaderName = HeaderName::from_static("x-cost");
const SERVER_NAME: HeaderName = HeaderName::from_static("x-server");
const WAITED: HeaderName = HeaderName::from_static("x-waited");
const LASTS: HeaderName = HeaderName::from_static("x-lasts");
const RETRY: Duration = Duration::from_millis(10);
