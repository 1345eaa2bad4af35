//! How much time a request has: by the target, by its own deadline, and by what is known of its client.
//!
//! *Applied.* A client that has left when it is answered is no better served than one that is late. So a class's
//! patience, as it was learned (`estimate/patience.rs`), bounds the waiting of its requests: whose turn would come at
//! an age at which too many leave before it is over is refused at once, or when it is called. Too many are one in ten
//! while overload lasts; in a rush, when nobody else would get the place, more than half.

use super::{ALLOWED, LIKELY, WaitingRoom};
use crate::admission::Context;
use crate::decision::Reason;
use crate::estimate::ClassEstimate;
use crate::request::Request;
use crate::time::Timestamp;

/// While overload lasts, a place is given to who must be in time by its own deadline only if that is surer by this part
/// of what is missing: a late answer is of no use to a client that has left.
const SURER: f64 = 0.7;

/// Above this it is no rush any more.
const LASTS: f64 = 0.5;

/// At which age the latest turn is worth waiting for, seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    /// While overload lasts.
    likely: f64,
    /// In a rush.
    allowed: f64,
    /// At which age hardly a client is there any more.
    pub(super) end: f64,
}

impl Turns {
    /// At any age.
    pub(super) const ANY: Turns = Turns { likely: f64::INFINITY, allowed: f64::INFINITY, end: f64::INFINITY };

    /// Those of a class that last so many seconds.
    pub(super) fn of(class: &ClassEstimate, stay: f64) -> Turns {
        let [likely, allowed] = [LIKELY, ALLOWED].map(|share| class.patience.latest_turn(stay, share));
        Turns { likely, allowed, end: class.patience.end() }
    }

    /// With overload that lasts so much, 0 to 1.
    pub(super) fn latest(self, standing: f64) -> f64 {
        if standing > LASTS { self.likely } else { self.allowed }
    }
}

/// Seconds from now in which a request that came at `since` must be answered, and whether by its own deadline.
pub(super) fn time_left(cx: &Context<'_>, request: &Request, since: Timestamp) -> (f64, bool) {
    let left = cx.target - cx.now.seconds_since(since);
    let due = request.deadline.map_or(f64::INFINITY, |deadline| deadline.seconds_since(cx.now));
    (left.min(due), due < left)
}

impl WaitingRoom {
    /// The ages at which a turn is worth waiting for are looked at again.
    pub(super) fn look_at_patience(&mut self, cx: &Context<'_>) {
        for (at, class) in cx.classes.iter().enumerate() {
            let cost = self.relative.of(cx.costs, cx.costs.class_mean(at));
            self.turns[at] = Turns::of(class, self.chances.sure() * self.stay(cost, self.places));
        }
    }

    /// Why one whose turn comes now should not have it: the chances to be answered in time, and before its client
    /// leaves, are to be `least`.
    pub(super) fn is_in_vain(
        &self,
        cx: &Context<'_>,
        request: &Request,
        since: Timestamp,
        stay: f64,
        least: f64,
    ) -> Option<Reason> {
        if since >= cx.now || stay <= 0.0 {
            return None;
        }
        let (left, is_due) = time_left(cx, request, since);
        let lasting = (least - ALLOWED) / (LIKELY - ALLOWED);
        let needed = if is_due { least + (1.0 - least) * SURER * lasting } else { least };
        if self.chances.of(left / stay) < needed {
            return Some(if is_due { Reason::Patience } else { Reason::QueueTimeout });
        }
        let (waited, patience) = (cx.now.seconds_since(since), &cx.classes[request.class.index()].patience);
        let is_worth_it = is_due || patience.is_worth_it(waited, self.chances.sure() * stay, least);
        (!is_worth_it).then_some(Reason::Patience)
    }
}
