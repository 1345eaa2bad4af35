//! One server: whether it serves, who is in service there and who waits for a place.

use std::collections::VecDeque;

use crate::model::{Resource, ServerModel};

/// A server's state.
pub(super) struct Server<'w> {
    pub(super) model: &'w ServerModel,
    /// Its processors' station; its other resources follow.
    pub(super) first_station: u32,
    pub(super) state: State,
    /// Jobs that have a place, and those that wait for one.
    pub(super) in_service: u32,
    pub(super) queue: VecDeque<u32>,
    /// The most of both together since it was last asked.
    pub(super) most: u32,
    /// Free tokens and who waits for one, by resource; empty where the resource is no pool.
    pub(super) pools: Vec<Pool>,
    /// Its speed by faults, and by warming up.
    pub(super) speed: f64,
    pub(super) warmth: f64,
    /// Its processors now: a machine that is two servers moves them from one to the other.
    pub(super) processors: f64,
    /// The other server on the same machine.
    pub(super) beside: Option<Beside>,
    pub(super) energy: super::energy::Energy,
}

/// Whether a server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    On,
    Off,
    /// Being set up.
    Starting,
    Failed,
}

/// The other server on a machine that is two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    pub(super) server: u32,
    /// What each job there adds to the work of a job here, as a share of it.
    pub(super) interference: f64,
}

/// Tokens of a pool.
#[derive(Default)]
pub(super) struct Pool {
    pub(super) free: u32,
    pub(super) waiting: VecDeque<u32>,
}

impl<'w> Server<'w> {
    pub(super) fn new(model: &'w ServerModel, first_station: u32) -> Self {
        let state = if model.off { State::Off } else { State::On };
        let mut server = Server {
            model,
            first_station,
            state,
            in_service: 0,
            queue: VecDeque::new(),
            most: 0,
            pools: Vec::new(),
            speed: 1.0,
            warmth: 1.0,
            processors: model.cores,
            beside: None,
            energy: super::energy::Energy::default(),
        };
        server.fill_pools();
        server
    }

    /// All tokens are free and nobody waits.
    pub(super) fn fill_pools(&mut self) {
        let pool = |resource: &Resource| match resource {
            Resource::Pool { tokens } => Pool { free: *tokens, waiting: VecDeque::new() },
            Resource::Station { .. } => Pool::default(),
        };
        self.pools = self.model.resources.iter().map(pool).collect();
    }

    /// Whether one more gets a place at once.
    pub(super) fn has_place(&self) -> bool {
        self.model.limit.is_none_or(|limit| self.in_service < limit)
    }

    /// Whether one more may wait for a place.
    pub(super) fn may_wait(&self) -> bool {
        self.model.backlog.is_none_or(|backlog| (self.queue.len() as u32) < backlog)
    }

    /// How fast its processors are now.
    pub(super) fn processor_speed(&self) -> f64 {
        let crowd = self
            .model
            .knee
            .map_or(1.0, |knee| 1.0 / (1.0 + knee.loss * f64::from(self.in_service.saturating_sub(knee.at))));
        let contention = 1.0 + self.model.contention * (self.processors - 1.0).max(0.0);
        self.speed * self.warmth * crowd / contention
    }

    /// Jobs there.
    pub(super) fn level(&self) -> u32 {
        self.in_service + self.queue.len() as u32
    }

    /// Jobs there per processor.
    pub(super) fn relative_load(&self) -> f64 {
        f64::from(self.level()) / self.model.cores
    }
}
