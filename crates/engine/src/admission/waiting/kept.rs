//! What outlives a process of the policy `waiting`: how many processors a server is believed to have, how many places
//! it gets, how fast it is, and what late answers were saved.

use alloc::format;

use super::WaitingRoom;
use super::away::Away;
use super::busy::Busy;
use super::history::History;
use super::knee::KNEES;
use super::late::Late;
use super::speed::Speed;
use crate::learned::Kept;
use crate::time::Timestamp;

/// Far beyond anything real.
const ANY: (f64, f64) = (0.0, 1e12);

impl WaitingRoom {
    pub(super) fn put_away(&self, now: Timestamp, kept: &mut Kept) {
        self.lines.dues().keep(now, kept);
        kept.put("places", self.places);
        kept.put("most", self.look.most);
        kept.put("beyond", self.look.beyond);
        kept.put("is_known", f64::from(u8::from(self.look.is_known)));
        kept.put("looks", self.looks.count.into());
        kept.put("waited", self.waited);
        kept.put("guaranteed", self.part.guaranteed);
        kept.put("away", self.away.mean());
        self.busy.put_away(kept);
        self.speed.put_away(kept);
        self.late.put_away(kept);
        self.chances.put_away(now, kept);
        self.lines.put_away(kept);
        self.relative.put_away(kept);
        for (class, standing) in self.standing.iter().enumerate() {
            kept.of_class_mut(class).put("standing", *standing);
        }
    }

    pub(super) fn take_up(&mut self, now: Timestamp, kept: &Kept) {
        self.places = kept.between("places", (1.0, 1e6), self.places);
        self.look.most = kept.between("most", (1.0, 1e6), self.look.most);
        self.look.beyond = kept.between("beyond", (0.0, 1.0), self.look.beyond);
        self.look.is_known = kept.get("is_known") == Some(1.0);
        self.looks.count = kept.between("looks", (0.0, 1e9), 0.0) as u32;
        self.waited = kept.between("waited", (0.0, 1.0), 0.0);
        self.part.guaranteed = kept.between("guaranteed", ANY, 0.0);
        self.away = Away::of_mean(kept.between("away", (0.0, 1e6), 0.0));
        self.lines.dues_mut().recall(now, kept);
        self.busy.take_up(kept);
        self.speed.take_up(kept);
        self.late.take_up(kept);
        self.chances.take_up(now, kept);
        self.lines.take_up(kept);
        self.relative.take_up(kept);
        for (class, standing) in self.standing.iter_mut().enumerate() {
            *standing = kept.of_class(class).between("standing", (0.0, 1.0), 0.0);
        }
        (self.seen.until, self.looks.settled) = (now, now);
        self.lag.begin(now);
        self.history = History::from(now);
    }
}

impl Busy {
    fn put_away(&self, kept: &mut Kept) {
        // What the window that is open says counts as if it ended here.
        let (believed, spread) = self.believed();
        kept.put("spread", spread);
        let most = believed.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for (at, believed) in believed.iter().enumerate() {
            kept.put(&format!("belief_{at}"), believed - most);
        }
    }

    fn take_up(&mut self, kept: &Kept) {
        self.spread = kept.between("spread", (0.0, 1e3), self.spread);
        for at in 0..KNEES {
            let known = self.prior[at];
            self.prior[at] = kept.between(&format!("belief_{at}"), (Busy::LEAST_BELIEVED, 0.0), known);
        }
    }
}

impl Speed {
    fn put_away(&self, kept: &mut Kept) {
        for (name, value) in ["seconds", "work", "completions", "stays", "times"].iter().zip(self.sums()) {
            kept.put(&format!("speed_{name}"), value);
        }
    }

    fn take_up(&mut self, kept: &Kept) {
        let get = |name: &str| kept.between(&format!("speed_{name}"), ANY, 0.0);
        *self = Speed::of_sums([get("seconds"), get("work"), get("completions"), get("stays"), get("times")]);
    }
}

impl Late {
    fn put_away(&self, kept: &mut Kept) {
        let (answers, saved) = self.saved();
        kept.put("answers", answers);
        kept.put("late_saved", saved);
    }

    fn take_up(&mut self, kept: &Kept) {
        self.set_saved(kept.between("answers", ANY, 0.0), kept.between("late_saved", (-ANY.1, ANY.1), 0.0));
    }
}
