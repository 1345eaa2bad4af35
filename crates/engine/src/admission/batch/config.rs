//! Settings of the policy `batch`.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::admission::require;
use crate::setup::SetupError;
use crate::units::Seconds;

/// Settings of the policy `batch`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Who goes first inside a class: `"fair"`, small requests, but those of every cost keep a quarter of their part of
    /// the work; `"smallest-first"`, small requests, as in the paper; `"fifo"`, each in its turn.
    pub order: Order,
    /// Admit the part of a batch that fits; `false`: all of it or nothing, as in the paper.
    pub partial: bool,
    /// The delays d_i.
    pub delays: Delays,
    /// Bound on the probability that a request is refused because a less important one was let in before it.
    pub epsilon: f64,
    /// Share of the target that the test aims at, more than 0 and at most 1.
    pub headroom: f64,
    /// Whether the test counts the request that goes to the fullest server, `ceil(beta / n)`, as in the paper; `false`:
    /// the mean over the servers, `beta / n`.
    pub round_up: bool,
    /// Whether predictions are calibrated by measurement; `false`: the bare test of the paper.
    pub calibrate: bool,
    /// Whether a class leaves places for more important requests that come before it is looked at again, and is held to
    /// the floor of what they were refused; `false`: as in the paper.
    pub reserve: bool,
    /// Whether late answers that the SLA's percentile permits are saved up in calm, and spent in a rush; `false`: what
    /// is let in is always in time as surely as the SLA asks of all requests together.
    pub late_budget: bool,
    /// Most requests waiting, all classes together.
    pub max_waiting: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            order: Order::Fair,
            partial: true,
            delays: Delays::Computed(ComputedDelays::Computed),
            epsilon: 0.01,
            headroom: 0.85,
            round_up: false,
            calibrate: true,
            reserve: true,
            late_budget: true,
            max_waiting: 100_000,
        }
    }
}

/// The order inside a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Small requests first, but requests of every cost keep a quarter of their proportional part of the work.
    #[default]
    Fair,
    /// Small requests first: more requests are answered, and large ones hardly at all under overload.
    SmallestFirst,
    /// First come, first served: every request is equally important.
    Fifo,
}

/// Where the delays d_i come from.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Delays {
    /// `"computed"`: from arrival rates and service times (section 3.4).
    Computed(ComputedDelays),
    /// One per class, most important first; a missing one repeats the last.
    Fixed(Vec<Seconds>),
}

/// The word `"computed"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ComputedDelays {
    /// See [`Delays::Computed`].
    Computed,
}

impl Config {
    pub(in crate::admission) fn check(&self) -> Result<(), SetupError> {
        let share = |x: f64| x > 0.0 && x <= 1.0;
        require(share(self.headroom), "batch", "headroom", "must be more than 0 and at most 1")?;
        require(self.epsilon > 0.0 && self.epsilon < 1.0, "batch", "epsilon", "must lie between 0 and 1")?;
        let Delays::Fixed(delays) = &self.delays else { return Ok(()) };
        require(!delays.is_empty(), "batch", "delays", "needs at least one time, or \"computed\"")?;
        let growing = delays.windows(2).all(|w| w[0].0 <= w[1].0) && delays.iter().all(|d| d.0 >= 0.0 && d.0 < 60.0);
        require(growing, "batch", "delays", "must not shrink from class to class, and stay below one minute")
    }
}
