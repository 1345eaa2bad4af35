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
//! A / (n / T - h) + f c <= R
//! ```
//!
//! with `A` requests before it (of its class and more important ones), `n` in flight that take `T` seconds at the
//! servers on average (`n / T` leave per second, by Little's law), `h` per second of more important classes that will
//! come meanwhile, its cost `c`, `f` a percentile of time at the server over cost, and the target `R`; and is refused
//! at once otherwise. A place that becomes free goes to the first of the most important class that waits. Who has
//! waited so long that it can hardly be in time any more is refused when its turn comes.
//!
//! *Awkward cases.* A request that cannot be in time even alone is served when nobody else wants the place. While `T`
//! is not known, waiting absorbs the doubt: nobody is refused for a guess. Under lasting overload a long queue brings
//! no more answers than a short one, only later ones: the longer it has not been empty, the shorter it may become. In a
//! short rush the late answers that the SLA permits are spent ([`Budget`]).
//!
//! *Source.* Ours. Little (1961) for the rate.

mod busy;

use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::batch::Budget;
use super::{Admission, AdmissionPolicy, Arrival, Context, Ended, PolicyState};
use crate::decision::{End, Reason};
use crate::estimate::{Average, DecayedHistogram};
use crate::request::ClassId;
use crate::setup::Setup;
use crate::time::Timestamp;

use busy::Busy;

/// Settings of the policy `waiting`: there is nothing to set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {}

impl Config {
    pub(super) fn build(&self, setup: &Setup) -> WaitingRoom {
        WaitingRoom {
            busy: Busy::new(),
            places: FIRST_PLACES,
            looks: 0,
            drawn: None,
            seen: Timestamp::ZERO,
            in_flight: 0,
            stay: Average::default(),
            cost: Average::default(),
            stretch: DecayedHistogram::new(STRETCH_HALF_LIFE),
            stretches: Stretches { sure: 2.0, allowed: 1.0, likely: 1.5 },
            budget: Budget::new(setup.sla.statistic()),
            waited: alloc::vec![0.0; setup.classes.len()],
            expiry: alloc::vec![None; setup.classes.len()],
        }
    }
}

/// Places of a server of which nothing is known.
const FIRST_PLACES: f64 = 8.0;
/// Between two looks at how many places there are: seconds at least, or so many stays at a server.
const LOOK: f64 = 0.5;
const LOOK_STAYS: f64 = 20.0;
/// While somebody waits and W is not known, the lowest numbers are not tried: this share of what is believed.
const OPTIMISM: f64 = 0.3;
const OFTEN: f64 = 0.2;
/// While somebody waits, every sixth look tries half as many places again: what is seen with one number only says
/// nothing, and W might stay too small for good.
const PROBE_EVERY: u32 = 6;
const PROBE: f64 = 1.5;
/// The mean stay remembers so many requests.
const STAY_MEMORY: f64 = 40.0;
/// Times at the server over cost fade with this half-life, seconds.
const STRETCH_HALF_LIFE: f64 = 20.0;
/// So many of them before a percentile is believed.
const STRETCH_FEW: f64 = 20.0;
/// How sure of its answer a request must be that begins to wait.
const SURE: f64 = 0.95;
/// How likely its answer must be while late answers were saved ([`Budget`]), and when its turn comes.
const ALLOWED: f64 = 0.6;
const LIKELY: f64 = 0.8;
/// Of the target, this share is not used for waiting once the queue is never empty; seldom empty, much less.
const SHORTENED: f64 = 0.4;
const STANDING_POWER: f64 = 4.0;
/// Offered beyond what leaves, as a share of it, from which on that counts in full.
const BEYOND: f64 = 0.1;
/// So many that wait keep the servers busy between two arrivals, also those of one processor.
const ENOUGH: f64 = 8.0;
/// How long the queue was not empty is seen over this many seconds.
const STANDING: f64 = 2.0;

/// State of the policy `waiting`.
#[derive(Debug)]
pub struct WaitingRoom {
    busy: Busy,
    /// W: places of one server.
    places: f64,
    /// How often W was looked at, and when last.
    looks: u32,
    drawn: Option<Timestamp>,
    /// Up to when time is accounted for, and how many were in flight then.
    seen: Timestamp,
    in_flight: usize,
    /// T: seconds at a server.
    stay: Average,
    /// Relative cost.
    cost: Average,
    /// Time at the server over cost.
    stretch: DecayedHistogram,
    stretches: Stretches,
    /// Late answers in hand.
    budget: Budget,
    /// Per class: share of the last seconds in which somebody of it, or more important, waited.
    waited: Vec<f64>,
    /// Per class: when its first waiting request is late for certain, as of the last look.
    expiry: Vec<Option<Timestamp>>,
}

/// Percentiles of the time at the server over cost; 0 while they are not known.
#[derive(Clone, Copy, Debug, Default)]
struct Stretches {
    sure: f64,
    allowed: f64,
    likely: f64,
}

impl AdmissionPolicy for WaitingRoom {
    fn on_arrival(&mut self, cx: &mut Context<'_>, arrival: &Arrival) -> Admission {
        self.account(cx);
        let class = arrival.request.class;
        let before = cx.class_ids().take(class.index() + 1).map(|class| cx.waiting(class)).sum::<usize>();
        if self.room(cx) > 0 && before == 0 {
            self.in_flight += 1;
            return Admission::Admit;
        }
        if cx.load.servers == 0 {
            return Admission::refuse(Reason::NoServer);
        }
        let under_way = cx.load.in_flight + cx.waiting_in_all();
        let stretch = if self.budget.covers(under_way, 0.0) { self.stretches.allowed } else { self.stretches.sure };
        let stay = stretch * self.expected(cx.costs.relative(&arrival.request));
        let bound = self.bound(cx, class, before);
        if let Some(predicted) =
            self.wait(cx, class, before + 1).map(|wait| wait + stay).filter(|end| *end > bound && before > 0)
        {
            return Admission::Refuse { reason: cx.load.refusal(Reason::SlaTarget), predicted: Some(predicted) };
        }
        if cx.shadow {
            return Admission::Admit;
        }
        self.expiry[class.index()].get_or_insert(cx.now + Duration::from_secs_f64(cx.target));
        Admission::Wait { bucket: 0 }
    }

    fn on_outcome(&mut self, cx: &mut Context<'_>, ended: &Ended) {
        self.account(cx);
        self.budget.record(cx, ended, self.waited_at_all());
        if ended.end != End::Answered {
            return;
        }
        let cost = cx.costs.relative(&ended.request);
        let mean = self.cost.get().unwrap_or(cost);
        let weight = if mean > 0.0 { cost / mean } else { 1.0 };
        let expected = self.expected(cost);
        // It has left already.
        self.busy.complete((cx.load.in_flight + 1) as f64 / servers(cx), weight);
        if expected > 0.0 {
            self.stretch.record(cx.now, ended.service_time / expected);
        }
        self.stay.update(ended.service_time, 1.0, STAY_MEMORY);
        self.cost.update(cost, 1.0, STAY_MEMORY);
    }

    fn on_completion(&mut self, cx: &mut Context<'_>) {
        self.account(cx);
        while self.room(cx) > 0 {
            let Some(class) = cx.class_ids().find(|class| cx.waiting(*class) > 0) else { break };
            let since = cx.waiting_since(class, 0).unwrap_or(cx.now);
            let cost = cx.first_waiting(class, 0).map_or(0.0, |request| cx.costs.relative(&request));
            let end = cx.now.seconds_since(since) + self.stretches.likely * self.expected(cost);
            if end > cx.target && since < cx.now {
                cx.refuse(class, 0, 1, Reason::QueueTimeout, Some(end));
            } else {
                cx.start(class, 0, 1);
            }
        }
        self.in_flight = cx.load.in_flight;
    }

    fn on_tick(&mut self, cx: &mut Context<'_>) {
        self.account(cx);
        let stays =
            LOOK_STAYS * self.stay.get().unwrap_or(0.0) / (cx.load.in_flight.clamp(1, LOOK_STAYS as usize) as f64);
        if self.drawn.is_none_or(|drawn| cx.now.seconds_since(drawn) >= LOOK.max(stays)) {
            let least = if self.waited_at_all() > OFTEN { OPTIMISM } else { 0.0 };
            self.places = self.busy.places(cx.rng, least).max(1.0);
            self.looks = self.looks.wrapping_add(1);
            if least > 0.0 && self.looks.is_multiple_of(PROBE_EVERY) {
                self.places *= PROBE;
            }
            self.drawn = Some(cx.now);
        }
        if self.stretch.weight(cx.now) >= STRETCH_FEW {
            let quantile = |q| self.stretch.quantile(q).unwrap_or(0.0);
            self.stretches = Stretches { sure: quantile(SURE), allowed: quantile(ALLOWED), likely: quantile(LIKELY) };
        }
        self.on_completion(cx);
    }

    /// Who waited under another policy waits on, until it is late for certain.
    fn on_takeover(&mut self, cx: &mut Context<'_>) {
        (self.seen, self.in_flight) = (cx.now, cx.load.in_flight);
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

    fn describe(&self, state: &mut PolicyState) {
        state.limit = Some(self.places);
        state.more.push(("stay".into(), self.stay.get().unwrap_or(0.0)));
        state.more.push(("stretch".into(), self.stretches.sure));
        state.more.push(("waited".into(), self.waited_at_all()));
    }
}

impl WaitingRoom {
    /// Places that are free, at all servers together.
    fn room(&self, cx: &Context<'_>) -> usize {
        let limit = libm::floor(self.places * cx.load.servers as f64) as usize;
        limit.max(cx.load.servers).saturating_sub(cx.load.in_flight).min(cx.load.free)
    }

    /// Share of the last seconds in which anybody waited.
    fn waited_at_all(&self) -> f64 {
        self.waited.last().copied().unwrap_or(0.0)
    }

    /// Takes note of the time since the last look.
    fn account(&mut self, cx: &Context<'_>) {
        let elapsed = cx.now.seconds_since(self.seen);
        if elapsed > 0.0 {
            self.busy.pass(self.in_flight as f64 / servers(cx), elapsed);
            let gain = 1.0 - libm::exp(-elapsed / STANDING);
            let mut waits = 0.0;
            for (class, waited) in cx.class_ids().zip(&mut self.waited) {
                waits = if cx.waiting(class) > 0 { 1.0 } else { waits };
                *waited += gain * (waits - *waited);
            }
            self.budget.fade(elapsed);
        }
        (self.seen, self.in_flight) = (cx.now, cx.load.in_flight);
    }

    /// Until when a request with so many before it must be answered, seconds from now. A queue that is never empty
    /// brings no more answers than a short one, only later ones; of a class that gets in with all those above it, the
    /// queue ends by itself.
    fn bound(&self, cx: &Context<'_>, class: ClassId, before: usize) -> f64 {
        let enough = ENOUGH.max(self.places * cx.load.servers as f64 / 4.0);
        let offered: f64 = cx.classes[..=class.index()].iter().map(|class| class.excess.get()).sum();
        let Some(leave) = self.leave(cx).filter(|_| before as f64 >= enough) else { return cx.target };
        let beyond = ((offered / leave - 1.0) / BEYOND).clamp(0.0, 1.0);
        cx.target * (1.0 - SHORTENED * beyond * libm::pow(self.waited[class.index()], STANDING_POWER))
    }

    /// Requests that leave the servers per second; `None`: nothing is known yet.
    fn leave(&self, cx: &Context<'_>) -> Option<f64> {
        let stay = self.stay.get().filter(|stay| *stay > 0.0)?;
        Some(cx.load.in_flight.max(1) as f64 / stay)
    }

    /// Seconds at a server that a request of this relative cost takes on average.
    fn expected(&self, cost: f64) -> f64 {
        let (stay, mean) = (self.stay.get().unwrap_or(0.0), self.cost.get().unwrap_or(0.0));
        if mean > 0.0 { cost * stay / mean } else { stay }
    }

    /// Seconds until the turn of a request of `class` that is number `turn` in line; `None`: nothing is known yet.
    fn wait(&self, cx: &Context<'_>, class: ClassId, turn: usize) -> Option<f64> {
        let more_important: f64 = cx.classes[..class.index()].iter().map(|class| class.excess.get()).sum();
        let rate = self.leave(cx)? - more_important;
        Some(if rate > 0.0 { turn as f64 / rate } else { f64::INFINITY })
    }

    /// Refuses who has waited for as long as the target.
    fn expire(&mut self, cx: &mut Context<'_>) {
        let target = Duration::from_secs_f64(cx.target);
        for class in cx.class_ids() {
            while cx.waiting_since(class, 0).is_some_and(|since| since + target <= cx.now) {
                cx.refuse(class, 0, 1, cx.load.refusal(Reason::QueueTimeout), None);
            }
            self.expiry[class.index()] = cx.waiting_since(class, 0).map(|since| since + target);
        }
    }
}

fn servers(cx: &Context<'_>) -> f64 {
    cx.load.servers.max(1) as f64
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
        assert!(waiting > 0.15 * leave && waiting < 0.25 * leave, "{waiting} of {leave}");
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
