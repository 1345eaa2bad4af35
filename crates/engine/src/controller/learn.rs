//! What the controller learns: from every request that ends, and ten times a second from what was counted.

use core::time::Duration;

use super::core_state::Core;
use crate::decision::{End, Outcome, Rejection};
use crate::event::Event;
use crate::flight::{Flight, State};
use crate::request::ServerId;
use crate::sla::Bounds;
use crate::time::Timestamp;

/// A capacity is worth an event when it moved by this factor since the last one.
const CAPACITY_NEWS: f64 = 1.25;
/// Bounds of Retry-After, seconds.
const RETRY_LEAST: f64 = 1.0;
const RETRY_MOST: f64 = 60.0;

impl Rejection {
    /// The same, with another time to come back, within the bounds.
    pub(super) fn come_back_after(self, after: Duration) -> Rejection {
        let seconds = after.as_secs_f64().clamp(RETRY_LEAST, RETRY_MOST);
        Rejection { retry_after: Duration::from_secs_f64(seconds), ..self }
    }
}

impl Core {
    /// Brings everything slow up to date. `by_processors`, `full`: see [`AdmissionPolicy::is_by_processors`] and
    /// [`AdmissionPolicy::keep_busy`].
    ///
    /// [`AdmissionPolicy::is_by_processors`]: crate::admission::AdmissionPolicy::is_by_processors
    /// [`AdmissionPolicy::keep_busy`]: crate::admission::AdmissionPolicy::keep_busy
    pub(super) fn refresh(&mut self, now: Timestamp, by_processors: bool, full: Option<u32>) {
        let held_back = self.refresh_rates(now);
        self.refresh_capacities(now, held_back && by_processors, full);
        self.estimates.calibration.refresh(now);
        if let Some(from) = self.estimates.refresh_target(&self.setup, &self.peers) {
            self.outbox.record(now, Event::TargetChanged { from, to: self.estimates.target });
        }
        self.set_hanging_aside(now);
        self.tick_dispatch(now);
        self.fleet.sum_reports();
        self.publish_retry_after(now);
    }

    /// Tells the server's capacity that a request is about to end; see [`crate::estimate::Capacity::witness`].
    pub(super) fn witness(
        &mut self,
        now: Timestamp,
        flight: &Flight,
        server: ServerId,
        served: f64,
        answered: Option<f64>,
    ) {
        let stay = now.seconds_since(flight.started);
        self.fleet.servers[server.index()].capacity.witness(now, flight.mark, stay, served, answered);
    }

    /// Takes a completed request, for its client at `ended`, into the estimates. Returns the work it was, in relative
    /// units. Not `is_over`: it goes on, as a stream.
    pub(super) fn learn_from(
        &mut self,
        now: Timestamp,
        ended: Timestamp,
        flight: &Flight,
        server: ServerId,
        outcome: Outcome,
        is_over: bool,
    ) -> f64 {
        let (end, service_time) = outcome.end_in(now.since(flight.started));
        self.count_end(now, ended, flight, end, outcome.refused_below);
        if end == End::Answered || outcome.refused_below {
            self.below.learn(now, &flight.request, flight.level, outcome.refused_below);
        }
        match end {
            _ if flight.hangs => {
                if end == End::Answered {
                    self.learn_cost(|costs| costs.record_hung(&flight.request));
                }
                0.0
            }
            End::Answered => self.learn_answered(now, flight, server, service_time, is_over),
            End::Failed => {
                // Quick failures are little work, slow ones at most what the request was expected to cost.
                flight.cost.min(service_time) / self.estimates.costs.scale()
            }
            End::TimedOut => {
                // It took at least this long: a bound, but the tail is what the calibration is for.
                let share = served_share(service_time, now.seconds_since(flight.started));
                let received = self.fleet.servers[server.index()].capacity.received(now, flight.mark) * share;
                self.calibrate(now, received, self.estimates.costs.estimate(&flight.request));
                0.0
            }
        }
    }

    /// Takes an answered request into the estimates, of whose stay at its server the client was just reading for what
    /// is not `service_time`. Returns the work it was, in relative units.
    fn learn_answered(
        &mut self,
        now: Timestamp,
        flight: &Flight,
        server: ServerId,
        service_time: f64,
        is_over: bool,
    ) -> f64 {
        let stay = now.seconds_since(flight.started);
        let share = served_share(service_time, stay);
        let expected = self.estimates.costs.expected(&flight.request);
        let state = &mut self.fleet.servers[server.index()];
        let received = state.capacity.received(now, flight.mark) * share;
        let relative = expected.seconds / self.estimates.costs.scale();
        state.capacity.witness(now, flight.mark, stay, service_time, Some(relative));
        // Under load this is free of how many processors there are thought to be.
        let each = state.capacity.received_per_processor(now, flight.mark) * share;
        let is_measured = state.reported.measures_costs(now);
        // What begins to be open says nothing of how long work takes, and there may be much more of it.
        if is_over {
            self.calibrate(now, self.received_in_bounds(flight, received, service_time), expected.seconds);
        }
        if is_measured {
            return relative;
        }
        let from_now_on = self.learn_cost(|costs| costs.record_expected(&flight.request, each, expected));
        from_now_on / self.estimates.costs.scale()
    }

    /// Its client gave up a request, and its server stopped: it costs more than it received. Where its answer had
    /// begun, that tells nothing: it may have been open, or read slowly.
    pub(super) fn learn_given_up(&mut self, now: Timestamp, flight: &Flight, server: ServerId) {
        let server = &mut self.fleet.servers[server.index()];
        if flight.first_byte == Timestamp::MAX && !flight.hangs && !server.reported.measures_costs(now) {
            let received = server.capacity.received_per_processor(now, flight.mark);
            self.learn_cost(|costs| costs.record_given_up(&flight.request, received));
        }
    }

    /// Counts how a request ended for its client. A ghost has none.
    fn count_end(&mut self, now: Timestamp, ended: Timestamp, flight: &Flight, end: End, refused_below: bool) {
        if matches!(flight.state, State::Ghost { .. }) {
            return;
        }
        let judged = self.judged(flight, ended);
        let stats = &mut self.traffic.stats[flight.request.class.index()];
        if end != End::Answered {
            stats.refused_below += u64::from(refused_below);
            return stats.failed += 1;
        }
        let response = ended.seconds_since(flight.arrived);
        stats.completed += 1;
        stats.in_target += u64::from(judged <= self.estimates.target);
        if flight.first_byte == Timestamp::MAX {
            return stats.responses.record(now, response);
        }
        let first_byte = flight.first_byte.seconds_since(flight.arrived);
        stats.responses.record_both(now, response, &mut stats.first_bytes, first_byte);
    }

    /// The time of a request that the target bounds, seconds, when it ended for its client at `ended`.
    pub(super) fn judged(&self, flight: &Flight, ended: Timestamp) -> f64 {
        let end = match self.setup.sla.bounds() {
            Bounds::Response => ended,
            Bounds::FirstByte => ended.min(flight.first_byte),
        };
        end.seconds_since(flight.arrived)
    }

    /// A client stayed until its request was answered or refused.
    pub(super) fn learn_that_it_stayed(&mut self, until: Timestamp, flight: &Flight) {
        if self.tells_of_patience(flight) {
            let age = until.min(flight.first_byte).seconds_since(flight.arrived);
            self.estimates.classes[flight.request.class.index()].patience.stay(age);
        }
    }

    /// A client left by itself. Once its answer had begun, it was answered.
    pub(super) fn learn_that_it_left(&mut self, now: Timestamp, flight: &Flight) {
        if flight.first_byte <= now {
            self.learn_that_it_stayed(now, flight);
        } else if self.tells_of_patience(flight) {
            let age = now.seconds_since(flight.arrived);
            self.estimates.classes[flight.request.class.index()].patience.leave(age);
        }
    }

    /// Whether its client says anything of how long others would wait: it had to wait, and does not leave by a deadline
    /// of its own.
    fn tells_of_patience(&self, flight: &Flight) -> bool {
        let waited = matches!(flight.state, State::Waiting { .. }) || flight.started > flight.arrived;
        let leaves = |deadline: Timestamp| deadline.seconds_since(flight.arrived) < self.estimates.target;
        waited && !flight.request.deadline.is_some_and(leaves)
    }

    /// Of `received` processor-seconds, the part within the time that the target bounds.
    fn received_in_bounds(&self, flight: &Flight, received: f64, service_time: f64) -> f64 {
        let until = flight.first_byte.seconds_since(flight.started);
        match self.setup.sla.bounds() {
            Bounds::FirstByte if until < service_time => received * (until / service_time),
            _ => received,
        }
    }

    /// Holds what a request received against what is now known of its kind. Not against what was thought when it
    /// arrived: at the start that is off by any factor, and soon forgotten by the costs but not by the calibration.
    fn calibrate(&mut self, now: Timestamp, received: f64, expected: f64) {
        if self.estimates.costs.is_settled() {
            self.estimates.calibration.record(now, received, expected);
        }
    }

    /// A refused client should come back when what is queued is drained: the more so the less important it is, since
    /// more important requests go first all that time. While more servers are on their way, not before they serve.
    pub(super) fn publish_retry_after(&self, now: Timestamp) {
        let processors = self.fleet.sums.processors.max(1e-9);
        let coming = self.fleet.coming.map_or(0.0, |at| at.seconds_since(now));
        let cost = self.estimates.costs.mean().unwrap_or(0.0);
        let queued = (self.traffic.flights.len() - self.traffic.pool()) as f64 * cost / processors;
        for class in self.policer.classes() {
            let ahead: f64 = (0..class.index()).map(|class| self.estimates.demand(class)).sum();
            let left = (1.0 - ahead / processors).max(0.05);
            let seconds = (queued / left).max(coming).clamp(RETRY_LEAST, RETRY_MOST);
            self.policer.publish_retry_after(class, Duration::from_secs_f64(seconds));
        }
    }

    /// Offered rates per class, and the beginnings and ends of refusals. Whether anything was refused.
    fn refresh_rates(&mut self, now: Timestamp) -> bool {
        let Core { policer, traffic, estimates, outbox, .. } = self;
        estimates.refresh_rates(now, policer.classes().map(|class| policer.counts(class)));
        policer.classes().zip(&mut traffic.stats).fold(false, |held_back, (class, stats)| {
            stats.look(now, class, policer.counts(class).refused, &mut *outbox.sink) || held_back
        })
    }

    fn refresh_capacities(&mut self, now: Timestamp, held_back: bool, full: Option<u32>) {
        let mut changed = self.estimates.fix_scale(&mut self.fleet.servers);
        for server in &mut self.fleet.servers {
            let Some(before) = server.capacity.learn(now, held_back, full) else { continue };
            changed = true;
            let to = server.capacity.processors();
            let told = *server.told_capacity.get_or_insert(before);
            if (to / told).max(told / to) > CAPACITY_NEWS {
                server.told_capacity = Some(to);
                self.outbox.record(now, Event::CapacityLearned { server: server.id, from: told, to });
            }
        }
        if changed {
            self.fleet.count();
        }
    }
}

/// The part of a stay in which the server worked on the request.
fn served_share(service_time: f64, stay: f64) -> f64 {
    if stay > 0.0 { (service_time / stay).min(1.0) } else { 1.0 }
}
