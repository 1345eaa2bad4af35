//! What nuclei say of servers: taken into the sums that the admission test reads, server by server. A server without a
//! nucleus, or whose nucleus fell silent, adds what the sentry knows itself.

use super::{Fleet, ServerState, Status};
use crate::max_conn::MOST_KINDS;
use crate::report::ServerLoad;
use crate::request::{RequestTypeId, ServerId};
use crate::time::Timestamp;

impl Fleet {
    pub(crate) fn take_report(&mut self, now: Timestamp, server: ServerId, load: &ServerLoad) {
        let taking = self.taking_status();
        let Some(state) = self.servers.get_mut(server.index()).filter(|s| s.status != Status::Removed) else { return };
        let before = part(state, taking);
        let in_flight = state.in_flight;
        let others_before: [f64; MOST_KINDS] = core::array::from_fn(|kind| state.reported.others(kind));
        state.reported.take_kinds(now, &state.by_kind);
        let is_counted = state.is_divided(taking);
        if let Some(group) = self.partitions.group_mut(state.partition).filter(|_| is_counted) {
            for (kind, sum) in group.others.iter_mut().enumerate() {
                *sum += state.reported.others(kind) - others_before[kind];
            }
        }
        state.reported.take(now, load, in_flight);
        let changed = follow_processors(state, load.processors);
        let after = part(state, taking);
        self.sums.queueing_delays += after.0 - before.0;
        self.sums.elsewhere += after.1 - before.1;
        if changed {
            self.count();
        }
    }

    /// A part of a report: requests in service of a type.
    pub(crate) fn take_active(&mut self, server: ServerId, request_type: RequestTypeId, count: f64) {
        let Some(kind) = self.partitions.kind(request_type) else { return };
        if let Some(state) = self.servers.get_mut(server.index()) {
            state.reported.tell(kind, count);
        }
    }

    pub(crate) fn lose_reports(&mut self, server: ServerId) {
        let Some(state) = self.servers.get_mut(server.index()) else { return };
        state.reported.forget();
        if follow_processors(state, None) {
            self.count();
        }
        self.sum_reports();
        self.sum_others();
    }

    /// Anew, over all servers: when their states change, and regularly, so that rounding cannot add up.
    pub(crate) fn sum_reports(&mut self) {
        let taking = self.taking_status();
        let parts = self.servers.iter().map(|server| part(server, taking));
        let (delays, elsewhere) = parts.fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        (self.sums.queueing_delays, self.sums.elsewhere) = (delays, elsewhere);
    }
}

/// A server's part of the sums: Q, and the difference between in service and in flight here. None of a server that
/// takes nothing.
fn part(server: &ServerState, taking: Status) -> (f64, f64) {
    if !server.is_taking(taking) {
        return (0.0, 0.0);
    }
    let difference = server.reported.difference(server.capacity.is_given());
    (server.reported.queueing_delay().unwrap_or(0.0), difference)
}

/// Takes the processors that a nucleus names, unless the setup names some; gives them up when it no longer does.
/// Whether anything changed.
fn follow_processors(server: &mut ServerState, named: Option<f64>) -> bool {
    let configured = server.capacity.is_given() && !server.given_by_report;
    match named.filter(|processors| processors.is_finite() && *processors > 0.0) {
        _ if configured => false,
        Some(processors) if server.given_by_report && server.capacity.processors() == processors => false,
        Some(processors) => {
            server.capacity.give(processors);
            server.given_by_report = true;
            true
        }
        None if server.given_by_report => {
            server.capacity.release();
            server.given_by_report = false;
            true
        }
        None => false,
    }
}
