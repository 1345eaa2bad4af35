//! Servers in the order of their queues, kept up to date.
//!
//! *Intuition.* Children lined up by height, with a mark on the floor where each height begins. Who grows by one
//! changes places with the last of the same height, and the mark behind moves one step; who shrinks, with the first.
//! Queues change by one request at a time, so every change is one exchange, however many servers there are.

use alloc::vec::Vec;

use crate::fleet::ServerState;
use crate::rng::Rng;

/// Servers by requests in flight.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// Ids, the shortest queue first.
    order: Vec<u16>,
    /// By id: where it stands in `order`; [`ABSENT`] when it is not in this pool.
    place: Vec<u32>,
    /// By id: its requests in flight.
    length: Vec<u32>,
    /// `start[n]`: the first in `order` with `n` or more in flight.
    start: Vec<u32>,
}

const ABSENT: u32 = u32::MAX;

impl Pool {
    /// The pool of the servers for which `belongs` holds.
    pub(super) fn new(servers: &[ServerState], belongs: impl Fn(&ServerState) -> bool) -> Pool {
        let mut members: Vec<&ServerState> = servers.iter().filter(|server| belongs(server)).collect();
        members.sort_by_key(|server| server.in_flight);
        let mut pool = Pool {
            order: members.iter().map(|server| server.id.0).collect(),
            place: alloc::vec![ABSENT; servers.len()],
            length: servers.iter().map(|server| server.in_flight).collect(),
            start: Vec::new(),
        };
        for (at, server) in members.iter().enumerate() {
            pool.place[server.id.index()] = at as u32;
            while pool.start.len() <= server.in_flight as usize {
                pool.start.push(at as u32);
            }
        }
        pool
    }

    /// A server's queue is another now.
    pub(super) fn set(&mut self, id: usize, in_flight: u32) {
        if self.place.get(id).is_none_or(|place| *place == ABSENT) {
            return;
        }
        while self.length[id] < in_flight {
            self.grow(id);
        }
        while self.length[id] > in_flight {
            self.shrink(id);
        }
    }

    /// A server with the shortest queue, each as likely, of those that are `usable`; `None` when all have `limit` in
    /// flight or more, or none is usable.
    pub(super) fn shortest(&self, limit: u32, rng: &mut Rng, usable: impl Fn(usize) -> bool) -> Option<usize> {
        let least = self.length_at(0).filter(|least| *least < limit)?;
        let ties = self.start_of(least + 1);
        let drawn = if ties > 1 { rng.below(ties as usize) } else { 0 };
        let drawn = usize::from(self.order[drawn]);
        if usable(drawn) {
            return Some(drawn);
        }
        // Rare: it is at its connection limit, or just failed this request.
        let below = self.order.iter().map(|id| usize::from(*id)).take_while(|id| self.length[*id] < limit);
        below.into_iter().find(|id| usable(*id))
    }

    /// How many servers there are.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// The shortest queue.
    pub(super) fn least(&self) -> Option<u32> {
        self.length_at(0)
    }

    fn length_at(&self, place: usize) -> Option<u32> {
        self.order.get(place).map(|id| self.length[usize::from(*id)])
    }

    fn start_of(&self, length: u32) -> u32 {
        self.start.get(length as usize).copied().unwrap_or(self.order.len() as u32)
    }

    fn grow(&mut self, id: usize) {
        let above = self.length[id] as usize + 1;
        while self.start.len() <= above {
            self.start.push(self.order.len() as u32);
        }
        self.start[above] -= 1;
        self.exchange(id, self.start[above]);
        self.length[id] += 1;
    }

    fn shrink(&mut self, id: usize) {
        let own = self.length[id] as usize;
        self.exchange(id, self.start[own]);
        self.start[own] += 1;
        self.length[id] -= 1;
    }

    /// The server changes places with whoever stands at `place`.
    fn exchange(&mut self, id: usize, place: u32) {
        let from = self.place[id];
        let other = usize::from(self.order[place as usize]);
        self.order.swap(from as usize, place as usize);
        self.place[other] = from;
        self.place[id] = place;
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

    use super::*;
    use crate::fleet::new_server;
    use crate::setup::ServerSetup;

    fn servers(lengths: &[u32]) -> Vec<ServerState> {
        let server = |(at, in_flight): (usize, &u32)| ServerState {
            in_flight: *in_flight,
            ..new_server(at, &ServerSetup::new(format!("s{at}")))
        };
        lengths.iter().enumerate().map(server).collect()
    }

    proptest! {
        /// Against a scan, after any changes, of any count, with servers that are not in the pool.
        #[test]
        fn the_shortest_is_found(
            mut lengths in prop::collection::vec(0u32..5, 1..40),
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0u32..7), 1..150),
            limit in 1u32..8,
            except in 0usize..40,
        ) {
            let member = |id: usize| !id.is_multiple_of(4);
            let mut pool = Pool::new(&servers(&lengths), |server| member(server.id.index()));
            let mut rng = Rng::new(1);
            for (which, length) in changes {
                let id = which.index(lengths.len());
                lengths[id] = length;
                pool.set(id, length);
                let usable = |id: &usize| member(*id) && *id != except;
                let least = (0..lengths.len()).filter(usable).map(|id| lengths[id]).min().filter(|least| *least < limit);
                let found = pool.shortest(limit, &mut rng, |id| id != except);
                prop_assert_eq!(found.map(|id| lengths[id]), least);
                prop_assert!(found.is_none_or(|id| usable(&id)));
            }
        }
    }

    #[test]
    fn equal_queues_are_drawn_equally_often() {
        let pool = Pool::new(&servers(&[2, 1, 1, 3, 1]), |_| true);
        let (mut rng, mut counts) = (Rng::new(7), [0u32; 5]);
        (0..3000).for_each(|_| counts[pool.shortest(9, &mut rng, |_| true).expect("there are some")] += 1);
        assert_eq!((counts[0], counts[3]), (0, 0));
        assert!([1, 2, 4].iter().all(|id| counts[*id].abs_diff(1000) < 120), "{counts:?}");
    }
}
