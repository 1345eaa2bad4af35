//! Plays operations on a controller and writes down everything that can be seen.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_engine::{
    AbandonedBy, Action, AffinityKey, ClassId, Controller, Decision, End, Event, EventSink, LoadReport, Open, Outcome,
    Request, RequestTypeId, ServerId, Setup, Share, Signal, Snapshot, Status, Tags, TenantKey, Ticket, Timestamp,
    UrlKey, Watch,
};

use super::cases::{Case, reconfigured};
use super::operation::Operation;

/// What was put into the controller.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Nothing: it was just made.
    Made,
    /// A request.
    Arrive(Request),
    /// A completion.
    Complete(Ticket, Outcome),
    /// A cancel.
    Cancel(Ticket),
    /// Nobody waits for it any more.
    Abandon(Ticket, AbandonedBy, Watch),
    /// It is no work; when its answer began.
    Open(Ticket, Open, Timestamp),
    /// When its answer began.
    FirstByte(Ticket, Timestamp),
    /// The server failed the request.
    Redispatch(Ticket, ServerId),
    /// `handle_timeout`.
    Timeout,
    /// A server's state.
    Server(ServerId, Status),
    /// The sentry's load.
    SentryCpu(f64),
    /// A measurement or a count.
    Report(LoadReport),
    /// Shadow mode.
    Shadow(bool),
    /// Another setup.
    Reconfigure(Box<Setup>),
}

/// What it answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Nothing to answer.
    Nothing,
    /// To an arrival.
    Decision(Decision),
    /// To what is open: whether it is in the pool.
    Pooled(bool),
    /// To a redispatch.
    Moved(Option<ServerId>),
}

/// A server as the driver sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// What it is there for.
    pub role: tidegate_engine::Role,
    /// Its state.
    pub status: Status,
    /// In flight there.
    pub in_flight: u32,
    /// Streams, polls and tunnels there.
    pub open: u32,
    /// The most it may have.
    pub max: Option<u32>,
    /// Its partition.
    pub partition: Option<u8>,
}

/// Everything to see after a step.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// All servers, by id.
    pub servers: Vec<Server>,
    /// The getters.
    pub in_flight: usize,
    /// In the pool.
    pub open: usize,
    /// Waiting.
    pub waiting: usize,
    /// What `poll_timeout` says.
    pub timeout: Option<Timestamp>,
}

/// One call, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When.
    pub now: Timestamp,
    /// What was put in.
    pub input: Input,
    /// What was answered.
    pub output: Output,
    /// What was polled afterwards, in order.
    pub actions: Vec<Action>,
    /// Ghosts that nobody watches, gone since the last step.
    pub faded: Vec<Ticket>,
    /// What was told meanwhile.
    pub events: Vec<(Timestamp, Event)>,
    /// What was to be seen then.
    pub after: View,
}

#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<(Timestamp, Event)>>>);

impl EventSink for Events {
    fn record(&mut self, now: Timestamp, event: Event) {
        self.0.lock().expect("nobody panics while holding it").push((now, event));
    }
}

/// A controller and its past.
pub struct Driver {
    /// The controller.
    pub controller: Controller,
    /// The time.
    pub now: Timestamp,
    /// All steps so far.
    pub trace: Vec<Step>,
    waiting: Vec<Ticket>,
    flying: Vec<Ticket>,
    fading: Vec<Ticket>,
    /// Of those that fly, or did, those that were found to be open.
    open: Vec<Ticket>,
    dead: Vec<Ticket>,
    events: Events,
}

impl Driver {
    /// A fresh controller for `case`.
    pub fn new(case: &Case, seed: u64) -> Driver {
        let events = Events::default();
        let controller = Controller::new(case.setup.clone(), 1, seed, Box::new(events.clone()))
            .unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let (waiting, flying, fading, open, dead) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let now = Timestamp::ZERO;
        let mut driver = Driver { controller, now, trace: Vec::new(), waiting, flying, fading, open, dead, events };
        driver.note(Input::Made, Output::Nothing);
        driver
    }

    /// Plays one operation; what it names but is not there is left out.
    pub fn play(&mut self, operation: &Operation) {
        match *operation {
            Operation::Arrive { class, request_type, url, count } => {
                // Some with a deadline, from past to far; some again.
                let deadline = (url % 5 == 4).then(|| self.now + Duration::from_millis(u64::from(url) * 8));
                let deadline = if url == 4 { Some(self.now) } else { deadline };
                (0..count).for_each(|at| self.arrive_as(class, request_type, url, deadline, (url + at) % 4 == 3));
            }
            Operation::Complete { which, end, millis } => {
                let told = (millis > 0).then(|| Duration::from_millis(u64::from(millis)));
                if let Some(ticket) = pick(&self.flying, which) {
                    let refused_below = end == End::Failed && millis % 2 == 1;
                    self.complete(ticket, Outcome { end, service_time: told, bytes: None, refused_below });
                }
            }
            Operation::Cancel { which } => {
                let all: Vec<Ticket> = self.waiting.iter().chain(&self.flying).copied().collect();
                if let Some(ticket) = pick(&all, which) {
                    self.cancel(ticket);
                }
            }
            Operation::Abandon { which, by, watch } => {
                if let Some(ticket) = pick(&self.flying, which) {
                    self.abandon(ticket, by, watch);
                }
            }
            Operation::Open { which, kind, millis } => {
                if let Some(ticket) = pick(&self.flying, which) {
                    self.open(ticket, kind, self.ago(millis));
                }
            }
            Operation::FirstByte { which, millis } => {
                if let Some(ticket) = pick(&self.flying, which) {
                    self.first_byte(ticket, self.ago(millis));
                }
            }
            Operation::Stale { which, cancel } => self.stale(which, cancel),
            Operation::Redispatch { which } => self.redispatch(which),
            Operation::Advance { micros } => self.advance(Duration::from_micros(u64::from(micros))),
            Operation::Stall { millis } => self.now = self.now + Duration::from_millis(u64::from(millis)),
            Operation::Early => self.timeout(),
            Operation::Server { which, status } => self.server(which, status),
            Operation::SentryCpu { percent } => self.sentry_cpu(f64::from(percent) / 100.0),
            Operation::Signal { which, signal, percent } => self.signal(which, signal, f64::from(percent)),
            Operation::Shadow { on } => self.shadow(on),
            Operation::Reconfigure { which } => self.reconfigure(which),
        }
    }

    /// A request of a class (the last there is, if there are not so many), type and URL.
    pub fn arrive(&mut self, class: u8, request_type: u8, url: u8) {
        self.arrive_as(class, request_type, url, None, false);
    }

    /// The same with a deadline, or tried before.
    pub fn arrive_as(&mut self, class: u8, request_type: u8, url: u8, deadline: Option<Timestamp>, is_retry: bool) {
        let setup = self.controller.setup();
        let class = class.min(setup.classes.len() as u8 - 1);
        let request_type = u16::from(request_type).min(setup.request_types.len() as u16 - 1);
        // Every third URL is of no session.
        let affinity = AffinityKey(u64::from(url % 3 * (url % 16)));
        let class = ClassId(class);
        // The second type strains the processors.
        let tags = Tags(u64::from(request_type == 1));
        // The first of five is of no tenant.
        let tenant = TenantKey(u64::from(url % 5));
        let url = UrlKey(u64::from(url).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let request_type = RequestTypeId(request_type);
        let request = Request { class, request_type, tags, url, affinity, tenant, deadline, is_retry };
        let is_full = self.controller.is_full(self.now);
        let guaranteed = self.controller.policer().counts(class).guaranteed;
        let asks = self.controller.policer().share(class) == Share::Ask;
        let decision = self.controller.handle_arrival(self.now, request);
        let has_guarantee = self.controller.policer().counts(class).guaranteed > guaranteed;
        let is_refused = matches!(decision, Decision::Reject(_));
        assert!(!is_full || !asks || has_guarantee || is_refused, "full, and yet {decision:?}");
        match decision {
            Decision::Admit { ticket, .. } => self.flying.push(ticket),
            Decision::Enqueue { ticket } => self.waiting.push(ticket),
            Decision::Reject(_) => {}
        }
        self.note(Input::Arrive(request), Output::Decision(decision));
    }

    /// A request ends.
    pub fn complete(&mut self, ticket: Ticket, outcome: Outcome) {
        self.controller.handle_completion(self.now, ticket, outcome);
        self.bury(ticket);
        self.note(Input::Complete(ticket, outcome), Output::Nothing);
    }

    /// Its client leaves.
    pub fn cancel(&mut self, ticket: Ticket) {
        self.controller.handle_cancel(self.now, ticket);
        self.bury(ticket);
        self.note(Input::Cancel(ticket), Output::Nothing);
    }

    /// Nobody waits for it any more; its server may work on.
    pub fn abandon(&mut self, ticket: Ticket, by: AbandonedBy, watch: Watch) {
        let is_work = self.flying.contains(&ticket) && !self.open.contains(&ticket);
        self.controller.handle_abandon(self.now, ticket, by, watch);
        match watch {
            // Perhaps it is gone at once: then it fades within this step.
            Watch::Nobody if is_work => {
                self.flying.retain(|t| *t != ticket);
                self.fading.push(ticket);
            }
            _ if self.controller.server_of(ticket).is_none() => self.bury(ticket),
            _ => {}
        }
        self.note(Input::Abandon(ticket, by, watch), Output::Nothing);
    }

    /// A request turns out to be a stream, a poll or a tunnel.
    pub fn open(&mut self, ticket: Ticket, kind: Open, first_byte: Timestamp) -> bool {
        let pooled = self.controller.handle_open(self.now, ticket, kind, first_byte);
        if pooled {
            self.open.push(ticket);
        }
        self.note(Input::Open(ticket, kind, first_byte), Output::Pooled(pooled));
        pooled
    }

    /// The answer to a request began at `at`.
    pub fn first_byte(&mut self, ticket: Ticket, at: Timestamp) {
        self.controller.handle_first_byte(ticket, at);
        self.note(Input::FirstByte(ticket, at), Output::Nothing);
    }

    /// Lets time pass, calling the controller whenever it wants to be called.
    pub fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        while let Some((at, _)) = self.controller.poll_timeout()
            && at <= end
        {
            self.now = self.now.max(at);
            self.timeout();
        }
        self.now = self.now.max(end);
    }

    /// Lets time pass and calls the controller once at the end: nothing is going on.
    pub fn doze(&mut self, by: Duration) {
        self.now = self.now + by;
        self.timeout();
    }

    /// Calls `handle_timeout` now.
    pub fn timeout(&mut self) {
        self.controller.handle_timeout(self.now);
        self.note(Input::Timeout, Output::Nothing);
    }

    /// Turns shadow mode on or off.
    pub fn shadow(&mut self, on: bool) {
        self.controller.set_shadow(self.now, on);
        self.note(Input::Shadow(on), Output::Nothing);
    }

    /// Tells the sentry's load, 0 to 1.
    pub fn sentry_cpu(&mut self, load: f64) {
        self.controller.handle_report(self.now, LoadReport::SentryCpu(load));
        self.note(Input::SentryCpu(load), Output::Nothing);
    }

    /// Tells how much of a resource is in use at a server, or at the sentry (0).
    pub fn signal(&mut self, which: u8, signal: Signal, value: f64) {
        let servers = self.controller.servers();
        let places = servers.len() + 1;
        let server = (usize::from(which) % places).checked_sub(1).map(|at| servers[at].id);
        let report = LoadReport::Signal { server, signal, value };
        self.controller.handle_report(self.now, report);
        self.note(Input::Report(report), Output::Nothing);
    }

    /// Sets a server's state.
    pub fn server(&mut self, which: u8, status: Status) {
        let servers = self.controller.servers();
        if servers.is_empty() {
            return;
        }
        let id = servers[usize::from(which) % servers.len()].id;
        self.controller.handle_server(self.now, id, status);
        self.note(Input::Server(id, status), Output::Nothing);
    }

    /// Takes over another setup.
    pub fn reconfigure(&mut self, which: u8) {
        let setup = reconfigured(self.controller.setup().clone(), which);
        self.controller.reconfigure(self.now, setup.clone()).expect("these setups make sense");
        self.note(Input::Reconfigure(Box::new(setup)), Output::Nothing);
    }

    /// Requests in flight or open that the driver has to end, oldest first.
    pub fn flying(&self) -> &[Ticket] {
        &self.flying
    }

    /// Requests that wait, oldest first.
    pub fn waiting(&self) -> &[Ticket] {
        &self.waiting
    }

    /// The last step.
    pub fn last(&self) -> &Step {
        self.trace.last().expect("the first step is the making")
    }

    fn ago(&self, millis: u8) -> Timestamp {
        Timestamp::from_nanos(self.now.as_nanos().saturating_sub(u64::from(millis) * 1_000_000))
    }

    fn stale(&mut self, which: u8, cancel: bool) {
        let Some(ticket) = pick(&self.dead, which) else { return };
        match cancel {
            true => self.cancel(ticket),
            false => self.complete(ticket, Outcome::answered()),
        }
    }

    fn redispatch(&mut self, which: u8) {
        let Some(ticket) = pick(&self.flying, which) else { return };
        let Some(server) = self.controller.server_of(ticket) else { panic!("a request in flight without a server") };
        let moved = self.controller.handle_redispatch(self.now, ticket, server);
        self.note(Input::Redispatch(ticket, server), Output::Moved(moved));
    }

    fn bury(&mut self, ticket: Ticket) {
        let before = self.waiting.len() + self.flying.len();
        self.waiting.retain(|t| *t != ticket);
        self.flying.retain(|t| *t != ticket);
        if self.waiting.len() + self.flying.len() < before {
            self.dead.push(ticket);
        }
    }

    fn note(&mut self, input: Input, output: Output) {
        let actions: Vec<Action> = std::iter::from_fn(|| self.controller.poll_action()).collect();
        let mut cancelled = Vec::new();
        for action in &actions {
            match *action {
                Action::Start { ticket, .. } => {
                    self.waiting.retain(|t| *t != ticket);
                    self.flying.push(ticket);
                }
                Action::Refuse { ticket, .. } => self.bury(ticket),
                Action::Cancel { ticket } => cancelled.push(ticket),
                Action::Isolate { .. } | Action::SynRate { .. } => {}
                other => panic!("an action that the suite does not know: {other:?}"),
            }
        }
        let is_gone = |ticket: &Ticket| self.controller.server_of(*ticket).is_none();
        let faded: Vec<Ticket> = self.fading.iter().copied().filter(is_gone).collect();
        self.fading.retain(|ticket| !faded.contains(ticket));
        self.dead.extend(&faded);
        let events = std::mem::take(&mut *self.events.0.lock().expect("nobody panics while holding it"));
        self.trace.push(Step { now: self.now, input, output, actions, faded, events, after: self.view() });
        cancelled.into_iter().for_each(|ticket| self.abandon(ticket, AbandonedBy::Controller, Watch::Driver));
    }

    fn view(&self) -> View {
        let server = |s: &tidegate_engine::ServerState| Server {
            status: s.status,
            role: s.role,
            in_flight: s.in_flight,
            open: s.streams + s.tunnels,
            max: s.limit(),
            partition: s.partition,
        };
        View {
            snapshot: self.controller.snapshot(self.now),
            servers: self.controller.servers().iter().map(server).collect(),
            in_flight: self.controller.in_flight(),
            open: self.controller.open(),
            waiting: self.controller.waiting(),
            timeout: self.controller.poll_timeout().map(|(at, _)| at),
        }
    }
}

fn pick(of: &[Ticket], which: u8) -> Option<Ticket> {
    (!of.is_empty()).then(|| of[usize::from(which) % of.len()])
}
