//! Sending one request to one server, once.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header, request};
use http_body::{Body, Frame};
use tidegate_engine::Timestamp;

use super::connect::{connect, connect_shared, ends, is_local, is_out_of_descriptors};
use super::failure::Failure;
use super::http1::Fault;
use super::multiplexed::Stream;
use super::pool::Pool;
use super::sharing::Offer;
use super::{Incoming, Line, Own, ServerConn};
use crate::client::{Client, Wait};
use crate::counters::Counter;
use crate::gate::head::Bad;
use crate::headers::lines::Lines;
use crate::share::WorkerApp;
use crate::shed;
use crate::upload::RequestBody;

/// A server's answer, and the connection its body comes from.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response<Incoming>,
    /// Fields of its head that stay lines.
    pub(crate) lines: Lines,
    /// What of its body is here already.
    pub(crate) first: Option<Frame<Bytes>>,
    pub(crate) server: Box<ServerConn>,
    /// When the request was sent.
    pub(crate) sent_at: Timestamp,
}

/// A connection on which a server owes an answer that nobody waits for any more.
#[derive(Default)]
pub(crate) struct Left(Cell<Option<Box<ServerConn>>>);

impl Left {
    pub(crate) fn put(&self, server: Option<Box<ServerConn>>) {
        self.0.set(server);
    }

    pub(crate) fn take(&self) -> Option<Box<ServerConn>> {
        self.0.take()
    }
}

impl std::fmt::Debug for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Left").finish_non_exhaustive()
    }
}

/// A failed attempt.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) why: Failure,
    /// None of the request was sent: its body is whole.
    pub(crate) unsent: bool,
    /// It failed on a connection that had rested: perhaps only because the server was just closing it.
    pub(crate) stale: bool,
}

/// Sends a request on an idle connection, or on a new one (`fresh` insists on that), and waits for the answer to begin.
/// Its head stays here, for it may have to be sent again; its body goes.
pub(crate) async fn send(
    worker: &Rc<WorkerApp>,
    client: &Rc<Client>,
    pool: &Rc<Pool>,
    (parts, body): (&request::Parts, &mut RequestBody),
    fresh: bool,
    left: &Left,
) -> Result<Answer, Failed> {
    let server = match reach(worker, client, pool, fresh).await {
        Ok(server) => server,
        Err(why) => return Err(failed(worker, why, true, false)),
    };
    if !body.is_end_stream() {
        client.wait(Wait::RequestBody, worker.deadline(|timeouts| timeouts.body_idle));
    } else {
        client.wait(Wait::FirstByte, worker.deadline(|timeouts| timeouts.first_byte));
    }
    exchange(worker, client, server, (parts, body), left).await
}

/// A connection that has room for a request.
async fn reach(
    worker: &Rc<WorkerApp>,
    client: &Client,
    pool: &Rc<Pool>,
    fresh: bool,
) -> Result<Box<ServerConn>, Failure> {
    if pool.server.http2 {
        let stream = reach_shared(worker, client, pool, fresh).await?;
        return Ok(Box::new(ServerConn { line: Line::Stream(stream), home: Some(pool.clone()) }));
    }
    let ends = ends(&pool.server, client);
    let idle = poll_fn(|cx| Poll::Ready(if fresh { None } else { pool.take(cx, worker.lane(), ends) })).await;
    match idle {
        Some(server) => Ok(server),
        None => open(worker, client, |timeout| Box::pin(connect(pool, client, timeout))).await,
    }
}

/// The same where connections are shared: one is opened for all who need it.
async fn reach_shared(worker: &Rc<WorkerApp>, client: &Client, pool: &Pool, fresh: bool) -> Result<Stream, Failure> {
    let offer = match pool.shared.ask(fresh) {
        Ok(offer) => offer,
        Err(place) => {
            client.wait(Wait::Queue, Timestamp::MAX);
            match client.in_time(place.turn()).await {
                Ok(offer) => offer,
                Err(Wait::Cancelled) => return Err(Failure::Cancelled),
                Err(_) => return Err(Failure::Request),
            }
        }
    };
    match offer {
        Offer::Stream(stream) => {
            worker.lane().bump(Counter::ServerReuses);
            Ok(stream)
        }
        Offer::Open(opener) => match open(worker, client, |timeout| Box::pin(connect_shared(pool, timeout))).await {
            Ok(connection) => Ok(opener.opened(connection)),
            Err(why) => {
                // Whose own time is up says nothing about the server.
                if why != Failure::Request && why != Failure::Cancelled {
                    opener.failed(why);
                }
                Err(why)
            }
        },
        Offer::Failed(why) => Err(why),
    }
}

/// `connect` gives futures in boxes: most requests find a connection, and are not to carry room for opening one.
async fn open<T, F>(
    worker: &Rc<WorkerApp>,
    client: &Client,
    connect: impl Fn(Duration) -> Pin<Box<F>>,
) -> Result<T, Failure>
where
    F: Future<Output = io::Result<T>>,
{
    client.wait(Wait::Queue, Timestamp::MAX);
    let timeout = worker.local().live.config.timeouts.connect;
    let connected = match client.in_time(connect(timeout)).await {
        Ok(Err(error)) if is_out_of_descriptors(&error) && shed::give_back_descriptors(worker) > 0 => {
            // Whoever was told to go does so now.
            tokio::task::yield_now().await;
            client.in_time(connect(timeout)).await
        }
        connected => connected,
    };
    match connected {
        Ok(Ok(server)) => {
            worker.lane().bump(Counter::ServerConnects);
            // Connecting took a while: deadlines count from now.
            worker.now();
            Ok(server)
        }
        Ok(Err(error)) if error.kind() == io::ErrorKind::TimedOut => Err(Failure::ConnectTimeout),
        Ok(Err(error)) if is_local(&error) => Err(Failure::Local),
        Ok(Err(_)) => Err(Failure::Connect),
        Err(Wait::Cancelled) => Err(Failure::Cancelled),
        Err(_) => Err(Failure::Request),
    }
}

/// Request out, head of the answer in: the connection is driven right here.
async fn exchange(
    worker: &Rc<WorkerApp>,
    client: &Client,
    server: Box<ServerConn>,
    (parts, body): (&request::Parts, &mut RequestBody),
    left: &Left,
) -> Result<Answer, Failed> {
    let sent_at = worker.now();
    server.note_begin();
    let mut lent = Lent { server: Some(server), left };
    let answer = {
        let Some(server) = &mut lent.server else { return Err(failed(worker, Failure::Broken, false, false)) };
        match &mut server.line {
            Line::Own(own) => ask(client, own, parts, body).await,
            Line::Stream(stream) => ask_on(client, stream, parts, body).await,
        }
    };
    let answer = match answer {
        Ok(answer) => answer,
        // The server owes its answer still.
        Err(wait) => return Err(failed(worker, late(wait, client), false, false)),
    };
    let Some(mut server) = lent.server.take() else { return Err(failed(worker, Failure::Broken, false, false)) };
    let why = |fault: Fault| match client.upload.fault.get() {
        Some(bad) => Failure::Bad(bad),
        None if fault == Fault::Broken => Failure::Broken,
        None => Failure::Garbage,
    };
    let lines = match &mut server.line {
        Line::Own(own) => own.conn.take_lines(),
        Line::Stream(_) => Lines::default(),
    };
    match answer {
        Ok(mut response) => match poll_fn(|cx| Poll::Ready(first_frame(&mut response, &mut server, cx))).await {
            None => Ok(Answer { response, lines, first: None, server, sent_at }),
            Some(Ok(frame)) => Ok(Answer { response, lines, first: Some(frame), server, sent_at }),
            // The client has heard nothing yet: it can be told.
            Some(Err(fault)) => Err(failed(worker, why(fault), false, false)),
        },
        Err(Refused { fault, unsent }) => {
            // An answer that is one was not written for somebody before.
            let stale = server.is_reused() && fault != Fault::Ambiguous;
            Err(failed(worker, why(fault), unsent, stale))
        }
    }
}

/// There is no answer.
struct Refused {
    fault: Fault,
    /// None of the request was sent.
    unsent: bool,
}

type Asked = Result<Response<Incoming>, Refused>;

/// Asks on a connection that the request has to itself.
async fn ask(client: &Client, own: &mut Own, parts: &request::Parts, body: &mut RequestBody) -> Result<Asked, Wait> {
    // One that rested was looked at when it was taken.
    let is_usable = own.reused || poll_fn(|cx| Poll::Ready(own.conn.is_quiet(cx))).await;
    if !is_usable {
        return Ok(Err(Refused { fault: Fault::Broken, unsent: true }));
    }
    let upload = (!body.is_end_stream()).then(|| body.take());
    own.conn.begin(parts, body.lines(), upload);
    let answer = await_answer(client, |cx| own.conn.poll_answer(cx)).await?;
    Ok(match answer {
        Ok(response) => Ok(response.map(Incoming::Http1)),
        Err(fault) => Err(Refused { fault, unsent: false }),
    })
}

/// Asks on a stream.
async fn ask_on(
    client: &Client,
    stream: &mut Stream,
    parts: &request::Parts,
    body: &mut RequestBody,
) -> Result<Asked, Wait> {
    let mut request = Request::from_parts(parts.clone(), body.take());
    if let Some(lines) = body.lines() {
        lines.add_to(request.headers_mut());
    }
    stream.fit(&mut request);
    let answer = {
        let mut reply = pin!(stream.sender.try_send_request(request));
        await_answer(client, |cx| reply.as_mut().poll(cx)).await
    };
    if let Err(Wait::FirstByte) = answer {
        stream.suspect();
    }
    Ok(match answer? {
        Ok(response) if is_well_framed(response.headers()) => Ok(response.map(Incoming::Http2)),
        Ok(_) => Err(Refused { fault: Fault::Ambiguous, unsent: false }),
        Err(mut error) => {
            let unsent = error.take_message().map(|request| *body = request.into_body()).is_some();
            let fault = if error.into_error().is_parse() { Fault::Garbage } else { Fault::Broken };
            Err(Refused { fault, unsent })
        }
    })
}

/// The answer that comes in time.
async fn await_answer<R>(client: &Client, mut reply: impl FnMut(&mut Context<'_>) -> Poll<R>) -> Result<R, Wait> {
    poll_fn(|cx| match reply(cx) {
        Poll::Ready(reply) => Poll::Ready(Ok(reply)),
        Poll::Pending => client.take_expired().map_or(Poll::Pending, |wait| Poll::Ready(Err(wait))),
    })
    .await
}

/// What of an answer's body is here already, or why none ever will be. Nobody waits for it: a stream may begin with
/// its head alone.
fn first_frame(
    response: &mut Response<Incoming>,
    server: &mut ServerConn,
    cx: &mut Context<'_>,
) -> Option<Result<Frame<Bytes>, Fault>> {
    if response.body().is_end_stream() || response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return None;
    }
    match server.poll_frame(response.body_mut(), cx) {
        Poll::Ready(frame) => frame,
        Poll::Pending => None,
    }
}

/// Whether an answer says in one way where its body ends: as requests must. Of those by HTTP/1.1 it is seen as their
/// heads are read.
pub(super) fn is_well_framed(headers: &HeaderMap) -> bool {
    let is_chunked = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    let is_number = |value: &HeaderValue| value.as_bytes().iter().all(u8::is_ascii_digit) && !value.is_empty();
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let (coding, length) = (codings.next(), lengths.next());
    coding.is_none_or(is_chunked)
        && length.is_none_or(is_number)
        && (coding.is_none() || length.is_none())
        && codings.next().is_none()
        && lengths.next().is_none()
}

/// A server's connection from which an answer is awaited. Dropped meanwhile, for the client is gone or the time is up,
/// it is left behind.
struct Lent<'a> {
    server: Option<Box<ServerConn>>,
    left: &'a Left,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.left.0.set(self.server.take());
    }
}

fn late(wait: Wait, client: &Client) -> Failure {
    match wait {
        Wait::Request => Failure::Request,
        Wait::Cancelled => Failure::Cancelled,
        Wait::RequestBody if client.upload.is_starved.get() => Failure::Bad(Bad::BodyTimeout),
        Wait::RequestBody => Failure::Unread,
        _ => Failure::FirstByte,
    }
}

fn failed(worker: &WorkerApp, why: Failure, unsent: bool, stale: bool) -> Failed {
    match why.counter() {
        _ if stale => worker.lane().bump(Counter::ServerStale),
        Some(counter) => worker.lane().bump(counter),
        None => {}
    }
    Failed { why, unsent, stale }
}
