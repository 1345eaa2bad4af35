//! How a request ends: its outcome goes to the engine, its record to the log, once.

mod judge;
mod log;

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use http::{HeaderValue, Method, Uri};
use tidegate_classify::RequestView;
use tidegate_engine::{AbandonedBy, ClassId, End, MeasuredCost, Open, Outcome, Request, ServerId, Timestamp};

use crate::answered::{Answered, Refusal};
use crate::client::{Admission, Client};
use crate::config::RequestKind;
use crate::counters::Counter;
use crate::ghost;
use crate::permit::{Arrival, Permit};
use crate::record::{Decided, Protocol, RecordEnd, Work};
use crate::reject;
use crate::share::{Local, WorkerApp};
use crate::spans::Trace;
use crate::times::Example;
use crate::upstream::send::Left;

use log::log_refusal;

/// A request on its way to its end. Dropped unreported, the client has left.
#[derive(Debug)]
pub(crate) struct Ending {
    worker: Rc<WorkerApp>,
    client: Rc<Client>,
    local: Rc<Local>,
    /// Its place at its server.
    pub(crate) place: Place,
    /// What the permit is completed with at the end.
    pub(crate) outcome: Outcome,
    /// What it cost, where its server says so.
    pub(crate) cost: Option<MeasuredCost>,
    /// How it ended, once that is known.
    pub(crate) end: RecordEnd,
    pub(crate) status: u16,
    pub(crate) bytes_out: u64,
    pub(crate) server: Option<ServerId>,
    pub(crate) waited: Duration,
    pub(crate) first_byte: Option<Duration>,
    pub(crate) retries: u32,
    pub(crate) decision: Decided,
    /// Its place in its trace, where traces are made.
    pub(crate) trace: Option<Box<Trace>>,
    /// What tells it from others, where its class wants an example.
    example: Option<Example>,
    since: Since,
    request: Request,
    line: Option<Box<Line>>,
    reported: bool,
}

/// Since when a request is here.
#[derive(Clone, Copy, Debug)]
struct Since {
    /// When it asked for a place: its response time begins.
    at: Timestamp,
    /// When its head came: before `at`, if its body was read first.
    came: Timestamp,
}

/// A request's place at its server, and what becomes of it.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// `None` when the request was never admitted, or its permit has gone on without it.
    pub(crate) permit: Option<Permit>,
    /// Where its server owes an answer when it ends without one.
    pub(crate) left: Left,
    /// Another sends it to its server: when that stops working for nobody is not seen here.
    pub(crate) is_elsewhere: bool,
    /// What it is, once that is more than a request that is answered.
    work: Option<Work>,
    /// Whether it is a stream by its pace is still to be seen.
    look: Option<Look>,
    /// It is open, since when; but the pool had no room for it when that was seen.
    unpooled: Option<(Open, Timestamp)>,
    /// When its answer began, once it has.
    began: Option<Timestamp>,
}

/// When it is looked, once, whether an answer is a stream.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Timestamp,
    first_byte: Timestamp,
}

/// Open for so many times the target and mostly idle: a stream.
const STREAM_TARGETS: u32 = 8;
/// An answer that moves fewer bytes per second is mostly idle.
const IDLE_RATE: f64 = 16_384.0;

/// What the log wants of a request's head; kept only when there is a log.
#[derive(Debug)]
struct Line {
    method: Method,
    host: Option<HeaderValue>,
    uri: Uri,
    request_id: Option<HeaderValue>,
    /// The status of gRPC that its answer has.
    grpc_status: Option<u8>,
}

/// What a request was told that was refused before it had a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) status: u16,
    pub(crate) grpc_status: Option<u8>,
    pub(crate) bytes_out: usize,
    pub(crate) protocol: Protocol,
}

impl Ending {
    pub(crate) fn new(
        worker: &Rc<WorkerApp>,
        client: &Rc<Client>,
        local: &Rc<Local>,
        at: Timestamp,
        request: Request,
    ) -> Box<Self> {
        Box::new(Ending {
            worker: worker.clone(),
            client: client.clone(),
            local: local.clone(),
            place: Place::default(),
            outcome: Outcome::answered(),
            cost: None,
            end: RecordEnd::ClientGone,
            status: 0,
            bytes_out: 0,
            server: None,
            waited: Duration::ZERO,
            first_byte: None,
            retries: 0,
            decision: Decided::Admitted,
            trace: None,
            example: None,
            since: Since { at, came: at },
            request,
            line: None,
            reported: false,
        })
    }

    /// Its client's connection is for other requests now; only its end is still to come.
    pub(crate) fn leave_connection(&mut self) {
        let own = Client::new(self.client.peer(), Timestamp::MAX);
        own.is_stream.set(self.client.is_stream.get());
        self.client = own;
    }

    /// Keeps what log and trace want of the head, if there is one of them.
    pub(crate) fn note(
        &mut self,
        parts: &http::request::Parts,
        request_id: impl FnOnce(&http::HeaderMap) -> Option<&HeaderValue>,
    ) {
        if self.worker.app.records.enabled() || self.trace.as_ref().is_some_and(|trace| trace.is_sampled()) {
            self.line = Some(Box::new(Line {
                method: parts.method.clone(),
                host: parts.headers.get(http::header::HOST).cloned(),
                uri: parts.uri.clone(),
                request_id: request_id(&parts.headers).cloned(),
                grpc_status: None,
            }));
        }
    }

    /// Offers it as an example of its class's response times, by the fields that its server gets.
    pub(crate) fn offer(&mut self, headers: &http::HeaderMap) {
        self.example =
            self.local.live.times(self.request.class).and_then(|times| times.example(self.since.at, headers));
    }

    /// Its answer, or what followed it, has this status of gRPC.
    pub(crate) fn note_grpc(&mut self, status: Option<u8>) {
        if let (Some(line), Some(_)) = (&mut self.line, status) {
            line.grpc_status = status;
        }
    }

    /// Whether the clock is worth reading for the log's sake.
    pub(crate) fn logged(&self) -> bool {
        self.line.is_some()
    }

    /// What its answer says by its status. `told`: by the field of a sentry, where it has it.
    pub(crate) fn answered(&self, told: Option<Refusal>) -> Answered {
        Answered::of(self.status, told, &self.local.live.config.refused_below)
    }

    /// What is said of it with an answer that says that a service further down refused it, where clients are told.
    pub(crate) fn explains(&self, answered: Answered) -> Option<HeaderValue> {
        answered.refusal().and_then(|refusal| reject::refused_below(&self.local.live, self.class(), refusal))
    }

    /// The request's class.
    pub(crate) fn class(&self) -> ClassId {
        self.request.class
    }

    /// What the classifier made of the request.
    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// When the request's head came.
    pub(crate) fn came(&self) -> Timestamp {
        self.since.came
    }

    /// When the request arrived.
    pub(crate) fn arrived(&self) -> Timestamp {
        self.since.at
    }

    /// It turns out to be open and no work; `first_byte`: since when its answer goes on. Where the pool takes it, its
    /// permit stands for the open connection from now on.
    pub(crate) fn open(&mut self, kind: Open, first_byte: Timestamp) {
        let Some(permit) = self.place.permit.as_ref().filter(|_| self.place.work.is_none()) else { return };
        if !permit.open(kind, first_byte) {
            self.place.unpooled = Some((kind, first_byte));
            return;
        }
        self.place.work = Some(Work::Open(kind));
        self.client.unbound_request();
        if kind != Open::Poll {
            self.place.began = Some(first_byte);
            self.observe(first_byte);
        }
    }

    /// Its answer began at that time.
    pub(crate) fn begin_answer(&mut self, first_byte: Timestamp) {
        self.place.began = Some(first_byte);
        if let Some(permit) = &self.place.permit {
            permit.note_first_byte(first_byte);
        }
    }

    /// Its response time is known: it ended at `end`.
    fn observe(&mut self, end: Timestamp) {
        if let Some(times) = self.local.live.times(self.request.class) {
            times.observe(end.since(self.since.at), self.example.take());
            if let Some(first_byte) = self.place.began {
                times.observe_first_byte(first_byte.since(self.since.at));
            }
        }
    }

    /// Its body is here, and it asks for a place: its response time begins now.
    pub(crate) fn ask_again(&mut self, arrival: &Arrival) {
        self.since.at = arrival.at;
        self.request = arrival.request;
        self.local = arrival.local.clone();
    }

    /// How it ends is known, and no server works on it any more: its place is free, whether or not its client has taken
    /// the answer. `now`: the clock was just read.
    pub(crate) fn free_place(&mut self, now: Timestamp) {
        if let Some(permit) = self.place.permit.take() {
            self.release(permit, now);
        }
    }

    /// Its answer began at `first_byte`, and nothing says that it is a stream: its pace will.
    pub(crate) fn watch_pace(&mut self, first_byte: Timestamp) {
        self.place.look = self.judged_over().map(|over| Look { at: first_byte + over, first_byte });
    }

    /// When to look whether it is a stream by its server's pace.
    pub(crate) fn look_at(&self) -> Option<Timestamp> {
        self.place.look.map(|look| look.at)
    }

    /// The answer has been open for many times the target, and its server has nothing to send just now: whether that
    /// was so most of the time.
    pub(crate) fn look(&mut self, now: Timestamp) {
        if let Some(look) = self.place.look.take() {
            self.judge_pace(self.bytes_out, look.first_byte, now);
        }
    }

    /// Of the answer `bytes` moved since `since`: if that is next to nothing, its place is free.
    pub(crate) fn judge_pace(&mut self, bytes: u64, since: Timestamp, now: Timestamp) {
        if self.may_be_open() && (bytes as f64) < now.seconds_since(since) * IDLE_RATE {
            self.open(Open::Stream, since);
        }
    }

    /// Over how long its pace is judged; `None`: it is work whatever its pace, or is over.
    pub(crate) fn judged_over(&self) -> Option<Duration> {
        self.may_be_open().then(|| self.longest_target() * STREAM_TARGETS)
    }

    /// What the rules say that it is.
    pub(crate) fn kind(&self) -> RequestKind {
        self.local.live.config.kind(&self.request)
    }

    /// Whether it may still turn out to be open and no work.
    fn may_be_open(&self) -> bool {
        self.kind() != RequestKind::Work
            && self.place.work.is_none()
            && self.place.unpooled.is_none()
            && self.place.permit.is_some()
    }

    /// The longest target of its application.
    pub(crate) fn longest_target(&self) -> Duration {
        let steps = self.local.live.config.setup.sla.steps();
        steps.iter().map(|step| step.target).max().unwrap_or(Duration::from_secs(1))
    }

    /// The request is over, in the way that `end` and `outcome` say.
    pub(crate) fn report(mut self: Box<Self>) {
        self.settle();
    }

    fn settle(&mut self) {
        if std::mem::replace(&mut self.reported, true) {
            return;
        }
        let lane = self.worker.lane();
        lane.add(Counter::BytesOut, self.bytes_out);
        let bytes_in = self.client.upload.bytes.take();
        lane.add(Counter::BytesIn, bytes_in);
        if self.status != 0 {
            lane.status(self.status);
        }
        if self.end == RecordEnd::ClientGone {
            lane.bump(Counter::ClientGone);
            // Who leaves a stream leaves no work behind: that is how streams end.
            if !matches!(self.place.work, Some(Work::Open(_))) {
                self.worker.app.count_cancel(self.worker.now(), self.client.peer().ip());
            }
        }
        if self.place.permit.is_some() {
            self.free_place(self.worker.now());
        }
        if let Some(line) = self.line.take() {
            self.log(&line, bytes_in);
        }
    }

    /// Whose it is and its name there, while it has a place.
    pub(crate) fn admission(&self) -> Option<Admission> {
        self.place.permit.as_ref().map(Permit::admission)
    }

    /// The controller wants it ended. `false`: no server is at work for it, and it stays what it was.
    pub(crate) fn cancel(&mut self) -> bool {
        let is_work = self.place.permit.is_some() && self.place.work.is_none();
        if is_work {
            (self.end, self.outcome) = (RecordEnd::Cancelled, Outcome::timed_out());
        }
        is_work
    }

    /// The permit ends, or goes on with the work that is left behind.
    fn release(&mut self, permit: Permit, now: Timestamp) {
        if let Some((kind, first_byte)) = self.place.unpooled {
            self.place.work = Some(Work::Open(kind));
            // How long it was open teaches nothing, even if the pool has no room for it now either.
            if permit.open(kind, first_byte) && self.end != RecordEnd::ClientGone {
                permit.complete(self.outcome, None);
            }
            return;
        }
        let by = match self.end {
            RecordEnd::ClientGone => Some(AbandonedBy::Client),
            RecordEnd::Cancelled => Some(AbandonedBy::Controller),
            _ if self.outcome.end == End::TimedOut => Some(AbandonedBy::TimeOut),
            _ => None,
        };
        match (by, self.place.work, self.place.left.take()) {
            (Some(by), None, Some(server)) => {
                self.place.work = Some(Work::Ghost);
                if by != AbandonedBy::Client {
                    self.observe(now);
                }
                ghost::leave(&self.worker, permit, by, server);
            }
            (Some(by @ AbandonedBy::Client), None, None) if self.place.is_elsewhere => {
                self.place.work = Some(Work::Ghost);
                permit.abandon(by);
            }
            // What is left is no work, or there is none.
            (Some(AbandonedBy::Client), ..) => drop(permit),
            (_, Some(_), _) => permit.complete(self.outcome, None),
            (_, None, _) => {
                let measured = self.server.zip(self.cost).filter(|_| self.outcome.end == End::Answered);
                self.observe(now);
                let outcome = Outcome { bytes: Some(self.bytes_out), ..self.outcome };
                permit.complete(outcome, measured.map(|(server, cost)| (server, self.request, cost)));
            }
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.reported {
            self.end = RecordEnd::ClientGone;
            self.settle();
        }
    }
}

/// A request that was refused before it had a task: counted, and told of.
pub(crate) fn record_refusal(
    worker: &WorkerApp,
    arrival: &Arrival,
    view: &impl RequestView,
    peer: SocketAddr,
    refused: Refused,
) {
    let lane = worker.lane();
    lane.bump(Counter::RefusedByGate);
    lane.status(refused.status);
    lane.add(Counter::BytesOut, refused.bytes_out as u64);
    let trace = worker.app.spans.begin(|| view.header("traceparent"), || worker.random());
    let trace = trace.filter(|trace| trace.is_sampled());
    if trace.is_some() || worker.app.records.enabled() {
        log_refusal(worker, arrival, view, peer, refused, trace.as_deref());
    }
}
