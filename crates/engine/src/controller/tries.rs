//! First tries before retries, inside a class.
//!
//! *Intuition.* Who rings again and again does not get before those who ring for the first time. Refused clients that
//! try again at once multiply the load exactly when there is too much of it; if they were served like the others, an
//! overload would feed itself.
//!
//! *Applied.* While first tries of a class are refused because more arrives than can be served, its retries are refused
//! too, before the policy is asked ([`Reason::FirstTriesFirst`]). That lasts for one target from each such refusal on,
//! the time in which places turn over. In the class queue first tries are ahead of retries (`flight/turns.rs`), and the
//! published table gives its share to them first.
//!
//! *Awkward cases.* A tenant above its fair share holds nobody back but those above theirs, with its first tries as
//! with its retries. A less important first try does not go before a more important retry: classes come first. What is
//! refused for its deadline, or for want of any server, says nothing of others, and holds nobody back.

use core::time::Duration;

use super::core_state::Core;
use crate::decision::Reason;
use crate::request::Request;
use crate::tenants::Standing;
use crate::time::Timestamp;

/// Bounds of the time for which retries are held back, seconds. The table is read ten times a second.
const HOLD_LEAST: f64 = 0.1;
const HOLD_MOST: f64 = 1.0;

impl Core {
    /// Counts a refusal; one of a first try, for want of room, holds the retries of its class back.
    pub(super) fn count_refusal(&mut self, now: Timestamp, request: &Request, reason: Reason) {
        self.traffic.count_refusal(request.class, reason);
        if !request.is_retry && reason == Reason::TenantShare {
            self.traffic.stats[request.class.index()].held_above = now + self.hold();
        } else if !request.is_retry && reason.is_contention() {
            self.policer.hold_retries(request.class, now + self.hold());
        }
    }

    /// Whether a request whose tenant stands so has to stand back for first tries of its class.
    pub(super) fn stands_back(&self, now: Timestamp, request: &Request, standing: Standing) -> bool {
        let above_is_held = || now < self.traffic.stats[request.class.index()].held_above;
        request.is_retry && (self.policer.holds_retries(now, request.class) || standing.is_over() && above_is_held())
    }

    /// For how long a refusal of a first try holds retries back.
    fn hold(&self) -> Duration {
        Duration::from_secs_f64(self.estimates.target.clamp(HOLD_LEAST, HOLD_MOST))
    }
}
