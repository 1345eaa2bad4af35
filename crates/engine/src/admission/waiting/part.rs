//! What of the servers is this sentry's, where several stand before them.
//!
//! *Intuition.* Who has a tenth of the patients of a practice sees a tenth of those that leave. All that leave, and all
//! that are in the rooms, is known only when everybody has said so.
//!
//! *Applied.* Of `P` places at all servers it has those that [`Peers::share`] gives it, which need not be a whole
//! number: it has one more for a part of the time. How many keep a server busy is learned from what all had in service,
//! and what completed for all, from one exchange to the next. The number that belongs to one instant is not known; that
//! of the own and an older one of the others would not do: when more of the own are there, more of the own complete,
//! whatever the others have, and that looks as if more brought more. One says for all how many places there are, so
//! that all try more and fewer at the same time; as all learn the same, another can do it in the next instant.
//!
//! [`Peers::share`]: crate::peers::Peers::share

use super::busy::Look;
use super::{WaitingRoom, servers};
use crate::admission::Context;
use crate::peers::{Places, Summary};

/// Between two ticks the broken part of a place moves on by the golden section: no sequence is more even.
const GOLDEN: f64 = 0.618_033_988_749_895;

/// Of what was found idle this much is kept when nothing more is, from one exchange to the next. A half gave 0.973 of
/// one sentry's answers where the important class is at one of four, 0.8 gives 0.980, and 0.007 less of that class
/// in the first seconds after it rose (forty seeds).
const KEPT: f64 = 0.8;

/// This sentry's part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Of the places at all servers, 0 to 1.
    pub(super) share: f64,
    /// Work per second that guarantees let past the queue.
    pub(super) guaranteed: f64,
    /// What the broken part of a place must exceed to be one: 0 to 1.
    turn: f64,
    /// What nobody else uses, of the places at all servers.
    found: f64,
    /// What was seen here since the others were told last, and before.
    seen: Seen,
    told: Seen,
}

/// What one sentry saw.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    seconds: f64,
    /// Request-seconds in service.
    area: f64,
    completed: f64,
}

impl Seen {
    /// How many were in service, on average.
    fn in_service(&self) -> f64 {
        if self.seconds > 0.0 { self.area / self.seconds } else { 0.0 }
    }
}

impl Part {
    /// Everything is this sentry's.
    pub(super) fn whole() -> Part {
        Part { share: 1.0, guaranteed: 0.0, turn: 0.0, found: 0.0, seen: Seen::default(), told: Seen::default() }
    }

    /// So many requests of this sentry were in service for so long.
    pub(super) fn pass(&mut self, in_service: f64, seconds: f64) {
        self.seen.seconds += seconds;
        self.seen.area += seconds * in_service;
    }

    /// One of so many times the average cost completed.
    pub(super) fn complete(&mut self, cost: f64) {
        self.seen.completed += cost;
    }

    /// Requests at all servers, whoever sent them: those of this sentry, or of all when they were told of last.
    pub(super) fn all(&self, cx: &Context<'_>, own: f64) -> f64 {
        if cx.peers.count == 0 { own } else { self.told.in_service() + cx.peers.sum.in_service }
    }

    /// Work that completes per second at all servers, of which so much is this sentry's.
    pub(super) fn completed_per_second(&self, cx: &Context<'_>, own: f64) -> f64 {
        if cx.peers.count == 0 || self.told.seconds == 0.0 {
            return own;
        }
        (self.told.completed + cx.peers.sum.completed) / self.told.seconds
    }
}

impl WaitingRoom {
    /// Places at all servers together that are this sentry's; alone, one at each server at least.
    pub(super) fn limit(&self, cx: &Context<'_>) -> usize {
        let places = self.places * cx.load.servers as f64;
        if cx.peers.count == 0 {
            return (places as usize).max(cx.load.servers);
        }
        let places = places.max(cx.load.servers as f64) * self.part.share;
        (places + self.part.turn) as usize
    }

    /// Ten times a second: how much is this sentry's.
    pub(super) fn take_part(&mut self, cx: &Context<'_>) {
        if cx.peers.count == 0 {
            self.part.share = 1.0;
            return;
        }
        self.part.turn = (self.part.turn + GOLDEN) % 1.0;
        let processors = self.full(cx);
        let mut own = Summary::default();
        self.tell_needs(cx, &mut own);
        let due = match own.classes.is_empty() {
            true => 1.0 / (cx.peers.count + 1) as f64,
            false => cx.peers.share(&own, processors) / processors,
        };
        self.part.share = (due + self.part.found).clamp(0.0, 1.0);
    }

    /// What nobody uses goes to those at whom somebody waits.
    fn find_idle(&mut self, cx: &Context<'_>) {
        let places = self.places * servers(cx);
        let (own, all) = (cx.waiting_in_all() as f64, self.part.all(cx, 0.0));
        let idle = 1.0 - all / places;
        self.part.found = match own > 0.0 && idle > 0.0 {
            true => (self.part.found + idle * own / (own + cx.peers.sum.waiting)).min(1.0),
            false => self.part.found * KEPT,
        };
    }

    /// What each class needs; nothing while it is not known what a request needs.
    pub(super) fn tell_needs(&self, cx: &Context<'_>, summary: &mut Summary) {
        let Some(seconds) = self.seconds_per_cost() else { return };
        summary.guaranteed = self.part.guaranteed * seconds;
        summary.classes.resize_with(cx.classes.len(), Default::default);
        for (id, class) in cx.class_ids().zip(&mut summary.classes) {
            let needs = self.lines.rising(id) * seconds;
            // So many more than are busy on average are enough for hardly anybody to wait.
            class.needs = needs + libm::sqrt(needs);
        }
    }

    /// What was seen since that was told last, and how many places there are, for the others to follow.
    pub(super) fn tell_seen(&mut self, cx: &Context<'_>, summary: &mut Summary) {
        self.part.told = core::mem::take(&mut self.part.seen);
        summary.in_service = self.part.told.in_service();
        summary.completed = self.part.told.completed;
        summary.times = self.busy.stays.tell();
        if self.speed.cost() > 0.0 && cx.peers.sum.places.is_none() {
            let Look { most, beyond, is_known, .. } = self.look;
            summary.places = Some(Places { now: self.places, most, beyond, is_known });
        }
    }

    /// What all saw, and how many places there are by the word of the one that says it for all.
    pub(super) fn hear(&mut self, cx: &Context<'_>) {
        self.account(cx);
        if cx.peers.count == 0 {
            // All that is seen is this sentry's, and was learned from when it was.
            self.part.found = 0.0;
            return;
        }
        let in_service = self.part.all(cx, 0.0) / servers(cx);
        if cx.now >= self.looks.settled && self.speed.cost() > 0.0 && self.part.told.seconds > 0.0 {
            self.busy.pass(in_service, self.part.told.seconds);
            self.busy.complete(in_service, self.part.told.completed + cx.peers.sum.completed);
        }
        self.busy.stays.hear(&cx.peers.sum.times);
        self.find_idle(cx);
        let Some(Places { now, most, beyond, is_known }) = cx.peers.sum.places else { return };
        self.look = Look { most, beyond, is_known, ..self.look };
        self.set_places(cx, now);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::super::testing::{Bench, answered};
    use crate::peers::Peers;
    use crate::{Decision, Ticket};

    /// Places after half a minute in which one comes each 4 ms, and one ends each 10 ms; with an exchange each 50 ms in
    /// which nobody is heard, or without.
    fn places(exchanges: bool) -> f64 {
        let mut bench = Bench::new(r#"{"policy": "waiting"}"#);
        let mut working: Vec<(Ticket, u64)> = Vec::new();
        for ms in (0..30_000).step_by(2) {
            if ms % 4 == 0
                && let Decision::Admit { ticket, .. } = bench.decide((ms % 3) as u8)
            {
                working.push((ticket, ms));
            }
            working.extend(bench.started.drain(..).map(|ticket| (ticket, ms)));
            // Four processors at 40 ms each: one ends each 10 ms.
            if ms % 10 == 0 && !working.is_empty() {
                let (ticket, since) = working.remove(0);
                bench.complete(ticket, answered(ms - since));
            }
            if exchanges && ms % 50 == 0 {
                bench.exchange(Peers::default());
            }
            bench.advance(2);
        }
        bench.state().limit.expect("it has places")
    }

    #[test]
    fn who_hears_of_nobody_learns_what_it_would_without_listening() {
        let (listens, does_not) = (places(true), places(false));
        assert!((listens / does_not - 1.0).abs() < 0.1, "{listens} places for {does_not}");
    }
}
