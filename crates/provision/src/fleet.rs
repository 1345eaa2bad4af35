//! States of the pool's servers: free, coming, serving, or finishing.
//!
//! *Intuition.* Policies wish for numbers of servers; this turns numbers into servers. Wanted again, a server that
//! still drains goes back to work at once, for that costs nothing; then come free ones. Not wanted any more, those that
//! do not serve yet are sent home first.
//!
//! *Awkward cases.* A server that dies, or does not come up, is left alone for a while and another one started. One
//! that does not get rid of its last requests is stopped after a while.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::ProvisionAction;
use tidegate_engine::Timestamp;

/// State of a server of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In the free pool.
    Free,
    /// It was asked for.
    Coming {
        /// Index of the application that asked for it.
        application: usize,
        /// Time at which this state began.
        since: Timestamp,
    },
    /// The server takes requests.
    Serving {
        /// Index of the application that it serves.
        application: usize,
        /// Since when; it warms up first.
        since: Timestamp,
    },
    /// It finishes what it has and gets nothing new.
    Draining {
        /// Index of the application that it served.
        application: usize,
        /// Time at which this state began.
        since: Timestamp,
    },
    /// It died or did not come up.
    Failed {
        /// Time at which this state began.
        since: Timestamp,
    },
}

/// What a provider tells of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerNews {
    /// The server takes requests now.
    Up,
    /// It has nothing in flight any more.
    Drained,
    /// It died, or could not be started.
    Failed,
}

/// What is the same for all servers of the pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pool {
    /// From being asked for until it serves.
    pub setup_time: Duration,
    /// After that it is slower for so long.
    pub warm_up: Duration,
    /// How fast it is meanwhile; 1 is normal.
    pub warm_up_speed: f64,
    /// A server that drains is stopped after so long, whatever it still has.
    pub drain_limit: Duration,
}

impl Default for Pool {
    fn default() -> Self {
        Pool {
            setup_time: Duration::ZERO,
            warm_up: Duration::ZERO,
            warm_up_speed: 1.0,
            drain_limit: Duration::from_secs(60),
        }
    }
}

/// A server that failed is not tried again for so long, where nothing else is said.
const LEFT_ALONE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(super) struct Fleet {
    pub(super) pool: Pool,
    left_alone: Duration,
    places: Vec<Place>,
    /// Counted at every change: news of one server must not mean to look at all of them for each application.
    tally: Tally,
}

/// How many servers are where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tally {
    /// Number of serving servers of each application.
    serving: Vec<u32>,
    /// Number of coming servers of each application.
    coming: Vec<u32>,
    free: u32,
    failed: u32,
}

impl Tally {
    fn of(applications: usize, places: &[Place]) -> Tally {
        let none = alloc::vec![0; applications];
        let mut tally = Tally { serving: none.clone(), coming: none, free: 0, failed: 0 };
        for place in places {
            if let Some(count) = tally.of_place(place) {
                *count += 1;
            }
        }
        tally
    }

    /// The number that a place counts in; what drains counts nowhere.
    fn of_place(&mut self, place: &Place) -> Option<&mut u32> {
        match place {
            Place::Free => Some(&mut self.free),
            Place::Failed { .. } => Some(&mut self.failed),
            Place::Coming { application, .. } => self.coming.get_mut(*application),
            Place::Serving { application, .. } => self.serving.get_mut(*application),
            Place::Draining { .. } => None,
        }
    }
}

impl Fleet {
    /// The first servers serve the first application, and so on: `initial` of each.
    pub(super) fn new(pool: Pool, total: u32, initial: &[u32]) -> Fleet {
        let mut places = Vec::with_capacity(total as usize);
        for (application, count) in initial.iter().enumerate() {
            places.extend((0..*count).map(|_| Place::Serving { application, since: Timestamp::ZERO }));
        }
        places.resize(total as usize, Place::Free);
        Fleet { pool, left_alone: LEFT_ALONE, tally: Tally::of(initial.len(), &places), places }
    }

    /// What failed is not tried again for so long.
    pub(super) fn leaving_alone(self, left_alone: Duration) -> Fleet {
        Fleet { left_alone, ..self }
    }

    /// Whereabouts that were kept; servers that the pool has gained since are free.
    pub(super) fn restore(&mut self, mut places: Vec<Place>) {
        places.resize(self.places.len(), Place::Free);
        self.tally = Tally::of(self.tally.serving.len(), &places);
        self.places = places;
    }

    /// Servers that serve an application, or will.
    pub(super) fn members(&self, application: usize) -> impl Iterator<Item = usize> + '_ {
        let is = move |place: &Place| match place {
            Place::Coming { application: of, .. } | Place::Serving { application: of, .. } => *of == application,
            _ => false,
        };
        self.places.iter().enumerate().filter(move |(_, place)| is(place)).map(|(server, _)| server)
    }

    /// How many those are.
    pub(super) fn has(&self, application: usize) -> u32 {
        self.serving(application) + self.coming(application)
    }

    /// Servers that serve an application now.
    pub(super) fn serving(&self, application: usize) -> u32 {
        self.tally.serving.get(application).copied().unwrap_or(0)
    }

    /// Servers that were asked for and are not there yet.
    pub(super) fn coming(&self, application: usize) -> u32 {
        self.tally.coming.get(application).copied().unwrap_or(0)
    }

    /// Servers that can be had at once.
    pub(super) fn free(&self) -> u32 {
        self.tally.free
    }

    /// Servers that are not out of order.
    pub(super) fn usable(&self) -> u32 {
        self.places.len() as u32 - self.tally.failed
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    /// When the capacity that was asked for will be there: instants, and full servers' worth that they add.
    pub(super) fn arriving(&self, now: Timestamp, application: usize) -> Vec<(Timestamp, f64)> {
        let speed = self.pool.warm_up_speed;
        let mut list = Vec::new();
        for place in &self.places {
            let up = match *place {
                Place::Coming { application: of, since } if of == application => since + self.pool.setup_time,
                Place::Serving { application: of, since } if of == application => since,
                _ => continue,
            };
            let warm = up + self.pool.warm_up;
            if up > now {
                list.push((up, if self.pool.warm_up.is_zero() { 1.0 } else { speed }));
            }
            if warm > now && !self.pool.warm_up.is_zero() {
                list.push((warm, 1.0 - speed));
            }
        }
        list.sort_by_key(|(at, _)| *at);
        list
    }

    /// Brings an application to `wanted` servers as far as there are free ones. Returns whether its members changed.
    pub(super) fn settle(
        &mut self,
        now: Timestamp,
        application: usize,
        wanted: u32,
        actions: &mut VecDeque<ProvisionAction>,
    ) -> bool {
        let has = self.has(application);
        if has < wanted {
            self.grow(now, application, wanted - has, actions)
        } else {
            self.shrink(now, application, has - wanted, actions)
        }
    }

    /// Time has passed: what did not come is given up, what drains too long is stopped. Returns servers given up.
    pub(super) fn expire(&mut self, now: Timestamp, actions: &mut VecDeque<ProvisionAction>) -> Vec<usize> {
        let patience = self.pool.setup_time * 3 + Duration::from_secs(30);
        let mut lost = Vec::new();
        for server in 0..self.places.len() {
            match self.places[server] {
                Place::Coming { since, .. } if now.since(since) > patience => {
                    self.put(server, Place::Failed { since: now });
                    actions.push_back(ProvisionAction::Stop { server });
                    lost.push(server);
                }
                Place::Draining { since, .. } if now.since(since) > self.pool.drain_limit => {
                    self.put(server, Place::Free);
                    actions.push_back(ProvisionAction::Stop { server });
                }
                Place::Failed { since } if now.since(since) > self.left_alone => self.put(server, Place::Free),
                _ => {}
            }
        }
        lost
    }

    /// A provider's news. Returns the application whose members changed by it; news that fit nothing are ignored.
    pub(super) fn hear(
        &mut self,
        now: Timestamp,
        server: usize,
        news: ServerNews,
        actions: &mut VecDeque<ProvisionAction>,
    ) -> Option<usize> {
        match (*self.places.get(server)?, news) {
            (Place::Coming { application, .. }, ServerNews::Up) => {
                self.put(server, Place::Serving { application, since: now });
                Some(application)
            }
            (Place::Draining { .. }, ServerNews::Drained) => {
                self.put(server, Place::Free);
                actions.push_back(ProvisionAction::Stop { server });
                None
            }
            (
                Place::Coming { application, .. }
                | Place::Serving { application, .. }
                | Place::Draining { application, .. },
                ServerNews::Failed,
            ) => {
                self.put(server, Place::Failed { since: now });
                Some(application)
            }
            _ => None,
        }
    }

    fn grow(
        &mut self,
        now: Timestamp,
        application: usize,
        mut more: u32,
        actions: &mut VecDeque<ProvisionAction>,
    ) -> bool {
        let before = more;
        for server in 0..self.places.len() {
            let drains = matches!(self.places[server], Place::Draining { application: of, .. } if of == application);
            if more > 0 && drains {
                self.put(server, Place::Serving { application, since: now - self.pool.warm_up });
                actions.push_back(ProvisionAction::Resume { server, application });
                more -= 1;
            }
        }
        for server in 0..self.places.len() {
            if more > 0 && self.places[server] == Place::Free {
                self.put(server, Place::Coming { application, since: now });
                actions.push_back(ProvisionAction::Start { server, application });
                more -= 1;
            }
        }
        more < before
    }

    fn shrink(
        &mut self,
        now: Timestamp,
        application: usize,
        mut less: u32,
        actions: &mut VecDeque<ProvisionAction>,
    ) -> bool {
        let before = less;
        if less == 0 {
            return false;
        }
        for server in (0..self.places.len()).rev() {
            let comes = matches!(self.places[server], Place::Coming { application: of, .. } if of == application);
            if less > 0 && comes {
                self.put(server, Place::Free);
                actions.push_back(ProvisionAction::Stop { server });
                less -= 1;
            }
        }
        for server in (0..self.places.len()).rev() {
            let serves = matches!(self.places[server], Place::Serving { application: of, .. } if of == application);
            if less > 0 && serves {
                self.put(server, Place::Draining { application, since: now });
                actions.push_back(ProvisionAction::Drain { server, application });
                less -= 1;
            }
        }
        less < before
    }

    fn put(&mut self, server: usize, place: Place) {
        let before = core::mem::replace(&mut self.places[server], place);
        if let Some(count) = self.tally.of_place(&before) {
            *count -= 1;
        }
        if let Some(count) = self.tally.of_place(&place) {
            *count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_tally_is_what_a_count_gives(
            turns in prop::collection::vec((0u64..50, 0usize..9, 0usize..3, 0u32..6, 0usize..4), 0..120),
        ) {
            let pool = Pool { setup_time: Duration::from_secs(5), ..Pool::default() };
            let mut fleet = Fleet::new(pool, 8, &[2, 1, 0]);
            let (mut now, mut actions) = (Timestamp::ZERO, VecDeque::new());
            for (seconds, server, application, wanted, what) in turns {
                now = now + Duration::from_secs(seconds);
                let news = [ServerNews::Up, ServerNews::Failed, ServerNews::Drained];
                match news.get(what) {
                    Some(news) => _ = fleet.hear(now, server, *news, &mut actions),
                    None => _ = fleet.settle(now, application, wanted, &mut actions),
                }
                drop(fleet.expire(now, &mut actions));
                prop_assert_eq!(&fleet.tally, &Tally::of(3, fleet.places()));
                prop_assert_eq!(fleet.has(application), fleet.members(application).count() as u32);
                let mut kept = fleet.clone();
                kept.restore(fleet.places().to_vec());
                prop_assert_eq!(&kept.tally, &fleet.tally);
            }
        }
    }
}
