//! Deadlines at arrival and in the queue; see [`crate::due`] for the rule.

use core::time::Duration;

use super::Controller;
use super::core_state::Core;
use crate::admission::Arrival;
use crate::decision::Reason;
use crate::due::{foresee, is_too_late};
use crate::flight::Released;
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
        let load = self.core.context(now).load;
        let estimates = &self.core.estimates;
        let (predicted, is_free) = foresee(&load, &estimates.costs, &estimates.calibration, arrival.cost, false);
        if !is_too_late(now, deadline, predicted) {
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
    pub(super) fn latest_start(&self, now: Timestamp, request: &Request, cost: f64) -> Option<Timestamp> {
        let least = if self.estimates.costs.is_settled() { cost * self.estimates.calibration.least() } else { 0.0 };
        let deadline = request.deadline.filter(|deadline| deadline.seconds_since(now) < FAR)?;
        Some(deadline - Duration::from_secs_f64(least.clamp(0.0, FAR)))
    }
}
