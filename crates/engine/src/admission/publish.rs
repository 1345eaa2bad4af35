//! What a policy publishes for the workers: a class's share.

use super::Context;
use crate::policer::Share;
use crate::request::ClassId;

impl Context<'_> {
    /// Publishes a class's share to the lock-free table. First tries have it first, as many of them as arrive; what
    /// they leave is the retries'.
    pub fn publish(&mut self, class: ClassId, share: Share) {
        let estimate = &self.classes[class.index()];
        let (offered, retries) = (estimate.offered.get(), estimate.retries.get());
        let (first_tries, retries) = match share {
            Share::Admit(share) if retries > 0.0 && offered > 0.0 => divide(share, (retries / offered).min(1.0)),
            whole => (whole, whole),
        };
        self.policer.publish(class, first_tries, retries);
    }
}

/// The shares of first tries and of retries in a class's share, where `retries` is the part of its requests that were
/// tried before.
fn divide(share: f64, retries: f64) -> (Share, Share) {
    let first_tries = 1.0 - retries;
    let left = if retries > 0.0 { (share - first_tries).max(0.0) / retries } else { share };
    let own = if first_tries > 0.0 { (share / first_tries).min(1.0) } else { share };
    (Share::Admit(own), Share::Admit(left.min(1.0)))
}
