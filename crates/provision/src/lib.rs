//! Capacity that follows the offered load: how many servers and sentries each application has, and which.
//!
//! A [`Provisioner`] looks after one site: a pool of servers that several applications share. Reports of what was
//! *offered* go in (what was admitted says nothing about what is needed), with news of servers; actions come out:
//! start, drain, resume or stop a server, relax or tighten a target, split servers among sentries. It follows the
//! engine's grammar: `handle_*` takes input, `poll_*` gives output, time is an argument. A driver (the control plane,
//! the simulator) does what the actions say and tells what came of it.
//!
//! | file | question |
//! |---|---|
//! | `capacity.rs` | what one server sustains |
//! | `forecast.rs` | what will be offered |
//! | `allocate.rs` | who gets how many, for the highest revenue |
//! | `cataclysm.rs`, `follow.rs`, `cpu_target.rs` | policies: when to change how much |
//! | `fleet.rs` | which server is where |
//! | `sentries.rs` | how many sentries, and which servers each has to itself |
//! | `posts.rs` | which sentries are started and stopped, where somebody else does not do it |
//! | `watch.rs` | what is known of an application |
//! | `keep.rs` | what must be kept, so that a restarted control plane goes on as if it had never stopped |
//!
//! *Source.* Cataclysm, section 4.

#![deny(clippy::print_stderr, clippy::print_stdout)]
#![forbid(unsafe_code)]
#![no_std]

extern crate alloc;

mod allocate;
mod capacity;
mod cataclysm;
mod cpu_target;
mod fleet;
mod follow;
mod forecast;
mod keep;
mod posts;
mod provisioner;
mod sentries;
mod watch;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::time::Duration;

use thiserror::Error;

use tidegate_engine::{Seconds, Timestamp};

pub use allocate::{Allocation, AllocationError, Applicant, Ceiling, Demand, allocate};
pub use capacity::{Arrivals, CapacityError, Replica, mean_bound};
pub use cataclysm::Config as CataclysmConfig;
pub use cpu_target::Config as CpuTargetConfig;
pub use fleet::{Place, Pool, ServerNews};
pub use follow::Config as FollowConfig;
pub use forecast::{Basis, Forecast, Forecaster, Seasonal};
pub use keep::{ProvisionerState, RestoreError};
pub use posts::Posts;
pub use provisioner::Provisioner;
pub use sentries::{SentryRule, repartition};
pub use watch::{ApplicationReport, ApplicationSetup, Measured};

/// A provisioning policy and its settings.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(tag = "policy", rename_all = "kebab-case")]
pub enum ProvisionConfig {
    /// As many servers as the offered load needs by the time they serve.
    Follow(follow::Config),
    /// The paper's: a plan every half hour, and steps when too much is refused.
    Cataclysm(cataclysm::Config),
    /// The usual autoscaler, to compare with: keeps CPU at a target.
    CpuTarget(cpu_target::Config),
}

/// A pool of servers and the applications that share it.
#[derive(Clone, Debug)]
pub struct Site {
    /// Servers in the pool, at most 65,535. The applications' first ones come first.
    pub servers: u32,
    /// What is the same for all of them.
    pub pool: Pool,
    /// The applications that share the pool.
    pub applications: Vec<ApplicationSetup>,
    /// When their number changes by how much.
    pub policy: ProvisionConfig,
    /// When the number of sentries changes.
    pub sentries: SentryRule,
    /// Where sentries are started; nowhere if somebody else starts them.
    pub posts: Posts,
}

/// What a driver must do.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProvisionAction {
    /// Start a free server for an application; tell when it is up, or that it failed.
    Start {
        /// Its place in the pool.
        server: usize,
        /// Index of the application.
        application: usize,
    },
    /// Send it nothing new; tell when it is drained.
    Drain {
        /// Its place in the pool.
        server: usize,
        /// Index of the application.
        application: usize,
    },
    /// It takes requests again: it was wanted back before it had drained.
    Resume {
        /// Its place in the pool.
        server: usize,
        /// Index of the application.
        application: usize,
    },
    /// Stop it; whatever it still has is lost.
    Stop {
        /// Its place in the pool.
        server: usize,
    },
    /// The target is the SLA's at the offered rate, but from now on not above `ceiling`.
    SetCeiling {
        /// Index of the application.
        application: usize,
        /// The most it may relax to.
        ceiling: Duration,
    },
    /// Each sentry has these servers to itself, those that are coming included; names point to these sentries in turn.
    Partition {
        /// Index of the application.
        application: usize,
        /// Per sentry its servers.
        servers: Vec<Vec<usize>>,
    },
}

/// What was decided, or happened, and why.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
#[non_exhaustive]
pub enum ProvisionEvent {
    /// An application is to have another number of servers.
    ServersWanted {
        /// Index of the application.
        application: usize,
        /// Number before the change.
        from: u32,
        /// Number after the change.
        to: u32,
        /// Servers that cannot be had now: they are not free yet.
        short: u32,
        /// The measurement that decided it.
        reason: String,
    },
    /// The target may relax to another ceiling.
    CeilingSet {
        /// Index of the application.
        application: usize,
        /// Ceiling before the change.
        from: Duration,
        /// Ceiling after the change.
        to: Duration,
        /// The measurement that decided it.
        reason: String,
    },
    /// An application is to have another number of sentries.
    SentriesWanted {
        /// Index of the application.
        application: usize,
        /// Number before the change.
        from: u32,
        /// Number after the change.
        to: u32,
        /// The CPU of the sentry that asked, 0 to 1.
        cpu: f64,
    },
    /// A server that was asked for serves.
    ServerUp {
        /// Its place in the pool.
        server: usize,
        /// Index of the application.
        application: usize,
    },
    /// A server died or did not come up.
    ServerFailed {
        /// Its place in the pool.
        server: usize,
    },
}

/// Why a site makes no sense.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ProvisionError {
    /// There are no applications, or too many.
    #[error("{given} applications: give 1 to 1000")]
    Applications {
        /// How many were given.
        given: usize,
    },
    /// The pool is too large.
    #[error("{given} servers in the pool: give at most 65535")]
    Servers {
        /// How many were given.
        given: u32,
    },
    /// An application's numbers do not fit.
    #[error("application \"{name}\": {what}")]
    Application {
        /// Name of the application.
        name: String,
        /// The mistake, as the end of a sentence.
        what: &'static str,
    },
    /// The applications' numbers do not fit the pool.
    #[error("the applications {what} {needed} servers together, of {total} in the pool; add servers or lower it")]
    Pool {
        /// What they need them for.
        what: &'static str,
        /// How many that are.
        needed: u64,
        /// How many there are.
        total: u32,
    },
    /// A setting is out of range.
    #[error("provisioning: {key} {what}")]
    Setting {
        /// Name of the setting.
        key: &'static str,
        /// The mistake, as the end of a sentence.
        what: &'static str,
    },
}

impl ProvisionConfig {
    /// Every policy's name.
    pub const NAMES: &'static [&'static str] = &["follow", "cataclysm", "cpu-target"];

    fn problem(&self) -> Option<(&'static str, &'static str)> {
        match self {
            ProvisionConfig::Follow(config) => config.problem(),
            ProvisionConfig::Cataclysm(config) => config.problem(),
            ProvisionConfig::CpuTarget(config) => config.problem(),
        }
    }

    fn build(&self) -> Box<dyn ProvisionPolicy> {
        match self {
            ProvisionConfig::Follow(config) => Box::new(config.build()),
            ProvisionConfig::Cataclysm(config) => Box::new(config.build()),
            ProvisionConfig::CpuTarget(config) => Box::new(config.build()),
        }
    }
}

impl Default for ProvisionConfig {
    fn default() -> Self {
        ProvisionConfig::Follow(follow::Config::default())
    }
}

/// What is kept of a policy.
#[derive(Clone, Debug, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
enum PolicyState {
    Follow(follow::Follow),
    Cataclysm(cataclysm::Cataclysm),
    CpuTarget(cpu_target::CpuTarget),
}

/// Decides how many servers each application is to have.
trait ProvisionPolicy: Debug + Send {
    /// Everything that later decisions depend on, but for its settings.
    fn state(&self) -> PolicyState;

    /// Goes on from there, with its own settings. The state of another policy changes nothing.
    fn restore(&mut self, state: PolicyState);

    /// The last peak is that of so long.
    fn horizon(&self) -> Duration;

    /// What is over is told apart by intervals of so long.
    fn interval(&self) -> Duration {
        self.horizon()
    }

    /// When it wants to decide next.
    fn next_timeout(&self) -> Timestamp;

    /// Changes the wishes where it sees reason to. Called at its time-outs and after reports.
    fn decide(&mut self, view: &View<'_>, wishes: &mut [Wish]);
}

/// What a policy sees.
struct View<'a> {
    now: Timestamp,
    applications: &'a [watch::Watched],
    /// Servers that serve, per application.
    serving: Vec<u32>,
    /// Servers in the free pool.
    free: u32,
    /// Servers that are not out of order.
    usable: u32,
    /// From asking for a server until it serves at full speed.
    lead: Duration,
}

/// What an application is to have.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
struct Wish {
    servers: u32,
    ceiling: Duration,
    /// What decided it, when it differs from before.
    reason: String,
}

fn duration_problem(key: &'static str, value: Seconds) -> Option<(&'static str, &'static str)> {
    let good = value.0.is_finite() && value.0 >= 0.001;
    (!good).then_some((key, "must be a time of at least 1ms"))
}

fn amount_problem(key: &'static str, value: f64) -> Option<(&'static str, &'static str)> {
    (!(value.is_finite() && value >= 0.0)).then_some((key, "must be a finite number, not below 0"))
}

fn share_problem(key: &'static str, value: f64) -> Option<(&'static str, &'static str)> {
    (!(0.0..=1.0).contains(&value)).then_some((key, "must lie between 0 and 1"))
}
