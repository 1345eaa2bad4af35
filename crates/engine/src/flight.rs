//! What is under way: every request that waits, is at work at a server, or is open there, and what became of those
//! before.

mod stats;
mod table;
mod turns;
mod waiting;

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::decision::{Open, Reason};
use crate::request::{ClassId, RequestTypeId, ServerId, Ticket};
use crate::time::Timestamp;

pub(crate) use stats::ClassStats;
pub(crate) use table::{Flight, Flights, State};
pub(crate) use turns::{Overdue, Turn};
pub(crate) use waiting::{Queue, Waiting};

/// The requests of an application, and counts of them.
pub(crate) struct Traffic {
    pub(crate) flights: Flights,
    pub(crate) waiting: Waiting,
    /// What the policy let go, and is not on its way yet.
    pub(crate) released: Vec<Released>,
    /// Per class.
    pub(crate) stats: Vec<ClassStats>,
    /// In flight in all, and of these in shadow only.
    in_flight: usize,
    in_shadow: usize,
    /// Of those in flight: see [`Flight::hangs`].
    hanging: usize,
    /// Ghosts that nobody watches, by when their work is expected to be over.
    ghosts: BinaryHeap<Reverse<(Timestamp, Ticket)>>,
    /// Those that wait and have a deadline.
    overdue: Overdue,
    /// In the pool of what is open and no work.
    open: usize,
    /// Tickets used after their end.
    pub(crate) stale_tickets: u64,
}

/// A waiting request that a policy let go: to a server, or to a refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Released {
    pub(crate) slot: u32,
    pub(crate) refused: Option<(Reason, Option<f64>)>,
}

impl Traffic {
    pub(crate) fn new(classes: usize, buckets: usize) -> Traffic {
        Traffic {
            flights: Flights::new(),
            waiting: Waiting::new(classes, buckets),
            released: Vec::new(),
            stats: alloc::vec![ClassStats::new(); classes],
            in_flight: 0,
            in_shadow: 0,
            hanging: 0,
            ghosts: BinaryHeap::new(),
            overdue: Overdue::default(),
            open: 0,
            stale_tickets: 0,
        }
    }

    /// A request begins to wait in the bucket that its state names.
    pub(crate) fn enqueue(&mut self, flight: Flight) -> Ticket {
        let ticket = self.flights.insert(flight);
        if let State::Waiting { bucket, .. } = flight.state {
            let queue = self.waiting.queue(flight.request.class, bucket, flight.turn());
            self.waiting.push(&mut self.flights, queue, ticket.slot);
        }
        ticket
    }

    /// Takes a request out that nobody wants any more and no server works on; `None`: its ticket is stale.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> Option<Flight> {
        let Some(flight) = self.flights.get(ticket).copied() else {
            self.stale_tickets += 1;
            return None;
        };
        let class = flight.request.class;
        if let State::Waiting { bucket, .. } = flight.state {
            let queue = self.waiting.queue(class, bucket, flight.turn());
            self.waiting.unlink(&mut self.flights, queue, ticket.slot);
        }
        self.flights.remove(ticket);
        // A ghost's client was counted when it left.
        let is_news = !matches!(flight.state, State::Ghost { .. });
        self.stats[class.index()].cancelled += u64::from(is_news);
        Some(flight)
    }

    pub(crate) fn count_admitted(&mut self, class: ClassId, shadow: bool) {
        self.in_flight += 1;
        self.in_shadow += usize::from(shadow);
        let stats = &mut self.stats[class.index()];
        stats.admitted += 1;
        stats.in_flight += 1;
    }

    pub(crate) fn count_refusal(&mut self, class: ClassId, reason: Reason) {
        self.stats[class.index()].refused[reason.index()] += 1;
    }

    /// No server works on an admitted request any more.
    pub(crate) fn count_ended(&mut self, flight: &Flight) {
        self.in_flight -= 1;
        self.in_shadow -= usize::from(flight.shadow);
        self.hanging -= usize::from(flight.hangs);
        let stats = &mut self.stats[flight.request.class.index()];
        stats.in_flight -= 1;
        stats.ghosts -= u64::from(matches!(flight.state, State::Ghost { .. }));
    }

    /// How many of those in flight hang.
    pub(crate) fn hanging(&self) -> usize {
        self.hanging
    }

    /// A request hangs.
    pub(crate) fn set_aside(&mut self, slot: u32) {
        if let Some(flight) = self.flights.at_mut(slot).filter(|flight| !flight.hangs) {
            flight.hangs = true;
            self.hanging += 1;
        }
    }

    /// A request hangs no more, if it did.
    pub(crate) fn take_back(&mut self, ticket: Ticket) {
        if let Some(flight) = self.flights.get_mut(ticket).filter(|flight| flight.hangs) {
            flight.hangs = false;
            self.hanging -= 1;
        }
    }

    /// A request at a server becomes a ghost at `since`, and goes at `end` unless the driver says when.
    pub(crate) fn haunt(&mut self, since: Timestamp, ticket: Ticket, is_told: bool, end: Option<Timestamp>) {
        if let Some(end) = end {
            self.ghosts.push(Reverse((end, ticket)));
        }
        let Some(flight) = self.flights.get_mut(ticket) else { return };
        if let State::InFlight { server } = flight.state {
            flight.state = State::Ghost { server, is_told, since };
            self.stats[flight.request.class.index()].ghosts += 1;
        }
    }

    /// A request of another controller is at work: a ghost from the beginning, until `end`.
    pub(crate) fn take_ghost(&mut self, flight: Flight, end: Timestamp) {
        let ticket = self.flights.insert(flight);
        self.ghosts.push(Reverse((end, ticket)));
        self.in_flight += 1;
        let stats = &mut self.stats[flight.request.class.index()];
        (stats.in_flight, stats.ghosts) = (stats.in_flight + 1, stats.ghosts + 1);
    }

    /// A ghost whose work is over by now, as far as is known; each once.
    pub(crate) fn next_faded(&mut self, now: Timestamp) -> Option<Ticket> {
        while let Some(&Reverse((end, ticket))) = self.ghosts.peek()
            && end <= now
        {
            self.ghosts.pop();
            // Its end may have become known before.
            if self.flights.get(ticket).is_some() {
                return Some(ticket);
            }
        }
        None
    }

    /// A request that is no work joins the pool.
    pub(crate) fn open(&mut self, ticket: Ticket, server: ServerId, kind: Open) {
        let Some(flight) = self.flights.get_mut(ticket) else { return };
        flight.state = State::Open { server, kind };
        self.open += 1;
        *self.stats[flight.request.class.index()].open_mut(kind) += 1;
    }

    /// One of the pool is over.
    pub(crate) fn count_closed(&mut self, class: ClassId, kind: Open) {
        self.open -= 1;
        *self.stats[class.index()].open_mut(kind) -= 1;
    }

    /// How many are in the pool.
    pub(crate) fn pool(&self) -> usize {
        self.open
    }

    /// Gives requests the new numbers of their classes and types, by where these stood before; what is gone is of the
    /// least important class, or of the default type.
    pub(crate) fn rename(&mut self, classes: &[Option<usize>], types: &[Option<usize>]) {
        let new_class = |old: ClassId| classes.iter().position(|&at| at == Some(old.index()));
        let new_type = |old: RequestTypeId| types.iter().position(|&at| at == Some(old.index()));
        let last = classes.len() - 1;
        for (_, flight) in self.flights.iter_mut() {
            let request = &mut flight.request;
            request.class = ClassId(new_class(request.class).unwrap_or(last) as u8);
            request.request_type = RequestTypeId(new_type(request.request_type).unwrap_or(0) as u16);
        }
    }

    /// Keeps the counts of classes that were there before. Requests have their new classes already.
    pub(crate) fn follow_classes(&mut self, classes: &[Option<usize>]) {
        let old = core::mem::take(&mut self.stats);
        self.stats = classes.iter().map(|at| at.map_or_else(ClassStats::new, |at| old[at].clone())).collect();
        for stats in &mut self.stats {
            (stats.in_flight, stats.ghosts, stats.streams, stats.tunnels) = (0, 0, 0, 0);
        }
        for (_, flight) in self.flights.iter_mut() {
            let stats = &mut self.stats[flight.request.class.index()];
            match flight.state {
                State::Waiting { .. } => {}
                State::InFlight { .. } => stats.in_flight += 1,
                State::Ghost { .. } => (stats.in_flight, stats.ghosts) = (stats.in_flight + 1, stats.ghosts + 1),
                State::Open { kind, .. } => *stats.open_mut(kind) += 1,
            }
        }
    }

    /// Puts waiting requests into the queues of the policy now in force. Their buckets are unknown to it: the first.
    pub(crate) fn requeue(&mut self, buckets: usize) {
        let mut waiting = Waiting::new(self.stats.len(), buckets);
        let queued: Vec<(u32, Queue)> = self
            .flights
            .iter_mut()
            .filter_map(|(slot, flight)| match &mut flight.state {
                State::Waiting { bucket, .. } => {
                    *bucket = (*bucket).min(buckets - 1);
                    let own = *bucket;
                    Some((slot, waiting.queue(flight.request.class, own, flight.turn())))
                }
                _ => None,
            })
            .collect();
        for (slot, queue) in queued {
            waiting.push(&mut self.flights, queue, slot);
        }
        self.waiting = waiting;
    }

    /// Requests that servers work on, ghosts among them; in shadow mode only those that would have been admitted.
    pub(crate) fn in_flight(&self, shadow: bool) -> usize {
        if shadow { self.in_flight - self.in_shadow } else { self.in_flight }
    }

    /// Requests that servers work on, whatever would have become of them.
    pub(crate) fn flying(&self) -> usize {
        self.flights.len() - self.waiting.len() - self.open
    }
}
