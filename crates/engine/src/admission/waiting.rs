//! Waiting in the sentry: a server holds as few requests as keep it busy, everything else waits here.
//!
//! *Intuition.* A doctor who has four rooms calls four patients. The others sit in the waiting room, where they can be
//! called by urgency and leave when they like; who would not be called today is told so at the door.
//!
//! *Applied.* The servers have `W` requests each at most, a little more than the processors that they are believed to
//! have ([`busy`]). A request that finds a place free and nobody waiting for it starts; any other one waits in its
//! class queue if its turn comes early enough,
//!
//! ```text
//! A / (min(W, k) / S - h) + f c S max(1, W / k) <= R
//! ```
//!
//! with work `A` before it (of its class and more important ones), `k` processors that need `S` seconds for a unit of
//! work ([`speed`]), `h` work per second that will come meanwhile and go before it ([`lines`]), its cost `c`, `f` a
//! percentile of time at the server over what was expected ([`chance`]), and the target `R`, or what its own deadline
//! leaves where that is less, and if its client is there by then ([`patience`]); and is refused at once otherwise. A
//! place that becomes free goes to the first of the most important class that waits. Who has waited so long that it can
//! hardly be in time any more is refused when its turn comes. While `k` is not known there are more places with every
//! stay, as long as nothing slows down ([`growth`]).
//!
//! *Awkward cases.* A request that cannot be in time even alone is served when nobody else wants the place. While `S`
//! is not known, waiting absorbs the doubt: nobody is refused for a guess. Under lasting overload a long queue brings
//! no more answers than a short one, only later ones: the longer more comes than leaves, the shorter it may become. In
//! a short rush the late answers that the SLA permits are spent ([`late`]). Times that are not exponential are not over
//! for a while after there are more places: until then counts of completions say nothing, or servers with room would
//! look full. What is seen with one number of places says nothing of others; so more are tried now and then, and fewer
//! where requests take longer than the target. Where all are served in no time there are more places than keep a server
//! busy, and where answers are read late ([`lag`]). Tenants above their fair share go after those within it, for whom
//! the queue is as long as it is without them; so these get in before however small a server. Where there is more than
//! processors, more requests bring less and less, not nothing ([`knee`]). What most answers take on their way to their
//! clients counts as time at the server ([`away`]); polls are no work ([`polls`]), and who hangs has no place.
//!
//! *Source.* Ours.

mod away;
mod busy;
mod chance;
mod foresee;
mod growth;
mod history;
#[cfg(test)]
mod invariants;
mod kept;
mod knee;
mod lag;
mod late;
mod lines;
mod part;
mod patience;
mod places;
mod polls;
mod relative;
mod room;
mod speed;
mod stays;

use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::batch::Order;
use super::{Admission, AdmissionPolicy, Arrival, Context, Ended, PolicyState};
use crate::decision::{End, Reason};
use crate::learned::Kept;
use crate::peers::Summary;
use crate::request::Request;
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;

use away::Away;
use busy::{Busy, Look};
use chance::Chances;
use growth::Growth;
use history::History;
use lag::Lag;
use late::Late;
use lines::Lines;
use part::Part;
use patience::Turns;
use polls::Polls;
use relative::Relative;
use room::servers;
use speed::Speed;

/// Settings of the policy `waiting`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Who goes first inside a class, as in the policy `batch`: `"fair"`, `"smallest-first"` or `"fifo"`.
    pub order: Order,
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        Ok(())
    }

    pub(super) fn build(&self, setup: &Setup) -> WaitingRoom {
        let quantile = setup.sla.statistic().quantile();
        let classes = setup.classes.len();
        WaitingRoom {
            busy: Busy::new(),
            history: History::new(),
            look: Look { most: FIRST_PLACES, least: 1.0, beyond: 1.0, is_known: false },
            places: FIRST_PLACES,
            looks: Looks { start: Some(0), ..Looks::default() },
            seen: Seen { until: Timestamp::ZERO, at_work: 0 },
            away: Away::default(),
            speed: Speed::default(),
            growth: Growth::default(),
            chances: Chances::new(quantile),
            late: Late::new(quantile.map_or(0.0, |quantile| 1.0 - quantile)),
            lines: Lines::new(self.order, classes),
            relative: Relative::default(),
            polls: Polls::default(),
            lag: Lag::default(),
            part: Part::whole(),
            waited: 0.0,
            standing: alloc::vec![0.0; classes],
            expiry: alloc::vec![None; classes],
            turns: alloc::vec![Turns::ANY; classes],
        }
    }
}

/// Places of a server of which nothing is known.
const FIRST_PLACES: f64 = 8.0;
/// A place more than there are processors: the next request is there when one ends.
const SPARE: f64 = 0.6;
/// How likely a request must be in time while late answers were saved ([`Late`]).
const ALLOWED: f64 = 0.4;
/// The same when its turn comes and overload lasts.
const LIKELY: f64 = 0.9;
/// What is seen before it is known how many places there should be counts so much.
const UNSURE: f64 = 0.1;
/// Overload lasts when it did for so many seconds; what comes beyond what leaves, as a share of it, from which on it
/// counts in full.
const STANDING: f64 = 1.0;
const BEYOND: f64 = 0.1;

/// Up to when time is accounted for, and how many servers worked on then.
#[derive(Clone, Copy, Debug)]
struct Seen {
    until: Timestamp,
    at_work: usize,
}

/// What is known from one look at W to the next.
#[derive(Clone, Copy, Debug, Default)]
struct Looks {
    count: u32,
    last: Option<Timestamp>,
    /// From when on what completes says how many processors there are.
    settled: Timestamp,
    /// The most at work since.
    fullest: usize,
    /// Work completed since, of average cost.
    completed: f64,
    /// So many times W grew since the start; `None` once W is known, or those that began last took longer.
    start: Option<u32>,
    /// W without the trial of fewer that goes on.
    before_trial: Option<f64>,
}

/// State of the policy `waiting`.
#[derive(Debug)]
pub struct WaitingRoom {
    busy: Busy,
    history: History,
    look: Look,
    /// W: places of one server.
    places: f64,
    looks: Looks,
    seen: Seen,
    away: Away,
    speed: Speed,
    growth: Growth,
    chances: Chances,
    late: Late,
    lines: Lines,
    relative: Relative,
    polls: Polls,
    lag: Lag,
    part: Part,
    /// Share of the last seconds in which anybody waited.
    waited: f64,
    /// Per class: how much of the last seconds more of it and of more important ones came than can be done.
    standing: Vec<f64>,
    /// Per class: when its first waiting request is late for certain, as of the last look.
    expiry: Vec<Option<Timestamp>>,
    /// Per class: the latest turns that are worth waiting for.
    turns: Vec<Turns>,
}

impl AdmissionPolicy for WaitingRoom {
    fn on_arrival(&mut self, cx: &mut Context<'_>, arrival: &Arrival) -> Admission {
        self.account(cx);
        let class = arrival.request.class;
        // Who is above its tenant's share goes after those who are not, and leaves them the queue, not the places.
        let is_above = cx.load.pressure > 0.0;
        cx.load.in_flight -= core::mem::take(&mut cx.load.pressed);
        let place = self.lines.arrive(cx, arrival, self.expected(cx, &arrival.request, arrival.cost), is_above);
        let above = if is_above { 0 } else { cx.over_share(class) };
        let before = cx.class_ids().take(class.index() + 1).map(|class| cx.waiting(class)).sum::<usize>() - above;
        if self.room(cx) > 0 && before == 0 {
            self.seen.at_work += 1;
            self.growth.begin(cx.now);
            self.looks.fullest = self.looks.fullest.max(self.seen.at_work);
            self.lines.let_in(cx, class, place.line);
            return Admission::Admit;
        }
        if cx.load.servers == 0 {
            return Admission::refuse(Reason::NoServer);
        }
        if let Some((reason, predicted)) = self.comes_too_late(cx, &arrival.request, place, before) {
            return Admission::Refuse { reason: cx.load.refusal(reason), predicted: Some(predicted) };
        }
        if cx.shadow {
            return Admission::Admit;
        }
        self.expiry[class.index()].get_or_insert(cx.now + Duration::from_secs_f64(cx.target));
        Admission::Wait { bucket: place.line }
    }

    /// It has its own number.
    fn is_by_processors(&self) -> bool {
        false
    }

    fn keep_busy(&self) -> Option<u32> {
        let own = self.places * self.part.share;
        self.look.is_known.then(|| libm::floor(own).clamp(1.0, f64::from(u32::MAX)) as u32)
    }

    fn on_outcome(&mut self, cx: &mut Context<'_>, ended: &Ended) {
        self.account(cx);
        if !ended.is_over {
            return;
        }
        self.growth.end(cx.now, ended.started);
        self.polls.record(&ended.request, false);
        let is_late = match ended.end {
            End::Answered => ended.response_time > cx.target,
            End::TimedOut => true,
            End::Failed => return,
        };
        let under_way = cx.load.in_flight + cx.waiting_in_all();
        self.late.record(is_late, under_way, self.stands_at_all());
        if ended.end == End::TimedOut || ended.hung {
            return;
        }
        self.seen.at_work = cx.load.at_work();
        let cost = self.relative.record(cx.costs, cx.costs.estimate(&ended.request));
        // It has left already.
        let own = (cx.load.at_work() + 1) as f64;
        let at_end = self.part.all(cx, own);
        let in_service = self.history.since(ended.started, cx.now).map_or(at_end, |mean| mean.max(1.0)) / servers(cx);
        let took = self.away.take(ended.service_time, cx.now.seconds_since(ended.started));
        if self.speed.cost() == 0.0 {
            self.looks.settled = cx.now + Duration::from_secs_f64(took);
        }
        self.part.complete(cost);
        self.looks.completed += cost;
        if cx.now >= self.looks.settled && cx.peers.count == 0 {
            self.busy.complete(at_end / servers(cx), cost);
        }
        self.busy.took(ended.started, took, cost);
        let expected = self.stay(cost, in_service);
        if expected > 0.0 && cx.costs.is_settled() {
            let weight = if self.look.is_known { 1.0 } else { UNSURE };
            self.chances.record(cx.now, took / expected, weight);
        }
        self.speed.complete(cost, took, (in_service / self.look.most).max(1.0), own);
    }

    fn on_poll(&mut self, request: &Request) {
        self.polls.record(request, true);
    }

    fn on_completion(&mut self, cx: &mut Context<'_>) {
        self.account(cx);
        if cx.waiting_in_all() > 0 {
            self.call(cx);
        }
        self.seen.at_work = cx.load.at_work();
        self.looks.fullest = self.looks.fullest.max(self.seen.at_work);
    }

    fn on_tick(&mut self, cx: &mut Context<'_>) {
        self.account(cx);
        let elapsed = self.lag.tick(cx.now);
        self.chances.refresh(cx.now);
        self.lines.refresh(cx, elapsed, cx.target, self.chances.sure());
        self.late.fade(elapsed, cx.load.in_flight + cx.waiting_in_all());
        let gain = 1.0 - libm::exp(-elapsed / STANDING);
        if let Some(rate) = self.rate(cx).filter(|rate| *rate > 0.0) {
            for (class, standing) in cx.class_ids().zip(&mut self.standing) {
                let offered = self.lines.more_important(class) + self.lines.offered(class);
                let beyond = ((offered / rate - 1.0) / BEYOND).clamp(0.0, 1.0);
                *standing += gain * (beyond - *standing);
            }
        }
        self.look_at_patience(cx);
        self.waited += gain * (f64::from(u8::from(cx.waiting_in_all() > 0)) - self.waited);
        let by_class = cx.classes.iter().enumerate();
        let guaranteed = by_class.map(|(class, is)| {
            (is.offered.get() - is.excess.get()) * self.relative.of(cx.costs, cx.costs.class_mean(class))
        });
        self.part.guaranteed = guaranteed.sum::<f64>().max(0.0);
        self.take_part(cx);
        self.look_at_places(cx);
        self.on_completion(cx);
    }

    /// Who waited under another policy waits on, until it is late for certain.
    fn on_takeover(&mut self, cx: &mut Context<'_>) {
        self.seen = Seen { until: cx.now, at_work: cx.load.at_work() };
        self.lag.begin(cx.now);
        self.expire(cx);
        self.on_completion(cx);
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.account(cx);
        self.expire(cx);
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        self.expiry.iter().flatten().min().copied()
    }

    fn buckets(&self) -> usize {
        self.lines.count()
    }

    fn tell(&mut self, cx: &Context<'_>, summary: &mut Summary) {
        self.account(cx);
        self.tell_needs(cx, summary);
        self.tell_seen(cx, summary);
    }

    fn on_peers(&mut self, cx: &mut Context<'_>) {
        self.hear(cx);
        self.on_completion(cx);
    }

    fn describe(&self, state: &mut PolicyState) {
        state.active = "waiting";
        state.limit = Some(self.places);
        state.more.push(("stay".into(), self.stay(self.speed.cost(), self.places)));
        state.more.push(("stretch".into(), self.chances.sure()));
        state.more.push(("part".into(), self.part.share));
        state.more.push(("waited".into(), self.waited));
    }

    fn keep(&self, now: Timestamp, kept: &mut Kept) {
        self.put_away(now, kept);
    }

    fn recall(&mut self, now: Timestamp, kept: &Kept) {
        self.take_up(now, kept);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, answered};
    use super::*;
    use crate::{Decision, Ticket};

    /// Requests of `class` until one must wait: those that work, and the one that waits.
    fn fill(bench: &mut Bench, class: u8) -> (Vec<Ticket>, Ticket) {
        let mut working = Vec::new();
        loop {
            match bench.decide(class) {
                Decision::Admit { ticket, .. } => working.push(ticket),
                Decision::Enqueue { ticket } => return (working, ticket),
                Decision::Reject(refusal) => panic!("nothing is known yet: {refusal:?}"),
            }
        }
    }

    #[test]
    fn a_place_that_becomes_free_goes_to_the_most_important_that_waits() {
        let mut bench = Bench::new(r#"{"policy": "waiting"}"#);
        let (working, bronze) = fill(&mut bench, 2);
        let gold = bench.wait(0);
        working.iter().take(2).for_each(|ticket| bench.complete(*ticket, answered(100)));
        assert_eq!(bench.started, [gold, bronze]);
    }

    #[test]
    fn whose_turn_comes_too_late_is_refused_at_once() {
        let mut bench = Bench::new(r#"{"policy": "waiting"}"#);
        let (working, _) = fill(&mut bench, 1);
        bench.complete(working[0], answered(400));
        // So many leave per second, and the target is a second: 0.8 s of it for the time at the server, as long as
        // little is known of it.
        let leave = working.len() as f64 / 0.4;
        let decisions: Vec<Decision> = (0..1000).map(|_| bench.decide(1)).collect();
        let waiting = decisions.iter().filter(|decision| matches!(decision, Decision::Enqueue { .. })).count() as f64;
        assert!(waiting > 0.14 * leave && waiting < 0.25 * leave, "{waiting} of {leave}");
        let Decision::Reject(refusal) = decisions[999] else { panic!("the line is full") };
        assert_eq!(refusal.reason, Reason::SlaTarget);
        assert!(refusal.predicted.is_some_and(|predicted| predicted > Duration::from_secs(1)));
    }

    #[test]
    fn who_is_late_for_certain_waits_no_longer() {
        let mut bench = Bench::new(r#"{"policy": "waiting"}"#);
        let (_, late) = fill(&mut bench, 1);
        bench.advance(1100);
        assert_eq!(bench.refused, [(late, Reason::QueueTimeout)]);
    }
}
