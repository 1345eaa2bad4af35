//! The flight table: every request that waits or is in flight, by ticket.

use alloc::vec::Vec;

use super::turns::Turn;
use super::waiting::{Link, Links, NIL};
use crate::decision::Open;
use crate::estimate::Mark;
use crate::request::{Request, ServerId, Ticket};
use crate::time::Timestamp;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum State {
    /// It waits in this bucket of its class queue. `is_over`: behind those of tenants within their share.
    Waiting { bucket: usize, is_over: bool },
    /// It is at this server, and somebody waits for its answer.
    InFlight { server: ServerId },
    /// A ghost: since `since` nobody waits for its answer any more, and this server works on. `is_told`: the policy
    /// has heard how it ended.
    Ghost { server: ServerId, is_told: bool, since: Timestamp },
    /// Not work, but still open at this server: see [`Open`].
    Open { server: ServerId, kind: Open },
}

impl State {
    /// The server that works on it.
    pub(crate) fn work_at(self) -> Option<ServerId> {
        match self {
            State::InFlight { server } | State::Ghost { server, .. } => Some(server),
            State::Waiting { .. } | State::Open { .. } => None,
        }
    }

    /// Whether it waits, and its tenant was above its fair share when it came.
    pub(crate) fn is_over_share(self) -> bool {
        matches!(self, State::Waiting { is_over: true, .. })
    }

    /// The server it is at, at work or open.
    pub(crate) fn server(self) -> Option<ServerId> {
        match self {
            State::Waiting { .. } => None,
            State::InFlight { server } | State::Ghost { server, .. } | State::Open { server, .. } => Some(server),
        }
    }
}

/// One request between its arrival and its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) request: Request,
    pub(crate) state: State,
    pub(crate) arrived: Timestamp,
    /// When it was sent to its server.
    pub(crate) started: Timestamp,
    /// When its answer began; [`Timestamp::MAX`]: that is not known.
    pub(crate) first_byte: Timestamp,
    /// The server's mark when it was sent: see [`Capacity::start`](crate::estimate::Capacity::start).
    pub(crate) mark: Mark,
    /// Expected inherent service time when it arrived, seconds.
    pub(crate) cost: f64,
    /// Requests in flight when it was sent to its server, itself included.
    pub(crate) in_flight: u32,
    /// How many of its kind were sent when it was: see [`Below`](crate::below::Below).
    pub(crate) level: u8,
    /// It was refused, but in shadow mode. (Not the refusal itself: a million of these wait at times.)
    pub(crate) shadow: bool,
    /// The driver was told to end it.
    pub(crate) is_cancelled: bool,
    /// Its server does not work on it, as it seems: others overtook it.
    pub(crate) hangs: bool,
}

impl Flight {
    /// Whose turn it waits for.
    pub(crate) fn turn(&self) -> Turn {
        Turn::of(self.state.is_over_share(), self.request.is_retry)
    }
}

/// All of them. Slots are used again; a generation tells an old ticket from a new one.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    slots: Vec<Slot>,
    free: u32,
    len: usize,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    link: Link,
    flight: Option<Flight>,
}

impl Flights {
    pub(crate) fn new() -> Self {
        Flights { slots: Vec::new(), free: NIL, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, flight: Flight) -> Ticket {
        self.len += 1;
        if self.free != NIL {
            let slot = self.free;
            let entry = &mut self.slots[slot as usize];
            self.free = entry.link.next;
            entry.link = Link::default();
            entry.flight = Some(flight);
            return Ticket { slot, generation: entry.generation };
        }
        let slot = self.slots.len() as u32;
        self.slots.push(Slot { generation: 1, link: Link::default(), flight: Some(flight) });
        Ticket { slot, generation: 1 }
    }

    pub(crate) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Flight> {
        let slot = self.slots.get_mut(ticket.slot as usize)?;
        if slot.generation == ticket.generation { slot.flight.as_mut() } else { None }
    }

    /// The request in `slot`.
    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<&mut Flight> {
        self.slots.get_mut(slot as usize)?.flight.as_mut()
    }

    pub(crate) fn get(&self, ticket: Ticket) -> Option<&Flight> {
        let slot = self.slots.get(ticket.slot as usize)?;
        if slot.generation == ticket.generation { slot.flight.as_ref() } else { None }
    }

    /// Takes a request out; its ticket is dead from now on. It must not be linked in a queue any more.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<Flight> {
        self.get(ticket)?;
        let entry = &mut self.slots[ticket.slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.link = Link { prev: NIL, next: self.free };
        self.free = ticket.slot;
        self.len -= 1;
        entry.flight.take()
    }

    pub(crate) fn ticket(&self, slot: u32) -> Ticket {
        Ticket { slot, generation: self.slots[slot as usize].generation }
    }

    /// The request in `slot`.
    pub(crate) fn request(&self, slot: u32) -> Option<Request> {
        self.slots[slot as usize].flight.map(|flight| flight.request)
    }

    /// When the request in `slot` arrived.
    pub(crate) fn arrived(&self, slot: u32) -> Timestamp {
        self.slots[slot as usize].flight.map_or(Timestamp::ZERO, |flight| flight.arrived)
    }

    /// What is in the next `count` slots from `from` on, with its slot; and where to go on.
    pub(crate) fn some(&self, from: usize, count: usize) -> (impl Iterator<Item = (u32, &Flight)>, usize) {
        let end = from.saturating_add(count).min(self.slots.len());
        let slots = self.slots.get(from..end).unwrap_or_default().iter().enumerate();
        let next = if end < self.slots.len() { end } else { 0 };
        (slots.filter_map(move |(at, entry)| Some(((from + at) as u32, entry.flight.as_ref()?))), next)
    }

    /// Every request, with its slot, in the order of slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Flight)> {
        self.slots.iter().enumerate().filter_map(|(slot, entry)| Some((slot as u32, entry.flight.as_ref()?)))
    }

    /// Every request, with its slot, in the order of slots.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Flight)> {
        self.slots.iter_mut().enumerate().filter_map(|(slot, entry)| Some((slot as u32, entry.flight.as_mut()?)))
    }
}

impl Links for Flights {
    fn link(&mut self, slot: u32) -> &mut Link {
        &mut self.slots[slot as usize].link
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight() -> Flight {
        Flight {
            request: Request::default(),
            state: State::Waiting { bucket: 0, is_over: false },
            arrived: Timestamp::ZERO,
            started: Timestamp::ZERO,
            first_byte: Timestamp::MAX,
            mark: Mark::default(),
            cost: 0.0,
            in_flight: 0,
            shadow: false,
            is_cancelled: false,
            hangs: false,
            level: 0,
        }
    }

    #[test]
    fn some_at_a_time_are_all_in_the_end() {
        let mut flights = Flights::new();
        let tickets: Vec<Ticket> = (0..5).map(|_| flights.insert(flight())).collect();
        flights.remove(tickets[2]);
        let mut next = 0;
        let rounds: Vec<Vec<u32>> = (0..4)
            .map(|_| {
                let (some, after) = flights.some(next, 2);
                next = after;
                some.map(|(slot, _)| slot).collect()
            })
            .collect();
        assert_eq!(rounds, [[0, 1].to_vec(), [3].to_vec(), [4].to_vec(), [0, 1].to_vec()]);
        assert_eq!(flights.some(9, 2).0.count(), 0, "beyond the last");
    }

    #[test]
    fn a_dead_ticket_never_names_a_later_request() {
        let mut flights = Flights::new();
        let first = flights.insert(flight());
        assert!(flights.remove(first).is_some());
        let second = flights.insert(flight());
        assert_eq!(first.slot, second.slot, "slots are used again");
        assert!(flights.get(first).is_none());
        assert!(flights.remove(first).is_none());
        assert!(flights.remove(second).is_some());
        assert_eq!(flights.len(), 0);
    }
}
