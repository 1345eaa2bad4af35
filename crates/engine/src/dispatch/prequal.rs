//! Prequal: probes tell what servers have in flight and how long they take; of those that are not too full, the
//! fastest.
//!
//! *Intuition.* Somebody walks ahead, looks at a few tills and comes back: three of ten lines are long, of the others
//! the cashier at the fourth is the quickest. What was seen is good for a few customers, and stale after a second.
//!
//! *Applied.* With each request `probes` servers are drawn and looked at: what they have in flight, and the median time
//! of those of their answers of the last second that came when they had about as much. The last `pool` of these looks
//! are kept, one for each server. Those with more in flight than the quantile `hot` of what was seen of late are hot.
//! The request goes to the fastest that is not, and if all are, to the one with the least in flight. Each time a look
//! is used it counts one more in flight; after a few times it is gone, as when it is a second old. With each request
//! one more goes, in turn the oldest and the worst. While there are fewer than two, a server is drawn.
//!
//! *Awkward cases.* Probes cost nothing here, since the sentry counts what it sent and times the answers itself: what
//! other sentries have sent is seen by its times only. The source is for hundreds of servers; of few, the pool holds
//! half at most, two at least, or everything would be known and the same one always chosen. One sentry that has all
//! requests sends what comes to the same fast servers until answers tell that they are no longer, where the source's
//! clients have few requests each: 20 servers of 2 processors answer far slower with its `hot` than with 0.5
//! (experiment L1). The source takes the time by what was in flight when a request came, we by what is when it is
//! answered, and has protection against servers that answer errors fast, we only count answers.
//!
//! *Source.* Wydrowski, Kleinberg, Rumble, Archer: *Load is not what you should balance: Introducing Prequal* (NSDI
//! 2024). Its text was not at hand: method and numbers are as they are commonly told, and were not held against it.

mod pool;
mod times;

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::drawn::Candidates;
use super::{DispatchPolicy, View, require};
use crate::fleet::{ServerState, Status};
use crate::request::{Request, ServerId};
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;
use pool::{Look, Pool};
use times::Times;

/// Settings, with the values that are told of the source.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Servers that are looked at with each request.
    pub probes: u32,
    /// Looks that are kept.
    pub pool: u32,
    /// Quantile of the numbers in flight from which on a server is hot, 0 to 1.
    pub hot: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config { probes: 3, pool: 16, hot: 0.84 }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let wrong = |holds, key, problem| require(holds, "prequal", key, problem);
        wrong((1..=100).contains(&self.probes), "probes", "must lie between 1 and 100")?;
        wrong((2..=1000).contains(&self.pool), "pool", "must lie between 2 and 1000")?;
        wrong((0.0..=1.0).contains(&self.hot), "hot", "must lie between 0 and 1")
    }

    pub(super) fn build(&self, setup: &Setup) -> Prequal {
        let (pool, candidates, times) = (Pool::default(), Candidates::default(), Vec::new());
        let mut policy = Prequal { config: self.clone(), candidates, pool, times };
        policy.resize(setup.servers.len());
        policy
    }
}

/// State of the policy `prequal`.
#[derive(Debug)]
pub struct Prequal {
    config: Config,
    candidates: Candidates,
    pool: Pool,
    /// By server.
    times: Vec<Times>,
}

impl DispatchPolicy for Prequal {
    fn choose(&mut self, view: &mut View<'_>, _request: &Request) -> Option<ServerId> {
        self.pool.drop_stale(view.now, |id| view.servers.get(id.index()).is_some_and(|server| view.takes(server)));
        let chosen = self.pool.take(self.config.hot).or_else(|| self.candidates.draw(view, None))?;
        self.pool.drop_one();
        let mut last = None;
        for _ in 0..self.config.probes {
            // Two of a request's probes may meet at one server when there are few.
            let Some(id) = self.candidates.draw(view, last) else { break };
            last = Some(id);
            let in_flight = view.servers[id.index()].in_flight;
            let seconds = self.times[id.index()].with(in_flight, view.now);
            self.pool.add(Look { server: id, in_flight, seconds, at: view.now, uses: 0 });
        }
        Some(chosen)
    }

    fn on_servers_changed(&mut self, servers: &[ServerState], taking: Status) {
        self.candidates = Candidates::new(servers, taking);
        self.resize(servers.len());
        for server in servers.iter().filter(|server| server.status == Status::Removed) {
            self.times[server.id.index()] = Times::default();
        }
    }

    fn follows_answers(&self) -> bool {
        true
    }

    fn on_answer(&mut self, now: Timestamp, server: &ServerState, took: f64) {
        self.times[server.id.index()].add(now, server.in_flight, took);
    }
}

impl Prequal {
    fn resize(&mut self, servers: usize) {
        self.times.resize(servers, Times::default());
        self.pool.fit(self.config.pool as usize, servers, f64::from(self.config.probes));
    }
}
