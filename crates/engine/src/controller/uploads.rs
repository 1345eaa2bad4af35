//! Requests whose bodies are read before they ask for a place: policed at their heads, asked for when their bodies are
//! here.
//!
//! Between the two a request is nobody's work, so the controller does not know of it. It is asked about the two ends
//! only: whether there is any use in sending the body, and what becomes of the count of a request that never asks.

use super::Controller;
use crate::request::ClassId;
use crate::time::Timestamp;

impl Controller {
    /// Whether the policy would refuse at once whatever came now and that it is asked about: a body need not be sent
    /// then. Changes nothing, and is never so in shadow mode, or while somebody waits who has more than a fair share
    /// and would make room.
    pub fn is_full(&mut self, now: Timestamp) -> bool {
        if self.core.setup.shadow {
            return false;
        }
        let context = self.core.context(now);
        self.admission.is_full(&context) && context.class_ids().all(|class| context.over_share(class) == 0)
    }

    /// A request of `class` on which [`Policer::police`](crate::Policer::police) gave a verdict asks for no place: its
    /// client left, or its body was none. It counts as cancelled.
    pub fn handle_dropout(&mut self, class: ClassId) {
        self.core.traffic.stats[class.index()].cancelled += 1;
    }
}
