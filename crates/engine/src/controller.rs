//! The controller of one application: arrivals, completions and reports in; decisions and actions out.
//!
//! It owns the requests that wait or are in flight, the estimates, and the two policies. Its methods follow the
//! engine's grammar: a `handle_*` answers only about its own argument; what follows for *other* requests is polled with
//! [`Controller::poll_action`], and the next moment it wants to be called with [`Controller::poll_timeout`].
//!
//! A request's way through: [`Controller::handle_arrival`] (police, then ask the policy, then dispatch) ->
//! [`Controller::handle_completion`] (learn, then let the policy fill the place). `controller/core_state.rs` holds the
//! state, in parts by question: `flight.rs` what is under way, `estimate/estimates.rs` what was learned, `fleet.rs`
//! which servers there are, `controller/outbox.rs` what is said. `controller/learn.rs` is what is done ten times a
//! second, `controller/reload.rs` a change of setup.

mod core_state;
mod due;
mod follow;
mod hanging;
mod learn;
mod outbox;
mod peers;
mod recall;
mod reload;
mod reports;
mod runaways;
mod show;
mod tries;
mod uploads;
mod work;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;

use crate::admission::{self, Admission, AdmissionPolicy, Arrival};
use crate::decision::{Action, Decision, Outcome, Reason, Rejection};
use crate::estimate::Mark;
use crate::event::{Event, EventSink};
use crate::fleet::{ServerState, Status};
use crate::flight::{Flight, State};
use crate::policer::{Policer, Verdict};
use crate::report::{LoadReport, MeasuredCost};
use crate::request::{AffinityKey, Request, ServerId, Ticket};
use crate::setup::{Setup, SetupError};
use crate::snapshot::Snapshot;
use crate::tenants::Standing;
use crate::time::Timestamp;

use core_state::Core;

/// How often slow state is brought up to date.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// Decides for one application. See the [crate] documentation for its grammar.
pub struct Controller {
    core: Core,
    admission: Box<dyn AdmissionPolicy>,
    next_tick: Timestamp,
}

impl Controller {
    /// A controller for `setup`, whose published part serves `lanes` workers.
    ///
    /// # Errors
    /// When the setup makes no sense.
    pub fn new(
        setup: Setup,
        lanes: usize,
        seed: u64,
        sink: Box<dyn EventSink + Send>,
    ) -> Result<Controller, SetupError> {
        setup.check()?;
        let admission = admission::build(&setup.admission, &setup);
        let core = Core::new(setup, admission.buckets(), lanes, seed, sink);
        let mut controller = Controller { core, admission, next_tick: Timestamp::ZERO };
        // So that a table is published before the first arrival.
        controller.tick(Timestamp::ZERO);
        controller.next_tick = Timestamp::ZERO + TICK;
        Ok(controller)
    }

    /// The lock-free part, for the workers. Fetch it again after [`Controller::reconfigure`].
    pub fn policer(&self) -> Arc<Policer> {
        Arc::clone(&self.core.policer)
    }

    /// A request arrives, on lane 0. For drivers with one thread; others police first, without the lock, and call
    /// [`Controller::handle_policed`].
    pub fn handle_arrival(&mut self, now: Timestamp, request: Request) -> Decision {
        let verdict = self.core.policer.police(0, now, &request);
        self.handle_policed(now, request, verdict)
    }

    /// A request arrives on which [`Policer::police`] gave `verdict`.
    pub fn handle_policed(&mut self, now: Timestamp, request: Request, verdict: Verdict) -> Decision {
        let arrival = Arrival { request, cost: self.core.estimates.costs.estimate(&request) };
        self.core.estimates.classes[request.class.index()].cost_spread.record(now, arrival.cost);
        // The published table counted it already, and whose it is. The sentry answers such a request itself, but in
        // shadow mode; the simulator brings them all.
        if let Verdict::Refuse(rejection) = verdict {
            return self.refuse_arrival(now, &arrival, rejection);
        }
        let standing = self.core.tenants.arrive(now, &arrival);
        let admission = match (verdict, standing) {
            _ if let Some(predicted) = self.misses_deadline(now, &arrival) => {
                Admission::Refuse { reason: Reason::Deadline, predicted: Some(predicted) }
            }
            (_, Standing::Limited) => Admission::refuse(Reason::TenantLimit),
            (Verdict::Guaranteed, _) | (_, Standing::Guaranteed) => Admission::Admit,
            _ if !self.core.below.lets_in(now, &request) => Admission::refuse(Reason::RefusedBelow),
            (Verdict::Pass, _) => Admission::Admit,
            (Verdict::Ask, _) if self.core.stands_back(now, &request, standing) => {
                Admission::refuse(Reason::FirstTriesFirst)
            }
            _ => self.ask(now, &arrival, standing),
        };
        let decision = match admission {
            Admission::Admit if verdict == Verdict::Guaranteed => self.admit(now, &arrival, None),
            Admission::Admit => self.admit_if_spared(now, &arrival),
            Admission::Wait { bucket } => self.enqueue(now, &arrival, bucket, standing.is_over()),
            Admission::Refuse { reason, predicted } => {
                let rejection = self.refusal(now, &request, reason, predicted);
                self.refuse_arrival(now, &arrival, rejection)
            }
        };
        self.settle(now);
        decision
    }

    /// The answer to an admitted request is complete, or will not come; or what was open is over.
    pub fn handle_completion(&mut self, now: Timestamp, ticket: Ticket, outcome: Outcome) {
        match self.core.traffic.flights.get(ticket).map(|flight| flight.state) {
            Some(State::InFlight { .. }) => {}
            Some(State::Ghost { .. }) => return self.lay_ghost(now, ticket, outcome),
            Some(State::Open { .. }) => return self.close(now, ticket, Some(outcome.end)),
            // A waiting request cannot complete: the driver mixed up its tickets.
            _ => return self.core.traffic.stale_tickets += 1,
        }
        if let Some(flight) = self.core.traffic.flights.remove(ticket) {
            self.core.learn_that_it_stayed(now, &flight);
            self.core.land(now, &flight, Some(outcome));
            self.tell_outcome(now, now, &flight, outcome, true);
        }
        self.settle(now);
    }

    /// A request is over that waits or that no server works on; or a ghost's server stopped. Teaches no more than that
    /// it costs more than it received. Where its client left, or its server may work on:
    /// [`Controller::handle_abandon`].
    pub fn handle_cancel(&mut self, now: Timestamp, ticket: Ticket) {
        if let Some(State::Open { .. }) = self.core.traffic.flights.get(ticket).map(|flight| flight.state) {
            return self.close(now, ticket, None);
        }
        let Some(flight) = self.core.traffic.cancel(ticket) else { return };
        if let State::Ghost { since, .. } = flight.state {
            self.core.learn_habit(&flight, Some(now.seconds_since(since)));
        }
        if let Some(server) = flight.state.work_at() {
            self.core.learn_given_up(now, &flight, server);
            self.core.land(now, &flight, None);
            self.offer_places(now);
        }
    }

    /// An admitted request goes to another server than `failed`, because nothing reached that one. `None`: no other
    /// server takes it; it stays where it is.
    pub fn handle_redispatch(&mut self, now: Timestamp, ticket: Ticket, failed: ServerId) -> Option<ServerId> {
        let core = &mut self.core;
        let flight = *core.traffic.flights.get(ticket)?;
        let State::InFlight { server: old } = flight.state else { return None };
        let server = core.fleet.choose_other(now, &mut core.rng, &flight.request, failed)?;
        if !flight.hangs {
            core.witness(now, &flight, old, 0.0, None);
        }
        let kind = core.kind_of(&flight);
        core.fleet.leave(now, old, kind, (!flight.hangs).then_some(0.0));
        core.traffic.take_back(ticket);
        let mark = core.fleet.enter(now, server, kind);
        let flight = core.traffic.flights.get_mut(ticket)?;
        (flight.state, flight.started) = (State::InFlight { server }, now);
        flight.mark = mark;
        Some(server)
    }

    /// A server came up, went down, or is to drain. Unknown servers are ignored.
    pub fn handle_server(&mut self, now: Timestamp, server: ServerId, status: Status) {
        if !self.core.fleet.set_status(server, status) {
            return;
        }
        self.core.outbox.record(now, Event::ServerChanged { server, status });
        self.offer_places(now);
    }

    /// A measurement from outside.
    pub fn handle_report(&mut self, now: Timestamp, report: LoadReport) {
        match report {
            LoadReport::Server { server, load } => self.core.fleet.take_report(now, server, &load),
            LoadReport::Active { server, request_type, count } => {
                self.core.fleet.take_active(server, request_type, count);
            }
            LoadReport::Silent(server) => self.core.fleet.lose_reports(server),
            LoadReport::Lends { server, can } => {
                if self.core.fleet.set_can_lend(server, can) {
                    self.core.outbox.record(now, Event::LenderChanged { server, lends: can });
                }
                self.offer_places(now);
            }
            LoadReport::Coming(at) => {
                self.core.fleet.coming = at;
                self.core.publish_retry_after(now);
            }
            LoadReport::SentryCpu(_) | LoadReport::Signal { .. } | LoadReport::Connections { .. } => {}
        }
        self.admission.on_report(&mut self.core.context(now), &report);
        self.settle(now);
    }

    /// What a request used at `server` was measured there. Told for some requests or for all, in any order; for as long
    /// as it is told, costs are learned from it and not from the server's response times.
    pub fn handle_cost(&mut self, now: Timestamp, server: ServerId, request: &Request, cost: MeasuredCost) {
        self.core.take_cost(now, server, request, &cost);
    }

    /// The answer of `server` began a session: requests with `key` go there from now on.
    pub fn handle_session(&mut self, now: Timestamp, key: AffinityKey, server: ServerId) {
        self.core.fleet.pin_session(now, key, server);
    }

    /// The time that [`Controller::poll_timeout`] named has come (calling earlier does no harm).
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.refuse_overdue(now);
        if now >= self.next_tick {
            // Before the policy: nobody is refused for a place that is free at this instant.
            self.fade_ghosts(now);
        }
        if self.admission.next_timeout().is_some_and(|at| at <= now) {
            self.admission.on_timeout(&mut self.core.context(now));
            self.settle(now);
        }
        if now >= self.next_tick {
            self.tick(now);
            self.next_tick = now + TICK;
        }
    }

    /// When to call [`Controller::handle_timeout`] next, and what for.
    pub fn poll_timeout(&self) -> Option<(Timestamp, &'static str)> {
        let round = self.admission.next_timeout().map(|at| (at, "policing round"));
        let overdue = self.core.traffic.next_overdue().map(|at| (at, "deadline"));
        let first = [round, overdue].into_iter().flatten().min_by_key(|(at, _)| *at);
        match first {
            Some((at, what)) if at < self.next_tick => Some((at, what)),
            _ => Some((self.next_tick, "tick")),
        }
    }

    /// What to do about waiting requests. Poll after every `handle_*` until there is nothing more.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.core.outbox.actions.pop_front()
    }

    /// Turns shadow mode on (decide and count, refuse nothing) or off.
    pub fn set_shadow(&mut self, now: Timestamp, shadow: bool) {
        self.core.setup.shadow = shadow;
        self.core.policer.set_shadow(shadow);
        if shadow {
            // Nobody waits in shadow mode.
            self.core.context(now).start_all();
            self.settle(now);
        }
    }

    /// The servers, by id.
    pub fn servers(&self) -> &[ServerState] {
        &self.core.fleet.servers
    }

    /// Whether a request has this ticket: it waits, is at work, a ghost that is watched, or open.
    pub fn is_live(&self, ticket: Ticket) -> bool {
        self.core.traffic.flights.get(ticket).is_some()
    }

    /// Where an admitted request is.
    pub fn server_of(&self, ticket: Ticket) -> Option<ServerId> {
        self.core.traffic.flights.get(ticket)?.state.server()
    }

    /// What a request is expected to cost, seconds.
    pub fn expected_cost(&self, request: &Request) -> f64 {
        self.core.estimates.costs.estimate(request)
    }

    /// Servers that take requests, by partition, that of the most important class first; one number when servers are
    /// not divided.
    pub fn partition_sizes(&self) -> &[usize] {
        self.core.fleet.partitions.sizes()
    }

    /// Requests that servers work on, ghosts among them.
    pub fn in_flight(&self) -> usize {
        self.core.traffic.flying()
    }

    /// Streams, polls and tunnels that are open.
    pub fn open(&self) -> usize {
        self.core.traffic.pool()
    }

    /// Requests waiting in class queues.
    pub fn waiting(&self) -> usize {
        self.core.traffic.waiting.len()
    }

    /// The setup in force.
    pub fn setup(&self) -> &Setup {
        &self.core.setup
    }

    /// Everything there is to see.
    pub fn snapshot(&self, now: Timestamp) -> Snapshot {
        show::snapshot(&self.core, &*self.admission, now)
    }

    fn admit(&mut self, now: Timestamp, arrival: &Arrival, shadow: Option<Rejection>) -> Decision {
        let server = self.choose(now, arrival);
        self.admit_at(now, arrival, shadow, server)
    }

    fn admit_at(
        &mut self,
        now: Timestamp,
        arrival: &Arrival,
        shadow: Option<Rejection>,
        server: Option<ServerId>,
    ) -> Decision {
        let class = arrival.request.class;
        let Some(server) = server else {
            let reason = self.core.fleet.no_server_reason();
            // Where shadow mode would have refused, it is counted already.
            if shadow.is_none() {
                self.core.count_refusal(now, &arrival.request, reason);
            }
            return Decision::Reject(self.core.reject(class, reason, None));
        };
        let kind = self.core.fleet.partitions.kind(arrival.request.request_type).filter(|_| shadow.is_none());
        let mark = self.core.fleet.enter(now, server, kind);
        let ticket = self.core.traffic.flights.insert(Flight {
            request: arrival.request,
            state: State::InFlight { server },
            arrived: now,
            started: now,
            first_byte: Timestamp::MAX,
            mark,
            cost: arrival.cost,
            level: self.core.below.start(&arrival.request),
            in_flight: self.core.in_flight() as u32 + 1,
            shadow: shadow.is_some(),
            is_cancelled: false,
            hangs: false,
        });
        self.core.traffic.count_admitted(class, shadow.is_some());
        if shadow.is_none() {
            self.core.tenants.admit(arrival.request.tenant, class, arrival.cost);
        }
        Decision::Admit { ticket, server, shadow }
    }

    /// Admits what the policy, asked again now that the server is known, does not refuse.
    fn admit_if_spared(&mut self, now: Timestamp, arrival: &Arrival) -> Decision {
        let Some(server) = self.choose(now, arrival) else {
            return self.admit_at(now, arrival, None, None);
        };
        match self.admission.on_server(now, arrival, server) {
            None => self.admit_at(now, arrival, None, Some(server)),
            Some(reason) => {
                let rejection = self.refusal(now, &arrival.request, reason, None);
                match self.core.setup.shadow {
                    true => self.admit_at(now, arrival, Some(rejection), Some(server)),
                    false => Decision::Reject(rejection),
                }
            }
        }
    }

    /// A refusal of the policy's, counted.
    fn refusal(&mut self, now: Timestamp, request: &Request, reason: Reason, predicted: Option<f64>) -> Rejection {
        self.core.count_refusal(now, request, reason);
        self.core.tenants.refuse(request.tenant);
        let rejection = self.core.reject(request.class, reason, predicted);
        match self.admission.retry_after(now, request) {
            Some(after) => rejection.come_back_after(after),
            None => rejection,
        }
    }

    /// The policy's answer to an arrival whose tenant stands so. In a full queue who is within its tenant's share takes
    /// the place of one who is not.
    fn ask(&mut self, now: Timestamp, arrival: &Arrival, standing: Standing) -> Admission {
        let mut context = self.core.context(now);
        if let Standing::Over(part) = standing {
            context.load.press(part);
        }
        let answer = match self.admission.on_arrival(&mut context, arrival) {
            Admission::Refuse { reason: Reason::QueueFull, .. }
                if !standing.is_over() && context.over_share(arrival.request.class) > 0 =>
            {
                context.displace(arrival.request.class);
                self.admission.on_arrival(&mut context, arrival)
            }
            Admission::Refuse { reason, predicted } => Admission::Refuse { reason: standing.reason(reason), predicted },
            other => other,
        };
        let is_refused = matches!(answer, Admission::Refuse { .. });
        self.core.tenants.answered(arrival.request.class, standing, is_refused);
        answer
    }

    fn enqueue(&mut self, now: Timestamp, arrival: &Arrival, bucket: usize, is_over: bool) -> Decision {
        let flight = Flight {
            request: arrival.request,
            state: State::Waiting { bucket, is_over },
            arrived: now,
            started: now,
            first_byte: Timestamp::MAX,
            mark: Mark::default(),
            cost: arrival.cost,
            level: 0,
            in_flight: 0,
            shadow: false,
            is_cancelled: false,
            hangs: false,
        };
        let ticket = self.core.traffic.enqueue(flight);
        if let Some(at) = self.core.latest_start(now, &arrival.request, arrival.cost) {
            self.core.traffic.wait_until(ticket, at.max(now));
        }
        Decision::Enqueue { ticket }
    }

    fn choose(&mut self, now: Timestamp, arrival: &Arrival) -> Option<ServerId> {
        let Core { fleet, rng, .. } = &mut self.core;
        fleet.choose(now, rng, &arrival.request, None)
    }

    /// Refuses an arrival; in shadow mode only on paper.
    fn refuse_arrival(&mut self, now: Timestamp, arrival: &Arrival, rejection: Rejection) -> Decision {
        match self.core.setup.shadow {
            true => self.admit(now, arrival, Some(rejection)),
            false => Decision::Reject(rejection),
        }
    }
}
