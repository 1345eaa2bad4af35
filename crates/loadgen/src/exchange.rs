//! Exchange of one request and its answer, over a kept connection or a new one.

use std::error::Error;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use rustix::io::Errno;

use crate::pool::Pool;
use crate::record::Outcome;
use crate::report::ErrorKind;

/// So much of a page is searched for what later requests need, bytes.
const MOST_KEPT: usize = 1 << 20;

/// What a user reads of an answer.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Its header fields.
    pub(crate) headers: HeaderMap,
    /// Its body, or the beginning of it, if it is wanted.
    pub(crate) body: Vec<u8>,
    /// Whether it is.
    pub(crate) keeps_body: bool,
}

/// Sends `request` and reads the whole answer; the caller holds a permit of the pool. `on_send` is told, once, when the
/// head is given to a connection, and `on_open`, at most once, what it is when an answer begins that stays open. The
/// answer is read into `page` where there is one.
pub(crate) async fn exchange(
    pool: &Pool,
    mut request: Request<Full<Bytes>>,
    keep_alive: bool,
    on_send: impl FnOnce(),
    on_open: impl Fn(Outcome),
    mut page: Option<&mut Page>,
) -> Result<Outcome, ErrorKind> {
    let mut on_send = Some(on_send);
    let member = pool.member();
    loop {
        let idle = if keep_alive { pool.take_idle(member).await } else { None };
        let reused = idle.is_some();
        let mut sender = match idle {
            Some(sender) => sender,
            None => pool.connect(member).await.map_err(|error| not_connected(&error))?,
        };
        if let Some(on_send) = on_send.take() {
            on_send();
        }
        match sender.try_send_request(request).await {
            Ok(response) => {
                let outcome = read(response, on_open, page.take()).await?;
                if keep_alive {
                    pool.keep(member, sender);
                }
                return Ok(outcome);
            }
            // A kept connection may be closed by the server at any moment: nothing was sent, so another one will do.
            Err(mut error) => match error.take_message() {
                Some(unsent) if reused => request = unsent,
                _ => return Err(classify(error.error())),
            },
        }
    }
}

async fn read(
    response: Response<Incoming>,
    on_open: impl Fn(Outcome),
    mut page: Option<&mut Page>,
) -> Result<Outcome, ErrorKind> {
    let status = response.status().as_u16();
    if let Some(page) = &mut page {
        page.headers.clone_from(response.headers());
    }
    let decision = response.headers().get("tidegate-decision");
    let by_sentry = decision.is_some_and(|value| value.as_bytes().starts_with(b"rejected"));
    let seconds = |name: &str| {
        let value = response.headers().get(name).and_then(|value| value.to_str().ok()?.trim().parse::<f64>().ok());
        value.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default()
    };
    let (waited, retry_after) = (seconds("x-waited"), seconds("retry-after"));
    if response.status().is_success() && stays_open(response.headers()) {
        on_open(Outcome::Answered { status, by_sentry, bytes: 0, waited, retry_after });
    }
    let mut body = response.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| classify(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        bytes += data.len() as u64;
        if let Some(page) = page.as_mut().filter(|page| page.keeps_body) {
            let room = MOST_KEPT.saturating_sub(page.body.len());
            page.body.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    Ok(Outcome::Answered { status, by_sentry, bytes, waited, retry_after })
}

/// Whether an answer goes on as things happen: by its content type, or because an emulated server says so.
fn stays_open(headers: &HeaderMap) -> bool {
    let is_events = |value: &http::HeaderValue| value.as_bytes().starts_with(b"text/event-stream");
    headers.contains_key("x-lasts") || headers.get(http::header::CONTENT_TYPE).is_some_and(is_events)
}

/// Whose fault it is that there is no connection.
fn not_connected(error: &io::Error) -> ErrorKind {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ADDRNOTAVAIL | Errno::MFILE | Errno::NFILE) => ErrorKind::LocalLimit,
        _ => ErrorKind::Connect,
    }
}

/// What went wrong, from the innermost cause that says it.
fn classify(error: &hyper::Error) -> ErrorKind {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            return match io.kind() {
                io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => {
                    ErrorKind::Reset
                }
                io::ErrorKind::UnexpectedEof | io::ErrorKind::NotConnected => ErrorKind::Closed,
                _ => ErrorKind::Protocol,
            };
        }
        cause = inner.source();
    }
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return ErrorKind::Closed;
    }
    ErrorKind::Protocol
}
