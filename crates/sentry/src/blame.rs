//! When requests without an answer, or answers that are errors, take a server out.
//!
//! *Intuition.* A server that answers nobody, or everybody with an error, is broken, whatever its health check says;
//! and one that errs quickly draws requests, because it is always free. *Awkward cases.* One client can ask for what
//! breaks the connection on any server, or is an error everywhere, such as an address at which the application closes
//! without a word. So failures count only from several clients and for several addresses (a refused connection counts
//! always: no client can cause it), at most a share of the servers is out for this reason, and one that comes back to
//! fail again stays out for longer each time. Errors may be the application's, on all of its servers alike: they take a
//! server out only while its siblings answer well. *Source.* Envoy's outlier detection.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_engine::{Timestamp, UrlKey};

/// The longest that a server stays out is this power of two times the shortest.
const LONGEST: u32 = 6;

/// What is held against one server.
#[derive(Debug, Default)]
pub(crate) struct Blame {
    unanswered: Streak,
    errors: Streak,
    sentence: Mutex<Sentence>,
}

/// Failures in a row, and who says so.
#[derive(Debug, Default)]
struct Streak {
    count: AtomicU32,
    evidence: Mutex<Evidence>,
}

#[derive(Debug, Default)]
struct Evidence {
    first: Option<(IpAddr, UrlKey)>,
    several_clients: bool,
    several_urls: bool,
}

/// How often it was taken out, and until when it is.
#[derive(Debug, Default)]
struct Sentence {
    ejections: u32,
    until: Timestamp,
}

/// Who says that a server failed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Witness {
    /// The server refused the connection.
    Server,
    /// A request got no answer.
    Request {
        /// Who asked.
        client: IpAddr,
        /// It speaks for many: a proxy in front.
        is_proxy: bool,
        /// For what.
        url: UrlKey,
    },
}

impl Blame {
    /// A request was answered, somehow.
    pub(crate) fn answered(&self) {
        self.unanswered.end();
    }

    /// A request was answered, and not with an error of the server.
    pub(crate) fn answered_well(&self) {
        self.errors.end();
    }

    /// It is in again, and nothing is held against it.
    pub(crate) fn forgive(&self) {
        self.unanswered.end();
        self.errors.end();
    }

    /// A request got no answer; how many that makes in a row, as far as that counts against the server.
    pub(crate) fn failed(&self, witness: Witness) -> u32 {
        self.unanswered.go_on(witness)
    }

    /// A request was answered with an error of the server; how many that makes in a row, as far as that counts.
    pub(crate) fn erred(&self, witness: Witness) -> u32 {
        self.errors.go_on(witness)
    }

    /// Whether its last answer was an error.
    pub(crate) fn errs(&self) -> bool {
        self.errors.count.load(Relaxed) > 0
    }

    /// The server is taken out at `now`, for `shortest` the first time.
    pub(crate) fn eject(&self, now: Timestamp, shortest: Duration) {
        let mut sentence = lock(&self.sentence);
        sentence.until = now + shortest * (1 << sentence.ejections.min(LONGEST));
        sentence.ejections = sentence.ejections.saturating_add(1);
    }

    /// Whether good checks bring it back.
    pub(crate) fn may_return(&self, now: Timestamp) -> bool {
        now >= lock(&self.sentence).until
    }

    /// It was well for a while.
    pub(crate) fn calm(&self) {
        let mut sentence = lock(&self.sentence);
        sentence.ejections = sentence.ejections.saturating_sub(1);
    }
}

impl Streak {
    fn end(&self) {
        // Reading first keeps the line shared among workers while all is well.
        if self.count.load(Relaxed) != 0 {
            self.count.store(0, Relaxed);
            *lock(&self.evidence) = Evidence::default();
        }
    }

    fn go_on(&self, witness: Witness) -> u32 {
        let count = self.count.fetch_add(1, Relaxed).saturating_add(1);
        let Witness::Request { client, is_proxy, url } = witness else { return count };
        let client = network(client);
        let mut evidence = lock(&self.evidence);
        let (first_client, first_url) = *evidence.first.get_or_insert((client, url));
        evidence.several_clients |= is_proxy || first_client != client;
        evidence.several_urls |= first_url != url;
        if evidence.several_clients && evidence.several_urls { count } else { 0 }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Addresses that one client can have at will are one client.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(client: &str, url: u64) -> Witness {
        Witness::Request { client: client.parse().expect("an address"), is_proxy: false, url: UrlKey(url) }
    }

    #[test]
    fn one_client_or_one_address_blames_nobody() {
        let blame = Blame::default();
        for url in 0..100 {
            assert_eq!(blame.failed(request("192.0.2.1", url)), 0, "one client");
        }
        blame.answered();
        for host in 0..100 {
            assert_eq!(blame.failed(request(&format!("192.0.2.{host}"), 1)), 0, "one address");
        }
        blame.answered();
        assert_eq!(blame.failed(request("2001:db8::1", 1)), 0);
        assert_eq!(blame.failed(request("2001:db8::2", 2)), 0, "one client with many addresses");
        assert_eq!(blame.failed(request("2001:db9::1", 2)), 3);
        assert_eq!(Blame::default().failed(Witness::Server), 1, "nobody can forge that");
    }

    #[test]
    fn who_fails_again_stays_out_for_longer() {
        let blame = Blame::default();
        let (start, second) = (Timestamp::ZERO, Duration::from_secs(1));
        assert!(blame.may_return(start));
        let mut longest = Duration::ZERO;
        for times in [1, 2, 4, 8, 16, 32, 64, 64] {
            blame.eject(start, second);
            longest = second * times;
            assert!(!blame.may_return(start + longest - Duration::from_millis(1)) && blame.may_return(start + longest));
        }
        (0..8).for_each(|_| blame.calm());
        blame.eject(start, second);
        assert!(blame.may_return(start + second), "after a calm while, {longest:?} are forgotten");
    }
}
