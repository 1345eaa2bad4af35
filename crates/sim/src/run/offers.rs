//! Requests that are given instead of drawn: each from outside, at its time and with its work.
//!
//! They never stand in the agenda. Before an offer arrives, the agenda is played up to its instant and through it.

use tidegate_engine::Timestamp;

use super::Run;
use super::clients::Client;
use crate::park::Task;
use crate::report::Report;
use crate::world::Offer;

impl Run<'_> {
    /// From the first happening to the last, with `offers` in between.
    pub(crate) fn play_with(mut self, offers: impl Iterator<Item = Offer>) -> Report {
        self.report.add_courses(self.world.setup.classes.len());
        self.plan_all();
        let mut last = self.end;
        for offer in offers {
            last = Timestamp::ZERO + offer.at;
            self.play_through(last);
            self.offered(last, offer);
            self.follow_up(last);
        }
        self.end = self.end.max(last);
        self.play_through(self.end);
        self.report.usage = Some(self.use_until(self.end));
        self.empty();
        self.fail_the_rest();
        self.finish()
    }

    /// Everything up to `until`, that instant included.
    fn play_through(&mut self, until: Timestamp) {
        while self.plans.peek().is_some_and(|at| at <= until) {
            let Some((now, happening)) = self.plans.next() else { return };
            self.step(now, happening);
        }
    }

    fn offered(&mut self, now: Timestamp, offer: Offer) {
        let course = self.world.courses() as u16 + u16::from(offer.class);
        let client = Client::Given { request_type: offer.request_type, key: offer.url };
        let task = Task { work: offer.work, program: 0, seed: 0 };
        self.report.happenings += 1;
        let flying = self.flying(now, client, offer.class, course, 0, task);
        if self.sentries.first().desk.is_some() {
            return self.come(now, flying);
        }
        let asked = self.asked(&flying);
        self.come_once(now, flying, asked);
    }
}
