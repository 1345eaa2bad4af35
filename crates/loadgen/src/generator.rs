//! The generator's loop: merges the streams and lets each request leave at its instant, as a task of its own.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::HeaderValue;
use http::{HeaderName, Request, Uri};
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use tidegate_workload::{Arrivals, Rng, TenantDraw, rng};
use tokio::sync::{Notify, watch};
use tokio::time::timeout_at;

use crate::client::Way;
use crate::exchange::{Client, Told};
use crate::grpc;
use crate::health::{Health, warnings};
use crate::plan::{Destination, Plan, Stream, TENANT, is_secure};
use crate::progress::{Progress, ten_times_a_second};
use crate::protocol::Protocol;
use crate::record::{ClassRecord, Outcome, summarise};
use crate::report::{ErrorKind, Report};
use crate::retries;
use crate::script::ScriptedRequest;
use crate::timer::FineTimer;

/// Runs the plan to its end, or until `stop` turns true. Inside a local runtime.
pub(crate) async fn generate(
    plan: Plan,
    way: Way,
    destinations: Vec<Destination>,
    mut stop: watch::Receiver<bool>,
    progress: watch::Sender<Progress>,
) -> std::io::Result<Report> {
    let mut timer = FineTimer::new()?;
    let generator = Rc::new(Generator::new(plan, &way, &destinations));
    let ticker = {
        let (generator, progress) = (Rc::clone(&generator), progress.clone());
        tokio::task::spawn_local(ten_times_a_second(move |length| {
            generator.health.borrow_mut().tick();
            progress.send_replace(generator.progress(length, false));
        }))
    };
    let sending = Rc::clone(&generator);
    let stopped = tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => true,
        result = async { send_all(&sending, &mut timer).await?; sending.drained().await; Ok::<_, std::io::Error>(()) } => {
            result?;
            false
        }
    };
    ticker.abort();
    let report = generator.report(stopped);
    progress.send_replace(generator.progress(Duration::ZERO, true));
    Ok(report)
}

/// Lets every request leave at its instant.
async fn send_all(generator: &Rc<Generator>, timer: &mut FineTimer) -> std::io::Result<()> {
    let plan = &generator.plan;
    let mut sources: Vec<Source> = plan.streams.iter().enumerate().map(|(i, s)| Source::new(plan, i, s)).collect();
    let mut burst = 0;
    while let Some((due, source)) = next_source(&mut sources, plan.duration) {
        let instant = generator.start + due;
        if Instant::now() < instant {
            timer.sleep_until(instant).await?;
            burst = 0;
        } else if burst == BURST {
            // Behind time: the requests already under way must get their turn all the same.
            tokio::task::yield_now().await;
            burst = 0;
        }
        burst += 1;
        let stream = source.stream;
        let (choice, headers) = source.take();
        generator.fire(stream, choice, headers, due);
    }
    timer.sleep_until(generator.start + plan.duration).await
}

/// One stream's requests still to come.
struct Source {
    stream: usize,
    next: Option<Duration>,
    origin: Origin,
}

/// Header fields of one request.
type Fields = Vec<(HeaderName, HeaderValue)>;

/// Where a stream's requests come from.
enum Origin {
    Rate { arrivals: Arrivals, weights: WeightedIndex<f64>, rng: Rng, tenants: Option<Box<Tenants>> },
    Script { lines: Box<dyn Iterator<Item = ScriptedRequest>>, next: Option<ScriptedRequest> },
}

/// Whose requests a stream's are.
struct Tenants {
    class: String,
    draw: TenantDraw,
    /// Of its own: with tenants a stream asks for what it asks for without them.
    rng: Rng,
}

impl Tenants {
    fn new(plan: &Plan, stream: usize, of: &Stream) -> Option<Box<Tenants>> {
        let draw = of.tenants?.draw();
        let rng = rng(plan.seed, u64::MAX - 1 - stream as u64);
        Some(Box::new(Tenants { class: of.class.clone(), draw, rng }))
    }

    /// The field that names the next request's tenant.
    fn next(&mut self) -> Option<(HeaderName, HeaderValue)> {
        let name = format!("{}-{}", self.class, self.draw.sample(&mut self.rng));
        HeaderValue::try_from(name).ok().map(|name| (TENANT, name))
    }
}

impl Source {
    fn new(plan: &Plan, stream: usize, of: &Stream) -> Source {
        if let Some(script) = &of.script {
            let mut lines = Box::new(script.requests());
            let next = lines.next();
            return Source { stream, next: next.as_ref().map(|line| line.at), origin: Origin::Script { lines, next } };
        }
        let mut arrivals = of.arrivals.arrivals(&of.profile, plan.seed, 2 * stream as u64);
        let weights = WeightedIndex::new(of.urls.iter().map(|(_, weight)| *weight));
        let weights = weights.expect("a valid plan has URLs with weights above 0");
        let next = arrivals.next();
        let (rng, tenants) = (rng(plan.seed, 2 * stream as u64 + 1), Tenants::new(plan, stream, of));
        Source { stream, next, origin: Origin::Rate { arrivals, weights, rng, tenants } }
    }

    /// The URL of the request that is due, and what it carries besides; the one after it is due next.
    fn take(&mut self) -> (usize, Fields) {
        match &mut self.origin {
            Origin::Rate { arrivals, weights, rng, tenants } => {
                self.next = arrivals.next();
                (weights.sample(rng), tenants.as_mut().and_then(|tenants| tenants.next()).into_iter().collect())
            }
            Origin::Script { lines, next } => {
                let due = std::mem::replace(next, lines.next());
                self.next = next.as_ref().map(|line| line.at);
                due.map_or((0, Fields::new()), |line| (line.url, line.headers))
            }
        }
    }
}

/// The source whose turn is next, if any has one before `end`. A handful of streams: looking at each is quickest.
fn next_source(sources: &mut [Source], end: Duration) -> Option<(Duration, &mut Source)> {
    let with_next = sources.iter_mut().filter_map(|s| s.next.map(|due| (due, s)));
    with_next.min_by_key(|(due, _)| *due).filter(|(due, _)| *due < end)
}

/// What all requests of a run share.
struct Generator {
    plan: Plan,
    start: Instant,
    clients: Vec<Client>,
    streams: Vec<Prepared>,
    records: RefCell<Vec<ClassRecord>>,
    health: RefCell<Health>,
    outstanding: Cell<usize>,
    idle: Notify,
    /// For how long clients wait before they try again.
    waits: RefCell<Rng>,
    /// For how long requests were sent, once all have been.
    ended: Cell<Option<Duration>>,
}

/// A stream's requests, made ready.
struct Prepared {
    class: usize,
    choices: Vec<Choice>,
}

struct Choice {
    client: usize,
    /// What is sent, ready but for what differs from one to the next.
    request: Request<Bytes>,
}

impl Generator {
    fn new(plan: Plan, way: &Way, destinations: &[Destination]) -> Generator {
        let classes = plan.classes();
        let prepared = |stream| Prepared::new(&plan, stream, way, &classes, destinations);
        let client = |destination: &Destination| {
            let members = plan.members.iter().find(|(of, _)| *of == destination.authority);
            way.client(destination, members.map(|(_, members)| members.clone()))
        };
        Generator {
            clients: destinations.iter().map(client).collect(),
            streams: plan.streams.iter().map(prepared).collect(),
            records: RefCell::new(classes.into_iter().map(|c| ClassRecord::new(c, plan.target)).collect()),
            health: RefCell::new(Health::new()),
            outstanding: Cell::new(0),
            idle: Notify::new(),
            waits: RefCell::new(rng(plan.seed, u64::MAX)),
            ended: Cell::new(None),
            start: Instant::now(),
            plan,
        }
    }

    /// Lets one request leave, unless too many are outstanding.
    fn fire(self: &Rc<Self>, stream: usize, choice: usize, headers: Fields, due: Duration) {
        if self.begin(stream, due) {
            tokio::task::spawn_local(Rc::clone(self).request(stream, choice, headers, due));
        }
    }

    /// Counts a try that is due. Whether it may leave.
    fn begin(&self, stream: usize, due: Duration) -> bool {
        let record = &mut self.records.borrow_mut()[self.streams[stream].class];
        record.offered(due);
        let has_room = self.outstanding.get() < self.plan.outstanding;
        match has_room {
            true => self.outstanding.set(self.outstanding.get() + 1),
            false => record.ended(due, Duration::ZERO, Outcome::OutstandingLimit),
        }
        has_room
    }

    /// Counts how a try ended.
    fn end(&self, stream: usize, due: Duration, took: Duration, outcome: Outcome) {
        self.records.borrow_mut()[self.streams[stream].class].ended(due, took, outcome);
        self.outstanding.set(self.outstanding.get() - 1);
        if self.outstanding.get() == 0 {
            self.idle.notify_one();
        }
    }

    /// One request from its instant to its outcome, and the tries that follow.
    async fn request(self: Rc<Self>, stream: usize, choice: usize, mut headers: Fields, mut due: Duration) {
        self.health.borrow_mut().taken(self.start + due, Instant::now());
        let retry = self.plan.streams[stream].retry;
        let mut tries = 1;
        while let Some(outcome) = self.try_once(stream, choice, headers.clone(), due).await {
            let Some(retry) = retry.filter(|retry| tries < retry.tries) else { return };
            // A statement of its own: whoever waits must not keep the generator of numbers.
            let wait = retries::wait(&retry, outcome, &mut self.waits.borrow_mut());
            let Some(wait) = wait else { return };
            tokio::time::sleep(wait).await;
            (tries, due) = (tries + 1, self.start.elapsed());
            if let Some((name, value)) = retries::said(self.plan.protocol, &retry, tries) {
                headers.retain(|(other, _)| *other != name);
                headers.push((name, value));
            }
            if due >= self.plan.duration || !self.begin(stream, due) {
                return;
            }
        }
    }

    /// One try. `None`: its answer stayed open, until just now.
    async fn try_once(&self, stream: usize, choice: usize, headers: Fields, due: Duration) -> Option<Outcome> {
        let instant = self.start + due;
        let (held, opened) = (Cell::new(false), Cell::new(false));
        let on_send = || self.records.borrow_mut()[self.streams[stream].class].sent();
        let on_open = |outcome| {
            opened.set(true);
            self.end(stream, due, instant.elapsed(), outcome);
        };
        let deadline = instant + self.plan.streams[stream].timeout;
        let told = Told::new(&held, &on_send, &on_open);
        let mut attempt = pin!(self.attempt(stream, choice, &headers, deadline, &told));
        let outcome = match timeout_at(deadline.into(), attempt.as_mut()).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(kind)) => Outcome::Failed(kind),
            Err(_) if opened.get() => {
                // It was answered when it began; how it ends does not matter.
                let _ = attempt.await;
                return None;
            }
            Err(_) if held.get() => Outcome::ConnectionLimit,
            Err(_) => Outcome::Failed(ErrorKind::Timeout),
        };
        if opened.get() {
            return None;
        }
        self.end(stream, due, instant.elapsed(), outcome);
        Some(outcome)
    }

    async fn attempt(
        &self,
        stream: usize,
        choice: usize,
        headers: &[(HeaderName, HeaderValue)],
        deadline: Instant,
        told: &Told<'_>,
    ) -> Result<Outcome, ErrorKind> {
        let choices = &self.streams[stream].choices;
        let choice = &choices[choice.min(choices.len() - 1)];
        let make = || {
            let mut request = choice.request.clone();
            let fields = request.headers_mut();
            headers.iter().for_each(|(name, value)| drop(fields.insert(name.clone(), value.clone())));
            if self.plan.protocol == Protocol::Grpc {
                grpc::say_timeout(fields, deadline.saturating_duration_since(Instant::now()));
            }
            request
        };
        self.clients[choice.client].exchange(make, told, None).await
    }

    /// Waits for the last answer; each request's timeout bounds it.
    async fn drained(&self) {
        self.ended.set(Some(self.plan.duration));
        while self.outstanding.get() > 0 {
            self.idle.notified().await;
        }
    }

    fn progress(&self, length: Duration, finished: bool) -> Progress {
        let classes = self.records.borrow_mut().iter_mut().map(|record| record.progress(length)).collect();
        Progress { elapsed: self.start.elapsed(), duration: self.plan.duration, finished, classes }
    }

    fn report(&self, stopped: bool) -> Report {
        let sent_for = self.ended.get().unwrap_or_else(|| self.start.elapsed()).as_secs_f64();
        let (classes, total) = summarise(&self.records.borrow(), sent_for);
        let sum = |count: fn(&Client) -> u64| self.clients.iter().map(count).sum();
        let generator = self.health.borrow().report(sum(|of| of.dialer().opened.get()), sum(Client::waits));
        Report {
            seed: self.plan.seed,
            sent_for,
            target: self.plan.target.map(|t| t.as_secs_f64()),
            stopped,
            warnings: warnings(&generator, &total, self.plan.connections),
            classes,
            total,
            generator,
        }
    }
}

impl Prepared {
    fn new(plan: &Plan, stream: &Stream, way: &Way, classes: &[String], destinations: &[Destination]) -> Prepared {
        let class = classes.iter().position(|c| *c == stream.class).expect("every stream's class is listed");
        let body = match plan.protocol {
            Protocol::Grpc => grpc::framed(&stream.body),
            _ => stream.body.clone(),
        };
        let choice = |(url, _): &(Uri, f64)| Choice::new(stream, url, body.clone(), way, destinations);
        Prepared { class, choices: stream.urls.iter().map(choice).collect() }
    }
}

impl Choice {
    fn new(stream: &Stream, url: &Uri, body: Bytes, way: &Way, destinations: &[Destination]) -> Choice {
        let authority = url.authority().map_or("", |a| a.as_str());
        let client = destinations.iter().position(|of| of.is_of(url)).expect("every destination is resolved");
        let path = url.path_and_query().map_or("/", |p| p.as_str());
        let mut request = Request::new(body);
        *request.method_mut() = stream.method.clone();
        *request.uri_mut() = path.parse().expect("part of a valid URL");
        *request.headers_mut() = stream.headers_for(authority);
        way.fit(&mut request, is_secure(url));
        Choice { client, request }
    }
}

/// Requests let go in a row before those under way get their turn.
const BURST: usize = 64;
