//! What a scenario says of machines beyond count and cores: limits, resources, tiers, links, faults, power.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_sim::{Knee, Power, WarmUp};
use tidegate_workload::{Abandoned, Discipline, ServiceTime, time};

use super::{one_core, yes};

/// The servers, all alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Servers {
    /// How many.
    pub count: usize,
    /// Cores of each.
    #[serde(default = "one_core")]
    pub cores: u32,
    /// How a server divides its cores among requests.
    #[serde(default)]
    pub discipline: Discipline,
    /// Whether the engine must learn how many cores a server has; `false`: it is told.
    #[serde(default = "yes")]
    pub learned: bool,
    /// Requests in service at once; no limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Requests that may wait for a place; the server refuses more. No bound when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backlog: Option<u32>,
    /// What is lost when too many are in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knee: Option<Knee>,
    /// What each does when the client of a request leaves.
    #[serde(default, skip_serializing_if = "is_default")]
    pub abandoned: Abandoned,
    /// What each has besides cores.
    #[serde(rename = "resource", default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// What each draws.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<Power>,
    /// How many of them, the last ones, are off at the beginning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub off: usize,
    /// From being started until it serves.
    #[serde(default, skip_serializing_if = "Duration::is_zero", with = "time::text")]
    pub setup_time: Duration,
    /// A slow phase after setup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<WarmUp>,
}

/// Servers behind the first ones, called by requests' steps; all alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    /// Its name.
    pub name: String,
    /// How many servers.
    pub count: usize,
    /// Cores of each.
    #[serde(default = "one_core")]
    pub cores: u32,
    /// How a server divides its cores among calls.
    #[serde(default)]
    pub discipline: Discipline,
    /// Calls in service at once; no limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Calls that may wait for a place; the server refuses more. No bound when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backlog: Option<u32>,
    /// What is lost when too many are in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knee: Option<Knee>,
    /// What each has besides cores.
    #[serde(rename = "resource", default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// What each draws.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<Power>,
    /// Time of each call on the way, there and back together.
    #[serde(default, skip_serializing_if = "Duration::is_zero", with = "time::text")]
    pub latency: Duration,
    /// What each further core in use slows the others of a server: `1 / (1 + contention * (cores - 1))`.
    #[serde(default)]
    pub contention: f64,
    /// A sentry of its own, with the arm's admission policy; calls are let in as they come when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sentry: Option<TierSentry>,
    /// What its servers lend to application work; nothing when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lends: Option<Lends>,
    /// What every call does there after its time on a core.
    #[serde(rename = "step", default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

/// A sentry before a tier: the tier is a service of its own.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierSentry {
    /// Its response-time target, by the scenario's statistic.
    #[serde(with = "time::text")]
    pub target: Duration,
}

/// Servers of a tier that have the application's software too. They stand behind the sentry, after its own servers, for
/// a dispatch policy that can steal (`softscale`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lends {
    /// How fast application work runs on one of its cores; 1: as on the servers' cores.
    #[serde(default = "one_per_second")]
    pub speed: f64,
    /// What each request of application work there adds to a call's time on a core, as a share of it, while cores are
    /// not divided.
    #[serde(default)]
    pub interference: f64,
}

/// Something else than cores that requests use: a disk, a network card, or, with `tokens`, a pool that is held.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// Its name, for steps.
    pub name: String,
    /// How many units work side by side.
    #[serde(default = "one_core")]
    pub units: u32,
    /// How they are divided.
    #[serde(default = "fifo")]
    pub discipline: Discipline,
    /// What a unit does per second, such as bytes; 1 (the default) means that amounts are seconds.
    #[serde(default = "one_per_second")]
    pub rate: f64,
    /// A pool of so many tokens instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u32>,
}

/// Something that a request does after its time on a core: it uses a resource of its server, or calls a tier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// A resource of the server, or `cpu` for its cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// A tier to call, in place of a resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// How much: seconds, or what the resource's `rate` counts; of a call, its time on a core there.
    pub amount: ServiceTime,
    /// How many calls.
    #[serde(default = "one_core")]
    pub calls: u32,
    /// All calls at once instead of one after the other.
    #[serde(default)]
    pub parallel: bool,
    /// A pool of the server of which a token is held during the calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Together with the step before (the first: with the time on a core) instead of after it.
    #[serde(default)]
    pub overlap: bool,
}

/// Something happens to a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When.
    #[serde(with = "time::text")]
    pub at: Duration,
    /// The tier; the servers behind the sentry when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Which server, from 0.
    pub server: usize,
    /// What happens.
    pub kind: FaultKind,
    /// Of `slow`: how fast it is from now on; 1 is normal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// How long health checks take to notice that it is gone or back.
    #[serde(default = "one_second", with = "time::text")]
    pub noticed_after: Duration,
}

/// What happens to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultKind {
    /// It stops: everything there fails.
    Fail,
    /// It serves again, empty.
    Recover,
    /// Its cores change speed.
    Slow,
    /// It is switched on, and serves after its setup time.
    Start,
    /// It is switched off: everything there fails.
    Stop,
}

impl Servers {
    /// The position of a resource among those of a server.
    pub fn resource_index(&self, name: &str) -> Option<usize> {
        position(&self.resources, name)
    }
}

impl Tier {
    /// The position of a resource among those of a server.
    pub fn resource_index(&self, name: &str) -> Option<usize> {
        position(&self.resources, name)
    }
}

/// The name of a resource whose queue nuclei measure as that of the network card.
pub const CARD: &str = "nic";

/// The name by which steps call a server's cores.
pub const CORES: &str = "cpu";

fn position(resources: &[Resource], name: &str) -> Option<usize> {
    resources.iter().position(|resource| resource.name == name)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn fifo() -> Discipline {
    Discipline::Fifo
}

fn one_per_second() -> f64 {
    1.0
}

fn one_second() -> Duration {
    Duration::from_secs(1)
}
