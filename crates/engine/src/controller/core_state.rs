//! The controller's state apart from the admission policy, and the steps of a request through it.

mod servers;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::admission::{ClassEstimate, Context, Released};
use crate::affinity::Pins;
use crate::decision::{Action, End, Outcome, Reason, Rejection};
use crate::dispatch::{self, DispatchPolicy};
use crate::effect::{Effect, Said};
use crate::estimate::{Alpha, Calibration, Capacity, Costs, DecayedHistogram, Mark, Rate, Reported, Scale};
use crate::event::EventSink;
use crate::flight::{Flight, Flights, State};
use crate::max_conn::MOST_KINDS;
use crate::policer::{ClassCounts, Policer};
use crate::request::{ClassId, ServerId};
use crate::rng::Rng;
use crate::server::{ServerState, Status};
use crate::setup::{ClassSetup, ServerSetup, Setup};
use crate::time::Timestamp;
use crate::waiting::Waiting;

use super::partitions::{Change, Partitions};

/// URLs in the cost table.
const COST_ENTRIES: usize = 16_384;
/// Offered rates forget with this time constant, seconds.
pub(super) const RATE_TAU: f64 = 1.0;
/// Displayed response times and the delays' service times fade with these half-lives, seconds.
const RESPONSE_HALF_LIFE: f64 = 10.0;
const SPREAD_HALF_LIFE: f64 = 60.0;
/// An unknown request costs this share of the target.
const DEFAULT_COST_SHARE: f64 = 0.25;

pub(super) struct Core {
    pub(super) setup: Setup,
    pub(super) policer: Arc<Policer>,
    pub(super) dispatch: Box<dyn DispatchPolicy>,
    /// Whether `dispatch` wants to hear of every start and end: asked once, not per request.
    follows_load: bool,
    pub(super) servers: Vec<ServerState>,
    pub(super) partitions: Partitions,
    pub(super) pins: Option<Pins>,
    pub(super) flights: Flights,
    pub(super) waiting: Waiting,
    pub(super) released: Vec<Released>,
    pub(super) actions: VecDeque<Action>,
    /// What policies want done, and is not yet.
    pub(super) effects: Vec<Effect>,
    /// New connections per second that the driver lets in; `None`: all.
    pub(super) connections: Said<Option<f64>>,
    pub(super) classes: Vec<ClassEstimate>,
    pub(super) costs: Costs,
    pub(super) calibration: Calibration,
    pub(super) scale: Scale,
    pub(super) alpha: Alpha,
    pub(super) stats: Vec<ClassStats>,
    pub(super) rng: Rng,
    pub(super) sink: Box<dyn EventSink + Send>,
    /// Seconds.
    pub(super) target: f64,
    pub(super) offered: Rate,
    pub(super) stale_tickets: u64,
    /// When more servers will serve, where some were asked for.
    pub(super) coming: Option<Timestamp>,
    /// Servers that take requests, their processors, and the room that their connection limits leave (`None`: no end).
    up: usize,
    processors: f64,
    /// The processors that are there whatever the estimates say.
    sure_processors: f64,
    free: Option<usize>,
    /// Sums over the servers' reports: Q, seconds, and what is in service beyond what is in flight here.
    pub(super) queueing_delays: f64,
    pub(super) elsewhere: f64,
    pub(super) try_down: bool,
    /// In flight in all, and of these in shadow only.
    in_flight: usize,
    in_shadow: usize,
    /// As of the last refresh.
    pub(super) counted: Vec<ClassCounts>,
    pub(super) refreshed: Timestamp,
}

/// Counters of a class since the start.
#[derive(Clone, Debug)]
pub(super) struct ClassStats {
    pub(super) admitted: u64,
    pub(super) completed: u64,
    pub(super) in_target: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    pub(super) in_flight: u64,
    pub(super) refused: [u64; Reason::ALL.len()],
    /// Counts of policers before a reload.
    pub(super) carried: ClassCounts,
    pub(super) responses: DecayedHistogram,
    /// Refusals up to the last look, when the current run of them began, and when the last was seen.
    pub(super) refused_seen: u64,
    pub(super) refusing: Option<(Timestamp, u64)>,
    pub(super) refused_last: Timestamp,
}

impl ClassStats {
    pub(super) fn new() -> Self {
        ClassStats {
            admitted: 0,
            completed: 0,
            in_target: 0,
            failed: 0,
            cancelled: 0,
            in_flight: 0,
            refused: [0; Reason::ALL.len()],
            carried: ClassCounts::default(),
            responses: DecayedHistogram::new(RESPONSE_HALF_LIFE),
            refused_seen: 0,
            refusing: None,
            refused_last: Timestamp::ZERO,
        }
    }
}

impl Core {
    pub(super) fn new(setup: Setup, buckets: usize, lanes: usize, seed: u64, sink: Box<dyn EventSink + Send>) -> Core {
        let mut rng = Rng::new(seed);
        let policer = Policer::new(setup.admission.name(), &setup, lanes, rng.next_u64());
        let classes = setup.classes.len();
        let mut core = Core {
            policer: Arc::new(policer),
            dispatch: dispatch::build(&setup.dispatch, &setup),
            follows_load: false,
            partitions: Partitions::new(&setup),
            pins: setup.affinity.as_ref().map(Pins::new),
            servers: setup.servers.iter().enumerate().map(|(at, server)| new_server(at, server)).collect(),
            flights: Flights::new(),
            waiting: Waiting::new(classes, buckets),
            released: Vec::new(),
            actions: VecDeque::new(),
            effects: Vec::new(),
            connections: Said::already(None),
            classes: setup.classes.iter().map(new_class).collect(),
            costs: Costs::new(COST_ENTRIES, setup.request_types.len(), classes, default_cost(&setup)),
            calibration: Calibration::new(setup.sla.statistic()),
            scale: Scale::default(),
            alpha: Alpha::default(),
            stats: alloc::vec![ClassStats::new(); classes],
            rng,
            sink,
            target: setup.sla.target(0.0).as_secs_f64(),
            offered: Rate::new(RATE_TAU),
            stale_tickets: 0,
            coming: None,
            up: 0,
            processors: 0.0,
            sure_processors: 0.0,
            free: None,
            queueing_delays: 0.0,
            elsewhere: 0.0,
            try_down: false,
            in_flight: 0,
            in_shadow: 0,
            counted: alloc::vec![ClassCounts::default(); classes],
            refreshed: Timestamp::ZERO,
            setup,
        };
        core.count_servers();
        core
    }

    /// What a policy may see and do at `now`.
    pub(super) fn context(&mut self, now: Timestamp) -> Context<'_> {
        let load = self.load();
        Context {
            now,
            load,
            target: self.target,
            classes: &self.classes,
            costs: &self.costs,
            calibration: &self.calibration,
            rng: &mut self.rng,
            shadow: self.setup.shadow,
            kinds: &self.partitions.kinds,
            groups: &self.partitions.groups,
            policer: &self.policer,
            waiting: &mut self.waiting,
            flights: &mut self.flights,
            released: &mut self.released,
            effects: &mut self.effects,
            sink: &mut *self.sink,
        }
    }

    /// A request goes to `server`. `kind`: as what it counts there, if at all.
    pub(super) fn enter(&mut self, now: Timestamp, server: ServerId, kind: Option<usize>) -> Mark {
        self.free = self.free.map(|free| free.saturating_sub(1));
        let taking = self.taking_status();
        let server = &mut self.servers[server.index()];
        server.in_flight += 1;
        self.partitions.count(server, taking, kind, Change::More);
        if self.follows_load {
            self.dispatch.on_load_changed(server);
        }
        server.capacity.start(now)
    }

    /// A request leaves `server` after `work` units of relative work. `kind` as in [`Core::enter`].
    pub(super) fn leave(&mut self, now: Timestamp, server: ServerId, kind: Option<usize>, work: f64) {
        let taking = self.taking_status();
        let server = &mut self.servers[server.index()];
        server.in_flight = server.in_flight.saturating_sub(1);
        self.partitions.count(server, taking, kind, Change::Fewer);
        if self.follows_load {
            self.dispatch.on_load_changed(server);
        }
        server.capacity.end(now, work);
        // A place at a server that takes nothing more, or still has too many, is no room.
        if server.is_taking(taking) && server.has_room() {
            self.free = self.free.map(|free| free + 1);
        }
    }

    pub(super) fn count_admitted(&mut self, class: ClassId, shadow: bool) {
        self.in_flight += 1;
        self.in_shadow += usize::from(shadow);
        let stats = &mut self.stats[class.index()];
        stats.admitted += 1;
        stats.in_flight += 1;
    }

    pub(super) fn count_refusal(&mut self, class: ClassId, reason: Reason) {
        self.stats[class.index()].refused[reason.index()] += 1;
    }

    pub(super) fn reject(&self, class: ClassId, reason: Reason, predicted: Option<f64>) -> Rejection {
        let predicted = predicted.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Rejection { predicted, ..self.policer.rejection(class, reason) }
    }

    /// An admitted request ended: with an outcome, or by a cancel, which teaches nothing.
    pub(super) fn land(&mut self, now: Timestamp, flight: &Flight, outcome: Option<Outcome>) {
        let State::InFlight { server } = flight.state else { return };
        self.in_flight -= 1;
        self.in_shadow -= usize::from(flight.shadow);
        self.stats[flight.request.class.index()].in_flight -= 1;
        let work = outcome.map_or(0.0, |outcome| self.learn_from(now, flight, server, outcome));
        if outcome.is_none_or(|outcome| outcome.end != End::Answered) {
            self.witness(now, flight, server, 0.0, None);
        }
        let kind = self.kind_of(flight);
        self.leave(now, server, kind, work);
    }

    /// As what a flight counts at its server; what shadow mode let in does not.
    pub(super) fn kind_of(&self, flight: &Flight) -> Option<usize> {
        if flight.shadow { None } else { self.kind(flight.request.request_type) }
    }

    /// Tells the server's capacity that a request is about to end; see [`crate::estimate::Capacity::witness`].
    pub(super) fn witness(
        &mut self,
        now: Timestamp,
        flight: &Flight,
        server: ServerId,
        served: f64,
        answered: Option<f64>,
    ) {
        let stay = now.seconds_since(flight.started);
        self.servers[server.index()].capacity.witness(now, flight.mark, stay, served, answered);
    }

    /// Takes a completed request into the estimates. Returns the work it was, in relative units.
    fn learn_from(&mut self, now: Timestamp, flight: &Flight, server: ServerId, outcome: Outcome) -> f64 {
        let (end, service_time) = outcome.end_in(now.since(flight.started));
        let response = now.seconds_since(flight.arrived);
        let stats = &mut self.stats[flight.request.class.index()];
        match end {
            End::Answered => {
                stats.completed += 1;
                stats.in_target += u64::from(response <= self.target);
                stats.responses.record(now, response);
                let received = self.received(now, flight, server, service_time);
                let relative = self.costs.relative(&flight.request);
                self.calibrate(now, flight, received);
                self.witness(now, flight, server, service_time, Some(relative));
                // Per processor: under load this is free of how many there are thought to be.
                let processors = self.servers[server.index()].capacity.processors();
                if !self.servers[server.index()].reported.measures_costs(now) {
                    self.learn_cost(|costs| costs.record(&flight.request, received / processors));
                }
                self.costs.relative(&flight.request)
            }
            End::Failed => {
                stats.failed += 1;
                // Quick failures are little work, slow ones at most what the request was expected to cost.
                flight.cost.min(service_time) / self.costs.scale()
            }
            End::TimedOut => {
                stats.failed += 1;
                // It took at least this long: a bound, but the tail is what the calibration is for.
                let received = self.received(now, flight, server, service_time);
                self.calibrate(now, flight, received);
                0.0
            }
        }
    }

    /// Holds what a request received against what is now known of its kind. Not against what was thought when it
    /// arrived: at the start that is off by any factor, and soon forgotten by the costs but not by the calibration.
    fn calibrate(&mut self, now: Timestamp, flight: &Flight, received: f64) {
        if self.costs.is_settled() {
            self.calibration.record(now, received, self.costs.estimate(&flight.request));
        }
    }

    /// What a request received of its server's processors, seconds: of its whole stay, the part that the server worked
    /// on it and the client was not just reading.
    fn received(&mut self, now: Timestamp, flight: &Flight, server: ServerId, service_time: f64) -> f64 {
        let stay = now.seconds_since(flight.started);
        let share = if stay > 0.0 { (service_time / stay).min(1.0) } else { 1.0 };
        self.servers[server.index()].capacity.received(now, flight.mark) * share
    }

    /// Sends on its way what the policy let go.
    pub(super) fn release(&mut self, now: Timestamp) {
        let mut released = core::mem::take(&mut self.released);
        for Released { slot, refused } in released.drain(..) {
            let ticket = self.flights.ticket(slot);
            let Some(flight) = self.flights.get(ticket).copied() else { continue };
            let class = flight.request.class;
            let action = match refused {
                Some((reason, predicted)) => Err((reason, predicted)),
                None => self.choose(now, &flight.request, None).ok_or((self.no_server_reason(), None)),
            };
            match action {
                Ok(server) => {
                    let mark = self.enter(now, server, self.kind_of(&flight));
                    let state = State::InFlight { server };
                    let in_flight = self.in_flight() as u32 + 1;
                    if let Some(entry) = self.flights.get_mut(ticket) {
                        *entry = Flight { state, mark, started: now, in_flight, ..flight };
                    }
                    self.count_admitted(class, false);
                    self.actions.push_back(Action::Start { ticket, server });
                }
                Err((reason, predicted)) => {
                    self.flights.remove(ticket);
                    self.count_refusal(class, reason);
                    let rejection = self.reject(class, reason, predicted);
                    self.actions.push_back(Action::Refuse { ticket, rejection });
                }
            }
        }
        self.released = released;
    }
}

pub(crate) fn new_server(at: usize, setup: &ServerSetup) -> ServerState {
    ServerState {
        id: ServerId(at as u16),
        name: setup.name.clone(),
        role: setup.role,
        status: Status::Up,
        weight: setup.weight,
        max_connections: setup.max_connections,
        in_flight: 0,
        by_kind: [0; MOST_KINDS],
        partition: None,
        capacity: setup.cores.map_or_else(Capacity::learned, Capacity::given),
        reported: Reported::default(),
        given_by_report: false,
        told_capacity: None,
        lent: 0,
        said_cores: Said::default(),
        can_lend: true,
    }
}

pub(super) fn new_class(setup: &ClassSetup) -> ClassEstimate {
    ClassEstimate {
        offered: Rate::new(RATE_TAU),
        excess: Rate::new(RATE_TAU),
        min_rate: setup.min_rate,
        cost_spread: DecayedHistogram::new(SPREAD_HALF_LIFE),
    }
}

/// Seconds.
pub(super) fn default_cost(setup: &Setup) -> f64 {
    let target = setup.sla.target(0.0).as_secs_f64();
    setup.default_cost.map_or(target * DEFAULT_COST_SHARE, |cost| cost.as_secs_f64()).max(1e-6)
}
