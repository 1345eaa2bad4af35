//! Follows the offered load at a short interval: as many servers as the SLA needs when those asked for now will serve.
//!
//! *Intuition.* What is offered, not what is admitted, says what is needed, however much is being refused. It is
//! extended by its trend over the time that a new server takes to serve, or by the growth that the forecast foresees
//! where that is more; queueing theory turns the rate into servers. Too few are added at once and all together; too
//! many are drained when they were too many for `hold`.
//!
//! *Awkward cases.* Noise must not be taken for need: the rate is that of the last `smooth`, and a trend counts as far
//! as it is more than noise. Of a forecast only the growth counts, up to `trust` times what is offered. How many are
//! enough is a matter of price: what a sentry lets in is a loss system, and one more server is asked for when it would
//! save more work from being refused than `price`. So a few servers get more room for chance than many. A sentry may
//! refuse more than that foresees; when it does while everything asked for serves, the need is put up by a margin,
//! which fades when it was too much.
//! When everybody together needs more than there is, revenue decides, as in a plan, and what is left goes to who lacks
//! most.
//!
//! *Source.* Ours. The servers count as sharing what is in flight (`pooled`), as shortest-queue dispatch nearly makes
//! them do: M/M/c/K.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use libm::{ceil, sqrt};
use serde::{Deserialize, Serialize};

use super::capacity::{Replica, mean_bound};
use super::cataclysm::divide;
use super::watch::Watched;
use super::{PolicyState, ProvisionPolicy, View, Wish, amount_problem, duration_problem, share_problem};
use crate::forecast::Basis;
use tidegate_engine::{Seconds, Statistic, Timestamp};

/// Settings of the policy `follow`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Time from decision to decision.
    pub every: Seconds,
    /// The offered rate is the mean over so long.
    pub smooth: Seconds,
    /// The trend is that over so long.
    pub trend: Seconds,
    /// Servers are returned when they were too many for so long.
    pub hold: Seconds,
    /// The highest use of the servers that is aimed at, whatever the target permits.
    pub most_busy: f64,
    /// Servers beyond the work itself at least, in square roots of the work (in servers).
    pub safety: f64,
    /// Whether servers count as sharing what is in flight; else each is a queue of its own, as in the paper, and
    /// `price` and `room` say nothing.
    pub pooled: bool,
    /// A server is asked for when it would save more than so much work from being refused, in servers' worth.
    pub price: f64,
    /// How many requests in flight admission lets in, in the calm that there is to be, for each that the target permits
    /// in theory: as the policy `batch`, which aims at 0.85 of the target, and spends late answers that it saved.
    pub room: f64,
    /// The share refused above which, with all that is needed serving, theory is not believed any more.
    pub refused: f64,
    /// The need is multiplied by what refusals taught, but not by less than this.
    pub least_margin: f64,
    /// ... nor by more than this.
    pub most_margin: f64,
    /// The growth that a forecast foresees counts up to so many times what is offered; 0: it does not count.
    pub trust: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            every: Seconds(15.0),
            smooth: Seconds(60.0),
            trend: Seconds(300.0),
            hold: Seconds(120.0),
            most_busy: 0.9,
            safety: 0.0,
            pooled: true,
            price: 0.0025,
            room: 1.3,
            refused: 0.05,
            least_margin: 1.0,
            most_margin: 1.3,
            trust: 2.0,
        }
    }
}

impl Config {
    pub(super) fn problem(&self) -> Option<(&'static str, &'static str)> {
        duration_problem("every", self.every)
            .or(duration_problem("smooth", self.smooth))
            .or(duration_problem("trend", self.trend))
            .or(amount_problem("hold", self.hold.0))
            .or(share_problem("most_busy", self.most_busy))
            .or((self.most_busy == 0.0).then_some(("most_busy", "must be more than 0: no number would suffice")))
            .or(amount_problem("safety", self.safety))
            .or(amount_problem("price", self.price))
            .or((self.price == 0.0).then_some(("price", "must be more than 0: another server always saves a little")))
            .or(amount_problem("room", self.room))
            .or((self.room == 0.0).then_some(("room", "must be more than 0: nothing would be let in")))
            .or(share_problem("refused", self.refused))
            .or(amount_problem("least_margin", self.least_margin))
            .or((self.least_margin == 0.0).then_some(("least_margin", "must be more than 0: nothing would be needed")))
            .or(amount_problem("most_margin", self.most_margin))
            .or((self.most_margin < self.least_margin).then_some(("most_margin", "must not be below `least_margin`")))
            .or(amount_problem("trust", self.trust))
    }

    /// Servers for `rate` requests per second, as far as the theory goes: no trend, no forecast, and nothing that
    /// refusals taught. `None` where the target is below the service time, or a number makes no sense.
    pub fn servers_for(&self, replica: &Replica, rate: f64, statistic: Statistic, target: Duration) -> Option<u32> {
        self.need(replica, (rate, 1.0), statistic, target)
    }

    /// The same for a rate and what the need is multiplied by.
    fn need(
        &self,
        replica: &Replica,
        (rate, margin): (f64, f64),
        statistic: Statistic,
        target: Duration,
    ) -> Option<u32> {
        let bound = replica.mean_bound(statistic, target);
        if bound <= replica.mean_service {
            return None;
        }
        let needed = match self.pooled {
            true => {
                // As many as admission lets in, whose test knows nothing of variances but by its own errors.
                let room = (mean_bound(statistic, target) * self.room).max(replica.mean_service * 1.001);
                replica.servers_worth(rate * margin, room, self.price)
            }
            false => replica.servers_needed(rate, bound),
        };
        let work = rate * replica.mean_service / replica.processors;
        let roomy = (work / self.most_busy).max(work + self.safety * sqrt(work));
        Some(needed.ok()?.max(ceil(roomy * margin) as u32))
    }

    pub(super) fn build(&self) -> Follow {
        let next = Timestamp::ZERO + self.every.duration();
        Follow { config: self.clone(), next, needs: Vec::new(), margins: Vec::new(), settled: Vec::new() }
    }
}

/// The policy.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Follow {
    #[serde(skip)]
    config: Config,
    next: Timestamp,
    /// Per application what was needed when, over the last `hold`.
    needs: Vec<VecDeque<(Timestamp, u32)>>,
    /// Per application what its need is multiplied by, as refusals taught.
    margins: Vec<f64>,
    /// Per application for how many decisions all that was needed served.
    settled: Vec<u32>,
}

/// The margin fades while less than this part of the share `refused` is refused.
const HARDLY_ANY: f64 = 0.1;
/// What it is multiplied by at a decision when it grows, and when it fades.
const GROWS: f64 = 1.05;
const FADES: f64 = 0.998;

impl ProvisionPolicy for Follow {
    fn state(&self) -> PolicyState {
        PolicyState::Follow(self.clone())
    }

    fn restore(&mut self, state: PolicyState) {
        if let PolicyState::Follow(state) = state {
            *self = Follow { config: self.config.clone(), ..state };
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
        self.next = view.now + self.config.every.duration();
        self.needs.resize_with(wishes.len(), VecDeque::new);
        self.margins.resize(wishes.len(), 1.0f64.clamp(self.config.least_margin, self.config.most_margin));
        self.settled.resize(wishes.len(), 0);
        let mut rates: Vec<Option<(f64, &'static str)>> = Vec::new();
        for (at, wish) in wishes.iter_mut().enumerate() {
            let application = &view.applications[at];
            let expected = self.expected(view, application);
            rates.push(expected);
            let Some((rate, by)) = expected else { continue };
            let tight = application.setup.sla.target(0.0);
            let Some(need) = self.need(at, application, rate, tight) else { continue };
            self.learn(view, at, need <= wish.servers && view.serving[at] >= wish.servers);
            let need = need.clamp(application.setup.min_servers, application.setup.max_servers);
            self.wish(view.now, at, need, wish);
            if wish.servers == need {
                wish.reason = format!("{rate:.0}/s by {by}");
            }
            wish.ceiling = tight;
        }
        let wanted: u64 = wishes.iter().map(|wish| u64::from(wish.servers)).sum();
        if wanted > u64::from(view.usable) {
            self.share(view, &rates, wishes);
        }
    }
}

impl Follow {
    /// The rate to be ready for when a server that is asked for now will serve.
    fn expected(&self, view: &View<'_>, application: &Watched) -> Option<(f64, &'static str)> {
        let now = view.now;
        let rate = application.rate(now, self.config.smooth.duration())?;
        let ahead = view.lead + self.config.every.duration();
        let trend = self.config.trend.duration();
        let earlier = application.rate_between(now - trend, now - trend / 2).unwrap_or(rate);
        let later = application.rate(now, trend / 2).unwrap_or(rate);
        // Of Poisson counts; what lies within two standard deviations is no trend.
        let noise = 2.0 * sqrt((earlier + later) / (trend.as_secs_f64() / 2.0));
        let slope = if later - earlier > noise { (later - earlier) / (trend.as_secs_f64() / 2.0) } else { 0.0 };
        let behind = self.config.smooth.duration().as_secs_f64() / 2.0;
        let trended = rate + slope * (ahead.as_secs_f64() + behind);
        let foreseen = application.forecast(now, now + ahead);
        // How much more than now: forecasts are of the busiest moment, which where little is offered is chance's.
        let growth = foreseen.expected / application.forecast(now, now).expected.max(f64::MIN_POSITIVE);
        let trusted = rate * growth.min(self.config.trust);
        if matches!(foreseen.basis, Basis::Weekly | Basis::Daily) && trusted > trended {
            return Some((trusted, "forecast"));
        }
        Some((trended, if slope > 0.0 { "trend" } else { "what is offered" }))
    }

    /// Servers for a rate; `None` where nothing is known of them, or the target is below the service time.
    fn need(&self, at: usize, application: &Watched, rate: f64, target: Duration) -> Option<u32> {
        let statistic = application.setup.sla.statistic();
        self.config.need(&application.replica()?, (rate, self.margins[at]), statistic, target)
    }

    /// Refusals while everything that was asked for serves say that it was too little.
    fn learn(&mut self, view: &View<'_>, at: usize, all_serve: bool) {
        self.settled[at] = if all_serve { self.settled[at] + 1 } else { 0 };
        let refused = view.applications[at].drop_share(view.now, self.config.every.duration() * 2);
        let margin = &mut self.margins[at];
        if refused > self.config.refused && self.settled[at] > 3 {
            *margin = (*margin * GROWS).min(self.config.most_margin);
        } else if refused < self.config.refused * HARDLY_ANY {
            *margin = (*margin * FADES).max(self.config.least_margin);
        }
    }

    /// More at once; fewer when it was too many for `hold`.
    fn wish(&mut self, now: Timestamp, at: usize, need: u32, wish: &mut Wish) {
        let needs = &mut self.needs[at];
        needs.push_back((now, need));
        let hold = self.config.hold.duration();
        while needs.front().is_some_and(|(then, _)| now.since(*then) > hold) {
            needs.pop_front();
        }
        let most = needs.iter().map(|(_, need)| *need).max().unwrap_or(need);
        wish.servers = if need > wish.servers { need } else { wish.servers.min(most.max(need)) };
    }

    /// There are not enough: revenue decides.
    fn share(&self, view: &View<'_>, rates: &[Option<(f64, &'static str)>], wishes: &mut [Wish]) {
        if rates.iter().any(Option::is_none) {
            return;
        }
        let futures: Vec<Vec<(f64, f64)>> = rates.iter().flatten().map(|(rate, _)| alloc::vec![(1.0, *rate)]).collect();
        let Ok(allocation) = divide(view, &futures, self.config.trend.duration()) else { return };
        let mut lacks: Vec<u32> = Vec::new();
        for (at, wish) in wishes.iter_mut().enumerate() {
            lacks.push(wish.servers.saturating_sub(allocation.servers[at]));
            wish.servers = allocation.servers[at];
            wish.ceiling = view.applications[at].setup.sla.steps()[allocation.ceilings[at]].target;
            wish.reason = format!("{:.0}/s; there are not enough for everybody", futures[at][0].1);
        }
        for _ in 0..allocation.free {
            let Some(at) = (0..lacks.len()).filter(|at| lacks[*at] > 0).max_by_key(|at| lacks[*at]) else { break };
            wishes[at].servers += 1;
            lacks[at] -= 1;
        }
    }
}
