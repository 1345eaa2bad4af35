//! When to look at how many places there are, and what to try.

use core::time::Duration;

use super::growth::Pace;
use super::{FIRST_PLACES, SPARE, WaitingRoom, servers};
use crate::admission::Context;

/// Between two looks at how many places there are: seconds at least, or so many stays at a server.
const LOOK: f64 = 0.5;
const LOOK_STAYS: f64 = 20.0;
/// The same while they are not known, and somebody waits: a part of a stay, and seconds at least.
const GENERATION: f64 = 0.5;
/// What others see of a change is known after two or three exchanges, seconds.
const HEARD: f64 = 0.3;
/// Then there are up to so many times the places, where this much of what is believed lies beyond what was in use.
const GROWTH: f64 = 2.0;
const GROWTH_LEAST: f64 = 1.25;
/// What requests take over their mean, for the SLA: more than exponential times do is not believed while W grows.
const SURE_AT_MOST: f64 = 3.0;
const HOPE: f64 = 0.05;
/// Else, of the places that there were, this part is kept at least: what one look says may be chance.
const KEPT: f64 = 0.7;
/// By so much more places are a rise, after which a stay passes before anything is learned.
const RAISED: f64 = 1.1;
const SOON: f64 = 0.1;
/// Somebody waits often who waits this share of the time.
const OFTEN: f64 = 0.2;
/// While somebody waits, every fourth look tries a fifth more places: what is seen with one number only says nothing,
/// and W might stay too small for good. Once W is known, no more than leave this part of the target for waiting: with
/// more, important requests would be refused that have to wait at all.
const PROBE_EVERY: u32 = 4;
const PROBE: f64 = 1.2;
const PROBE_LEAVES: f64 = 0.15;
/// While what is at the servers takes longer than the target, every second look tries fewer, for the same reason.
const FEWER_EVERY: u32 = 2;
const FEWEST: f64 = 0.4;
/// While they are not known and overload lasts, three looks of eight try as few as may be: when everybody is busy from
/// the start, nothing is seen of what fewer would do.
const ROUND: u32 = 8;
const LASTS: f64 = 0.5;
const TRIAL: core::ops::Range<u32> = 5..8;
/// Not so after a start, once so many lots in a row took no longer than those before (the first has none before it),
/// and until one does: fewer would only be a later start. Nor is what one look says believed against them then.
const FREE: u32 = 2;

/// Who is at a server for this part of the target is in time whoever else is there: so many have places, however few
/// keep it busy. A server that is far away, or whose answers are read many at a time, is kept busy by more than it has
/// processors; and before one that is fast, holding requests back costs the sentry more than the server works on them.
const UNNOTICED: f64 = 0.002;

impl WaitingRoom {
    /// How many places a server has, from now on.
    pub(super) fn look_at_places(&mut self, cx: &mut Context<'_>) {
        let since = self.looks.last.map_or(f64::INFINITY, |looked| cx.now.seconds_since(looked));
        let n = self.part.all(cx, cx.load.at_work() as f64).max(1.0);
        let stay = self.speed.stay();
        let is_pressed = self.waited > OFTEN || cx.waiting_in_all() > 0 || cx.peers.sum.waiting > 0.0;
        let due = match is_pressed && !self.look.is_known && stay > 0.0 {
            true => SOON.max(GENERATION * stay),
            false => LOOK.max(LOOK_STAYS * stay / n.min(LOOK_STAYS)),
        };
        let due = if cx.peers.count > 0 { due.max(HEARD) } else { due };
        if since < due {
            return;
        }
        let fullest = self.part.all(cx, self.looks.fullest.max(1) as f64) / servers(cx);
        let changed = self.growth.since().and_then(|from| self.history.of_late(from, cx.now));
        let among = changed.map_or(fullest, |in_flight| in_flight / servers(cx));
        let look = self.busy.look(fullest, stay);
        let own = core::mem::take(&mut self.looks.completed);
        let rate = self.part.completed_per_second(cx, own / since) / servers(cx);
        if cx.peers.sum.places.is_some() {
            // Another says it for all.
            self.looks.last = Some(cx.now);
            return;
        }
        self.look = look;
        let before = self.looks.before_trial.take().unwrap_or(self.places);
        self.looks.count = self.looks.count.wrapping_add(1);
        let mut places = self.look.most + SPARE;
        let pace = self.growth.look(cx.now, among, look.beyond);
        let in_time = cx.target / (self.chances.sure().min(SURE_AT_MOST) * stay).max(f64::MIN_POSITIVE);
        if stay == 0.0 {
            places = places.min(FIRST_PLACES);
        } else if !self.look.is_known {
            // As many as would be in time if there were no more processors than were seen to slow nobody down.
            let factor = if in_time < 1.0 { in_time } else { in_time.clamp(GROWTH_LEAST, GROWTH) };
            let most = among * factor;
            if !is_pressed {
                places = places.min((fullest * factor).max(FIRST_PLACES));
            } else if self.may_grow(pace) && in_time >= 1.0 && most > before {
                self.looks.start = self.looks.start.map(|grown| grown + 1);
                self.look.most = most;
                places = most;
            } else {
                let kept = if pace.is_none() && self.starts_freely() { 1.0 } else { KEPT };
                places = places.clamp(kept * before, before.max(fullest));
            }
        }
        if self.look.is_known || pace == Some(Pace::Slower) {
            self.looks.start = None;
        }
        if pace.is_some() {
            self.growth.anew();
        }
        if is_pressed {
            places = self.try_others(places, in_time);
        }
        let unnoticed = rate * (UNNOTICED * cx.target + self.lag.allowance(cx.target));
        self.set_places(cx, places.max(unnoticed));
        (self.looks.last, self.looks.fullest) = (Some(cx.now), cx.load.at_work());
    }

    /// A server has so many places from now on.
    pub(super) fn set_places(&mut self, cx: &Context<'_>, places: f64) {
        if places > RAISED * self.places {
            // Until those that are begun now end, it looks as if the servers were full.
            self.looks.settled = cx.now + Duration::from_secs_f64(self.speed.stay());
        }
        self.places = places.max(1.0);
    }

    /// Whether there may be more places than were seen to slow nobody down.
    fn may_grow(&self, pace: Option<Pace>) -> bool {
        match pace {
            Some(Pace::SurelyAsFast) => true,
            Some(Pace::AsFast) => self.look.beyond >= HOPE,
            Some(Pace::Slower) | None => false,
        }
    }

    /// Whether nothing has slowed anybody down since the start.
    fn starts_freely(&self) -> bool {
        self.looks.start.is_some_and(|grown| grown >= FREE)
    }

    /// More or fewer than these places now and then, to see what they do. `in_time`: the target over what a request
    /// takes.
    fn try_others(&mut self, mut places: f64, in_time: f64) -> f64 {
        let look = self.looks.count;
        if look.is_multiple_of(PROBE_EVERY) {
            let factor = if self.look.is_known { in_time * (1.0 - PROBE_LEAVES) } else { PROBE };
            places *= factor.clamp(1.0, PROBE);
        }
        if in_time < 1.0 && look.is_multiple_of(FEWER_EVERY) {
            places *= in_time.max(FEWEST);
        }
        let fewer = self.look.least + SPARE;
        let is_trial = self.stands_at_all() > LASTS && TRIAL.contains(&(look % ROUND));
        if !is_trial || self.starts_freely() || self.look.is_known || fewer >= places {
            return places;
        }
        self.looks.before_trial = Some(places);
        fewer
    }
}
