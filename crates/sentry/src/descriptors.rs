//! How the process's file descriptors are divided: some for everything else, and of the others half for clients and
//! half for servers.
//!
//! A request takes one of each half, so clients cannot take what their requests need on the way to a server. Neither
//! half can take what is kept for health checks, the admin API, the access log, reports and the control plane.
//!
//! Of the clients' half each application has an equal part of one half, which the others cannot take. The rest is
//! common: whoever comes first has it, so that one of a thousand applications may have thousands of connections while
//! the others have few.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_engine::Timestamp;
use tracing::{info, warn};

use crate::app::App;

/// Descriptors that neither clients nor servers take, beside those of listeners; a quarter of all, where that is less.
const RESERVED: u64 = 256;

/// With descriptors for fewer connections than this, somebody should do something.
const FEW: u64 = 1024;

/// What was taken in common is counted anew no sooner than this after the last time.
const RECOUNT: Duration = Duration::from_millis(10);

/// The connections of clients that there are descriptors for.
#[derive(Debug)]
pub(crate) struct Places {
    /// Each application's own.
    own: u64,
    common: u64,
    /// Of these, as many are free as of the last count, less those taken since.
    free: AtomicU64,
    /// When the next count may be, nanoseconds.
    next: AtomicU64,
    apps: OnceLock<Vec<Weak<App>>>,
}

impl Places {
    /// For so many applications and listening sockets. Raises the process's limit first, as far as the system lets it.
    pub(crate) fn raised(applications: usize, listeners: usize) -> Self {
        Self::new(raised(), applications as u64, listeners as u64)
    }

    /// For one application that may have any number.
    pub(crate) fn any() -> Self {
        Self::new(u64::MAX, 1, 0)
    }

    fn new(all: u64, applications: u64, listeners: u64) -> Self {
        let reserved = (all / 4).min(RESERVED) + listeners.min(all / 2);
        let clients = (all - reserved) / 2;
        let own = match applications {
            0 | 1 => clients,
            _ => clients / 2 / applications,
        };
        let own = own.max(1);
        let common = clients.saturating_sub(own.saturating_mul(applications));
        Places { own, common, free: AtomicU64::new(0), next: AtomicU64::new(0), apps: OnceLock::new() }
    }

    /// These are the applications.
    pub(crate) fn belong_to(&self, apps: &[Arc<App>]) {
        let _only_once = self.apps.set(apps.iter().map(Arc::downgrade).collect());
    }

    /// Whether an application that has so many connections may have one more; it is taken to have it then.
    pub(crate) fn has_one(&self, open: u64, now: Timestamp) -> bool {
        open < self.own || (self.common > 0 && (self.take() || (self.recount(now) && self.take())))
    }

    fn take(&self) -> bool {
        self.free.fetch_update(Relaxed, Relaxed, |free| free.checked_sub(1)).is_ok()
    }

    /// Looks how many are free, if that was not looked just now. Connections end without a word to this.
    fn recount(&self, now: Timestamp) -> bool {
        let next = self.next.load(Relaxed);
        let then = (now + RECOUNT).as_nanos();
        if now.as_nanos() < next || self.next.compare_exchange(next, then, Relaxed, Relaxed).is_err() {
            return false;
        }
        let apps = self.apps.get().into_iter().flatten().filter_map(Weak::upgrade);
        let taken: u64 = apps.map(|app| app.counters.connections_open().saturating_sub(self.own)).sum();
        self.free.store(self.common.saturating_sub(taken), Relaxed);
        true
    }

    /// The most that one may have.
    fn most(&self) -> u64 {
        self.own.saturating_add(self.common)
    }
}

/// The limit on descriptors, as high as it may be.
fn raised() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // Where it is not permitted, what is there is what is divided.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Says where there are fewer descriptors than an application may have connections.
pub(crate) fn say(apps: &[Arc<App>], places: &Places) {
    let limit = apps.iter().map(|app| app.live().config.limits.connections as u64).max().unwrap_or(0);
    let (connections, each_at_least) = (places.most(), places.own);
    if connections >= limit {
        return;
    }
    // What is divided is a half for each.
    let needed = limit.saturating_mul(if apps.len() > 1 { 4 } else { 2 }).saturating_add(RESERVED);
    if connections < FEW {
        warn!(
            limit,
            connections, each_at_least, needed, "there are few descriptors: raise the limit (LimitNOFILE=, ulimit -Hn)"
        );
    } else {
        info!(limit, connections, each_at_least, needed, "there are descriptors for fewer connections");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_enough_for_their_servers_and_for_everything_else() {
        for (all, applications, listeners) in
            [(64, 1, 1), (1024, 1, 2), (1024, 3, 3), (20_000, 1001, 1001), (262_144, 2, 2), (u64::MAX, 1, 0)]
        {
            let places = Places::new(all, applications, listeners);
            let clients = places.own * applications + places.common;
            assert!(places.own >= 1 && all - 2 * clients >= (all / 4).min(RESERVED) + listeners, "{places:?} of {all}");
        }
        assert_eq!((Places::new(1024, 1, 0).own, Places::new(1024, 1, 0).common), (384, 0));
        assert_eq!(Places::new(0, 3, 3).own, 1);
        let many = Places::new(20_000, 1001, 1001);
        assert_eq!((many.own, many.common), (4, 5367), "one of a thousand may have thousands");
    }

    #[test]
    fn beyond_its_own_an_application_takes_what_is_common_until_there_is_none() {
        let places = Places::new(1024, 2, 0);
        assert_eq!((places.own, places.common), (96, 192));
        let now = Timestamp::from_millis(100);
        assert!((0..96).all(|open| places.has_one(open, now)));
        let more = (96..400).take_while(|open| places.has_one(*open, now)).count();
        assert_eq!(more, 192);
        assert!(places.has_one(0, now), "the other has its own still");
        assert!(!places.has_one(96, now), "it was counted just now");
        // Nobody has any connection.
        assert!(places.has_one(96, now + RECOUNT), "they are gone");
    }
}
