//! What was learned leaves the controller, and comes into another one.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::Controller;
use super::core_state::Core;
use super::work::LONGEST;
use crate::estimate::Mark;
use crate::fleet::Status;
use crate::flight::{Flight, State};
use crate::learned::{Kept, KeptClass, KeptServer, KeptSession, KeptWork, Learned};
use crate::request::{AffinityKey, ClassId, Request, RequestTypeId, ServerId};
use crate::setup::Setup;
use crate::time::Timestamp;

/// The most sessions that are kept: those used last.
const MOST_SESSIONS: usize = 262_144;

/// The most requests at work that are kept.
const MOST_WORK: usize = 100_000;

/// One that has only just begun is there for so long, seconds.
const SOONEST: f64 = 0.001;

impl Controller {
    /// Everything it has learned, for a successor or for another controller in its place.
    pub fn learned(&mut self, now: Timestamp) -> Learned {
        let mut kept = Kept::default();
        self.admission.keep(now, &mut kept);
        let at_work = self.core.keep_work(now);
        let Core { setup, estimates, fleet, .. } = &self.core;
        let name = |server: ServerId| fleet.servers.get(server.index()).map_or("", |server| &server.name).to_owned();
        let class = |(at, class): (usize, &crate::ClassSetup)| {
            let known = &estimates.classes[at];
            let kept = KeptClass {
                offered: known.offered.known(),
                excess: known.excess.known(),
                retries: known.retries.known(),
                cost_spread: known.cost_spread.keep(now),
                cost: estimates.costs.of_class(at),
            };
            (class.name.clone(), kept)
        };
        let types = setup.request_types.iter().enumerate();
        let servers = fleet.servers.iter().filter(|server| server.status != Status::Removed);
        let sessions = fleet.kept_sessions(now, MOST_SESSIONS).into_iter();
        let mut learned = Learned {
            costs: Some(estimates.costs.keep()),
            alpha: estimates.alpha,
            judged: judged(setup),
            calibration: estimates.calibration.keep(now),
            offered: estimates.offered(),
            classes: setup.classes.iter().enumerate().map(class).collect(),
            types: types.map(|(at, name)| (name.clone(), estimates.costs.of_type(at))).collect(),
            servers: servers
                .map(|server| {
                    let kept = KeptServer { capacity: server.capacity.keep(), abandoned: server.abandoned };
                    (server.name.clone(), kept)
                })
                .collect(),
            sessions: sessions
                .map(|(key, server, age, is_given)| KeptSession { key: key.0, server: name(server), age, is_given })
                .collect(),
            at_work,
            ..Learned::default()
        };
        learned.keep_policy(setup.admission.name(), kept, setup.classes.iter().map(|class| &class.name));
        learned
    }

    /// Begins with what another controller learned, where names are the same. To be called before the first arrival; if
    /// called again, with what was learned later, nothing is left of the first.
    pub fn recall(&mut self, now: Timestamp, learned: &Learned) {
        while let Some(ticket) = self.core.traffic.next_faded(Timestamp::MAX) {
            if let Some(flight) = self.core.traffic.flights.remove(ticket) {
                self.core.land(now, &flight, None);
            }
        }
        self.core.recall(now, learned);
        let setup = &self.core.setup;
        if let Some(kept) = learned.of_policy(setup.admission.name(), setup.classes.iter().map(|class| &class.name)) {
            self.admission.recall(now, &kept);
        }
        self.core.fleet.count();
        self.core.recall_work(now, &learned.at_work);
        self.tick(now);
    }
}

impl Core {
    fn recall(&mut self, now: Timestamp, learned: &Learned) {
        let Core { setup, estimates, fleet, .. } = self;
        if let Some(costs) = &learned.costs {
            estimates.costs.recall(costs);
        }
        estimates.alpha = learned.alpha;
        for (at, class) in setup.classes.iter().enumerate() {
            let Some(kept) = learned.classes.get(&class.name) else { continue };
            let known = &mut estimates.classes[at];
            known.offered.recall(kept.offered);
            known.excess.recall(kept.excess);
            known.retries.recall(kept.retries);
            known.cost_spread.recall(now, &kept.cost_spread);
            estimates.costs.recall_class(at, kept.cost);
        }
        for (at, name) in setup.request_types.iter().enumerate() {
            if let Some(cost) = learned.types.get(name) {
                estimates.costs.recall_type(at, *cost);
            }
        }
        if learned.judged == judged(setup) {
            estimates.calibration.recall(now, &learned.calibration);
        }
        estimates.recall_offered(now, setup, learned.offered);
        for server in &mut fleet.servers {
            if let Some(kept) = learned.servers.get(&server.name) {
                server.capacity.recall(now, &kept.capacity);
                server.abandoned = kept.abandoned;
            }
        }
        let ids: BTreeMap<String, ServerId> = fleet.servers.iter().map(|s| (s.name.clone(), s.id)).collect();
        // Those used last come last: of two that want the same place they get it.
        for session in learned.sessions.iter().rev() {
            if let Some(server) = ids.get(&session.server) {
                let used = now - seconds(session.age);
                fleet.recall_session(used, AffinityKey(session.key), *server, session.is_given);
            }
        }
    }

    /// What is at work at servers, and how long each of it is still to be there.
    ///
    /// Where as many come as go, the times that requests have been at work already are spread as those that they have
    /// still to go, whatever a server is and however long it takes. So the one that is expected to end first is given
    /// the shortest of these. What costs are thought to be would not do: behind a long queue they are too high, and
    /// whoever comes next would wait for ghosts. Of a rush that has only just begun, it takes less than it should.
    fn keep_work(&mut self, now: Timestamp) -> Vec<KeptWork> {
        let work = self.traffic.flights.iter().map(|(_, flight)| flight);
        let work = work.filter(|flight| !flight.shadow && flight.state.work_at().is_some());
        let work: Vec<Flight> = work.copied().take(MOST_WORK).collect();
        let mut ages: BTreeMap<ServerId, Vec<f64>> = BTreeMap::new();
        let mut keep = |flight: Flight| {
            let server = flight.state.work_at()?;
            let left = self.expected_end(now, &flight, server).seconds_since(now);
            ages.entry(server).or_default().push(now.seconds_since(flight.started));
            let kept = KeptWork {
                server: self.fleet.servers[server.index()].name.clone(),
                class: self.setup.classes.get(flight.request.class.index())?.name.clone(),
                request_type: self.setup.request_types.get(flight.request.request_type.index())?.clone(),
                cost: flight.cost,
                left,
            };
            Some((server, kept))
        };
        let mut kept: Vec<(ServerId, KeptWork)> = work.into_iter().filter_map(&mut keep).collect();
        for ages in ages.values_mut() {
            ages.sort_by(|a, b| b.total_cmp(a));
        }
        kept.sort_by(|(_, a), (_, b)| a.left.total_cmp(&b.left));
        for (server, work) in &mut kept {
            work.left = ages.get_mut(server).and_then(Vec::pop).unwrap_or(work.left).max(SOONEST);
        }
        kept.into_iter().map(|(_, work)| work).collect()
    }

    /// What is at work at servers for another controller: ghosts, which go when they are expected to be done.
    fn recall_work(&mut self, now: Timestamp, at_work: &[KeptWork]) {
        for work in at_work.iter().take(MOST_WORK) {
            let class = self.setup.classes.iter().position(|class| class.name == work.class);
            let request_type = self.setup.request_types.iter().position(|name| *name == work.request_type);
            let (Some(server), Some(class)) = (self.fleet.server_named(&work.server), class) else { continue };
            let request = Request {
                class: ClassId(class as u8),
                request_type: RequestTypeId(request_type.unwrap_or(0) as u16),
                ..Request::default()
            };
            let mut flight = Flight {
                request,
                state: State::Ghost { server, is_told: true, since: now },
                arrived: now,
                started: now,
                first_byte: Timestamp::MAX,
                mark: Mark::default(),
                cost: work.cost.max(0.0),
                in_flight: self.in_flight() as u32 + 1,
                shadow: false,
                is_cancelled: false,
                hangs: false,
                level: 0,
            };
            let kind = self.kind_of(&flight);
            flight.mark = self.fleet.enter(now, server, kind);
            self.traffic.take_ghost(flight, now + seconds(work.left));
        }
    }
}

/// Time that came from outside, within reason.
fn seconds(given: f64) -> Duration {
    Duration::from_secs_f64(if given.is_finite() { given.clamp(0.0, LONGEST.max(86_400.0)) } else { 0.0 })
}

/// What a calibration is of: another statistic or other bounds make it another.
fn judged(setup: &Setup) -> String {
    format!("{} of {}", setup.sla.statistic().name(), setup.sla.bounds().name())
}
