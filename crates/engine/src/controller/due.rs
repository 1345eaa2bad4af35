//! Deadlines: what cannot be answered before its own client stops waiting is refused, at its arrival or as it waits.
//!
//! *Intuition.* A cook who is told that a guest's train leaves in ten minutes does not begin a roast for him. He says
//! so at once: the guest can eat elsewhere, and the stove is free for others.
//!
//! *Applied.* A request that was sent off at `now` would be answered `Q + c r max(1, (eta + 1) / k)` later: `c` is its
//! learned cost, `r` a measured ratio of what requests take to what was expected of them, and the rest as in the policy
//! `batch`. While a processor is free, waiting for a late answer costs nobody anything: then `r` is what only one in
//! ten stays below, so that whoever is refused had hardly a chance. Else `r` is the median: places go to requests that
//! are more likely in time than not. What waits in a class queue leaves it at the instant from which even a free
//! processor would be too late.
//!
//! *Awkward cases.* A deadline must not be worth setting to get in: it is looked at before the policy, and the policy
//! does not know it. Until costs are known only a deadline that has passed refuses. And who is always refused would
//! never be seen to have become cheaper: so while a processor is free, one in [`PROBE`] of those is let in.

use core::time::Duration;

use super::Controller;
use super::core_state::Core;
use crate::admission::Arrival;
use crate::decision::Reason;
use crate::flight::{Flight, Released};
use crate::request::Request;
use crate::time::Timestamp;

/// Of so many requests that a free processor could hardly answer in time one is let in.
const PROBE: u32 = 50;
/// A deadline farther away is no deadline, seconds: nobody waits that long, and sums stay finite.
const FAR: f64 = 86_400.0;

impl Controller {
    /// The response time foreseen for an arrival that its deadline leaves no time for, seconds.
    pub(super) fn misses_deadline(&mut self, now: Timestamp, arrival: &Arrival) -> Option<f64> {
        let deadline = arrival.request.deadline?;
        let (predicted, is_free) = self.core.foresee(now, arrival.cost);
        if deadline > now && !is_too_late(now, deadline, predicted) {
            return None;
        }
        if is_free && deadline > now {
            self.core.hopeless = (self.core.hopeless + 1) % PROBE;
            if self.core.hopeless == 0 {
                return None;
            }
        }
        Some(predicted)
    }

    /// Those whose time is up leave their class queues.
    pub(super) fn refuse_overdue(&mut self, now: Timestamp) {
        while let Some(slot) = self.core.traffic.pop_overdue(now) {
            self.core.traffic.released.push(Released { slot, refused: Some((Reason::Deadline, None)) });
        }
        self.settle(now);
    }
}

impl Core {
    /// Until when a request may wait: from then on even a free processor would be too late.
    pub(super) fn latest_start(&mut self, now: Timestamp, request: &Request, cost: f64) -> Option<Timestamp> {
        let least = if self.estimates.costs.is_settled() { cost * self.estimates.calibration.least() } else { 0.0 };
        let deadline = request.deadline.filter(|deadline| deadline.seconds_since(now) < FAR)?;
        Some(deadline - Duration::from_secs_f64(least.clamp(0.0, FAR)))
    }

    /// Whether a request that waited is too late now that it could be sent.
    pub(super) fn is_overdue(&mut self, now: Timestamp, flight: &Flight) -> bool {
        let Some(deadline) = flight.request.deadline else { return false };
        is_too_late(now, deadline, self.foresee(now, flight.cost).0)
    }

    /// When a request of this cost that is sent now is answered, in so many seconds at the least; and whether some
    /// processor is free for it.
    fn foresee(&mut self, now: Timestamp, cost: f64) -> (f64, bool) {
        let load = self.context(now).load;
        let is_free = (load.in_flight as f64) < load.idle_processors;
        if !self.estimates.costs.is_settled() {
            return (0.0, is_free);
        }
        let calibration = &self.estimates.calibration;
        if is_free {
            return (load.queueing_delay + cost * calibration.least(), true);
        }
        let stretch = ((load.in_service() + 1.0) / load.processors.max(1e-9)).max(1.0);
        (load.queueing_delay + cost * calibration.median() * stretch, false)
    }
}

fn is_too_late(now: Timestamp, deadline: Timestamp, predicted: f64) -> bool {
    now >= deadline || deadline.seconds_since(now) < predicted
}
