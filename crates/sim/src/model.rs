//! What a simulated service is made of: servers, what requests do there, the tiers behind, faults and power.
//!
//! Plain data. [`World`](crate::World) puts it together; how it behaves over time is in `park.rs`. What scenario files
//! say in the same words is read from there as it stands.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_engine::{LoadReport, Setup};
use tidegate_workload::{Abandoned, Discipline, ServiceTime, time};

/// A server: processors and what else requests use there, and how many requests it takes at once.
#[derive(Clone, Debug)]
pub struct ServerModel {
    /// True processors (what the engine must learn).
    pub cores: f64,
    /// How the processors are divided.
    pub discipline: Discipline,
    /// At most so many requests are in service at once (threads, processes); `None`: no limit.
    pub limit: Option<u32>,
    /// So many more may wait for a place; further ones are refused by the server. `None`: no bound.
    pub backlog: Option<u32>,
    /// What is lost when too many are in service.
    pub knee: Option<Knee>,
    /// What it has besides processors. [`Action::Use`] counts them from 1; 0 is the processors.
    pub resources: Vec<Resource>,
    /// Which of them, counted from 1, is its network card: what waits there is measured in packets.
    pub card: Option<usize>,
    /// Its power; nothing is summed up without.
    pub power: Option<Power>,
    /// Whether it is off at the beginning; a [`Fault`] starts it.
    pub off: bool,
    /// From being started until it serves.
    pub setup_time: Duration,
    /// After setup it is slower for a while.
    pub warm_up: Option<WarmUp>,
    /// What each further processor slows the others: `1 / (1 + contention * (processors - 1))`.
    pub contention: f64,
    /// How fast the work it is given runs on one of its processors; 1 is normal.
    pub pace: f64,
    /// What it does when a client leaves. One that stops notices while the request is on its own resources, not while
    /// it waits for another tier.
    pub abandoned: Abandoned,
}

impl ServerModel {
    /// A server that is nothing but `cores` processors.
    pub fn new(cores: f64, discipline: Discipline) -> Self {
        ServerModel {
            cores,
            discipline,
            limit: None,
            backlog: None,
            knee: None,
            resources: Vec::new(),
            card: None,
            power: None,
            off: false,
            setup_time: Duration::ZERO,
            warm_up: None,
            contention: 0.0,
            pace: 1.0,
            abandoned: Abandoned::default(),
        }
    }
}

/// One machine that is two servers: one of a tier, and one behind the sentry that runs application work on the cores
/// which the first lends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Host {
    /// The server behind the sentry.
    pub front: usize,
    /// Whose it is.
    pub tier: usize,
    /// Which of the tier's servers.
    pub server: usize,
    /// Whether its cores are divided; otherwise both use all of them.
    pub divided: bool,
    /// What each request of application work adds to a call's work while cores are not divided, as a share of it.
    pub interference: f64,
}

/// Thrashing: past `at` requests in service, each further one slows all processors down.
///
/// The speed is `1 / (1 + loss * (n - at))` with `n` in service: with a loss of 0.01, a hundred too many halve it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Knee {
    /// Requests in service without loss.
    pub at: u32,
    /// What each further one costs, as a share of the speed.
    pub loss: f64,
}

/// Something else than processors that requests use at a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Resource {
    /// It works on what it is given: a disk, a network card.
    Station {
        /// How many units work side by side.
        units: f64,
        /// How they are divided.
        discipline: Discipline,
        /// Amount that one unit does per second: bytes per second, or 1 where amounts are seconds.
        rate: f64,
    },
    /// It is held meanwhile: a pool of connections to the next tier.
    Pool {
        /// How many.
        tokens: u32,
    },
}

/// A slow phase after setup: caches are cold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmUp {
    /// How long.
    #[serde(with = "time::text")]
    pub time: Duration,
    /// How fast it is meanwhile; 1 is normal.
    pub speed: f64,
}

/// What a server draws, watts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// On and idle.
    pub idle: f64,
    /// With all processors in use; in between in proportion.
    pub peak: f64,
    /// While it is being set up; as at the peak when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<f64>,
}

/// What a request does at a server after its time on the processors, step after step.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The steps.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Clone, Debug)]
pub struct Step {
    /// What is done.
    pub what: Action,
    /// Whether it runs together with the step before (or with the processors' part, when it is the first) instead of
    /// after it.
    pub overlap: bool,
}

/// What is done in a step.
#[derive(Clone, Debug)]
pub enum Action {
    /// A resource of the server is used.
    Use {
        /// Which: 0 the processors, then [`ServerModel::resources`] from 1.
        resource: usize,
        /// How much of it: seconds, or what the resource's rate counts.
        amount: ServiceTime,
    },
    /// Another tier is called.
    Call {
        /// Which of [`World::tiers`](crate::World::tiers).
        tier: usize,
        /// How many times.
        calls: u32,
        /// All at once, or one after the other.
        parallel: bool,
        /// Time of one call on a processor there, seconds.
        work: ServiceTime,
        /// What a call does there besides: of [`World::programs`](crate::World::programs).
        program: usize,
        /// A pool of this server of which a token is held meanwhile: of its resources, from 1.
        pool: Option<usize>,
    },
}

/// Servers behind the first ones, called by them.
#[derive(Clone, Debug)]
pub struct Tier {
    /// Its name.
    pub name: String,
    /// Its servers. Calls go to the one with the least in service per processor, the first of equals in turn.
    pub servers: Vec<ServerModel>,
    /// Time on the way, there and back together, of each call.
    pub latency: Duration,
    /// A sentry of its own, which decides on calls as another does on requests: with the world's classes, and as many
    /// servers as there are here. `None`: all calls are let in.
    pub sentry: Option<Setup>,
}

/// The way from the sentry to the clients, which all answers share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Bytes per second; `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Added to every answer.
    #[serde(default, with = "time::text")]
    pub latency: Duration,
}

/// A sentry whose own processors can be the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "Sentry", deny_unknown_fields)]
pub struct SentryModel {
    /// Processors: workers that take arrivals first come, first served.
    #[serde(default = "one_worker")]
    pub workers: u32,
    /// CPU time of a request that is admitted and relayed.
    #[serde(with = "time::text")]
    pub admitted: Duration,
    /// CPU time of a request that is refused. A request that has to wait takes this at first, and the rest when it
    /// starts.
    #[serde(with = "time::text")]
    pub refused: Duration,
    /// CPU time on top of that of a request that the policy has to test, since the published table does not decide.
    #[serde(default, skip_serializing_if = "Duration::is_zero", with = "time::text")]
    pub tested: Duration,
    /// Connections that may wait for a worker; further ones fail. `None`: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backlog: Option<u32>,
    /// How often it tells the engine how busy it is.
    #[serde(default = "one_second", with = "time::text")]
    pub report_every: Duration,
}

/// Several sentries before the same servers. Each is its own controller, and has what [`SentryModel`] says.
#[derive(Clone, Debug, PartialEq)]
pub struct SentryFleet {
    /// How many.
    pub sentries: u16,
    /// Whether they tell each other how they are doing.
    pub exchange: bool,
    /// What comes to each, by stream, users and sessions in turn: weights. A client that tries again may come to
    /// another one. What is missing comes to all alike.
    pub split: Vec<Vec<f64>>,
    /// Sentries that hear only of each other for a time.
    pub parted: Vec<Absence>,
    /// Sentries to which nothing comes for a time, and that say nothing.
    pub away: Vec<Absence>,
}

/// Sentries, and a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Absence {
    /// Which of the sentries, from 0.
    pub sentries: Vec<u16>,
    /// From when on.
    pub from: Duration,
    /// Until when.
    pub until: Duration,
}

impl Absence {
    /// Whether a sentry is one of these, at a time.
    pub(crate) fn is_of(&self, sentry: u16, at: Duration) -> bool {
        (self.from..self.until).contains(&at) && self.sentries.contains(&sentry)
    }
}

/// The way of measurements to the engine: they arrive late, and some never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename = "Reports", deny_unknown_fields)]
pub struct Channel {
    /// On the way.
    #[serde(default, with = "time::text")]
    pub delay: Duration,
    /// Share that is lost, 0 to 1.
    #[serde(default)]
    pub loss: f64,
}

/// A measurement that is sent to the engine at a given time, through the [`Channel`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// When it is sent.
    pub at: Duration,
    /// What it says.
    pub report: LoadReport,
}

/// Something happens to a server at a given time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// When.
    pub at: Duration,
    /// Of which tier, or of the servers behind the sentry (`None`).
    pub tier: Option<usize>,
    /// Which of its servers, from 0.
    pub server: usize,
    /// What.
    pub what: FaultKind,
    /// How long it takes the sentry's health checks to notice that the server is gone or back.
    pub noticed_after: Duration,
}

/// What happens to a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// It stops: everything there fails, and further requests fail at once.
    Fail,
    /// It serves again, empty.
    Recover,
    /// Its processors run at this speed: 1 is normal, 0.5 half.
    Speed(f64),
    /// It is switched on and serves after its setup time.
    Start,
    /// It is switched off. What is there fails: drain it first.
    Stop,
}

fn one_worker() -> u32 {
    1
}

fn one_second() -> Duration {
    Duration::from_secs(1)
}
