//! What follows for others: a request ended, a place is free, time went by.

use core::time::Duration;

use super::core_state::Core;
use super::{Controller, TICK};
use crate::admission::Ended;
use crate::decision::{End, Outcome};
use crate::flight::Flight;
use crate::time::Timestamp;

impl Controller {
    /// The policy hears how a request ended, and may start waiting ones.
    /// Not `is_over`: it is open from now on.
    pub(super) fn tell_outcome(
        &mut self,
        now: Timestamp,
        ended: Timestamp,
        flight: &Flight,
        outcome: Outcome,
        is_over: bool,
    ) {
        let (end, service_time) = outcome.end_in(now.since(flight.started));
        let ended = Ended {
            request: flight.request,
            server: flight.state.server(),
            end,
            service_time,
            bytes: outcome.bytes,
            response_time: match end {
                End::Answered => self.core.judged(flight, ended),
                End::Failed | End::TimedOut => ended.seconds_since(flight.arrived),
            },
            started: flight.started,
            in_flight_at_start: flight.in_flight as usize,
            is_over,
            hung: flight.hangs,
        };
        let mut context = self.core.context(now);
        self.admission.on_outcome(&mut context, &ended);
        self.admission.on_completion(&mut context);
    }

    /// A place may be free: the policy may start waiting requests.
    pub(super) fn offer_places(&mut self, now: Timestamp) {
        self.admission.on_completion(&mut self.core.context(now));
        self.settle(now);
    }

    pub(super) fn tick(&mut self, now: Timestamp) {
        self.fade_ghosts(now);
        self.core.refresh(now, self.admission.is_by_processors(), self.admission.keep_busy());
        if self.core.peers.count > 0 {
            self.core.share_guarantees();
        }
        let mean = self.core.estimates.costs.mean();
        let Core { fleet, outbox, tenants, policer, .. } = &mut self.core;
        tenants.tick(now, TICK.as_secs_f64(), mean, policer);
        fleet.balance(now, &mut *outbox.sink);
        self.admission.on_tick(&mut self.core.context(now));
        self.core.tenants.publish(now, &self.core.policer);
        self.settle(now);
        self.cancel_runaways(now);
    }

    /// Turns what the policy wants done, and whom it let go, into actions.
    pub(super) fn settle(&mut self, now: Timestamp) {
        if !self.core.outbox.effects.is_empty() {
            self.core.carry_out();
        }
        if !self.core.traffic.released.is_empty() {
            self.core.release(now);
        }
    }
}

impl Outcome {
    pub(super) fn end_in(self, elapsed: Duration) -> (End, f64) {
        (self.end, self.service_time.unwrap_or(elapsed).as_secs_f64())
    }
}
