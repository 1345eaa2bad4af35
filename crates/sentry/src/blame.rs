//! When requests without an answer take a server out.
//!
//! *Intuition.* A server that answers nobody is broken, whatever its health check says. *Awkward cases.* One client can
//! ask for what breaks the connection on any server, such as an address at which the application closes without a word.
//! So failures count only from several clients and for several addresses (a refused connection counts always: no client
//! can cause it), at most a share of the servers is out for this reason, and one that comes back to fail again stays
//! out for longer each time. *Source.* Envoy's outlier detection.

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
    /// Failures in a row.
    count: AtomicU32,
    evidence: Mutex<Evidence>,
}

#[derive(Debug, Default)]
struct Evidence {
    first: Option<(IpAddr, UrlKey)>,
    several_clients: bool,
    several_urls: bool,
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
    /// A request was answered.
    pub(crate) fn succeeded(&self) {
        // Reading first keeps the line shared among workers while all is well.
        if self.count.load(Relaxed) != 0 {
            self.count.store(0, Relaxed);
            let mut evidence = self.evidence();
            *evidence = Evidence { ejections: evidence.ejections, until: evidence.until, ..Evidence::default() };
        }
    }

    /// A request got no answer; how many that makes in a row, as far as that counts against the server.
    pub(crate) fn failed(&self, witness: Witness) -> u32 {
        let count = self.count.fetch_add(1, Relaxed).saturating_add(1);
        let Witness::Request { client, is_proxy, url } = witness else { return count };
        let client = network(client);
        let mut evidence = self.evidence();
        let (first_client, first_url) = *evidence.first.get_or_insert((client, url));
        evidence.several_clients |= is_proxy || first_client != client;
        evidence.several_urls |= first_url != url;
        if evidence.several_clients && evidence.several_urls { count } else { 0 }
    }

    /// The server is taken out at `now`, for `shortest` the first time.
    pub(crate) fn eject(&self, now: Timestamp, shortest: Duration) {
        let mut evidence = self.evidence();
        evidence.until = now + shortest * (1 << evidence.ejections.min(LONGEST));
        evidence.ejections = evidence.ejections.saturating_add(1);
    }

    /// Whether good checks bring it back.
    pub(crate) fn may_return(&self, now: Timestamp) -> bool {
        now >= self.evidence().until
    }

    /// It was well for a while.
    pub(crate) fn calm(&self) {
        let mut evidence = self.evidence();
        evidence.ejections = evidence.ejections.saturating_sub(1);
    }

    fn evidence(&self) -> MutexGuard<'_, Evidence> {
        self.evidence.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        blame.succeeded();
        for host in 0..100 {
            assert_eq!(blame.failed(request(&format!("192.0.2.{host}"), 1)), 0, "one address");
        }
        blame.succeeded();
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
