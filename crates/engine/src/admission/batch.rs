//! Size-based batch admission over class queues (Cataclysm, sections 3.1, 3.2 and 3.4).
//!
//! *Intuition.* A ferry that leaves on time. Important passengers board as they come; the others gather at the quay and
//! are called at intervals, so that a place taken by someone who came a moment too early is not missed later by someone
//! more important. Who is called boards smallest first, as long as the ferry still arrives on time; only who has waited
//! on the quay for too many ferries, whatever the luggage, goes before (`batch/dues.rs`).
//!
//! *Applied.* Class `i` is looked at every `d_i` seconds (`d_1` = 0: on arrival), most important first. Inside a class,
//! requests of similar cost form a bucket; the largest part of the bucket that passes
//!
//! ```text
//! Q + f S max(1, (eta + beta / n) / k) <= R_sla - d_i
//! ```
//!
//! is let in, the rest is refused, and so is everything that waits in less important classes at that instant. `Q` is
//! the queueing delay at the servers, `eta` the requests in service per server, `n` the servers, `k` a server's
//! effective processors, `S` the bucket's cost, and `f` the measured ratio of the SLA's statistic to such a prediction
//! ([`Calibration`](crate::estimate::Calibration)). The paper's test is the case `k` = `f` = 1 with `beta / n` rounded
//! up (`round_up`): what is left of a server's room beside whole requests stays empty. Where the target is worth 2.8
//! requests in service a server, that lets in two, and leaves a third of the room. But the target bounds a statistic
//! over all requests, and those share their servers with 2.8 on average, also when some share with two and some with
//! three.
//!
//! *Awkward cases.* A request that costs more than the whole target would be refused for ever, and the sentry would
//! never learn that it became cheaper. So while some server has a free processor every request passes, because waiting
//! could not make it faster and it delays no other; where nobody waits, it passes on arrival. Learned numbers jitter,
//! so the test aims at a little less than the target (`headroom`); at saturation this costs no throughput, the servers
//! are busy either way. Less important classes leave a reserve of places for the more important requests that come
//! before they are looked at again, and are held to the floor of what more important classes were refused
//! (`batch/floor.rs`). And a percentile permits that some are late: the allowance saved at low load is spent in
//! bursts, on requests that are likely in time (`batch/budget.rs`).

mod buckets;
mod budget;
mod config;
mod dues;
mod floor;
mod kinds;
mod rounds;

use alloc::vec::Vec;
use core::time::Duration;

use super::delays::{self, FullShare};
use super::{Admission, AdmissionPolicy, Arrival, Context, Ended, PolicyState};
use crate::decision::Reason;
use crate::learned::Kept;
use crate::policer::Share;
use crate::request::ClassId;
use crate::setup::Setup;
use crate::time::Timestamp;

pub(super) use buckets::{BUCKETS, bucket_middle, bucket_of};
use budget::Budget;
use dues::Terms;
pub(super) use dues::{Dues, KEPT, Known, Possible};
use floor::Floors;

pub use config::{Config, Delays, Order};

impl Config {
    pub(super) fn build(&self, setup: &Setup) -> Batch {
        let classes = setup.classes.len();
        let delays = match &self.delays {
            Delays::Computed(_) => alloc::vec![Duration::ZERO; classes],
            Delays::Fixed(fixed) => (0..classes).map(|i| fixed[i.min(fixed.len() - 1)].duration()).collect(),
        };
        Batch {
            config: self.clone(),
            computed: matches!(self.delays, Delays::Computed(_)),
            delays,
            rounds: alloc::vec![None; classes],
            full: FullShare::default(),
            floors: Floors::new(classes),
            dues: Dues::new(if self.order == Order::Fair { classes } else { 0 }),
            budget: Budget::new(setup.sla.statistic()),
            next_delays: Timestamp::ZERO,
        }
    }
}

/// State of the policy `batch`.
#[derive(Debug)]
pub struct Batch {
    config: Config,
    computed: bool,
    /// d_i per class.
    delays: Vec<Duration>,
    /// Next round per class; `None` while nothing waits.
    rounds: Vec<Option<Timestamp>>,
    full: FullShare,
    floors: Floors,
    dues: Dues,
    budget: Budget,
    /// When to compute the delays again.
    next_delays: Timestamp,
}

/// Deviations of the number of arrivals and completions that the reserve covers.
const RESERVE_DEVIATIONS: f64 = 3.0;
/// When the application has just filled, its measured share of full instants is still that of the calm. This is assumed
/// instead: the value at which the bound is strictest.
const AT_ONSET: f64 = 0.5;
/// How often delays are computed, seconds; sooner when the system first fills.
const DELAYS_PERIOD: Duration = Duration::from_secs(2);

/// See [`Batch::margin`].
#[derive(Clone, Copy, Debug, Default)]
struct Margin {
    /// The share of the budget that is kept for more important classes.
    kept: f64,
    /// d_i, seconds.
    delay: f64,
    /// The least cost at which the class is tested, seconds; see [`floor`].
    floor: f64,
    /// Places left free for more important requests.
    reserve: usize,
    /// Requests in flight up to which neither floor nor reserve holds: one per processor, beside those that complete
    /// before the class is looked at again. Else processors would stand idle for the sake of requests that may not
    /// come.
    busy: usize,
}

impl Margin {
    /// The same, and on these terms within the class.
    fn and(&self, terms: Terms) -> Margin {
        Margin { floor: self.floor.max(terms.floor), reserve: self.reserve + terms.reserve, ..*self }
    }
}

impl AdmissionPolicy for Batch {
    fn on_arrival(&mut self, cx: &mut Context<'_>, arrival: &Arrival) -> Admission {
        let class = arrival.request.class;
        let delay = self.delays[class.index()];
        let bucket = match self.config.order {
            Order::Fair => self.dues.offer(cx.now, class, arrival.cost),
            Order::SmallestFirst => bucket_of(arrival.cost),
            Order::Fifo => 0,
        };
        if delay.is_zero() || cx.shadow || self.is_idle(cx) {
            return self.test_one(cx, class, bucket, arrival.cost);
        }
        if cx.waiting_in_all() >= self.config.max_waiting as usize {
            return Admission::refuse(Reason::QueueFull);
        }
        self.rounds[class.index()].get_or_insert_with(|| next_round(cx.now, delay));
        Admission::Wait { bucket }
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        for class in cx.class_ids() {
            if self.rounds[class.index()].is_none_or(|at| at > cx.now) {
                continue;
            }
            self.rounds[class.index()] = None;
            if !self.round(cx, class) {
                self.refuse_below(cx, class);
                return;
            }
        }
    }

    fn on_outcome(&mut self, cx: &mut Context<'_>, ended: &Ended) {
        // A first byte in time pays for no answer that is late.
        if ended.is_over {
            self.budget.record(cx, ended, self.full.get());
        }
    }

    /// What waits gets its rounds.
    fn on_takeover(&mut self, cx: &mut Context<'_>) {
        self.wake_stranded(cx);
    }

    fn on_tick(&mut self, cx: &mut Context<'_>) {
        for class in cx.class_ids() {
            cx.publish(class, Share::Ask);
        }
        let elapsed = self.full.fade(cx.now);
        self.floors.fade(elapsed);
        self.budget.fade(elapsed);
        let factor = self.factor(cx);
        self.dues.settle(cx.now, elapsed, Known::of(cx.costs), |class| {
            let bound = cx.target * self.config.headroom - self.delays[class].as_secs_f64();
            Possible::of(&cx.load, bound / factor, bound)
        });
        let began = self.full.just_began();
        if self.computed && (cx.now >= self.next_delays || began) {
            self.recompute_delays(cx, if began { AT_ONSET } else { self.full.get() });
        }
        self.wake_stranded(cx);
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        self.rounds.iter().flatten().min().copied()
    }

    fn buckets(&self) -> usize {
        match self.config.order {
            Order::Fair | Order::SmallestFirst => BUCKETS,
            Order::Fifo => 1,
        }
    }

    fn describe(&self, state: &mut PolicyState) {
        state.active = "batch";
        state.delays = self.delays.iter().map(Duration::as_secs_f64).collect();
        state.full = Some(self.full.get());
    }

    fn keep(&self, now: Timestamp, kept: &mut Kept) {
        kept.put("delays_due", self.next_delays.seconds_since(now));
        for (class, delay) in self.delays.iter().enumerate() {
            kept.of_class_mut(class).put("delay", delay.as_secs_f64());
        }
        self.dues.keep(now, kept);
        self.full.keep(kept);
        self.floors.keep(now, kept);
        self.budget.keep(kept);
    }

    fn recall(&mut self, now: Timestamp, kept: &Kept) {
        let delays = (0..self.delays.len()).map(|class| kept.of_class(class).get("delay"));
        // With another class among them they are others.
        if let Some(delays) = delays.collect::<Option<Vec<f64>>>().filter(|_| self.computed) {
            let seconds = |delay: f64| Duration::from_secs_f64(delay.clamp(0.0, 60.0));
            self.delays = delays.into_iter().map(seconds).collect();
            let due = kept.between("delays_due", (0.0, DELAYS_PERIOD.as_secs_f64()), 0.0);
            self.next_delays = now + Duration::from_secs_f64(due);
        }
        self.dues.recall(now, kept);
        self.full.recall(now, kept);
        self.floors.recall(now, kept);
        self.budget.recall(kept);
    }
}

impl Batch {
    /// A class without a delay: one request, on arrival.
    fn test_one(&mut self, cx: &mut Context<'_>, class: ClassId, bucket: usize, own: f64) -> Admission {
        let cost = if self.config.order == Order::SmallestFirst { own } else { self.cost_of(cx, class, bucket) };
        let terms = self.dues.terms(cx.now, class, bucket, cost);
        let margin = self.margin(cx, class).and(terms);
        let passes = self.most(cx, cost.min(terms.most), &margin) >= 1;
        self.record(cx, class, (bucket, cost), 1, usize::from(!passes));
        if passes {
            return Admission::Admit;
        }
        if self.computed && self.full.just_began() {
            // Not at the next tick: until then less important requests would be let in as they come.
            self.recompute_delays(cx, AT_ONSET);
        }
        self.refuse_below(cx, class);
        let reason = cx.load.refusal(Reason::SlaTarget);
        Admission::Refuse { reason, predicted: Some(self.predicted(cx, cost, 1)) }
    }

    /// Computes the delays for an application that is full at this share of instants.
    fn recompute_delays(&mut self, cx: &mut Context<'_>, full: f64) {
        self.next_delays = cx.now + DELAYS_PERIOD;
        delays::recompute(cx, full, self.config.epsilon, &mut self.delays);
    }

    /// What a class is held to at this instant, beside the target.
    fn margin(&self, cx: &Context<'_>, class: ClassId) -> Margin {
        let delay = self.delays[class.index()].as_secs_f64();
        let kept = class.index() as f64 / cx.classes.len() as f64;
        let Some(mean) = cx.costs.mean().filter(|_| self.config.reserve && class.index() > 0) else {
            return Margin { kept, delay, ..Margin::default() };
        };
        let floor = self.floors.get(cx, class, self.config.epsilon);
        let completes = cx.load.processors / mean;
        let busy = cx.load.idle_processors + completes * delay;
        Margin { kept, delay, floor, reserve: self.reserve(cx, class, completes), busy: busy as usize }
    }

    /// Places to leave for more important requests that come before this class is looked at again: what arrives of them
    /// less what completes, and a margin for chance, as a shop keeps a safety stock.
    fn reserve(&self, cx: &Context<'_>, class: ClassId, completes: f64) -> usize {
        let delay = self.delays[class.index()].as_secs_f64().max(delays::BASE);
        let arrive: f64 = cx.classes[..class.index()].iter().map(|class| class.excess.get()).sum::<f64>() * delay;
        if arrive <= 0.0 {
            return 0;
        }
        let complete = completes * delay;
        (arrive - complete + RESERVE_DEVIATIONS * libm::sqrt(arrive + complete)).max(0.0) as usize
    }

    /// The largest batch of cost `cost` that passes the test now. A spare processor takes a request all the same.
    fn most(&self, cx: &Context<'_>, cost: f64, margin: &Margin) -> usize {
        let load = &cx.load;
        let bound = cx.target * self.config.headroom - margin.delay - load.queueing_delay;
        let fits = self.fit(cx, cost, bound, margin);
        let held = match cost < margin.floor {
            true => self.fit(cx, margin.floor, bound, margin),
            false => fits,
        };
        let busy = fits.min(margin.busy.saturating_sub(load.at_work()));
        held.saturating_sub(margin.reserve).max(busy).max(spare(cx)).min(load.free)
    }

    /// Nobody waits, and a processor has nothing to do: who comes now would wait for nothing. The paper's policy has no
    /// such case.
    fn is_idle(&self, cx: &Context<'_>) -> bool {
        let is_free = spare(cx) > 0 && cx.load.free > 0;
        self.computed && self.config.reserve && is_free && cx.waiting_in_all() == 0
    }

    /// How many requests of this cost could be let in and be answered within `bound` seconds.
    fn fit(&self, cx: &Context<'_>, cost: f64, bound: f64, margin: &Margin) -> usize {
        let load = &cx.load;
        if cost * self.factor(cx) > bound {
            return 0;
        }
        let spends = self.config.late_budget && self.config.calibrate && !self.config.round_up;
        let inherent = match spends && self.budget.covers(load.in_flight, margin.kept) {
            true => cost * cx.calibration.likely(),
            false => cost * self.factor(cx),
        };
        // (eta + m / n) / k <= bound / inherent, for all n servers together: m + in service <= n k bound / inherent.
        let places = load.processors * (bound / inherent).min(1e9) - load.in_service() + 1e-9;
        let servers = load.servers.max(1);
        match self.config.round_up {
            true => (places / servers as f64).max(0.0) as usize * servers,
            false => places.max(0.0) as usize,
        }
    }

    /// So many requests of a class were tested, and so many of them refused.
    fn record(
        &mut self,
        cx: &Context<'_>,
        class: ClassId,
        (bucket, cost): (usize, f64),
        tested: usize,
        refused: usize,
    ) {
        if tested == 0 {
            return;
        }
        self.full.record(refused > 0);
        self.dues.admit(cx, class, bucket, tested - refused);
        if refused > 0 {
            self.dues.refuse(cx, class, bucket);
        }
        // What an empty application would not have taken either, no less important request kept out.
        let possible = cost * self.factor(cx) <= cx.target * self.config.headroom;
        self.floors.record(cx, class, cost, tested, if possible { refused } else { 0 });
    }

    /// The response time foreseen for the last of a batch, seconds.
    fn predicted(&self, cx: &Context<'_>, cost: f64, batch: usize) -> f64 {
        let servers = cx.load.servers.max(1);
        let per_server = match self.config.round_up {
            true => batch.div_ceil(servers) as f64,
            false => batch as f64 / servers as f64,
        };
        let in_service = cx.load.in_service_per_server() + per_server;
        cx.load.queueing_delay + cost * self.factor(cx) * (in_service / cx.load.processors_per_server()).max(1.0)
    }

    fn factor(&self, cx: &Context<'_>) -> f64 {
        if self.config.calibrate { cx.calibration.factor() } else { 1.0 }
    }

    /// A class failed: what waits in less important ones goes, untested.
    fn refuse_below(&mut self, cx: &mut Context<'_>, class: ClassId) {
        for lower in cx.class_ids().skip(class.index() + 1) {
            if cx.waiting(lower) > 0 {
                cx.refuse_class(lower, Reason::MoreImportantFirst);
            }
            self.rounds[lower.index()] = None;
        }
    }

    /// Requests that wait in a class without a round (its delay was just set to 0, or a reload carried them over).
    fn wake_stranded(&mut self, cx: &mut Context<'_>) {
        for class in cx.class_ids() {
            if cx.waiting(class) > 0 && self.rounds[class.index()].is_none() {
                let soon = cx.now + Duration::from_nanos(1);
                self.rounds[class.index()] = Some(soon);
            }
        }
    }

    /// Rounds that are planned, and their classes' delays.
    pub(super) fn due(&self) -> impl Iterator<Item = (Timestamp, Duration)> + '_ {
        self.rounds.iter().zip(&self.delays).filter_map(|(at, delay)| at.map(|at| (at, *delay)))
    }

    /// Brings every planned round forward to `now`.
    pub(super) fn make_all_due(&mut self, now: Timestamp) {
        self.rounds.iter_mut().flatten().for_each(|at| *at = now);
    }
}

/// Requests that get a processor to themselves.
fn spare(cx: &Context<'_>) -> usize {
    let servers = cx.load.servers.max(1) as f64;
    let idle = (libm::floor(cx.load.idle_processors / servers) * servers).max(servers) as usize;
    idle.saturating_sub(cx.load.at_work())
}

/// Rounds lie on a common grid, so that classes with related delays meet at one instant and go in order.
pub(super) fn next_round(now: Timestamp, delay: Duration) -> Timestamp {
    let step = (delay.as_nanos() as u64).max(1);
    Timestamp::from_nanos((now.as_nanos() / step + 1).saturating_mul(step))
}
