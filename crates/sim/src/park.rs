//! The machines: servers of every tier, their stations and pools, and the jobs there.
//!
//! A *job* is one request, or one call of a request, at one server. It waits for a place, uses the processors, then
//! goes through the steps of its program; a step that calls another tier is a job of its own without a server (a
//! *chain*) which holds the pool's token and starts the calls. A job knows its owner, so an end travels upwards:
//! call, chain, request. What ended of the requests themselves is handed out by [`Park::next_ended`].

mod calls;
mod energy;
mod fail;
mod host;
mod jobs;
mod measure;
mod server;

use std::collections::VecDeque;

use slab::Slab;
use tidegate_engine::Timestamp;
use tidegate_workload::Discipline;

use crate::agenda::{Agenda, SlotId};
use crate::model::{Host, Program, Resource, ServerModel, Tier};
use crate::run::Happening;
use crate::station::Station;
use jobs::Job;
use server::Server;

pub(crate) use calls::{Answered, Asking, NOBODY};
pub use energy::Usage;
pub(crate) use jobs::{Owner, Task, in_billionths};

/// Where plans are made.
pub(crate) type Plans = Agenda<Happening>;

/// All machines of a world. Servers are numbered through: first those behind the sentry, then tier by tier.
pub(crate) struct Park<'w> {
    servers: Vec<Server<'w>>,
    stations: Vec<Station>,
    /// Per station: its place in the agenda, and its server.
    places: Vec<(SlotId, u32)>,
    tiers: Vec<TierState<'w>>,
    programs: &'w [Program],
    jobs: Slab<Job>,
    ended: VecDeque<Ended>,
    /// Calls that are at a service with a sentry of its own, and how calls that it let in ended.
    asking: VecDeque<calls::Asking>,
    answered: VecDeque<calls::Answered>,
    /// Calls that were let in and have had the processors.
    computed: VecDeque<calls::Computed>,
    /// Whether all services are asked about calls, and not only those with sentries.
    asks_all: bool,
}

/// A request's stay at its server is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Whose.
    pub(crate) request: u32,
    /// How.
    pub(crate) ending: Ending,
}

/// How a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Served,
    Failed,
    /// A service that was called refused it.
    Refused,
}

struct TierState<'w> {
    tier: &'w Tier,
    first: u32,
    turn: u32,
}

impl<'w> Park<'w> {
    pub(crate) fn new(
        front: &'w [ServerModel],
        tiers: &'w [Tier],
        hosts: &'w [Host],
        programs: &'w [Program],
        plans: &mut Plans,
    ) -> Self {
        let mut park = Park {
            servers: Vec::new(),
            stations: Vec::new(),
            places: Vec::new(),
            tiers: Vec::new(),
            programs,
            jobs: Slab::new(),
            ended: VecDeque::new(),
            asking: VecDeque::new(),
            answered: VecDeque::new(),
            computed: VecDeque::new(),
            asks_all: false,
        };
        front.iter().for_each(|model| park.add_server(model, plans));
        for tier in tiers {
            park.tiers.push(TierState { tier, first: park.servers.len() as u32, turn: 0 });
            tier.servers.iter().for_each(|model| park.add_server(model, plans));
        }
        hosts.iter().for_each(|host| park.join(host));
        park
    }

    /// The number of a tier's server, or of one behind the sentry.
    pub(crate) fn number(&self, tier: Option<usize>, server: usize) -> u32 {
        tier.map_or(0, |tier| self.tiers[tier].first) + server as u32
    }

    /// Whether a server serves.
    pub(crate) fn is_on(&self, server: u32) -> bool {
        self.servers[server as usize].state == server::State::On
    }

    /// The next completion at a station has come.
    pub(crate) fn complete(&mut self, now: Timestamp, station: u32, plans: &mut Plans) {
        while let Some(job) = self.stations[station as usize].complete(now) {
            self.step_done(now, job, plans);
        }
        self.plan(station, plans);
    }

    /// The most requests that any of the first `count` servers had at once since the last call, waiting for a place
    /// there or served.
    pub(crate) fn take_most(&mut self, count: usize) -> u32 {
        let servers = self.servers.iter_mut().take(count);
        let most = servers.map(|server| {
            let level = server.level();
            std::mem::replace(&mut server.most, level)
        });
        most.max().unwrap_or(0)
    }

    /// What ended since the last call.
    pub(crate) fn next_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    fn add_server(&mut self, model: &'w ServerModel, plans: &mut Plans) {
        let number = self.servers.len() as u32;
        let first = self.stations.len() as u32;
        let server = Server::new(model, first);
        let speed = server.processor_speed();
        self.servers.push(server);
        let mut add = |units, discipline| {
            let station = self.stations.len() as u32;
            self.stations.push(Station::new(units, discipline));
            self.places.push((plans.slot(Happening::Completion { station }), number));
        };
        add(model.cores, model.discipline);
        for resource in &model.resources {
            // A pool has a station too, always idle, so that numbers fit.
            match *resource {
                Resource::Station { units, discipline, .. } => add(units, discipline),
                Resource::Pool { .. } => add(1.0, Discipline::Fifo),
            }
        }
        self.stations[first as usize].set_speed(Timestamp::ZERO, speed);
    }

    fn plan(&mut self, station: u32, plans: &mut Plans) {
        let place = self.places[station as usize].0;
        match self.stations[station as usize].next() {
            Some(at) => plans.plan(place, at),
            None => plans.cancel(place),
        }
    }
}
