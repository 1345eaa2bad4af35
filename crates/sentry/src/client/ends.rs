//! Where a connection comes from and goes to, as servers are told.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::Client;
use crate::proxy_protocol::out::Ends;

/// The number of an address that clients connect to, from 1; 0: nobody asked. There are few of them, and many idle
/// connections, each of which would need room for its own.
pub(super) type Local = u16;

/// The most addresses that are told apart: beyond them, servers are told of none. Networks can be routed to one
/// machine.
const MOST: usize = 1024;

thread_local! {
    /// The addresses that clients of this worker connected to.
    static LOCALS: RefCell<Vec<SocketAddr>> = const { RefCell::new(Vec::new()) };
}

impl Client {
    /// Who is served.
    pub(crate) fn peer(&self) -> SocketAddr {
        let (address, port) = self.peer.get();
        SocketAddr::new(address.to_canonical(), port)
    }

    /// The other end speaks for somebody else.
    pub(crate) fn speaks_for(&self, source: SocketAddr) {
        self.peer.set(compact(source));
    }

    /// Whether it came by a Unix socket, and nobody said for whom.
    pub(crate) fn is_local(&self) -> bool {
        self.peer.get().0.to_canonical().is_unspecified()
    }

    /// What it connected to.
    pub(crate) fn came_to(&self, address: SocketAddr) {
        let number = LOCALS.with_borrow_mut(|all| {
            let known = all.iter().position(|known| *known == address);
            known.or_else(|| {
                (all.len() < MOST).then(|| {
                    all.push(address);
                    all.len() - 1
                })
            })
        });
        self.local.set(number.and_then(|number| Local::try_from(number + 1).ok()).unwrap_or(0));
    }

    /// Both ends of its connection, where they have addresses and servers are told.
    pub(crate) fn ends(&self) -> Option<Ends> {
        let number = usize::from(self.local.get()).checked_sub(1)?;
        let destination = LOCALS.with_borrow(|all| all.get(number).copied())?;
        (!self.is_local()).then(|| Ends { source: self.peer(), destination })
    }
}

/// An address as it is kept: [`SocketAddr`] is nearly twice as large.
pub(super) fn compact(address: SocketAddr) -> (Ipv6Addr, u16) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    (ip, address.port())
}

#[cfg(test)]
mod tests {
    use tidegate_engine::Timestamp;

    use super::*;

    #[test]
    fn both_ends_are_known_of_who_has_addresses() {
        let client = |peer: &str| Client::new(peer.parse().expect("an address"), Timestamp::ZERO);
        let (a, b): (SocketAddr, SocketAddr) = (([10, 0, 0, 1], 80).into(), ([10, 0, 0, 1], 81).into());
        let (one, other, local) = (client("192.0.2.1:1"), client("192.0.2.1:2"), client("0.0.0.0:0"));
        assert_eq!(one.ends(), None, "nobody asked");
        one.came_to(a);
        other.came_to(b);
        local.came_to(a);
        assert_eq!(one.ends(), Some(Ends { source: one.peer(), destination: a }));
        assert_eq!(other.ends(), Some(Ends { source: other.peer(), destination: b }));
        assert_eq!(local.ends(), None);
        for port in 0..2000 {
            other.came_to(([10, 0, 0, 2], port).into());
        }
        assert_eq!(other.ends(), None, "there are too many");
        one.came_to(b);
        assert_eq!(one.ends().map(|ends| ends.destination), Some(b));
    }
}
