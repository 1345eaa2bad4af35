//! What becomes of requests that are at a server other than to be answered: ghosts, streams, long polls and tunnels.
//!
//! A place is work at a server. Who leaves, leaves the work behind: the place stays until the server is known to be
//! done, or for as long as the work is expected to take. Who is answered and stays gives the place back, and counts in
//! a pool of its own: what happens there teaches nothing about work.

use core::time::Duration;

use super::Controller;
use super::core_state::Core;
use crate::decision::{AbandonedBy, End, Open, Outcome, Watch};
use crate::estimate::Habit;
use crate::flight::{Flight, State};
use crate::request::{ServerId, Ticket};
use crate::time::Timestamp;

/// A ghost that nobody watches goes after so long at the latest, seconds: what is learned may be wrong by any factor.
pub(super) const LONGEST: f64 = 60.0;
/// Ghosts that nobody watches go with the tick. Where their server is known to stop sooner than this, they go at once.
const AT_ONCE: Duration = Duration::from_millis(50);
/// A request that has had all that it was expected to cost, or nearly, has this part of that still to come.
const LEAST_LEFT: f64 = 0.5;

impl Controller {
    /// Nobody waits any more for the answer to a request that is at a server, and the server may work on: it becomes a
    /// ghost and keeps its place. With [`Watch::Driver`] until [`Controller::handle_completion`], when the server
    /// answered, or [`Controller::handle_cancel`], when it stopped; with [`Watch::Nobody`] until it is expected to be
    /// done, or to have stopped where its server is known to stop, and its ticket is dead. Told of a ghost: its driver
    /// watches it no longer. Of a request that waits, or is only open: it is over.
    pub fn handle_abandon(&mut self, now: Timestamp, ticket: Ticket, by: AbandonedBy, watch: Watch) {
        let Some(flight) = self.core.traffic.flights.get(ticket).copied() else {
            return self.core.traffic.stale_tickets += 1;
        };
        let Some(server) = flight.state.work_at() else {
            if by == AbandonedBy::Client && matches!(flight.state, State::Waiting { .. }) {
                self.core.learn_that_it_left(now, &flight);
            }
            return self.handle_cancel(now, ticket);
        };
        let is_news = matches!(flight.state, State::InFlight { .. });
        if !is_news && watch == Watch::Nobody {
            // It was watched for a while, and has not stopped.
            self.core.learn_habit(&flight, None);
        }
        let end = (watch == Watch::Nobody).then(|| self.core.expected_end(now, &flight, server));
        let is_told = is_news && by != AbandonedBy::Client;
        match (is_news, by) {
            (true, AbandonedBy::Client) => self.core.learn_that_it_left(now, &flight),
            (true, _) => self.core.learn_that_it_stayed(now, &flight),
            (false, _) => {}
        }
        self.core.traffic.haunt(now, ticket, is_told, end);
        if is_told {
            let by_controller = u64::from(by == AbandonedBy::Controller);
            self.core.traffic.stats[flight.request.class.index()].runaways += by_controller;
            self.core.learn_from(now, now, &flight, server, Outcome::timed_out(), true);
            self.tell_outcome(now, now, &flight, Outcome::timed_out(), true);
        } else if is_news {
            self.core.traffic.stats[flight.request.class.index()].cancelled += 1;
        }
        let stops = matches!(self.core.fleet.servers[server.index()].abandoned.habit(), Habit::Stops { .. });
        match end {
            Some(end) if is_news && stops && end <= now + AT_ONCE => self.lift(now, ticket),
            _ => self.settle(now),
        }
    }

    /// The answer to an admitted request began at `first_byte`, which is not after now. To be said before its
    /// completion, at any time; [`Controller::handle_open`] says it itself.
    pub fn handle_first_byte(&mut self, ticket: Ticket, first_byte: Timestamp) {
        match self.core.traffic.flights.get_mut(ticket) {
            Some(flight) if matches!(flight.state, State::InFlight { .. }) => flight.first_byte = first_byte,
            Some(_) => {}
            None => self.core.traffic.stale_tickets += 1,
        }
    }

    /// An admitted request turns out to be no work, but to be open: it gives its place back and joins the pool until
    /// its completion or cancel. `first_byte`: when its answer began, which is its response time; nothing for a poll,
    /// whose wait teaches nothing. `false`: the pool is full, or it is no request in flight; it stays what it was.
    pub fn handle_open(&mut self, now: Timestamp, ticket: Ticket, kind: Open, first_byte: Timestamp) -> bool {
        let Some(flight) = self.core.traffic.flights.get(ticket).copied() else {
            self.core.traffic.stale_tickets += 1;
            return false;
        };
        let State::InFlight { server } = flight.state else { return false };
        if self.core.traffic.pool() >= self.core.setup.most_open {
            return false;
        }
        let flight = match kind {
            Open::Stream | Open::Tunnel => Flight { first_byte, ..flight },
            Open::Poll => flight,
        };
        let answered = Outcome::answered_in(first_byte.since(flight.started));
        let outcome = (kind != Open::Poll).then_some(answered);
        if kind != Open::Poll {
            self.core.learn_that_it_stayed(first_byte, &flight);
        }
        self.core.land_ended(now, first_byte, &flight, outcome, false);
        self.core.traffic.open(ticket, server, kind);
        self.core.fleet.open(server, kind);
        // Only now: who waits for a place is started by what the server has.
        match outcome {
            Some(outcome) => self.tell_outcome(now, first_byte, &flight, outcome, false),
            None => {
                self.admission.on_poll(&flight.request);
                self.admission.on_completion(&mut self.core.context(now));
            }
        }
        self.settle(now);
        true
    }

    /// The server of a ghost answered it after all: what it took is learned, although nobody got it.
    pub(super) fn lay_ghost(&mut self, now: Timestamp, ticket: Ticket, outcome: Outcome) {
        let Some(flight) = self.core.traffic.flights.remove(ticket) else { return };
        let State::Ghost { is_told, .. } = flight.state else { return };
        self.core.learn_habit(&flight, None);
        self.core.land(now, &flight, Some(outcome));
        if is_told {
            self.admission.on_completion(&mut self.core.context(now));
        } else {
            self.tell_outcome(now, now, &flight, outcome, true);
        }
        self.settle(now);
    }

    /// A ghost's server is taken to be done.
    fn lift(&mut self, now: Timestamp, ticket: Ticket) {
        if let Some(flight) = self.core.traffic.flights.remove(ticket) {
            self.core.land(now, &flight, None);
        }
        self.offer_places(now);
    }

    /// Ghosts whose work is over, as far as is known.
    pub(super) fn fade_ghosts(&mut self, now: Timestamp) {
        let mut some = false;
        while let Some(ticket) = self.core.traffic.next_faded(now) {
            if let Some(flight) = self.core.traffic.flights.remove(ticket) {
                self.core.land(now, &flight, None);
                some = true;
            }
        }
        if some {
            self.offer_places(now);
        }
    }

    /// One of the pool is over. Only of a poll it was not known yet how it ends.
    pub(super) fn close(&mut self, now: Timestamp, ticket: Ticket, end: Option<End>) {
        let Some(flight) = self.core.traffic.flights.remove(ticket) else { return };
        let State::Open { server, kind } = flight.state else { return };
        let class = flight.request.class;
        self.core.traffic.count_closed(class, kind);
        self.core.fleet.close(server, kind);
        let stats = &mut self.core.traffic.stats[class.index()];
        match end {
            _ if kind != Open::Poll => {}
            // It was answered when there was something to say: that is in time.
            Some(End::Answered) => (stats.completed, stats.in_target) = (stats.completed + 1, stats.in_target + 1),
            Some(End::Failed | End::TimedOut) => stats.failed += 1,
            None => stats.cancelled += 1,
        }
        self.offer_places(now);
    }
}

impl Core {
    /// A ghost that was watched is over: its server closed so many seconds after it was abandoned, or worked on. Where
    /// its answer had begun, that tells nothing: the last of it may have been on its way already.
    pub(super) fn learn_habit(&mut self, flight: &Flight, stopped_after: Option<f64>) {
        let Some(server) = flight.state.work_at().filter(|_| flight.first_byte == Timestamp::MAX) else { return };
        let abandoned = &mut self.fleet.servers[server.index()].abandoned;
        match stopped_after {
            Some(after) => abandoned.stopped(after),
            None => abandoned.worked_on(),
        }
    }

    /// When the work on a request that nobody watches is expected to be over at a server that shares its processors
    /// among what it has. One that was watched until now is not taken to stop.
    pub(super) fn expected_end(&mut self, now: Timestamp, flight: &Flight, server: ServerId) -> Timestamp {
        let cost = self.estimates.costs.estimate(&flight.request);
        let server = &mut self.fleet.servers[server.index()];
        let left = (cost - server.capacity.received(now, flight.mark)).max(cost * LEAST_LEFT);
        let shared_by = f64::from(server.in_flight) / server.capacity.processors();
        let seconds = (left * shared_by.max(1.0)).clamp(0.0, LONGEST);
        let seconds = match flight.state {
            State::InFlight { .. } => server.abandoned.stay(seconds),
            _ => seconds,
        };
        now + Duration::from_secs_f64(seconds)
    }
}
