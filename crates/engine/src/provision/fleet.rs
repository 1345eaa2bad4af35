//! Which server of the pool is where: free, coming, serving, or finishing.
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
use crate::time::Timestamp;

/// A server's whereabouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In the free pool.
    Free,
    /// It was asked for.
    Coming {
        /// By which application.
        application: usize,
        /// When.
        since: Timestamp,
    },
    /// It serves.
    Serving {
        /// Which application.
        application: usize,
        /// Since when; it warms up first.
        since: Timestamp,
    },
    /// It finishes what it has and gets nothing new.
    Draining {
        /// For which application.
        application: usize,
        /// Since when.
        since: Timestamp,
    },
    /// It died or did not come up.
    Failed {
        /// When.
        since: Timestamp,
    },
}

/// What a provider tells of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerNews {
    /// It serves.
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

/// A server that failed is not tried again for so long.
const LEFT_ALONE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(super) struct Fleet {
    pub(super) pool: Pool,
    places: Vec<Place>,
}

impl Fleet {
    /// The first servers serve the first application, and so on: `initial` of each.
    pub(super) fn new(pool: Pool, total: u32, initial: &[u32]) -> Fleet {
        let mut places = Vec::with_capacity(total as usize);
        for (application, count) in initial.iter().enumerate() {
            places.extend((0..*count).map(|_| Place::Serving { application, since: Timestamp::ZERO }));
        }
        places.resize(total as usize, Place::Free);
        Fleet { pool, places }
    }

    /// Whereabouts that were kept; servers that the pool has gained since are free.
    pub(super) fn restore(&mut self, mut places: Vec<Place>) {
        places.resize(self.places.len(), Place::Free);
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

    /// Servers that serve an application now.
    pub(super) fn serving(&self, application: usize) -> u32 {
        self.count(|place| matches!(place, Place::Serving { application: of, .. } if *of == application))
    }

    /// Servers that were asked for and are not there yet.
    pub(super) fn coming(&self, application: usize) -> u32 {
        self.count(|place| matches!(place, Place::Coming { application: of, .. } if *of == application))
    }

    /// Servers that can be had at once.
    pub(super) fn free(&self) -> u32 {
        self.count(|place| *place == Place::Free)
    }

    /// Servers that are not out of order.
    pub(super) fn usable(&self) -> u32 {
        self.count(|place| !matches!(place, Place::Failed { .. }))
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
        let has = self.members(application).count() as u32;
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
        for (server, place) in self.places.iter_mut().enumerate() {
            match *place {
                Place::Coming { since, .. } if now.since(since) > patience => {
                    *place = Place::Failed { since: now };
                    actions.push_back(ProvisionAction::Stop { server });
                    lost.push(server);
                }
                Place::Draining { since, .. } if now.since(since) > self.pool.drain_limit => {
                    *place = Place::Free;
                    actions.push_back(ProvisionAction::Stop { server });
                }
                Place::Failed { since } if now.since(since) > LEFT_ALONE => *place = Place::Free,
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
        let place = self.places.get_mut(server)?;
        match (*place, news) {
            (Place::Coming { application, .. }, ServerNews::Up) => {
                *place = Place::Serving { application, since: now };
                Some(application)
            }
            (Place::Draining { .. }, ServerNews::Drained) => {
                *place = Place::Free;
                actions.push_back(ProvisionAction::Stop { server });
                None
            }
            (
                Place::Coming { application, .. }
                | Place::Serving { application, .. }
                | Place::Draining { application, .. },
                ServerNews::Failed,
            ) => {
                *place = Place::Failed { since: now };
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
        for (server, place) in self.places.iter_mut().enumerate() {
            if more > 0 && matches!(place, Place::Draining { application: of, .. } if *of == application) {
                *place = Place::Serving { application, since: now - self.pool.warm_up };
                actions.push_back(ProvisionAction::Resume { server, application });
                more -= 1;
            }
        }
        for (server, place) in self.places.iter_mut().enumerate() {
            if more > 0 && *place == Place::Free {
                *place = Place::Coming { application, since: now };
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
        for (server, place) in self.places.iter_mut().enumerate().rev() {
            if less > 0 && matches!(place, Place::Coming { application: of, .. } if *of == application) {
                *place = Place::Free;
                actions.push_back(ProvisionAction::Stop { server });
                less -= 1;
            }
        }
        for (server, place) in self.places.iter_mut().enumerate().rev() {
            if less > 0 && matches!(place, Place::Serving { application: of, .. } if *of == application) {
                *place = Place::Draining { application, since: now };
                actions.push_back(ProvisionAction::Drain { server, application });
                less -= 1;
            }
        }
        less < before
    }

    fn count(&self, is: impl Fn(&Place) -> bool) -> u32 {
        self.places.iter().filter(|place| is(place)).count() as u32
    }
}
