//! Whether a request's turn comes in time.

use super::lines::Place;
use super::patience::time_left;
use super::{ALLOWED, LIKELY, WaitingRoom, servers};
use crate::admission::Context;
use crate::decision::Reason;
use crate::request::{ClassId, Request};

/// Of the time that there is, this share is not used once overload lasts.
const SHORTENED: f64 = 0.6;
/// So many that wait keep the servers busy between two arrivals, also those of one processor.
const ENOUGH: f64 = 8.0;

/// What is foreseen for a request.
struct Foreseen {
    /// Seconds until its turn.
    wait: f64,
    /// Whether a part of the work is kept for its like, so that it is not the rest that it waits for.
    is_kept: bool,
    /// Seconds at the server, on average.
    stay: f64,
}

impl WaitingRoom {
    /// What is foreseen for a request at this place, with so many before it.
    fn foresee(&self, cx: &Context<'_>, class: ClassId, place: Place, before: usize) -> Option<Foreseen> {
        let rate = self.rate(cx)?;
        let (wait, is_kept) = match cx.shadow {
            // Nobody waits: whoever has no place stands for the queue.
            true => (before as f64 * self.speed.cost() / rate.max(f64::MIN_POSITIVE), false),
            false => self.lines.wait_of(cx, class, place, rate),
        };
        Some(Foreseen { wait, is_kept, stay: self.stay(place.cost, self.places) })
    }

    /// Why a request that would hardly be in time is refused, and the response time foreseen for it, seconds.
    pub(super) fn comes_too_late(
        &mut self,
        cx: &Context<'_>,
        request: &Request,
        place: Place,
        before: usize,
    ) -> Option<(Reason, f64)> {
        let before = if cx.shadow { cx.load.at_work().saturating_sub(self.limit(cx)) } else { before };
        if before == 0 {
            return None;
        }
        let class = request.class;
        let Foreseen { wait, is_kept, stay } = self.foresee(cx, class, place, before)?;
        let wait = wait * (1.0 + cx.load.pressure);
        let end = wait + self.chances.sure() * stay;
        let share = if is_kept { 1.0 } else { self.usable(cx, class, before) };
        let reason = if end <= share * cx.target { Reason::Patience } else { Reason::SlaTarget };
        let (mut left, is_due) = time_left(cx, request, cx.now);
        if !is_due {
            let turns = self.turns[class.index()];
            if wait > turns.latest(self.standing[class.index()]) {
                return Some((reason, end));
            }
            left = left.min(turns.end);
        }
        if end <= share * left {
            return None;
        }
        let late = 1.0 - self.chances.of((left - wait) / stay.max(f64::MIN_POSITIVE));
        let standing = self.standing[class.index()];
        if late <= (1.0 - LIKELY) * self.of_others(standing) {
            return None;
        }
        let kept = class.index() as f64 / cx.classes.len() as f64;
        if late <= 1.0 - ALLOWED && standing < 1.0 && self.late.covers(late, kept) {
            self.late.promise(late);
            return None;
        }
        Some((reason, end))
    }

    /// How much of the overload is of less important classes than one that stands so long: what that is refused, they
    /// get.
    fn of_others(&self, standing: f64) -> f64 {
        let all = self.stands_at_all();
        if all > 0.0 { 1.0 - standing / all } else { 0.0 }
    }

    /// The share of its time that a request with so many before it may take. Under lasting overload a long queue brings
    /// no more answers than a short one, only later ones; that of a class that gets in with all those above it ends by
    /// itself.
    fn usable(&self, cx: &Context<'_>, class: ClassId, before: usize) -> f64 {
        let enough = (self.part.share * ENOUGH.max(self.places * servers(cx) / 4.0)).max(2.0);
        if (before as f64) < enough { 1.0 } else { 1.0 - SHORTENED * self.standing[class.index()] }
    }
}
