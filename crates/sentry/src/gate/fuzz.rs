//! The gate's reading of a connection's bytes as a pure function, to be compared with hyper's.
//!
//! Two readers on one connection are a smuggling risk unless they agree. `fuzz/` and a property test call
//! [`disagreement`], which feeds the same bytes to [`read_all`] and to hyper: wherever the gate would answer, or says
//! where a request ends, hyper must have read the same method, target, fields and body length.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::ReadBufCursor;
use hyper::server::conn::http1;
use hyper::service::service_fn;

use super::chunked::Follower;
use super::head::{Examined, Framing, HeadLimits, examine, header_table, leading_lines};

/// A request as the gate reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The method.
    pub method: String,
    /// The target as sent.
    pub target: String,
    /// Names in lower case, and values, in their order.
    pub fields: Vec<(String, Vec<u8>)>,
    /// Where its body ends.
    pub framing: Framing,
    /// Where its first byte is.
    pub start: usize,
    /// Where the next request begins; `None` when the body is not all here.
    pub end: Option<usize>,
    /// The gate may answer it without hyper.
    pub plain: bool,
    /// The client wants the connection closed after it.
    pub close: bool,
}

/// Why the gate stops reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The bytes are used up, or the rest is not a whole request.
    More,
    /// The rest is refused with this status.
    Bad(u16),
    /// A body's framing was lost; hyper alone reads on.
    Lost,
}

/// Reads all requests in `bytes`, as if each were answered at once and the connection stayed open.
pub fn read_all(bytes: &[u8], limits: &HeadLimits) -> (Vec<Read>, Stop) {
    let mut requests = Vec::new();
    let mut at = 0;
    loop {
        at += leading_lines(&bytes[at..]);
        let mut table = header_table();
        let head = match examine(&bytes[at..], &mut table, limits) {
            Examined::Partial => return (requests, Stop::More),
            Examined::Bad(bad) => return (requests, Stop::Bad(bad.status())),
            Examined::Whole(head) => head,
        };
        let body = &bytes[at + head.len..];
        let length = match head.framing {
            Framing::None => Some(0),
            Framing::Length(length) => usize::try_from(length).ok().filter(|&length| length <= body.len()),
            Framing::Chunked => {
                let mut follower = Follower::default();
                let length = follower.follow(body);
                if follower.lost() {
                    return (requests, Stop::Lost);
                }
                follower.done().then_some(length)
            }
        };
        let end = length.map(|length| at + head.len + length);
        let field = |header: &httparse::Header<'_>| (header.name.to_ascii_lowercase(), header.value.to_vec());
        requests.push(Read {
            method: String::from(head.method),
            target: String::from(head.target),
            fields: head.headers.iter().map(field).collect(),
            framing: head.framing,
            start: at,
            end,
            plain: head.plain,
            close: head.close,
        });
        match end {
            Some(end) => at = end,
            None => return (requests, Stop::More),
        }
    }
}

/// A request as hyper reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HyperRead {
    /// The method.
    pub method: String,
    /// The target, as hyper writes it.
    pub target: String,
    /// Names in lower case, and values.
    pub fields: Vec<(String, Vec<u8>)>,
    /// Bytes of body, chunks decoded; `None` when it broke off.
    pub body: Option<u64>,
}

/// Where the gate and hyper read the same bytes differently, in words; `None` when they agree.
pub fn disagreement(bytes: &[u8], limits: &HeadLimits) -> Option<String> {
    let (gate, _) = read_all(bytes, limits);
    let hyper = hyper_reads(bytes, limits);
    for (i, ours) in gate.iter().enumerate() {
        let end = ours.end?;
        let Some(theirs) = hyper.get(i) else {
            // What is not plain hyper may still refuse: then nobody answers it but hyper.
            return ours.plain.then(|| format!("hyper does not read {ours:?}"));
        };
        if let Some(difference) = compare(ours, theirs, &bytes[ours.start..end]) {
            return Some(difference);
        }
        // hyper closes after a body that it refuses, so nobody reads on.
        if ours.close || theirs.body.is_none() {
            return None;
        }
    }
    None
}

fn compare(ours: &Read, theirs: &HyperRead, bytes: &[u8]) -> Option<String> {
    let differ = |what: &str| Some(format!("{what}: the gate {ours:?}, hyper {theirs:?}"));
    if ours.method != theirs.method {
        return differ("method");
    }
    if ours.plain && ours.target != theirs.target {
        return differ("target");
    }
    let (mut a, mut b) = (ours.fields.clone(), theirs.fields.clone());
    a.sort();
    b.sort();
    if a != b {
        return differ("fields");
    }
    let length = match ours.framing {
        Framing::None => Some(0),
        Framing::Length(length) => Some(length),
        // The gate counts the frames too: the next request shows whether both found the same end. hyper may find fault
        // with a trailer that the gate lets pass, and then closes.
        Framing::Chunked => theirs.body.filter(|&body| body < bytes.len() as u64),
    };
    if length == theirs.body { None } else { differ("body") }
}

/// What hyper reads from `bytes`, set up as the sentry sets it up. Every request is answered with an empty 200.
pub fn hyper_reads(bytes: &[u8], limits: &HeadLimits) -> Vec<HyperRead> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let service = service_fn(|request: Request<Incoming>| {
        let seen = seen.clone();
        async move {
            let read = read_request(request).await;
            seen.borrow_mut().push(read);
            Ok::<_, Infallible>(Response::new(Nothing))
        }
    });
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None).half_close(true).max_header_size(limits.bytes.max(1));
    let mut connection = Box::new(builder.serve_connection(Tape { left: bytes }, service));
    let mut cx = Context::from_waker(Waker::noop());
    // Each poll reads on; as many as there are bytes is more than enough.
    for _ in 0..bytes.len() + 16 {
        if Pin::new(&mut *connection).poll(&mut cx).is_ready() {
            break;
        }
    }
    drop(connection);
    seen.take()
}

async fn read_request(request: Request<Incoming>) -> HyperRead {
    let (parts, mut body) = request.into_parts();
    let mut length = Some(0);
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        length = match frame {
            Ok(frame) => length.map(|n: u64| n + frame.data_ref().map_or(0, Bytes::len) as u64),
            Err(_) => None,
        };
        if length.is_none() {
            break;
        }
    }
    HyperRead {
        method: parts.method.to_string(),
        target: parts.uri.to_string(),
        fields: parts.headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect(),
        body: length,
    }
}

/// A body without a byte.
struct Nothing;

impl Body for Nothing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }
}

/// Bytes to read, and nowhere to write to.
struct Tape<'a> {
    left: &'a [u8],
}

impl hyper::rt::Read for Tape<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut to: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let (now, left) = self.left.split_at(self.left.len().min(to.remaining()));
        to.put_slice(now);
        self.left = left;
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Tape<'_> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
