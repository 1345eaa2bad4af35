//! Steals capacity from the data tier while more requests arrive than the application servers hold, until new capacity
//! serves.
//!
//! *Intuition.* When the queue at the tills grows, the store-room staff open the spare till: only as many as the store
//! room can do without at this time of day, and only until the extra cashiers have arrived.
//!
//! *Applied.* Application servers take requests by the shortest queue while any of them has fewer than `n_app` in
//! flight. What comes beyond that goes to data servers, shortest queue first, at most `n_data(load)` each; when they
//! are full too, to the application servers again. `n_data` is a staircase that falls with the load of the data tier,
//! one step for each core that the data service takes back, and 0 at high load. `load` is what is sent to servers per
//! second, of the peak that the data tier holds.
//!
//! *Why in flight and not the rate.* A rate is a mean over time. The number in flight is over `n_app` with the first
//! request too many, whether more arrive or servers were lost, and below it again when the excess is over: nothing has
//! to be switched on or off.
//!
//! *Awkward cases.* A load near a step's edge crosses it with every fluctuation, and each crossing moves cores. So the
//! load is followed slowly unless it jumps, and a step up is taken only when it is clearly below the edge
//! (`hysteresis`; both measured in docs/softscale.md), a step down at once. A data server on which the application's
//! software does not answer is down by its health checks and not stolen from; that all application servers are down
//! is no reason to try such a one. One whose nucleus cannot divide its cores is not stolen from either.
//!
//! *Source.* Gandhi, Zhu, Harchol-Balter, Kozuch: SOFTScale (2012), sections 3.1 to 3.4.

mod pool;
mod profile;

use alloc::string::String;
use core::time::Duration;

use super::{DispatchPolicy, Tick, View};
use crate::demands::Demands;
use crate::effect::{Effect, Lending};
use crate::estimate::Rate;
use crate::facts::Facts;
use crate::fleet::{Role, ServerState, Status};
use crate::request::{Request, ServerId};
use crate::setup::{Setup, SetupError, SetupPlace};
use crate::time::Timestamp;
use pool::Pool;

pub use profile::{Profile as Config, ProfileStep};

/// The load forgets with the first time constant; what it shows follows it with the second, unless it jumped by so
/// large a share of the peak. Seconds.
const LOAD_TAU: f64 = 1.0;
const STEADY_TAU: f64 = 5.0;
const JUMP: f64 = 0.05;
/// Stealing that paused this long is over.
const STEALING_GAP: Duration = Duration::from_secs(1);

/// State of the policy `softscale`.
#[derive(Debug)]
pub struct Softscale {
    profile: Config,
    application: Pool,
    data: Pool,
    /// Which step of the profile is in force; its length: none, nothing is lent.
    step: usize,
    /// Requests sent to servers since the last tick, and per second.
    sent: u64,
    rate: Rate,
    /// The load, share of the peak.
    load: f64,
    /// Requests sent to data servers.
    stolen: u64,
    run: Run,
    ticked: Timestamp,
}

/// The current run of stealing.
#[derive(Debug, Default)]
struct Run {
    /// What was stolen before it; `None`: there is none.
    from: Option<u64>,
    /// What was stolen up to the last tick, and when some was seen last.
    seen: u64,
    last: Timestamp,
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        self.problem().map_or(Ok(()), |(place, problem)| Err(dispatch_error(place, problem)))
    }

    pub(super) fn fits(&self, setup: &Setup) -> Result<(), SetupError> {
        if setup.partition.name() != "none" {
            let problem = "does not go with it, as it steals for all classes alike; leave it out";
            return Err(dispatch_error("partition".into(), problem.into()));
        }
        self.misfit(&setup.servers).map_or(Ok(()), |(place, problem)| Err(dispatch_error(place, problem)))
    }

    pub(super) fn demands(&self) -> Demands {
        let cores = self.steps.iter().any(|step| step.cores.is_some());
        Demands { lenders: true, cores, ..Demands::default() }
    }

    pub(super) fn build(&self, _setup: &Setup) -> Softscale {
        Softscale {
            profile: self.clone(),
            application: Pool::default(),
            data: Pool::default(),
            step: 0,
            sent: 0,
            rate: Rate::new(LOAD_TAU),
            load: 0.0,
            stolen: 0,
            run: Run::default(),
            ticked: Timestamp::ZERO,
        }
    }
}

fn dispatch_error(place: String, problem: String) -> SetupError {
    SetupError::wrong(SetupPlace::Dispatch("softscale"), format_args!("{place} {problem}"))
}

impl DispatchPolicy for Softscale {
    fn choose(&mut self, view: &mut View<'_>, _request: &Request) -> Option<ServerId> {
        let View { servers, rng, except, .. } = view;
        let usable = |id: usize| servers[id].has_room() && *except != Some(servers[id].id);
        let limit = self.limit();
        let mut chosen = self.application.shortest(self.profile.n_app, rng, usable);
        if chosen.is_none() && limit > 0 {
            chosen = self.data.shortest(limit, rng, usable);
            self.stolen += u64::from(chosen.is_some());
        }
        let chosen = chosen.or_else(|| self.application.shortest(u32::MAX, rng, usable))?;
        self.sent += u64::from(except.is_none());
        Some(ServerId(chosen as u16))
    }

    fn on_servers_changed(&mut self, servers: &[ServerState], taking: Status) {
        self.application = Pool::new(servers, |server| server.role == Role::Application && server.status == taking);
        let lends = |server: &ServerState| server.role == Role::Data && server.status == Status::Up && server.can_lend;
        self.data = Pool::new(servers, lends);
    }

    fn follows_load(&self) -> bool {
        true
    }

    fn on_load_changed(&mut self, server: &ServerState) {
        let pool = if server.role == Role::Data { &mut self.data } else { &mut self.application };
        pool.set(server.id.index(), server.in_flight);
    }

    fn on_tick(&mut self, cx: &mut Tick<'_>) {
        self.follow_load(cx.now.seconds_since(self.ticked));
        self.ticked = cx.now;
        let before = self.step;
        self.step = self.profile.step_at(self.load, self.step);
        if self.step != before {
            let limit = |step: usize| self.profile.steps.get(step).map_or(0, |step| step.n_data);
            let facts = Facts::new("lending-changed").with("from", limit(before)).with("to", limit(self.step));
            cx.say(facts.with("load", self.load));
        }
        self.note_stealing(cx);
        cx.act(Effect::Lend(self.lending()));
    }

    fn describe(&self) -> Facts {
        let Lending { limit, cores } = self.lending();
        let stealing = Facts::new("stealing-snapshot")
            // Requests sent to data servers since the start, and whether some were within the last second.
            .with("stolen", self.stolen)
            .with("is_stealing", self.run.from.is_some())
            // The most that each data server may have in flight at this load, and how many of its cores it is to give
            // to application work; none: cores are not divided.
            .with("limit", limit)
            .with("cores", cores)
            // Requests sent to servers per second, as a share of the data tier's peak.
            .with("load", self.load)
            // Why the next request would not go to a data server; none: it would.
            .with("why_not", self.why_not());
        Facts::new("softscale").with("stealing", stealing)
    }
}

impl Softscale {
    /// `elapsed`: seconds since the last time.
    fn follow_load(&mut self, elapsed: f64) {
        self.rate.update(core::mem::take(&mut self.sent) as f64, elapsed);
        let load = self.rate.get() / self.profile.peak;
        let follows = if (load - self.load).abs() > JUMP { 1.0 } else { 1.0 - libm::exp(-elapsed / STEADY_TAU) };
        self.load += follows * (load - self.load);
    }

    fn limit(&self) -> u32 {
        self.profile.steps.get(self.step).map_or(0, |step| step.n_data)
    }

    fn lending(&self) -> Lending {
        let cores = match self.profile.steps.get(self.step) {
            Some(step) => step.cores,
            // The data service has them all back; where cores were never moved, there is nothing to say.
            None => self.profile.steps.iter().find_map(|step| step.cores).map(|_| 0),
        };
        Lending { limit: self.limit(), cores }
    }

    /// Why the next request would not be stolen.
    fn why_not(&self) -> Option<&'static str> {
        let at_least = |pool: &Pool, limit| pool.least().is_none_or(|least| least >= limit);
        match () {
            () if !at_least(&self.application, self.profile.n_app) => Some("an application server has room"),
            () if self.profile.steps.is_empty() => Some("there is no profile"),
            () if self.limit() == 0 => Some("the data tier needs its cores at this load"),
            () if self.data.len() == 0 => {
                Some("no data server is up, has the application's software and can divide its cores")
            }
            () if at_least(&self.data, self.limit()) => Some("every data server has as much as it may"),
            () => None,
        }
    }

    fn note_stealing(&mut self, cx: &mut Tick<'_>) {
        let run = &mut self.run;
        if self.stolen > run.seen {
            if run.from.is_none() {
                let limit = self.profile.steps.get(self.step).map_or(0, |step| step.n_data);
                cx.say(Facts::new("stealing-began").with("limit", limit).with("load", self.load));
                run.from = Some(run.seen);
            }
            (run.seen, run.last) = (self.stolen, cx.now);
        } else if let Some(from) = run.from
            && cx.now.since(run.last) >= STEALING_GAP
        {
            cx.say(Facts::new("stealing-ended").with("stolen", self.stolen - from));
            run.from = None;
        }
    }
}

#[cfg(test)]
mod tests;
