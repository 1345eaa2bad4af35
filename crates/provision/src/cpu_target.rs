//! The usual autoscaler, to compare with: keeps the servers' CPU at a target.
//!
//! *Intuition.* Every `sync` the number of servers is multiplied by (mean CPU) / (target), rounded up; within the
//! tolerance nothing is done. The number falls to the highest that was asked for during the stabilisation time.
//!
//! *Awkward cases.* It sees what the servers do, not what is offered: with admission control in front, their CPU cannot
//! exceed 1, so that one step adds at most 1 / target of what there is, however much is refused. Servers that are
//! coming count as idle, as they do there, so that it does not ask for the same load twice.
//!
//! *Source.* Kubernetes HorizontalPodAutoscaler: defaults of kube-controller-manager (sync period 15 s, tolerance 0.1,
//! downscale stabilisation 5 min; at most twice the servers or 4 more within 15 s).

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use libm::{ceil, fabs};
use serde::{Deserialize, Serialize};

use super::{PolicyState, ProvisionPolicy, View, Wish, duration_problem, share_problem};
use tidegate_engine::{Seconds, Timestamp};

/// Settings of the policy `cpu-target`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The use of the servers' processors that is aimed at.
    pub target: f64,
    /// Time from decision to decision.
    pub sync: Seconds,
    /// Nothing is done while the use is so near the target, as a share of it.
    pub tolerance: f64,
    /// The number falls to the highest of so long.
    pub stabilisation: Seconds,
}

impl Default for Config {
    fn default() -> Self {
        Config { target: 0.7, sync: Seconds(15.0), tolerance: 0.1, stabilisation: Seconds(300.0) }
    }
}

impl Config {
    pub(super) fn problem(&self) -> Option<(&'static str, &'static str)> {
        duration_problem("sync", self.sync)
            .or(share_problem("target", self.target))
            .or(share_problem("tolerance", self.tolerance))
            .or((self.target == 0.0).then_some(("target", "must be more than 0: no number would suffice")))
    }

    pub(super) fn build(&self) -> CpuTarget {
        let next = Timestamp::ZERO + self.sync.duration();
        CpuTarget { config: self.clone(), next, asked: Vec::new() }
    }
}

/// The policy.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct CpuTarget {
    #[serde(skip)]
    config: Config,
    next: Timestamp,
    /// Per application what was asked for when, over the stabilisation time.
    asked: Vec<VecDeque<(Timestamp, u32)>>,
}

impl ProvisionPolicy for CpuTarget {
    fn state(&self) -> PolicyState {
        PolicyState::CpuTarget(self.clone())
    }

    fn restore(&mut self, state: PolicyState) {
        if let PolicyState::CpuTarget(state) = state {
            *self = CpuTarget { config: self.config.clone(), ..state };
        }
    }

    fn horizon(&self) -> Duration {
        Duration::from_secs(1800)
    }

    fn next_timeout(&self) -> Timestamp {
        self.next
    }

    fn decide(&mut self, view: &View<'_>, wishes: &mut [Wish]) {
        if view.now < self.next {
            return;
        }
        self.next = view.now + self.config.sync.duration();
        self.asked.resize_with(wishes.len(), VecDeque::new);
        for (at, wish) in wishes.iter_mut().enumerate() {
            let application = &view.applications[at];
            let Some(busy) = application.busy(view.now, self.config.sync.duration()) else { continue };
            let (serving, all) = (view.serving[at], wish.servers);
            let desired = self.desired(busy, serving, all);
            let desired = desired.min((2 * all).max(all + 4));
            let desired = desired.clamp(application.setup.min_servers, application.setup.max_servers);
            let asked = &mut self.asked[at];
            asked.push_back((view.now, desired));
            let stabilisation = self.config.stabilisation.duration();
            while asked.front().is_some_and(|(then, _)| view.now.since(*then) > stabilisation) {
                asked.pop_front();
            }
            let most = asked.iter().map(|(_, desired)| *desired).max().unwrap_or(desired);
            wish.servers = if desired > all { desired } else { all.min(most) };
            wish.reason = format!("CPU at {:.0} % of {serving} servers", busy * 100.0);
        }
    }
}

impl CpuTarget {
    fn desired(&self, busy: f64, serving: u32, all: u32) -> u32 {
        let near = |ratio: f64| fabs(ratio - 1.0) <= self.config.tolerance;
        let ratio = busy / self.config.target;
        if near(ratio) {
            return all;
        }
        if ratio < 1.0 || all <= serving {
            return ceil(ratio * f64::from(serving) - 1e-9) as u32;
        }
        // Those that are coming count as idle when more are asked for; if that turns the tide, nothing is done.
        let damped = ratio * f64::from(serving) / f64::from(all);
        if damped < 1.0 || near(damped) { all } else { ceil(damped * f64::from(all) - 1e-9) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_by_hand() {
        let policy = Config::default().build();
        assert_eq!(policy.desired(0.70, 10, 10), 10);
        assert_eq!(policy.desired(0.76, 10, 10), 10, "within the tolerance");
        assert_eq!(policy.desired(0.84, 10, 10), 12);
        assert_eq!(policy.desired(1.00, 10, 10), 15);
        assert_eq!(policy.desired(0.35, 10, 10), 5);
        // Five are coming: those that serve say 15 again, and 15 there are.
        assert_eq!(policy.desired(1.00, 10, 15), 15);
        assert_eq!(policy.desired(1.00, 10, 12), 15);
    }
}
