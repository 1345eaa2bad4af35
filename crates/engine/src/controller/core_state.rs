//! The controller's state apart from the admission policy, and the steps of a request through it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;

use crate::admission::Context;
use crate::below::Below;
use crate::decision::{Action, End, Outcome, Reason, Rejection};
use crate::estimate::Estimates;
use crate::event::EventSink;
use crate::fleet::Fleet;
use crate::flight::{Flight, Released, State, Traffic};
use crate::peers::Peers;
use crate::policer::Policer;
use crate::request::ClassId;
use crate::rng::Rng;
use crate::setup::Setup;
use crate::tenants::{Tenants, blame};
use crate::time::Timestamp;

use super::hanging::Hanging;
use super::outbox::Outbox;
use super::runaways::Runaways;

/// State by question.
pub(super) struct Core {
    pub(super) setup: Setup,
    pub(super) policer: Arc<Policer>,
    pub(super) rng: Rng,
    /// What is under way.
    pub(super) traffic: Traffic,
    /// What was learned.
    pub(super) estimates: Estimates,
    /// Which servers there are.
    pub(super) fleet: Fleet,
    /// Whose requests they are.
    pub(super) tenants: Tenants,
    /// What is said, and to be done.
    pub(super) outbox: Outbox,
    /// What is known for cancelling.
    pub(super) runaways: Runaways,
    /// What is known of requests that hang.
    pub(super) hanging: Hanging,
    /// What services further down refuse.
    pub(super) below: Below,
    /// The other sentries before these servers.
    pub(super) peers: Peers,
    /// Requests refused for deadlines that a free processor could hardly meet, since one was let in.
    pub(super) hopeless: u32,
}

impl Core {
    pub(super) fn new(setup: Setup, buckets: usize, lanes: usize, seed: u64, sink: Box<dyn EventSink + Send>) -> Core {
        let mut rng = Rng::new(seed);
        let policer = Policer::new(setup.admission.name(), &setup, lanes, rng.next_u64());
        Core {
            policer: Arc::new(policer),
            rng,
            traffic: Traffic::new(setup.classes.len(), buckets),
            estimates: Estimates::new(&setup),
            fleet: Fleet::new(&setup),
            // A generator of its own: whoever has no tenants sees the same draws as before there were any.
            tenants: Tenants::new(&setup, !seed),
            outbox: Outbox::new(sink),
            runaways: Runaways::default(),
            hanging: Hanging::default(),
            below: Below::default(),
            peers: Peers::default(),
            hopeless: 0,
            setup,
        }
    }

    /// What a policy may see and do at `now`.
    pub(super) fn context(&mut self, now: Timestamp) -> Context<'_> {
        let in_flight = self.in_flight();
        let load = self.fleet.load(in_flight, self.traffic.hanging(), self.estimates.scale.is_sure());
        Context {
            now,
            load,
            target: self.estimates.target,
            classes: &self.estimates.classes,
            costs: &self.estimates.costs,
            calibration: &self.estimates.calibration,
            rng: &mut self.rng,
            shadow: self.setup.shadow,
            peers: &self.peers,
            partitions: &self.fleet.partitions,
            policer: &self.policer,
            traffic: &mut self.traffic,
            effects: &mut self.outbox.effects,
            sink: &mut *self.outbox.sink,
        }
    }

    /// Requests in flight; in shadow mode only those that would have been admitted.
    pub(super) fn in_flight(&self) -> usize {
        self.traffic.in_flight(self.setup.shadow)
    }

    pub(super) fn reject(&self, class: ClassId, reason: Reason, predicted: Option<f64>) -> Rejection {
        let predicted = predicted.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Rejection { predicted, ..self.policer.rejection(class, reason) }
    }

    /// No server works on an admitted request any more: with an outcome, or without one, which teaches nothing.
    pub(super) fn land(&mut self, now: Timestamp, flight: &Flight, outcome: Option<Outcome>) {
        self.land_ended(now, now, flight, outcome, true);
    }

    /// The same of a request that ended for its client at `ended`; not `is_over`: it is open from now on.
    pub(super) fn land_ended(
        &mut self,
        now: Timestamp,
        ended: Timestamp,
        flight: &Flight,
        outcome: Option<Outcome>,
        is_over: bool,
    ) {
        let Some(server) = flight.state.work_at() else { return };
        self.traffic.count_ended(flight);
        let work = outcome.map_or(0.0, |outcome| self.learn_from(now, ended, flight, server, outcome, is_over));
        if !flight.hangs {
            match outcome.filter(|outcome| outcome.end == End::Answered) {
                Some(_) => self.fleet.answered(now, server, ended.seconds_since(flight.started)),
                None => self.witness(now, flight, server, 0.0, None),
            }
        }
        let kind = self.kind_of(flight);
        self.fleet.leave(now, server, kind, (!flight.hangs).then_some(work));
    }

    /// As what a flight counts at its server; what shadow mode let in does not.
    pub(super) fn kind_of(&self, flight: &Flight) -> Option<usize> {
        if flight.shadow { None } else { self.fleet.partitions.kind(flight.request.request_type) }
    }

    /// Sends on its way what the policy let go.
    pub(super) fn release(&mut self, now: Timestamp) {
        let mut released = core::mem::take(&mut self.traffic.released);
        for Released { slot, refused } in released.drain(..) {
            let ticket = self.traffic.flights.ticket(slot);
            let Some(flight) = self.traffic.flights.get(ticket).copied() else { continue };
            let class = flight.request.class;
            let chosen = match refused {
                Some((reason, predicted)) => Err((reason, predicted)),
                None => {
                    let server = self.fleet.choose(now, &mut self.rng, &flight.request, None);
                    server.ok_or_else(|| (self.fleet.no_server_reason(), None))
                }
            };
            match chosen {
                Ok(server) => {
                    let kind = self.kind_of(&flight);
                    let mark = self.fleet.enter(now, server, kind);
                    let state = State::InFlight { server };
                    let in_flight = self.in_flight() as u32 + 1;
                    let level = self.below.start(&flight.request);
                    if let Some(entry) = self.traffic.flights.get_mut(ticket) {
                        *entry = Flight { state, mark, started: now, in_flight, level, ..flight };
                    }
                    self.traffic.count_admitted(class, false);
                    self.tenants.admit(flight.request.tenant, class, flight.cost);
                    self.outbox.actions.push_back(Action::Start { ticket, server });
                }
                Err((reason, predicted)) => {
                    let reason = if flight.state.is_over_share() { blame(reason) } else { reason };
                    self.traffic.flights.remove(ticket);
                    self.learn_that_it_stayed(now, &flight);
                    self.tenants.refuse(flight.request.tenant);
                    self.count_refusal(now, &flight.request, reason);
                    let rejection = self.reject(class, reason, predicted);
                    self.outbox.actions.push_back(Action::Refuse { ticket, rejection });
                }
            }
        }
        self.traffic.released = released;
    }
}
