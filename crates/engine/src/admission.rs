//! Admission policies: who gets in.
//!
//! A policy sees each arrival that the published table does not decide, each completion, and its own timers. It never
//! owns a request: it tells the controller to admit, to let wait, to start waiting ones, or to refuse. All methods have
//! defaults, so a policy is one short file. To add one: write `admission/<name>.rs`, add its `mod` line and its entry
//! in the table below; configuration, `--policy`, the conformance suite and the documentation derive from the table.

mod aimd;
mod aimd_limit;
mod arrival;
mod batch;
mod bbr;
mod bouncer;
mod brpc;
mod cataclysm_batch;
mod cataclysm_threshold;
mod codel;
mod concurrency;
mod dagor;
mod delays;
mod failsafe;
mod gradient;
mod gradient2;
mod limit;
mod load;
mod netflix_partition;
mod none;
mod publish;
mod resource;
mod sentry;
mod state;
mod switch;
#[cfg(test)]
mod testing;
mod threshold;
mod vegas;
mod waiting;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::time::Duration;

use crate::decision::Reason;
use crate::due::{foresee, is_too_late};
use crate::effect::Effect;
use crate::estimate::{Calibration, ClassEstimate, Costs};
use crate::event::{Event, EventSink};
use crate::facts::Facts;
use crate::fleet::{Held, Partitions};
use crate::flight::{Released, Traffic, Turn};
use crate::learned::Kept;
use crate::peers::{Peers, Summary};
use crate::policer::Policer;
use crate::report::LoadReport;
use crate::request::{ClassId, Request, RequestTypeId, ServerId};
use crate::rng::Rng;
use crate::setup::{Setup, SetupError, SetupPlace};
use crate::table::policies;
use crate::time::Timestamp;

pub use arrival::{Admission, Arrival, Ended};
pub use batch::Delays;
pub use state::PolicyState;

pub(crate) use load::Load;

policies! {
    /// An admission policy and its settings.
    pub enum AdmissionConfig for AdmissionPolicy, default Waiting {
        /// Admits everything: the baseline.
        None("none") => none,
        /// A fixed limit on requests in flight; the rest waits or is refused.
        Concurrency("concurrency") => concurrency,
        /// A fixed limit, and a queue that serves the newest first with short time-outs while it is standing
        /// (Facebook).
        Codel("codel") => codel,
        /// A rate per request type and class that follows a percentile of the response time (SEDA).
        Aimd("aimd") => aimd,
        /// A limit that grows with every answer in time and shrinks with every late one (Netflix, AIMDLimit).
        AimdLimit("aimd-limit") => aimd_limit,
        /// A limit that keeps a short queue at the servers (Netflix, VegasLimit).
        Vegas("vegas") => vegas,
        /// A limit from the ratio of the long to the short mean response time (Netflix, Gradient2Limit).
        Gradient2("gradient2") => gradient2,
        /// A limit from the ratio of the least to the current response time (Envoy, adaptive concurrency).
        Gradient("gradient") => gradient,
        /// An admission level over classes and levels within them, moved by the measured wait (WeChat, DAGOR).
        Dagor("dagor") => dagor,
        /// Those of whom a percentile of the response time, foreseen by what waits and by the processing times of their
        /// type, is within the target (LinkedIn, Bouncer).
        Bouncer("bouncer") => bouncer,
        /// A limit from the highest rate and the least response time that were seen (Apache brpc, auto).
        Brpc("brpc") => brpc,
        /// While processors are busy, no more in flight than at its best (go-zero, Kratos and Sentinel: BBR).
        Bbr("bbr") => bbr,
        /// A limit of Vegas' kind, a queue before it, and by its length a threshold (failsafe-go, after Cinnamon).
        Failsafe("failsafe") => failsafe,
        /// The limit of `gradient2`, of which each class is sure of a share (Netflix, partitioned limiter).
        NetflixPartition("netflix-partition") => netflix_partition,
        /// A rate for requests that use a resource, by the use of the resource, and one for new connections (Voigt,
        /// Gunningberg).
        Resource("resource") => resource,
        /// A limit on requests in flight by kind: what the servers hold within the target (QoWS, SwitchAdm).
        Switch("switch") => switch,
        /// Class queues and a size-based test of each batch (Cataclysm, sections 3.1 and 3.2).
        Batch("batch") => batch,
        /// A pre-computed share per class (Cataclysm, section 3.3).
        Threshold("threshold") => threshold,
        /// Batch while the sentry can afford it, threshold while it cannot (Cataclysm, section 3.3).
        Sentry("sentry") => sentry,
        /// The batch test as it was published: whole batches or none, no estimate corrected (Cataclysm).
        CataclysmBatch("cataclysm-batch") => cataclysm_batch,
        /// The threshold as it was published: every 15 s, from rates and costs alone (Cataclysm).
        CataclysmThreshold("cataclysm-threshold") => cataclysm_threshold,
        /// Few enough requests at the servers to keep them busy; the rest waits here for as long as it can be in time.
        /// Threshold while the sentry cannot afford that.
        Waiting("waiting") => waiting,
    }
}

/// Decides who gets in.
pub trait AdmissionPolicy: Debug + Send {
    /// A request that conforms to no guarantee and that the published table does not decide.
    fn on_arrival(&mut self, cx: &mut Context<'_>, arrival: &Arrival) -> Admission {
        let _ = (cx, arrival);
        Admission::Admit
    }

    /// A request that the policy admits goes to `server`: the last word. A reason refuses it.
    fn on_server(&mut self, now: Timestamp, arrival: &Arrival, server: ServerId) -> Option<Reason> {
        let _ = (now, arrival, server);
        None
    }

    /// Whether whatever came now would be refused at once, so that nobody need send a long body first. `false` where
    /// that is not known before.
    fn is_full(&self, cx: &Context<'_>) -> bool {
        let _ = cx;
        false
    }

    /// Whether more would be let in if servers were thought to have more processors: then a number that is too low is
    /// told by trying a higher one.
    fn is_by_processors(&self) -> bool {
        true
    }

    /// As many requests as keep a server busy, if the policy knows better than by processors: with so many in service,
    /// what completes is what the server can do.
    fn keep_busy(&self) -> Option<u32> {
        None
    }

    /// An admitted request ended with an outcome; [`AdmissionPolicy::on_completion`] follows at once. A cancel is no
    /// outcome: it teaches nothing.
    fn on_outcome(&mut self, cx: &mut Context<'_>, ended: &Ended) {
        let _ = (cx, ended);
    }

    /// An admitted request turned out to be a poll, which is no work; [`AdmissionPolicy::on_completion`] follows.
    fn on_poll(&mut self, _request: &Request) {}

    /// A request ended; a place may be free.
    fn on_completion(&mut self, _cx: &mut Context<'_>) {}

    /// Ten times a second: bring the published table and other slow state up to date.
    fn on_tick(&mut self, _cx: &mut Context<'_>) {}

    /// The time that [`AdmissionPolicy::next_timeout`] asked for has come.
    fn on_timeout(&mut self, _cx: &mut Context<'_>) {}

    /// It takes over from another policy, with what waits there. A policy that lets nobody wait lets them in.
    fn on_takeover(&mut self, cx: &mut Context<'_>) {
        cx.start_all();
    }

    /// When to be woken, if at all. After `on_timeout(now)` it must be later than `now`.
    fn next_timeout(&self) -> Option<Timestamp> {
        None
    }

    /// A report from outside.
    fn on_report(&mut self, cx: &mut Context<'_>, report: &LoadReport) {
        let _ = (cx, report);
    }

    /// The setup changed, but neither this policy's settings nor the classes.
    fn on_setup(&mut self, _setup: &Setup) {}

    /// When a refused request should come back, where the policy knows better than the application's drain time.
    fn retry_after(&self, now: Timestamp, request: &Request) -> Option<Duration> {
        let _ = (now, request);
        None
    }

    /// Adds what other sentries before the same servers should know: see [`Summary`].
    fn tell(&mut self, _cx: &Context<'_>, _summary: &mut Summary) {}

    /// The others said how they are doing: [`Context::peers`].
    fn on_peers(&mut self, _cx: &mut Context<'_>) {}

    /// How many cost buckets its class queues need, 1 to 64.
    fn buckets(&self) -> usize {
        1
    }

    /// Adds what there is to see inside.
    fn describe(&self, state: &mut PolicyState) {
        let _ = state;
    }

    /// Puts away what it learned, for a policy of the same name in another controller.
    fn keep(&self, now: Timestamp, kept: &mut Kept) {
        let _ = (now, kept);
    }

    /// Begins with what was put away.
    fn recall(&mut self, now: Timestamp, kept: &Kept) {
        let _ = (now, kept);
    }
}

/// Everything a policy may see, and every effect it may have.
pub struct Context<'a> {
    /// Present time since the driver's origin.
    pub now: Timestamp,
    /// How loaded the application is.
    pub load: Load,
    /// The SLA's target at the current arrival rate, seconds.
    pub target: f64,
    /// Estimates of each class, most important first.
    pub classes: &'a [ClassEstimate],
    /// Costs per URL, type and class.
    pub costs: &'a Costs,
    /// From predicted mean to the SLA's statistic.
    pub calibration: &'a Calibration,
    /// The controller's random number generator.
    pub rng: &'a mut Rng,
    /// Whether refusals are only counted. Nothing may wait then.
    pub shadow: bool,
    /// The other sentries before the same servers.
    pub peers: &'a Peers,
    pub(crate) partitions: &'a Partitions,
    pub(crate) policer: &'a Policer,
    pub(crate) traffic: &'a mut Traffic,
    pub(crate) effects: &'a mut Vec<Effect>,
    pub(crate) sink: &'a mut dyn EventSink,
}

impl Context<'_> {
    /// What the servers that a class may use hold of the kind of a request type; `None`: the type is counted nowhere.
    pub(crate) fn held(&self, class: ClassId, request_type: RequestTypeId) -> Option<Held> {
        self.partitions.held(class, request_type)
    }

    /// Requests of a class in flight.
    pub(crate) fn in_flight_of(&self, class: ClassId) -> usize {
        self.traffic.stats[class.index()].in_flight as usize
    }

    /// Requests waiting in a class.
    pub fn waiting(&self, class: ClassId) -> usize {
        self.traffic.waiting.class_len(class) as usize
    }

    /// Requests waiting in all classes.
    pub fn waiting_in_all(&self) -> usize {
        self.traffic.waiting.len()
    }

    /// Of the requests waiting in a class, those of tenants above their fair share.
    pub(crate) fn over_share(&self, class: ClassId) -> usize {
        self.traffic.waiting.over_len(class) as usize
    }

    /// How many wait in a bucket for this turn.
    pub(crate) fn waiting_at(&self, class: ClassId, bucket: usize, turn: Turn) -> usize {
        self.traffic.waiting_at(class, bucket, turn)
    }

    /// How many wait in a bucket.
    pub(crate) fn waiting_in(&self, class: ClassId, bucket: usize) -> usize {
        Turn::ALL.iter().map(|turn| self.waiting_at(class, bucket, *turn)).sum()
    }

    /// Of the requests waiting in one bucket, first tries.
    pub fn first_tries_in(&self, class: ClassId, bucket: usize) -> usize {
        self.traffic.first_tries(class, bucket)
    }

    /// The buckets of a class in which anybody waits now, the cheapest first.
    pub(crate) fn used(&self, class: ClassId) -> impl Iterator<Item = usize> + use<> {
        self.traffic.waiting.used(class)
    }

    /// Since when the one of a bucket waits that has waited longest.
    pub fn waiting_since(&self, class: ClassId, bucket: usize) -> Option<Timestamp> {
        self.traffic.waiting_since(class, bucket)
    }

    /// The one of a bucket that has waited longest.
    pub fn first_waiting(&self, class: ClassId, bucket: usize) -> Option<Request> {
        self.traffic.oldest_request(class, bucket)
    }

    /// Lets the first `count` of a bucket in, and counts them as in flight at once: tenants within their fair share go
    /// before those above it, of each the first tries before retries, and none that is too late by now.
    pub fn start(&mut self, class: ClassId, bucket: usize, count: usize) {
        self.start_at(class, bucket, &Turn::ALL, count);
    }

    /// The same of those that wait for these turns.
    pub(crate) fn start_at(&mut self, class: ClassId, bucket: usize, turns: &[Turn], count: usize) {
        let mut left = count;
        while left > 0 {
            let Some(slot) = self.traffic.pop_next(class, bucket, turns) else { return };
            left -= usize::from(self.let_in(slot));
        }
    }

    /// Whether it is let in; one whose own deadline leaves it no time any more is refused.
    fn let_in(&mut self, slot: u32) -> bool {
        if !self.shadow && self.is_overdue(slot) {
            self.traffic.released.push(Released { slot, refused: Some((Reason::Deadline, None)) });
            return false;
        }
        self.traffic.released.push(Released { slot, refused: None });
        self.load.in_flight += 1;
        self.load.free = self.load.free.saturating_sub(1);
        true
    }

    fn is_overdue(&self, slot: u32) -> bool {
        let flight = self.traffic.flights.get(self.traffic.flights.ticket(slot));
        let others = self.traffic.waiting.len();
        let others_wait = others > 0 && (self.load.in_flight + others) as f64 >= self.load.idle_processors;
        flight.and_then(|flight| Some((flight.request.deadline?, flight.cost))).is_some_and(|(deadline, cost)| {
            let (predicted, _) = foresee(&self.load, self.costs, self.calibration, cost, others_wait);
            is_too_late(self.now, deadline, predicted)
        })
    }

    /// When the one began to wait that [`Context::start_newest`] would let in.
    pub fn newest_waiting_since(&self, class: ClassId, bucket: usize) -> Option<Timestamp> {
        self.traffic.newest_since(class, bucket)
    }

    /// Lets that one in, as [`Context::start`] does the first.
    pub fn start_newest(&mut self, class: ClassId, bucket: usize) {
        let Some(slot) = self.traffic.pop_newest(class, bucket) else { return };
        self.let_in(slot);
    }

    /// Lets in everything that waits.
    pub fn start_all(&mut self) {
        for class in self.class_ids() {
            for bucket in self.used(class) {
                self.start(class, bucket, usize::MAX);
            }
        }
    }

    /// Refuses the `count` of a bucket that have waited longest.
    pub fn refuse(&mut self, class: ClassId, bucket: usize, count: usize, reason: Reason, predicted: Option<f64>) {
        for _ in 0..count {
            let Some(slot) = self.traffic.pop_oldest(class, bucket) else { return };
            self.traffic.released.push(Released { slot, refused: Some((reason, predicted)) });
        }
    }

    /// Refuses the first `count` of a bucket that wait for these turns.
    pub(crate) fn refuse_at(
        &mut self,
        class: ClassId,
        bucket: usize,
        turns: &[Turn],
        count: usize,
        (reason, predicted): (Reason, Option<f64>),
    ) {
        for _ in 0..count {
            let Some(slot) = self.traffic.pop_next(class, bucket, turns) else { return };
            self.traffic.released.push(Released { slot, refused: Some((reason, predicted)) });
        }
    }

    /// Refuses the newest that waits in a class for a tenant above its fair share, a retry rather than a first try: its
    /// place is free for another.
    pub(crate) fn displace(&mut self, class: ClassId) {
        if let Some(slot) = self.traffic.pop_displaced(class) {
            self.traffic.released.push(Released { slot, refused: Some((Reason::TenantShare, None)) });
        }
    }

    /// Refuses everything that waits in a class.
    pub fn refuse_class(&mut self, class: ClassId, reason: Reason) {
        for bucket in self.used(class) {
            self.refuse(class, bucket, usize::MAX, reason, None);
        }
    }

    /// Has something done beside the decisions.
    pub fn act(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Reports an event of the policy's own.
    pub fn say(&mut self, facts: Facts) {
        self.sink.record(self.now, Event::Admission(facts));
    }

    /// The classes, most important first.
    pub fn class_ids(&self) -> impl Iterator<Item = ClassId> + use<> {
        self.policer.classes()
    }
}

/// Builds the policy that `config` describes.
pub(crate) fn build(config: &AdmissionConfig, setup: &Setup) -> Box<dyn AdmissionPolicy> {
    config.build(setup)
}

/// A setting that must be more than zero, or is out of range otherwise.
fn require(holds: bool, policy: &'static str, key: &'static str, problem: &'static str) -> Result<(), SetupError> {
    if holds { Ok(()) } else { Err(SetupError::wrong(SetupPlace::Admission(policy), format_args!("{key} {problem}"))) }
}
