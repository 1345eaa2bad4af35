//! One request, from the moment hyper has read its head to the answer's first byte. The whole path, top to bottom.

mod changes;
pub(crate) mod hand_over;
mod view;

use std::convert::Infallible;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header, request};
use http_body::Body;
use tidegate_engine::{AffinityKey, Open, Rejection, ServerId, Timestamp};

pub(crate) use self::view::View;
use crate::body::ResponseBody;
use crate::client::{Client, Wait};
use crate::config::RequestKind;
use crate::counters::Counter;
use crate::door::Door;
use crate::ending::Ending;
use crate::gate::head::{Bad, Framing};
use crate::grpc;
use crate::headers::canonical::settle;
use crate::headers::changes::Asked;
use crate::headers::spare;
use crate::headers::{self, Wishes};
use crate::permit::{Admitted, Arrival, BodyIs, Policed, Reading, Waiting, police};
use crate::record::{Decided, RecordEnd};
use crate::reject;
use crate::share::{Local, WorkerApp};
use crate::transport::Transport;
use crate::tunnel::ServerEnd;
use crate::upload::{RequestBody, Source};
use crate::upstream::failure::Failure;
use crate::upstream::pool::Pool;
use crate::upstream::send::{Answer, Failed, send};

/// Answers one request.
pub(crate) async fn handle(
    door: Rc<Door>,
    client: Rc<Client>,
    request: Request<impl Into<Source>>,
) -> Result<Response<ResponseBody>, Infallible> {
    let (mut parts, body) = request.into_parts();
    let body = body.into();
    // The gate has policed what was plain; the rest is brought into one form and policed here.
    let arrival = match client.serve() {
        Some(arrival) => arrival,
        None => match settle_and_find(&door, &client, &mut parts, &body) {
            Ok(worker) => {
                let is = if body.is_end_stream() { BodyIs::Here } else { BodyIs::ToCome };
                Box::new(police(worker, &View { parts: &parts, client: &client }, worker.now(), is))
            }
            Err(bad) => return Ok(misread((*door).clone(), client, &parts, bad)),
        },
    };
    let Arrival { worker, at, request: class, policed, local } = *arrival;
    let mut body = RequestBody::new(body, &client, (&worker, &door), local.live.config.limits.body_bytes);
    client.bound_request(at, local.live.config.timeouts.request);
    let mut exchange = Exchange { ending: Ending::new(&worker, &client, &local, at, class), worker, client, local };
    exchange.trace(&parts);
    let response = match exchange.admit(policed, &parts, &mut body).await {
        Ok(server) if exchange.local.live.behind.is_some() => exchange.hand_over(&parts, &body, server),
        Ok(server) => exchange.forward(&mut parts, &mut body, server).await,
        Err(Refusal::Rejected(rejection)) => exchange.refuse(&parts, &body, &rejection),
        Err(Refusal::Failed(failure)) => {
            exchange.ending.note(&parts, |_| None);
            exchange.fail(failure, &parts.headers)
        }
    };
    spare::give(parts.headers);
    Ok(response)
}

/// Brings a request into the one form that all read, and finds whose it is.
fn settle_and_find<'d>(
    door: &'d Door,
    client: &Client,
    parts: &mut request::Parts,
    body: &Source,
) -> Result<&'d Rc<WorkerApp>, Bad> {
    settle(parts, door.head().paths, client.asks_whole_server.take())?;
    let worker = door.find(&View { parts, client }, client.facts())?;
    worker.takes(body.size_hint().exact().map_or(Framing::Chunked, Framing::Length))?;
    Ok(worker)
}

/// Answers a request that the gate should have refused.
fn misread(worker: Rc<WorkerApp>, client: Rc<Client>, parts: &request::Parts, bad: Bad) -> Response<ResponseBody> {
    let local = worker.local();
    let class = local.live.classify(&View { parts, client: &client });
    let ending = Ending::new(&worker, &client, &local, worker.now(), class);
    Exchange { ending, worker, client, local }.fail(Failure::Bad(bad), &parts.headers)
}

/// A refused request's body of up to so many bytes costs the client no connection, if it has been sent.
const DRAINED: u64 = 4096;

/// A request under way.
struct Exchange {
    worker: Rc<WorkerApp>,
    client: Rc<Client>,
    local: Rc<Local>,
    ending: Box<Ending>,
}

/// Why a request does not go to a server.
enum Refusal {
    Rejected(Rejection),
    Failed(Failure),
}

impl Exchange {
    /// Finds the request's place in its trace, where traces are made.
    fn trace(&mut self, parts: &request::Parts) {
        let given = || parts.headers.get("traceparent").map(HeaderValue::as_bytes);
        self.ending.trace = self.worker.app.spans.begin(given, || self.worker.random());
    }

    /// Reads its body first, where its client holds a place otherwise; then waits for its turn where it must. What is
    /// unread stays so meanwhile, and the client feels the queue.
    async fn admit(
        &mut self,
        policed: Policed,
        parts: &request::Parts,
        body: &mut RequestBody,
    ) -> Result<ServerId, Refusal> {
        let mut policed = policed;
        let admitted = loop {
            match policed {
                Policed::Reading(reading) => policed = self.read(reading, parts, body).await?,
                Policed::Waiting(waiting) => break self.wait(waiting).await?,
                Policed::Admitted(admitted) => break admitted,
                Policed::Refused(rejection) => return Err(Refusal::Rejected(rejection)),
                Policed::Exempt => {
                    self.ending.decision = Decided::Exempt;
                    let server = self.worker.server_in_turn(&self.local.live);
                    return server.ok_or(Refusal::Failed(Failure::NoServer));
                }
            }
        };
        self.ending.decision = admitted.shadow.map_or(Decided::Admitted, Decided::Shadow);
        self.client.admitted(admitted.permit.admission());
        self.ending.place.permit = Some(admitted.permit);
        Ok(admitted.server)
    }

    /// Waits for its turn.
    async fn wait(&mut self, waiting: Waiting) -> Result<Admitted, Refusal> {
        self.client.wait(Wait::Queue, Timestamp::MAX);
        let turn = self.client.in_time(waiting.turn()).await;
        self.ending.waited = self.worker.now().since(self.ending.arrived());
        match turn {
            Ok(turn) => turn.map_err(Refusal::Rejected),
            Err(_) => {
                self.worker.lane().bump(Counter::TimeoutRequest);
                Err(Refusal::Failed(Failure::Request))
            }
        }
    }

    /// Reads its body as far as there is room, and asks for a place then.
    async fn read(
        &mut self,
        reading: Reading,
        parts: &request::Parts,
        body: &mut RequestBody,
    ) -> Result<Policed, Refusal> {
        let most = self.local.live.config.limits.ahead;
        match self.client.in_time(body.read_ahead(most)).await {
            Ok(Ok(())) => {}
            Ok(Err(bad)) => return Err(Refusal::Failed(Failure::Bad(bad))),
            Err(_) => return Err(Refusal::Failed(Failure::Bad(Bad::BodyTimeout))),
        }
        let arrival = reading.arrive(&View { parts, client: &self.client }, self.worker.now());
        self.ending.ask_again(&arrival);
        self.local = arrival.local;
        Ok(arrival.policed)
    }

    /// Sends the request to a server, and relays the answer.
    async fn forward(
        mut self,
        parts: &mut request::Parts,
        body: &mut RequestBody,
        server: ServerId,
    ) -> Response<ResponseBody> {
        let live = self.local.live.clone();
        let chunked = body.is_chunked();
        let worker = &self.worker;
        let fresh_id = || request_id(worker.random(), worker.random());
        let wishes = headers::to_server(parts, &self.client, &live.config.forwarded, &live.decisive, chunked, fresh_id);
        if !parts.headers.contains_key(header::HOST) {
            self.name_host(&mut parts.headers, server);
        }
        headers::ask_for(&mut parts.headers, live.policer.quality(self.ending.request().request_type));
        if let Some(trace) = &self.ending.trace {
            trace.pass_on(&mut parts.headers);
        }
        // The clock was read when it came, or when its wait was over.
        let spent = worker.lately().since(self.ending.came());
        headers::due::take_off(&mut parts.headers, &live.config.classifier.deadline, spent);
        self.ending.offer(&parts.headers);
        self.ending.note(parts, headers::request_id);
        self.keep_no_lines_to_change(parts, body);
        let asked = self.change(parts);
        match self.ending.kind() {
            RequestKind::Poll => self.ending.open(Open::Poll, self.worker.now()),
            RequestKind::Upload if !body.is_end_stream() => body.is_upload_by_rule(),
            _ => {}
        }
        match self.send(parts, body, server).await {
            Ok(answer) => self.relay(answer, &wishes, &asked).await,
            Err(failure) => self.fail(failure, &parts.headers),
        }
    }

    /// An HTTP/1.0 client need not say whom it asks; HTTP/1.1 must, so the server's own name is said.
    fn name_host(&self, headers: &mut http::HeaderMap, server: ServerId) {
        let address = self.local.live.server(server).and_then(|server| HeaderValue::from_str(&server.at).ok());
        headers.insert(header::HOST, address.unwrap_or_else(|| HeaderValue::from_static("")));
    }

    /// Sends the request, and again where that is safe: when none of it was sent, or when sending it twice does no
    /// harm; on a fresh connection when a resting one turned out closed, else on another server within the budget.
    async fn send(
        &mut self,
        parts: &request::Parts,
        body: &mut RequestBody,
        mut server: ServerId,
    ) -> Result<Answer, Failure> {
        let retry = self.local.live.config.retry.clone();
        let replay = retry.attempts > 0 && is_idempotent(&parts.method);
        self.worker.earn_retry(retry.budget);
        if let Some(shadow) = &self.local.shadow {
            shadow.copy(&self.worker.app, parts, body, self.worker.random() as f64 / u64::MAX as f64);
        }
        let (mut fresh, mut attempts) = (false, retry.attempts);
        loop {
            let (local, pool) = self.pool(server)?;
            self.local = local;
            self.ending.server = Some(server);
            let spare = if replay { body.copy() } else { None };
            let left = &self.ending.place.left;
            let Failed { why, unsent, stale } =
                match send(&self.worker, &self.client, &pool, (parts, body), fresh, left).await {
                    Ok(answer) => {
                        pool.server.blame.answered();
                        return Ok(answer);
                    }
                    Err(failed) => failed,
                };
            if why.blames_server() && !stale {
                self.ending.blame(&pool.server, why);
            }
            match spare {
                _ if !why.blames_server() => return Err(why),
                _ if unsent => {}
                Some(spare) => *body = spare,
                None => return Err(why),
            }
            if stale && !fresh {
                fresh = true;
            } else if attempts > 0 && self.worker.spend_retry() {
                attempts -= 1;
                server = self.elsewhere(server).ok_or(why)?;
            } else {
                return Err(why);
            }
            self.ending.retries += 1;
            self.worker.lane().bump(Counter::Retries);
        }
    }

    /// This worker's connections to a server. The server may be newer than the configuration the request arrived under.
    fn pool(&self, server: ServerId) -> Result<(Rc<Local>, Rc<Pool>), Failure> {
        let now = self.worker.local();
        let found =
            [&now, &self.local].into_iter().find_map(|local| Some((local.clone(), local.pool(server)?.clone())));
        found.ok_or(Failure::NoServer)
    }

    fn elsewhere(&self, failed: ServerId) -> Option<ServerId> {
        match &self.ending.place.permit {
            Some(permit) => permit.redispatch(failed),
            None => self.worker.server_in_turn(&self.local.live),
        }
    }

    /// Passes the answer on; its body follows as hyper asks for it.
    async fn relay(mut self, answer: Answer, wishes: &Wishes, asked: &Asked) -> Response<ResponseBody> {
        let Answer { response, lines, first, server, sent_at } = answer;
        let (mut parts, incoming) = response.into_parts();
        if self.ending.logged() {
            self.ending.first_byte = Some(self.worker.now().since(self.ending.arrived()));
        }
        let upgraded = parts.status == StatusCode::SWITCHING_PROTOCOLS;
        let told = headers::to_client(&mut parts, upgraded);
        self.ending.cost = told.cost;
        self.ending.status = parts.status.as_u16();
        let said = grpc::status(&parts.headers);
        let answered = self.ending.answered(told.refusal).with_grpc(said, told.refusal);
        let goes_on = || said.is_none() && reject::is_grpc(&parts.headers);
        self.ending.judge(&self.local.live, answered, said, goes_on);
        if upgraded {
            let socket = wishes.upgrade.as_ref().and_then(|_| server.into_socket());
            let Some(socket) = socket else {
                self.worker.lane().bump(Counter::ServerErrors);
                // No call of gRPC is answered so, nor asks for it.
                return self.fail(Failure::Garbage, &http::HeaderMap::new());
            };
            self.change_answer(&mut parts, asked);
            return self.open_tunnel(parts, socket);
        }
        self.note_session(&parts.headers);
        self.explain(&mut parts.headers);
        if let Some(why) = self.ending.explains(answered) {
            parts.headers.insert(reject::DECISION, why);
        }
        // A call that ends with its head does not go on.
        let says_so = || {
            said.is_none()
                && parts.headers.get(header::CONTENT_TYPE).is_some_and(|kind| headers::is_stream(kind.as_bytes()))
        };
        let goes_on = match self.ending.kind() {
            _ if answered.refusal().is_some() => false,
            RequestKind::Stream => true,
            RequestKind::Work => false,
            RequestKind::Ordinary | RequestKind::Poll | RequestKind::Upload => says_so(),
        };
        if goes_on {
            self.ending.open(Open::Stream, self.worker.now());
        }
        self.change_answer(&mut parts, asked);
        self.ending.note_grpc(said);
        let (client, worker) = (&self.client, &self.worker);
        let says = (answered, told.refusal);
        let came = (lines, first, incoming);
        let mut body = ResponseBody::relay(came, server, sent_at, client, worker, self.ending, says);
        poll_fn(|cx| {
            body.finish_at_once(cx);
            Poll::Ready(())
        })
        .await;
        Response::from_parts(parts, body)
    }

    /// Where the answer begins a session, the session's requests go to this server.
    fn note_session(&self, headers: &http::HeaderMap) {
        let Some(server) = self.ending.server else { return };
        for cookie in headers.get_all(http::header::SET_COOKIE) {
            let key = self.local.live.classifier.session_begun(cookie.as_bytes());
            if key != AffinityKey::NONE && key != self.ending.request().affinity {
                self.worker.app.engine(|core, now| core.controller.handle_session(now, key, server));
            }
        }
    }

    /// Both sides change protocol: hyper writes the `101`, and the connection's task then copies both ways. From here
    /// on it is open, and no request in flight: how long a tunnel lives says nothing about the server's load.
    fn open_tunnel(mut self, parts: http::response::Parts, socket: (Transport, Bytes)) -> Response<ResponseBody> {
        self.ending.open(Open::Tunnel, self.worker.now());
        self.ending.end = RecordEnd::Upgraded;
        self.client.upgrade(Box::new(ServerEnd::new(socket, self.ending.place.permit.take())));
        Response::from_parts(parts, ResponseBody::whole(Bytes::new(), &self.client, &self.worker, self.ending))
    }

    fn refuse(mut self, parts: &request::Parts, body: &RequestBody, rejection: &Rejection) -> Response<ResponseBody> {
        // hyper reads a small body that is here already; for any other it closes, and the client should know.
        if body.still_to_come().is_none_or(|most| most > DRAINED) {
            self.client.close.set(true);
        }
        self.worker.lane().bump(Counter::RefusedByService);
        self.ending.note(parts, headers::request_id);
        self.ending.decision = Decided::Rejected(*rejection);
        let response = reject::response(&self.local.live, rejection, &parts.headers);
        self.answer(response, RecordEnd::Complete)
    }

    /// Answers what `asked` with an error of the sentry's own.
    fn fail(mut self, failure: Failure, asked: &http::HeaderMap) -> Response<ResponseBody> {
        self.ending.decision = Decided::Error(failure.answer().1);
        self.ending.outcome = failure.outcome();
        if let Failure::Bad(bad) = failure {
            self.worker.lane().bad(bad);
        }
        if matches!(failure, Failure::Bad(_) | Failure::Local | Failure::NoId) {
            // The client's fault, or ours, moves no estimate of the server.
            self.ending.place.permit = None;
        }
        let mut response = reject::failed(failure, asked);
        if matches!(failure, Failure::Bad(_) | Failure::Unread) {
            self.client.close.set(true);
        }
        self.explain(response.headers_mut());
        if failure == Failure::Cancelled && self.local.live.config.rejection.details {
            response.headers_mut().insert(reject::DECISION, reject::cancelled(&self.local.live, self.ending.class()));
        }
        self.answer(response, failure.end())
    }

    fn answer(mut self, response: Response<Bytes>, end: RecordEnd) -> Response<ResponseBody> {
        let (mut parts, body) = response.into_parts();
        self.ending.status = parts.status.as_u16();
        self.ending.note_grpc(grpc::status(&parts.headers));
        self.ending.end = end;
        self.ending.free_place(self.worker.now());
        self.explain_close(&mut parts.headers);
        Response::from_parts(parts, ResponseBody::whole(body, &self.client, &self.worker, self.ending))
    }

    /// What the sentry adds to a response.
    fn explain(&self, headers: &mut http::HeaderMap) {
        if self.local.live.config.rejection.decision_on_admitted {
            headers.insert(reject::DECISION, reject::admitted(&self.local.live, self.ending.class()));
        }
        self.explain_close(headers);
    }

    fn explain_close(&self, headers: &mut http::HeaderMap) {
        let is_leaving = || self.worker.app.is_leaving(self.worker.lately(), self.client.peer());
        if !self.client.is_stream.get() && (self.client.close.get() || is_leaving()) {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// Whether sending it twice is as good as once (RFC 9110, section 9.2.2).
fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::PUT | Method::DELETE | Method::OPTIONS | Method::TRACE)
}

/// 128 random bits in hexadecimal.
fn request_id(a: u64, b: u64) -> HeaderValue {
    let mut text = [0; 32];
    let bits = u128::from(a) << 64 | u128::from(b);
    for (i, digit) in text.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(bits >> (124 - 4 * i)) as usize & 15];
    }
    HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static("-"))
}
