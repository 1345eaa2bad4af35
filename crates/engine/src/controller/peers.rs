//! What other sentries before the same servers are told, and what they told.

use super::Controller;
use super::core_state::Core;
use crate::peers::{Peers, Summary};
use crate::time::Timestamp;

impl Controller {
    /// What the other sentries before the same servers should know. Tell it as often as
    /// [`Circle::every`](crate::Circle::every) says.
    pub fn summary(&mut self, now: Timestamp) -> Summary {
        let mut summary = Summary::default();
        let context = self.core.context(now);
        summary.in_service = context.load.at_work() as f64;
        summary.waiting = context.waiting_in_all() as f64;
        self.admission.tell(&context, &mut summary);
        summary.classes.resize_with(self.core.estimates.classes.len(), Default::default);
        for (class, is) in summary.classes.iter_mut().zip(&self.core.estimates.classes) {
            class.offered = is.offered.get();
        }
        summary
    }

    /// Requests per second of all classes that arrive at other sentries before the same servers, as far as these were
    /// heard of.
    pub fn offered_to_peers(&self) -> f64 {
        self.core.peers.sum.offered()
    }

    /// What the other sentries before the same servers said; what they said before is no longer true. Guarantees are
    /// for all of them together, and so is the rate by which the target is found.
    pub fn handle_peers(&mut self, now: Timestamp, peers: Peers) {
        if (peers.rank, peers.count) != (self.core.peers.rank, self.core.peers.count) {
            self.core.fleet.spread(peers.rank, peers.count + 1);
        }
        self.core.peers = peers;
        self.core.share_guarantees();
        self.admission.on_peers(&mut self.core.context(now));
        self.settle(now);
    }
}

impl Core {
    /// Each class's guarantee, as far as it is this sentry's.
    pub(super) fn share_guarantees(&self) {
        let Core { policer, peers, setup, estimates, .. } = self;
        for (id, (class, is)) in policer.classes().zip(setup.classes.iter().zip(&estimates.classes)) {
            policer.share_guarantee(id, class, peers.guarantee(id.index(), is.offered.get()));
        }
    }
}
