//! Whom the room takes now, and how fast it empties.

use core::time::Duration;

use super::{ALLOWED, LIKELY, WaitingRoom};
use crate::admission::Context;
use crate::decision::Reason;
use crate::request::Request;
use crate::time::Timestamp;

impl WaitingRoom {
    /// Places that are free. Who hangs has none: its server works for others meanwhile.
    pub(super) fn room(&self, cx: &Context<'_>) -> usize {
        self.limit(cx).saturating_sub(cx.load.at_work()).min(cx.load.free)
    }

    pub(super) fn stands_at_all(&self) -> f64 {
        self.standing.last().copied().unwrap_or(0.0)
    }

    /// What a request that costs so many seconds is expected to take, relative to others.
    pub(super) fn expected(&self, cx: &Context<'_>, request: &Request, seconds: f64) -> f64 {
        self.relative.of(cx.costs, seconds) * self.polls.work(request.request_type)
    }

    /// Takes note of the time since the last look, if there was any: an end asks for it twice.
    pub(super) fn account(&mut self, cx: &Context<'_>) {
        if cx.now != self.seen.until {
            self.account_for(cx);
        }
    }

    fn account_for(&mut self, cx: &Context<'_>) {
        let elapsed = cx.now.seconds_since(self.seen.until);
        if elapsed > 0.0 {
            let own = self.seen.at_work as f64;
            let all = self.part.all(cx, own);
            let (in_service, part) = (all / servers(cx), if all > 0.0 { own / all } else { 1.0 });
            self.part.pass(own, elapsed);
            if cx.now >= self.looks.settled && self.speed.cost() > 0.0 && cx.peers.count == 0 {
                self.busy.pass(in_service, elapsed);
            }
            self.history.pass(cx.now, all, elapsed, self.speed.stay());
            self.busy.tick(cx.now, self.speed.stay(), servers(cx), &self.history);
            self.speed.pass(in_service.min(self.look.most) * servers(cx), part * elapsed);
        }
        self.seen.until = cx.now;
    }

    /// Seconds at a server that a request of this relative cost takes on average, with so many in service there; 0
    /// while nothing is known.
    pub(super) fn stay(&self, cost: f64, in_service: f64) -> f64 {
        let crowd = (in_service / self.look.most).max(1.0);
        cost * crowd * self.seconds_per_cost().unwrap_or(0.0)
    }

    /// Seconds of a processor for a unit of relative cost; `None`: nothing is known yet. While W still grows, what was
    /// begun of late would look slow.
    pub(super) fn seconds_per_cost(&self) -> Option<f64> {
        if self.look.is_known { self.speed.seconds_per_cost() } else { self.speed.seconds_by_completed() }
    }

    /// Processors of all servers together, as far as there are places for them.
    pub(super) fn full(&self, cx: &Context<'_>) -> f64 {
        self.places.min(self.look.most) * servers(cx)
    }

    /// Work that full servers do per second for this sentry, beside what is guaranteed; `None`: nothing is known yet.
    pub(super) fn rate(&self, cx: &Context<'_>) -> Option<f64> {
        Some(self.full(cx) * self.part.share / self.seconds_per_cost()? - self.part.guaranteed)
    }

    /// Lets in who waits, as far as places are free: the first of the most important class first.
    pub(super) fn call(&mut self, cx: &mut Context<'_>) {
        while self.room(cx) > 0 {
            let next = cx.class_ids().find(|class| cx.waiting(*class) > 0);
            let Some((class, line)) = next.and_then(|class| Some((class, self.lines.next(cx, class)?))) else { break };
            let Some((since, first)) = cx.waiting_since(class, line).zip(cx.first_waiting(class, line)) else { break };
            let stay = self.stay(self.expected(cx, &first, cx.costs.estimate(&first)), self.places);
            let standing = if self.late.is_kept() { self.standing[class.index()] } else { 1.0 };
            let least = ALLOWED + (LIKELY - ALLOWED) * standing;
            if let Some(reason) = self.is_in_vain(cx, &first, since, stay, least) {
                let end = cx.now.seconds_since(since) + self.chances.sure() * stay;
                cx.refuse(class, line, 1, reason, Some(end));
            } else {
                self.lines.let_in(cx, class, line);
                cx.start(class, line, 1);
                self.growth.begin(cx.now);
            }
        }
    }

    /// Refuses who has waited for as long as the target.
    pub(super) fn expire(&mut self, cx: &mut Context<'_>) {
        let target = Duration::from_secs_f64(cx.target);
        for class in cx.class_ids() {
            let mut first: Option<Timestamp> = None;
            for line in cx.used(class) {
                while cx.waiting_since(class, line).is_some_and(|since| since + target <= cx.now) {
                    cx.refuse(class, line, 1, cx.load.refusal(Reason::QueueTimeout), None);
                }
                let next = cx.waiting_since(class, line).map(|since| since + target);
                first = [first, next].into_iter().flatten().min();
            }
            self.expiry[class.index()] = first;
        }
    }
}

/// How many servers there are, one at least.
pub(super) fn servers(cx: &Context<'_>) -> f64 {
    cx.load.servers.max(1) as f64
}
