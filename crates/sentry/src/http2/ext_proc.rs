//! Envoy's way to ask (`envoy.service.ext_proc.v3`): it sends requests to their servers itself, and asks here whether
//! it may. A call of gRPC goes with each request: its head comes, and waits for its turn like any other; Envoy is told
//! to go on, or what to answer; the head of the answer comes, and with the end of the answer the call's.
//!
//! *Intuition.* For the engine there is one server, [`Envoy`](crate::config::Asker::Envoy), which is everything behind
//! Envoy. A place is held from the decision to the answer's end, and teaches what any does. *Awkward cases.* Envoy
//! resets the call when its request is over, whoever ended it: before the answer's head the client has left, after it
//! the answer is taken for whole. An answer of 500 or more that no server gave (`x-envoy-upstream-service-time` is
//! missing) is Envoy's own: a failure, and no measure of anything. Once Envoy is told to go on, nothing can be taken
//! back: requests are not ended here for the sake of others, nor for their time.
//!
//! *Source.* Envoy 1.40, `api/envoy/service/ext_proc/v3/external_processor.proto`.

mod message;
mod talk;

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header, request};
use tidegate_engine::{Open, Outcome, Rejection, Timestamp};

use self::message::{Changes, Fields, GoOn, GrpcStatus, HttpStatus, ImmediateResponse, Say, Told, TrailersGoOn};
use self::talk::{End, FAILED_PRECONDITION, INVALID_ARGUMENT, Talk};
use super::head;
use super::stream::{Piece, Stream};
use crate::answered::{Answered, Refusal};
use crate::client::Wait;
use crate::config::{Asker, RequestKind};
use crate::counters::Counter;
use crate::ending::{self, Ending, Refused};
use crate::gate::head::Bad;
use crate::grpc;
use crate::headers::{self, COST};
use crate::in_force::InForce;
use crate::permit::{Admitted, Arrival, BodyIs, Policed, Waiting, police};
use crate::proxy::View;
use crate::record::{Decided, Protocol, RecordEnd};
use crate::reject::{self, DECISION};
use crate::reports::cost;
use crate::share::{Local, WorkerApp};
use crate::upstream::failure::Failure;

/// The method of gRPC.
const PATH: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";

/// What an answer has that a server gave.
const FROM_SERVER: &str = "x-envoy-upstream-service-time";

/// Whether a request of HTTP/2 is a call of Envoy's.
pub(super) fn is_call(parts: &request::Parts) -> bool {
    parts.uri.path() == PATH
}

/// Goes along with one request to its end.
pub(super) async fn serve(stream: Stream, heard: RecvStream, mut answer: SendResponse<Piece>) {
    let mut head = Response::new(());
    head.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let Ok(to) = answer.send_response(head, false) else { return };
    // Around each field of a head there is less than is in it at the shortest.
    let most = 2 * stream.shared.worker.head().bytes;
    let mut call = Call { talk: Talk::new(heard, to, most), stream };
    match call.follow().await {
        Ok(()) => call.talk.end(0, ""),
        Err(End::Failed(status, why)) => call.talk.end(status, why),
        Err(End::Gone) => call.talk.reset(),
    }
}

/// A request that is Envoy's, and what is said of it.
struct Call {
    stream: Stream,
    talk: Talk,
}

impl Call {
    async fn follow(&mut self) -> Result<(), End> {
        let told = match self.next().await? {
            Some(Told::RequestHeaders(told)) => told,
            Some(_) => return Err(End::Failed(INVALID_ARGUMENT, "a request begins with its head: let it be sent")),
            None => return Ok(()),
        };
        let (parts, worker, path) = match self.settle(&told.headers.unwrap_or_default()) {
            Ok(settled) => settled,
            Err(bad) => return self.refuse_bad(bad),
        };
        self.stream.own.hold(Some(&parts.headers));
        let client = self.stream.own.client.clone();
        let view = View { parts: &parts, client: &client };
        let arrival = police(&worker, &view, worker.now(), BodyIs::Here);
        client.serve();
        if let Policed::Refused(rejection) = &arrival.policed {
            let says = immediate(&arrival.local.live, rejection, &parts.headers);
            let refused = Refused {
                status: reject::status(&arrival.local.live, rejection),
                grpc_status: says.grpc_status.map(|grpc| grpc.status as u8),
                bytes_out: 0,
                protocol: Protocol::Http2,
            };
            ending::record_refusal(&worker, &arrival, &view, client.peer(), refused);
            return self.talk.say(Say::Immediate(says));
        }
        let (mut request, policed) = Asked::new(arrival, &self.stream, &parts);
        if let Some(says) = self.admit(&mut request, policed, &parts).await? {
            request.ending.report();
            return self.talk.say(Say::Immediate(says));
        }
        let changes = request.changes(parts, &path);
        self.stream.own.hold(None);
        self.talk.say(Say::RequestHeaders(GoOn::with(changes)))?;
        self.accompany(request).await
    }

    /// What Envoy tells next, unless its time is up first.
    async fn next(&mut self) -> Result<Option<Told>, End> {
        let Call { stream, talk } = self;
        poll_fn(|cx| {
            stream.own.client.remember(cx);
            match talk.poll_next(cx) {
                Poll::Pending => {
                    stream.shared.worker.count_held(&stream.own.client, talk.unread());
                    stream.poll_over().map(|()| Err(End::Gone))
                }
                told => told,
            }
        })
        .await
    }

    /// Settles what a request asks for, and whose it is; with its path as it came.
    fn settle(&self, fields: &Fields) -> Result<(request::Parts, Rc<WorkerApp>, Vec<u8>), Bad> {
        let door = &self.stream.shared.worker;
        let mut parts = read(fields)?;
        head::settle(&mut parts, &door.head())?;
        // What a handshake said was said by Envoy.
        let worker = door.find(&View { parts: &parts, client: &self.stream.own.client }, None)?.clone();
        let path = fields.first(":path").unwrap_or_default().to_vec();
        if worker.is_asked_by(Asker::Envoy) { Ok((parts, worker, path)) } else { Err(Bad::NoApplication) }
    }

    fn refuse_bad(&mut self, bad: Bad) -> Result<(), End> {
        let lane = self.stream.shared.worker.lane();
        lane.bad(bad);
        lane.status(bad.status());
        self.talk.say(Say::Immediate(error(bad.status(), bad.name())))
    }

    /// Waits for its turn where it must. What Envoy is to answer with, if it does not get one.
    async fn admit(
        &mut self,
        request: &mut Asked,
        policed: Policed,
        parts: &request::Parts,
    ) -> Result<Option<ImmediateResponse>, End> {
        let admitted = match policed {
            Policed::Admitted(admitted) => admitted,
            Policed::Refused(rejection) => return Ok(Some(request.refuse(&rejection, &parts.headers))),
            Policed::Waiting(waiting) => match self.turn(request, waiting).await? {
                Ok(Ok(admitted)) => admitted,
                Ok(Err(rejection)) => return Ok(Some(request.refuse(&rejection, &parts.headers))),
                Err(_) => return Ok(Some(request.give_up())),
            },
            // No body comes here that could be read first.
            Policed::Exempt | Policed::Reading(_) => {
                request.ending.decision = Decided::Exempt;
                return Ok(None);
            }
        };
        request.admit(admitted, &self.stream);
        Ok(None)
    }

    /// Waits until it is started or refused. The error: its time was up first.
    async fn turn(
        &mut self,
        request: &mut Asked,
        waiting: Waiting,
    ) -> Result<Result<Result<Admitted, Rejection>, Wait>, End> {
        let Call { stream, talk } = self;
        let client = &stream.own.client;
        client.wait(Wait::Queue, Timestamp::MAX);
        let mut turn = pin!(client.in_time(waiting.turn()));
        let turn = poll_fn(|cx| {
            client.remember(cx);
            if let Poll::Ready(turn) = turn.as_mut().poll(cx) {
                return Poll::Ready(Ok(turn));
            }
            talk.poll_next(cx).map(|told| {
                Err(match told {
                    Ok(Some(_)) => End::Failed(FAILED_PRECONDITION, "it goes on before it is told to"),
                    Ok(None) => End::Gone,
                    Err(end) => end,
                })
            })
        })
        .await;
        request.ending.waited = request.worker.now().since(request.ending.arrived());
        turn
    }

    /// Goes along with it from when Envoy sends it on.
    async fn accompany(&mut self, mut request: Asked) -> Result<(), End> {
        self.stream.own.client.unbound_request();
        self.stream.own.client.wait(Wait::FirstByte, Timestamp::MAX);
        let mut has_begun = false;
        loop {
            let (say, is_over) = match self.next().await {
                Ok(Some(Told::ResponseHeaders(told))) => {
                    has_begun = true;
                    let changes = request.begin(&told.headers.unwrap_or_default());
                    (Say::ResponseHeaders(GoOn::with(changes)), told.end_of_stream)
                }
                Ok(Some(Told::ResponseBody(body))) => (Say::ResponseBody(GoOn::default()), body.end_of_stream),
                Ok(Some(Told::ResponseTrailers(told))) => {
                    request.end_with(&told.trailers.unwrap_or_default());
                    (Say::ResponseTrailers(TrailersGoOn {}), true)
                }
                Ok(Some(Told::RequestBody(_))) => (Say::RequestBody(GoOn::default()), false),
                Ok(Some(Told::RequestTrailers(_))) => (Say::RequestTrailers(TrailersGoOn {}), false),
                Ok(Some(Told::RequestHeaders(_))) => {
                    return Err(End::Failed(INVALID_ARGUMENT, "a call is of one request"));
                }
                Ok(None) | Err(End::Gone) if has_begun => break,
                Ok(None) => return Err(End::Gone),
                Err(end) => return Err(end),
            };
            self.talk.say(say)?;
            if is_over {
                break;
            }
        }
        request.ending.report();
        Ok(())
    }
}

/// One request, as the engine has it. Dropped, its client has left.
struct Asked {
    worker: Rc<WorkerApp>,
    local: Rc<Local>,
    ending: Box<Ending>,
    /// What its answer's head told of a refusal further down.
    told: Option<Refusal>,
}

impl Asked {
    /// The request, and what was decided about it.
    fn new(arrival: Arrival, stream: &Stream, parts: &request::Parts) -> (Self, Policed) {
        let Arrival { worker, at, request, policed, local } = arrival;
        stream.own.client.bound_request(at, local.live.config.timeouts.request);
        let mut ending = Ending::new(&worker, &stream.own.client, &local, at, request);
        let given = || parts.headers.get("traceparent").map(HeaderValue::as_bytes);
        ending.trace = worker.app.spans.begin(given, || worker.random());
        ending.offer(&parts.headers);
        ending.note(parts, headers::request_id);
        (Asked { worker, local, ending, told: None }, policed)
    }

    fn admit(&mut self, admitted: Admitted, stream: &Stream) {
        let ending = &mut self.ending;
        ending.decision = admitted.shadow.map_or(Decided::Admitted, Decided::Shadow);
        ending.server = Some(admitted.server);
        stream.own.client.admitted(admitted.permit.admission());
        ending.place.permit = Some(admitted.permit);
        ending.place.is_elsewhere = true;
        if ending.kind() == RequestKind::Poll {
            ending.open(Open::Poll, self.worker.now());
        }
    }

    /// It waited, and is refused.
    fn refuse(&mut self, rejection: &Rejection, asked: &HeaderMap) -> ImmediateResponse {
        self.worker.lane().bump(Counter::RefusedByService);
        let says = immediate(&self.local.live, rejection, asked);
        self.ending.decision = Decided::Rejected(*rejection);
        self.ending.note_grpc(says.grpc_status.map(|grpc| grpc.status as u8));
        self.ending.status = reject::status(&self.local.live, rejection);
        self.ending.end = RecordEnd::Complete;
        says
    }

    /// Its time was up while it waited.
    fn give_up(&mut self) -> ImmediateResponse {
        self.worker.lane().bump(Counter::TimeoutRequest);
        let failure = Failure::Request;
        let (status, name) = failure.answer();
        self.ending.decision = Decided::Error(name);
        self.ending.outcome = failure.outcome();
        self.ending.status = status;
        self.ending.end = failure.end();
        error(status, name)
    }

    /// What is to be another in its head than what came: what rules have read, the quality that is asked for, its
    /// place in its trace, and the time that is left. `came_path`: its path as it came.
    fn changes(&self, mut parts: request::Parts, came_path: &[u8]) -> Changes {
        let live = &self.local.live;
        let mut changes = Changes::default();
        let path = parts.uri.path_and_query().map(|path| path.as_str());
        if let Some(path) = path.filter(|path| came_path != path.as_bytes()) {
            changes.set(":path", path.as_bytes());
        }
        let came = parts.headers.clone();
        parts.headers.remove(headers::QUALITY);
        headers::ask_for(&mut parts.headers, live.policer.quality(self.ending.request().request_type));
        if let Some(trace) = &self.ending.trace {
            trace.pass_on(&mut parts.headers);
        }
        let spent = self.worker.now().since(self.ending.came());
        headers::due::take_off(&mut parts.headers, &live.config.classifier.deadline, spent);
        for (name, value) in parts.headers.iter().filter(|(name, value)| came.get(*name) != Some(value)) {
            // Of several with one name, only the first is ever changed.
            if parts.headers.get(name) == Some(value) {
                changes.set(name.as_str(), value.as_bytes());
            }
        }
        let is_gone = |name: &&http::HeaderName| !parts.headers.contains_key(*name);
        changes.remove.extend(came.keys().filter(is_gone).map(|name| name.as_str().to_owned()));
        changes
    }

    /// The head of its answer is here. What the client is not to see of it, and what it is to.
    fn begin(&mut self, fields: &Fields) -> Changes {
        let now = self.worker.now();
        let ending = &mut self.ending;
        let head = fields.map().unwrap_or_default();
        ending.begin_answer(now);
        if ending.logged() {
            ending.first_byte = Some(now.since(ending.arrived()));
        }
        ending.status = fields.first(":status").and_then(number).unwrap_or(0);
        ending.bytes_out = head.get(header::CONTENT_LENGTH).and_then(head::length).unwrap_or(0);
        ending.cost = head.get(COST).and_then(|value| cost::parse(value.as_bytes()));
        ending.end = RecordEnd::Complete;
        self.told = Refusal::among(&head);
        let answered = if ending.status >= 500 && !head.contains_key(FROM_SERVER) {
            (ending.end, ending.outcome) = (RecordEnd::ServerFailed, Outcome::failed());
            Answered::Badly
        } else {
            ending.answered(self.told).with_grpc(grpc::status(&head), self.told)
        };
        let says_stream = || head.get(header::CONTENT_TYPE).is_some_and(|kind| headers::is_stream(kind.as_bytes()));
        match ending.kind() {
            _ if answered.refusal().is_some() => {}
            _ if ending.status == StatusCode::SWITCHING_PROTOCOLS => ending.open(Open::Tunnel, now),
            RequestKind::Stream => ending.open(Open::Stream, now),
            RequestKind::Work => {}
            _ if says_stream() => ending.open(Open::Stream, now),
            _ => {}
        }
        self.end_by(&head, answered);
        self.explain(&head, answered)
    }

    /// What followed its answer.
    fn end_with(&mut self, trailers: &Fields) {
        if let Some(trailers) = trailers.map() {
            let told = Refusal::among(&trailers).or(self.told);
            self.end_by(&trailers, Answered::Well.with_grpc(grpc::status(&trailers), told));
        }
    }

    /// What gRPC says of its end, in its head or behind it; and whether a service further down refused it.
    fn end_by(&mut self, fields: &HeaderMap, answered: Answered) {
        let status = grpc::status(fields);
        self.ending.note_grpc(status);
        if answered.refusal().is_some() {
            (self.ending.end, self.ending.outcome) = (answered.end(), answered.outcome());
        } else if status.is_some_and(grpc::is_failure) {
            self.ending.outcome = Outcome::failed();
        }
    }

    fn explain(&self, head: &HeaderMap, answered: Answered) -> Changes {
        let mut changes = Changes::default();
        let ours = [COST, DECISION].into_iter().filter(|name| head.contains_key(name));
        changes.remove.extend(ours.map(|name| name.as_str().to_owned()));
        let live = &self.local.live;
        let says_admitted = live.config.rejection.decision_on_admitted;
        let admitted = || says_admitted.then(|| reject::admitted(live, self.ending.class()));
        if let Some(why) = self.ending.explains(answered).or_else(admitted) {
            changes.set(DECISION.as_str(), why.as_bytes());
        }
        changes
    }
}

/// A head as other versions of HTTP have it.
fn read(fields: &Fields) -> Result<request::Parts, Bad> {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.version = Version::HTTP_2;
    parts.method = Method::from_bytes(fields.first(":method").unwrap_or_default()).map_err(|_| Bad::Syntax)?;
    parts.uri = Uri::try_from(fields.first(":path").unwrap_or_default()).map_err(|_| Bad::Target)?;
    parts.headers = fields.map().ok_or(Bad::Syntax)?;
    if let Some(authority) = fields.first(":authority") {
        parts.headers.insert(header::HOST, HeaderValue::from_bytes(authority).map_err(|_| Bad::Host)?);
    }
    Ok(parts)
}

/// A refusal as Envoy is to say it. To a call of gRPC it makes an answer of gRPC from it.
fn immediate(live: &InForce, rejection: &Rejection, asked: &HeaderMap) -> ImmediateResponse {
    let (mut head, mut body) = reject::response(live, rejection, asked).into_parts();
    let grpc_status = grpc::status(&head.headers);
    if grpc_status.is_some() {
        head.status = StatusCode::from_u16(reject::status(live, rejection)).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        body = head.headers.remove("grpc-message").map_or(body, |text| text.as_bytes().to_vec().into());
        head.headers.remove("grpc-status");
        head.headers.remove(header::CONTENT_TYPE);
    }
    ImmediateResponse {
        status: Some(HttpStatus { code: head.status.as_u16().into() }),
        headers: Some(all(&head.headers)),
        body,
        grpc_status: grpc_status.map(|status| GrpcStatus { status: status.into() }),
        details: format!("tidegate_{}", rejection.reason.name()),
    }
}

/// An error of the sentry's own.
fn error(status: u16, name: &str) -> ImmediateResponse {
    let (head, body) = reject::error(status, name).into_parts();
    ImmediateResponse {
        status: Some(HttpStatus { code: status.into() }),
        headers: Some(all(&head.headers)),
        body,
        grpc_status: None,
        details: format!("tidegate_{name}"),
    }
}

fn all(head: &HeaderMap) -> Changes {
    let mut changes = Changes::default();
    head.iter().for_each(|(name, value)| changes.set(name.as_str(), value.as_bytes()));
    changes
}

fn number(text: &[u8]) -> Option<u16> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
