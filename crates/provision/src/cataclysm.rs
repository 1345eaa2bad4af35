//! The paper's provisioning: a plan every half hour, and steps in between when too much is refused.
//!
//! *Intuition.* The plan foresees what each application will be offered until the next one, and divides the servers so
//! that expected revenue is highest; relaxing a target as far as the SLA permits is one of the choices. Between plans
//! an application of which more than half was refused over an interval gets one more server: from the free pool, else
//! from an application that has more than it needs.
//!
//! *Awkward cases.* Two constraints keep it from swinging: at most `step` servers at a time, and at least `pause`
//! between two invocations. The second holds towards the next plan, too: a step that would come within `pause` of it is
//! left to the plan. (So it is in the paper's figure 9: steps at 910 and 1210 s, none at 1510 s, and the plan at 1800 s
//! finds three free servers.)
//!
//! *Source.* Cataclysm, sections 4.1 and 6.7.

use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::allocate::{Allocation, AllocationError, Applicant, Demand, allocate};
use super::{PolicyState, ProvisionPolicy, View, Wish, duration_problem, share_problem};
use crate::forecast::{Basis, Forecast};
use tidegate_engine::{Seconds, Timestamp};

/// Settings of the policy `cataclysm`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Time from plan to plan; paper: 30 min.
    pub plan_every: Seconds,
    /// The share of an interval's requests above which refusals call for a step; paper: 0.5.
    pub drop_share: f64,
    /// Length of an interval; paper: 5 min.
    pub interval: Seconds,
    /// Servers at most in a step, Delta; paper's run: 1.
    pub step: u32,
    /// Time at least between two invocations, delta; paper: 5 min.
    pub pause: Seconds,
    /// Whether `pause` also holds before a plan, so that a step is not undone at once; `false`: as the paper's text.
    pub pause_before_plan: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            plan_every: Seconds(1800.0),
            drop_share: 0.5,
            interval: Seconds(300.0),
            step: 1,
            pause: Seconds(300.0),
            pause_before_plan: true,
        }
    }
}

impl Config {
    pub(super) fn problem(&self) -> Option<(&'static str, &'static str)> {
        duration_problem("plan_every", self.plan_every)
            .or(duration_problem("interval", self.interval))
            .or(duration_problem("pause", self.pause))
            .or(share_problem("drop_share", self.drop_share))
            .or((self.step == 0).then_some(("step", "must be at least 1: nothing would be added")))
    }

    pub(super) fn build(&self) -> Cataclysm {
        Cataclysm {
            next_plan: Timestamp::ZERO + self.plan_every.duration(),
            next_interval: Timestamp::ZERO + self.interval.duration(),
            last_step: None,
            config: self.clone(),
        }
    }
}

/// The policy.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Cataclysm {
    #[serde(skip)]
    config: Config,
    next_plan: Timestamp,
    next_interval: Timestamp,
    last_step: Option<Timestamp>,
}

impl ProvisionPolicy for Cataclysm {
    fn state(&self) -> PolicyState {
        PolicyState::Cataclysm(self.clone())
    }

    fn restore(&mut self, state: PolicyState) {
        if let PolicyState::Cataclysm(state) = state {
            *self = Cataclysm { config: self.config.clone(), ..state };
        }
    }

    fn horizon(&self) -> Duration {
        // Two intervals: an overload that ended half a plan ago is no demand of today's.
        self.config.interval.duration() * 2
    }

    fn interval(&self) -> Duration {
        self.config.interval.duration()
    }

    fn next_timeout(&self) -> Timestamp {
        self.next_plan.min(self.next_interval)
    }

    fn decide(&mut self, view: &View<'_>, wishes: &mut [Wish]) {
        let now = view.now;
        // The end of the interval, not when it is looked at: a clock that is a little late today and less so the next
        // time must not make a pause of one interval look too short.
        let mut ended = None;
        while self.next_interval <= now {
            ended = Some(self.next_interval);
            self.next_interval = self.next_interval + self.config.interval.duration();
        }
        if now >= self.next_plan {
            while self.next_plan <= now {
                self.next_plan = self.next_plan + self.config.plan_every.duration();
            }
            plan(view, wishes, self.config.plan_every.duration());
        } else if let Some(ended) = ended.filter(|ended| self.may_step(*ended))
            && self.step(view, wishes)
        {
            self.last_step = Some(ended);
        }
    }
}

impl Cataclysm {
    /// Whether a step may follow an interval that ended at `at`.
    fn may_step(&self, at: Timestamp) -> bool {
        let pause = self.config.pause.duration();
        let is_before_plan = self.config.pause_before_plan && self.next_plan.since(at) <= pause;
        self.last_step.is_none_or(|last| at.since(last) >= pause) && !is_before_plan
    }

    /// One step for every application that is refused too much.
    fn step(&self, view: &View<'_>, wishes: &mut [Wish]) -> bool {
        let interval = self.config.interval.duration();
        let mut free = view.free;
        let mut stepped = false;
        for (at, application) in view.applications.iter().enumerate() {
            let dropped = application.drop_share(view.now, interval);
            if dropped <= self.config.drop_share {
                continue;
            }
            let room = application.setup.max_servers.saturating_sub(wishes[at].servers);
            for _ in 0..self.config.step.min(room) {
                let from = if free > 0 {
                    free -= 1;
                    "the free pool"
                } else if let Some(donor) = under_used(view, wishes, at, interval) {
                    wishes[donor].servers -= 1;
                    wishes[donor].reason =
                        format!("it needs fewer than it has, and {} is short", application.setup.name);
                    view.applications[donor].setup.name.as_str()
                } else {
                    break;
                };
                wishes[at].servers += 1;
                wishes[at].reason = format!("{:.0} % were refused in the last interval; from {from}", dropped * 100.0);
                stepped = true;
            }
        }
        stepped
    }
}

/// The application with the most servers beyond what its peak of the last interval needs.
fn under_used(view: &View<'_>, wishes: &[Wish], except: usize, interval: Duration) -> Option<usize> {
    let spare = |at: usize| {
        let application = &view.applications[at];
        let bound = application.bound(wishes[at].ceiling);
        let peak = application.peak(view.now, interval);
        let needed = application.replica()?.servers_needed(peak, bound).ok()?.max(application.setup.min_servers);
        Some((wishes[at].servers.checked_sub(needed)?, at))
    };
    let donors = (0..wishes.len()).filter(|at| *at != except).filter_map(spare);
    donors.filter(|(spare, _)| *spare > 0).max_by_key(|(spare, at)| (*spare, core::cmp::Reverse(*at))).map(|(_, at)| at)
}

/// Divides the servers for what is foreseen in the next `ahead`.
fn plan(view: &View<'_>, wishes: &mut [Wish], ahead: Duration) {
    let foreseen: Vec<Forecast> =
        view.applications.iter().map(|application| application.forecast(view.now, view.now + ahead)).collect();
    let known = |(at, forecast): (usize, &Forecast)| {
        forecast.basis != Basis::Nothing && view.applications[at].replica().is_some()
    };
    if !foreseen.iter().enumerate().all(known) {
        // Nothing to plan by yet: everybody keeps what they have.
        return;
    }
    let futures: Vec<Vec<(f64, f64)>> = foreseen
        .iter()
        .map(|forecast| alloc::vec![(0.3, forecast.low), (0.4, forecast.expected), (0.3, forecast.high)])
        .collect();
    match divide(view, &futures, ahead) {
        Ok(allocation) => {
            for (at, wish) in wishes.iter_mut().enumerate() {
                wish.servers = allocation.servers[at];
                wish.ceiling = view.applications[at].setup.sla.steps()[allocation.ceilings[at]].target;
                let Forecast { low, expected, high, basis } = foreseen[at];
                wish.reason = format!("foreseen {expected:.0}/s ({low:.0} to {high:.0}) by {basis:?}");
            }
        }
        Err(error) => wishes.iter_mut().for_each(|wish| wish.reason = format!("nothing was planned: {error}")),
    }
}

/// Divides all servers for possible futures: weights and total rates per application.
pub(super) fn divide(
    view: &View<'_>,
    futures: &[Vec<(f64, f64)>],
    mix_of: Duration,
) -> Result<Allocation, AllocationError> {
    let applicant = |(application, futures): (&super::watch::Watched, &Vec<(f64, f64)>)| {
        let setup = &application.setup;
        let demand =
            |&(weight, rate): &(f64, f64)| Demand { weight, rates: application.by_class(view.now, mix_of, rate) };
        let demands = futures.iter().map(demand).collect();
        let limits = (setup.min_servers, setup.max_servers);
        let replica = application.replica().unwrap_or(super::Replica::new(1.0, 1.0, 1.0));
        Applicant::new(limits, setup.revenues.clone(), demands, &setup.sla, &replica)
    };
    let applicants: Vec<Applicant> = view.applications.iter().zip(futures).map(applicant).collect();
    allocate(view.usable, &applicants)
}
