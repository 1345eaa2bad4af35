//! What was seen of servers, for a while.

use alloc::vec::Vec;
use core::time::Duration;

use crate::request::ServerId;
use crate::time::Timestamp;

/// A look at a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Look {
    pub(super) server: ServerId,
    /// What it had in flight, and what was sent there by this look.
    pub(super) in_flight: u32,
    /// How long it takes with as much.
    pub(super) seconds: f64,
    pub(super) at: Timestamp,
    /// How often it was used.
    pub(super) uses: u32,
}

/// The looks that are kept, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Pool {
    looks: Vec<Look>,
    most: usize,
    /// How often one may be used.
    uses: u32,
    /// What was in flight at the latest that were looked at.
    seen: Vec<u32>,
    next: usize,
    /// The worst goes next, and not the oldest.
    worst: bool,
}

/// An older look is worth nothing.
const AGE: Duration = Duration::from_secs(1);
/// Fewer looks than this decide nothing.
const LEAST: usize = 2;
/// The quantile is of so many looks.
const SEEN: usize = 128;
/// Looks that go with each request besides those that are used up; and by how much faster than they are used they
/// come, the source's delta.
const REMOVED: f64 = 1.0;
const DELTA: f64 = 1.0;

impl Pool {
    /// There are so many servers.
    pub(super) fn fit(&mut self, pool: usize, servers: usize, probes: f64) {
        self.most = pool.min((servers / 2).max(LEAST));
        let new = (1.0 - self.most as f64 / servers.max(1) as f64) * probes - REMOVED;
        // Where no more come than go, as often as there is need.
        self.uses = if new > 0.0 { ((1.0 + DELTA) / new).max(1.0) as u32 } else { u32::MAX };
    }

    /// Drops what is too old, and servers that take nothing.
    pub(super) fn drop_stale(&mut self, now: Timestamp, takes: impl Fn(ServerId) -> bool) {
        self.looks.retain(|look| now.since(look.at) <= AGE && takes(look.server));
    }

    /// The server for a request, by the looks that there are; `None`: there are too few.
    pub(super) fn take(&mut self, hot: f64) -> Option<ServerId> {
        if self.looks.len() < LEAST {
            return None;
        }
        let hot = self.threshold(hot);
        let best = (0..self.looks.len()).min_by(|&a, &b| rank(&self.looks[a], &self.looks[b], hot))?;
        let look = &mut self.looks[best];
        look.in_flight += 1;
        look.uses += 1;
        let server = look.server;
        if look.uses >= self.uses {
            self.looks.remove(best);
        }
        Some(server)
    }

    /// One goes: in turn the oldest and the worst.
    pub(super) fn drop_one(&mut self) {
        self.worst = !self.worst;
        let hot = self.threshold(1.0);
        let worst = (0..self.looks.len()).max_by(|&a, &b| rank(&self.looks[a], &self.looks[b], hot));
        let Some(worst) = worst else { return };
        self.looks.remove(if self.worst { worst } else { 0 });
    }

    /// Takes the place of the last look at this server, or of the oldest where there are enough.
    pub(super) fn add(&mut self, look: Look) {
        self.looks.retain(|other| other.server != look.server);
        if self.looks.len() >= self.most {
            self.looks.remove(0);
        }
        self.looks.push(look);
        match self.seen.get_mut(self.next) {
            Some(seen) => *seen = look.in_flight,
            None => self.seen.push(look.in_flight),
        }
        self.next = (self.next + 1) % SEEN;
    }

    /// The quantile of what was in flight.
    fn threshold(&self, quantile: f64) -> u32 {
        let mut seen = [0; SEEN];
        let seen = &mut seen[..self.seen.len()];
        seen.copy_from_slice(&self.seen);
        let last = seen.len().saturating_sub(1);
        if seen.is_empty() { 0 } else { *seen.select_nth_unstable((quantile * last as f64) as usize).1 }
    }
}

/// Which of two is better: those that are not hot before those that are, the faster of the former, and of the latter
/// the one with less in flight.
fn rank(a: &Look, b: &Look, hot: u32) -> core::cmp::Ordering {
    let is_hot = |look: &Look| look.in_flight > hot;
    is_hot(a).cmp(&is_hot(b)).then_with(|| match is_hot(a) {
        true => a.in_flight.cmp(&b.in_flight),
        false => a.seconds.total_cmp(&b.seconds).then(a.in_flight.cmp(&b.in_flight)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(server: u16, in_flight: u32, seconds: f64, at: u64) -> Look {
        Look { server: ServerId(server), in_flight, seconds, at: Timestamp::from_millis(at), uses: 0 }
    }

    fn pool(looks: &[Look]) -> Pool {
        let mut pool = Pool::default();
        pool.fit(16, 100, 3.0);
        looks.iter().for_each(|&look| pool.add(look));
        pool
    }

    #[test]
    fn the_fastest_that_is_not_hot_goes_first_and_of_the_hot_the_emptiest() {
        let looks = [look(1, 2, 0.3, 0), look(2, 3, 0.2, 0), look(3, 9, 0.1, 0)];
        assert_eq!(pool(&looks).take(0.5), Some(ServerId(2)));
        assert_eq!(pool(&looks).take(1.0), Some(ServerId(3)), "none is hot");
        let mut all_hot = pool(&looks);
        all_hot.seen = alloc::vec![0];
        assert_eq!(all_hot.take(1.0), Some(ServerId(1)));
        assert_eq!(pool(&looks[..1]).take(0.5), None, "one look decides nothing");
    }

    #[test]
    fn a_look_is_used_up_grows_old_and_gives_way_to_the_next() {
        let mut used = pool(&[look(1, 0, 0.1, 0), look(2, 0, 0.2, 0)]);
        assert_eq!(used.uses, 1, "16 of 100 servers, three looks each: 2 / (0.84 * 3 - 1)");
        assert_eq!(used.take(1.0), Some(ServerId(1)));
        assert_eq!(used.looks.len(), 1);

        let mut old = pool(&[look(1, 0, 0.1, 0), look(2, 0, 0.2, 900)]);
        old.drop_stale(Timestamp::from_millis(1100), |_| true);
        assert_eq!(old.looks, [look(2, 0, 0.2, 900)]);
        old.drop_stale(Timestamp::from_millis(1100), |_| false);
        assert!(old.looks.is_empty());

        let mut again = pool(&[look(1, 0, 0.1, 0), look(2, 0, 0.2, 0), look(1, 5, 0.3, 1)]);
        assert_eq!(again.looks.len(), 2, "one for each server");
        again.drop_one();
        assert_eq!(again.looks, [look(2, 0, 0.2, 0)], "the worst");
        again.drop_one();
        assert!(again.looks.is_empty(), "the oldest");

        let mut few = pool(&[]);
        few.fit(16, 4, 3.0);
        assert_eq!((few.most, few.uses), (2, 4));
    }
}
