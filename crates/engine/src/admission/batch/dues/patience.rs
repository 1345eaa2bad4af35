//! For how long others make room for who is due.
//!
//! *Intuition.* A lift is held for a trunk while people get out. When those inside do not get out, it goes on.
//!
//! *Applied.* Who is due and does not fit waits for those in flight, which should be answered within a while. When
//! somebody due was refused, and somebody still is after that while, and requests are known to hang at the servers
//! (`controller/hanging.rs`), room may not come for long. Then nobody is due for a pause, twice as long each time,
//! until one of them fits.

use core::time::Duration;

use crate::time::Timestamp;

/// The first pause and the longest, by how long others make room.
const PAUSE: f64 = 2.0;
const PAUSE_LONGEST: f64 = 32.0;

/// A class's patience with who is due and does not fit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Patience {
    /// When one of them was refused first, since the last one was let in.
    since: Option<Timestamp>,
    /// The pause before this one, by how long others make room.
    last: f64,
    /// Nobody is due before.
    resumes: Timestamp,
}

impl Patience {
    /// Somebody due was let in.
    pub(super) fn restore(&mut self) {
        *self = Patience::default();
    }

    /// Somebody due was refused, while requests hang. Others make room for `longest` seconds. Whether that was too
    /// long.
    pub(super) fn refused(&mut self, now: Timestamp, longest: f64) -> bool {
        let since = *self.since.get_or_insert(now);
        if now.seconds_since(since) <= longest {
            return false;
        }
        self.since = None;
        self.last = (2.0 * self.last).clamp(PAUSE, PAUSE_LONGEST);
        self.resumes = now + Duration::try_from_secs_f64(self.last * longest).unwrap_or_default();
        true
    }

    /// What outlives the process of it.
    pub(super) fn keep(&self, now: Timestamp, mut put: impl FnMut(&str, f64)) {
        put("due_pause", self.last);
        put("due_pauses_for", self.resumes.seconds_since(now));
    }

    /// As it was elsewhere.
    pub(super) fn recall(&mut self, now: Timestamp, get: impl Fn(&str) -> f64) {
        let pauses_for = Duration::from_secs_f64(get("due_pauses_for"));
        *self = Patience { since: None, last: get("due_pause"), resumes: now + pauses_for };
    }

    /// Whether nobody is due for now.
    pub(super) fn pauses(&self, now: Timestamp) -> bool {
        now < self.resumes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_until_somebody_is_let_in() {
        let at = Timestamp::from_millis;
        let mut patience = Patience::default();
        assert!(!patience.refused(at(0), 0.5), "the first one");
        assert!(!patience.refused(at(500), 0.5), "in time");
        assert!(patience.refused(at(501), 0.5));
        assert!(patience.pauses(at(1500)) && !patience.pauses(at(1501)));
        assert!(!patience.refused(at(2000), 0.5), "they begin anew");
        assert!(patience.refused(at(3000), 0.5));
        assert!(patience.pauses(at(4999)) && !patience.pauses(at(5000)));
        patience.restore();
        assert!(!patience.refused(at(6000), 0.5) && patience.refused(at(7000), 0.5));
        assert!(!patience.pauses(at(8000)), "the first pause again");
    }
}
