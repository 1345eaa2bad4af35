//! Sockets that outlive a process: those that it was given, by its predecessor or by the service manager, and those
//! that it gives on.
//!
//! *Intuition.* A connection waits in the queue of a socket, not of a program. Whoever has the socket next finds it
//! there; when nobody has it any more, the kernel resets what waits. So sockets go from process to process, every
//! worker's own, and none is ever closed on the way.
//!
//! *Applied.* A table by name, `application/address/index`. What is at an address is found by asking the socket itself:
//! names are for people, for service managers, and for addresses whose port the system chooses. *Awkward cases.* With
//! fewer workers than sockets, some serve several: a member of an `SO_REUSEPORT` group that nobody accepts from would
//! let its share of the connections starve. With more workers, the group grows. Sockets that were opened without that
//! option, by a service manager, cannot be joined by others: workers share them.

mod environment;

use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use socket2::{SockRef, Type};
use tracing::warn;

use crate::accept::{adopt, listen};
use crate::config::{Listen, SocketFile};
use crate::listen::{unix, usable};

/// A socket and what it is called.
#[derive(Debug)]
pub struct Named {
    /// Its name: no colons and no control characters, as service managers ask.
    pub name: String,
    /// The socket.
    pub socket: OwnedFd,
}

/// A table of sockets.
#[derive(Debug, Default)]
pub struct Sockets(Vec<Named>);

impl Sockets {
    /// Those of an iterator.
    pub fn new(sockets: impl IntoIterator<Item = Named>) -> Sockets {
        Sockets(sockets.into_iter().collect())
    }

    /// Puts a socket into the table.
    pub fn add(&mut self, name: impl Into<String>, socket: impl Into<OwnedFd>) {
        self.0.push(Named { name: name.into(), socket: socket.into() });
    }

    /// Puts another table's sockets into this one.
    pub fn append(&mut self, mut others: Sockets) {
        self.0.append(&mut others.0);
    }

    /// The sockets, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        self.0.iter().map(|named| (named.name.as_str(), named.socket.as_fd()))
    }

    /// Whether there is one that listens for connections at `address`.
    pub fn has(&self, address: SocketAddr) -> bool {
        self.0.iter().any(|named| bound(named, Type::STREAM) == Some(address))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A table of the same sockets.
    ///
    /// # Errors
    /// When there are no file descriptors left.
    pub fn try_clone(&self) -> io::Result<Sockets> {
        let copy = |named: &Named| Ok(Named { name: named.name.clone(), socket: named.socket.try_clone()? });
        self.0.iter().map(copy).collect::<io::Result<_>>().map(Sockets)
    }

    /// Takes those that have this name.
    pub fn take_named(&mut self, name: &str) -> Vec<OwnedFd> {
        self.take_where(|named| named.name == name)
    }

    /// Takes the sockets of a kind that are bound to `address`. With port 0, those of one port on it whose names begin
    /// with `owner`.
    pub fn take(&mut self, kind: Type, owner: &str, address: SocketAddr) -> Vec<OwnedFd> {
        let of_kind = |named: &Named| bound(named, kind);
        let exact = match address.port() {
            0 => {
                let own = |named: &&Named| named.name.split_once('/').is_some_and(|(first, _)| first == owner);
                let bound = self.0.iter().filter(own).filter_map(of_kind);
                let mut bound = bound.filter(|bound| bound.ip() == address.ip());
                bound.next()
            }
            _ => Some(address),
        };
        self.take_where(|named| exact.is_some() && of_kind(named) == exact)
    }

    /// Takes the Unix sockets that listen at `path`.
    fn take_unix(&mut self, path: &Path) -> Vec<OwnedFd> {
        let is_there = |named: &Named| {
            let socket = SockRef::from(&named.socket);
            let address = socket.local_addr().ok().filter(|_| socket.is_listener().is_ok_and(|listens| listens));
            address.is_some_and(|address| address.as_pathname() == Some(path))
        };
        self.take_where(is_there)
    }

    fn take_where(&mut self, is_wanted: impl Fn(&Named) -> bool) -> Vec<OwnedFd> {
        self.0.extract_if(.., |named| is_wanted(named)).map(|named| named.socket).collect()
    }
}

/// What a worker's listener is called.
pub(crate) fn name(owner: &str, address: impl Display, index: usize) -> String {
    format!("{}/{}/{index}", plain(owner), plain(&address.to_string()))
}

/// A name without what separates names: as [`Sockets::take`] expects it of an owner.
pub(crate) fn plain(name: &str) -> String {
    name.chars().map(|c| if c == ':' || c == '/' || c.is_control() { '.' } else { c }).collect()
}

/// Each worker's sockets at an address: those that were given, dealt in turn, and new ones where there are too few.
/// `owner` is the application whose name they have.
///
/// # Errors
/// What the system says: address in use, not permitted, not ours.
pub(crate) fn listen_all(
    given: &mut Sockets,
    owner: &str,
    at: Listen,
    workers: usize,
) -> io::Result<Vec<Vec<TcpListener>>> {
    let listeners = match at.socket {
        Some(file) => listen_unix(given, file, workers)?,
        None => listen_tcp(given, owner, at.address, workers)?,
    };
    let mut all: Vec<Vec<TcpListener>> = (0..workers).map(|_| Vec::new()).collect();
    for (at, listener) in listeners.into_iter().enumerate() {
        all[at % workers].push(listener);
    }
    Ok(all)
}

/// One for all workers: there is no sharing by address.
fn listen_unix(given: &mut Sockets, file: SocketFile, workers: usize) -> io::Result<Vec<TcpListener>> {
    let given = given.take_unix(file.path()).into_iter().map(TcpListener::from).next();
    let socket = given.map_or_else(|| unix(file), Ok)?;
    socket.set_nonblocking(true)?;
    (0..workers).map(|_| socket.try_clone()).collect()
}

/// At least one for each worker.
fn listen_tcp(given: &mut Sockets, owner: &str, wanted: SocketAddr, workers: usize) -> io::Result<Vec<TcpListener>> {
    let address = usable(wanted);
    if address != wanted {
        warn!("application \"{owner}\": this machine has no IPv6, so {wanted} is every IPv4 address only");
    }
    let given = given.take(Type::STREAM, &plain(owner), address).into_iter();
    let mut listeners = given.map(adopt).collect::<io::Result<Vec<_>>>()?;
    if listeners.is_empty() {
        listeners.push(listen(address)?);
    }
    // The first socket settles the port, where it was left open.
    let exact = listeners[0].local_addr()?;
    let grows = SockRef::from(&listeners[0]).reuse_port()?;
    for at in listeners.len()..workers {
        let more = if grows { listen(exact)? } else { listeners[at % listeners.len()].try_clone()? };
        listeners.push(more);
    }
    Ok(listeners)
}

/// Where a socket of that kind is bound; those for connections only if they listen.
fn bound(named: &Named, kind: Type) -> Option<SocketAddr> {
    let socket = SockRef::from(&named.socket);
    let fits = socket.r#type().ok()? == kind && (kind != Type::STREAM || socket.is_listener().ok()?);
    if fits { socket.local_addr().ok()?.as_socket() } else { None }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::UdpSocket;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const ANY: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

    /// The sockets themselves, whatever numbers their descriptors have.
    fn inodes<'s>(sockets: impl Iterator<Item = BorrowedFd<'s>>) -> Vec<u64> {
        let inode = |socket: BorrowedFd<'_>| {
            let file = std::fs::File::from(socket.try_clone_to_owned().expect("a descriptor"));
            file.metadata().expect("metadata").ino()
        };
        sockets.map(inode).collect()
    }

    /// Where they listen, and a table of them.
    fn table(app: &str, workers: &[Vec<TcpListener>]) -> (SocketAddr, Sockets) {
        let address = workers[0][0].local_addr().expect("an address");
        let mut table = Sockets::default();
        for (worker, own) in workers.iter().enumerate() {
            for socket in own {
                table.add(name(app, address, worker), socket.try_clone().expect("a descriptor"));
            }
        }
        (address, table)
    }

    #[test]
    fn every_socket_is_kept_through_any_number_of_workers() {
        let (mut given, mut before, mut port) = (Sockets::default(), BTreeSet::new(), None);
        for workers in [2, 1, 4, 2] {
            let all = listen_all(&mut given, "shop: a", SocketAddr::from(ANY).into(), workers).expect("it listens");
            assert_eq!(all.len(), workers);
            assert!(all.iter().all(|worker| !worker.is_empty()), "nobody is without a socket");
            assert!(given.is_empty(), "all are taken");
            let (address, table) = table("shop: a", &all);
            let now: BTreeSet<u64> = inodes(table.iter().map(|(_, socket)| socket)).into_iter().collect();
            assert!(before.is_subset(&now), "the same sockets, not others at their address");
            assert_eq!(now.len(), before.len().max(workers));
            assert_eq!(*port.get_or_insert(address), address, "the port stays what it is");
            (given, before) = (table, now);
        }
    }

    #[test]
    fn what_is_elsewhere_or_of_another_kind_stays_in_the_table() {
        let tcp = TcpListener::bind(SocketAddr::from(ANY)).expect("a port");
        let address = tcp.local_addr().expect("an address");
        let mut given = Sockets::default();
        given.add("a/b/0", tcp);
        // Whether the port is free for UDP, too, is chance.
        given.add("reports/b/0", UdpSocket::bind(SocketAddr::from(ANY)).expect("a port"));
        assert!(given.take(Type::DGRAM, "a", address).is_empty());
        assert!(given.take(Type::STREAM, "b", ANY.into()).is_empty(), "another application's");
        assert_eq!(given.take(Type::STREAM, "a", ANY.into()).len(), 1);
        assert_eq!(given.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["reports/b/0"]);
    }

    /// As a socket unit of systemd without `ReusePort=` gives it.
    #[test]
    fn a_socket_that_no_other_may_join_is_shared() {
        let alone = TcpListener::bind(SocketAddr::from(ANY)).expect("a port");
        let address = alone.local_addr().expect("an address");
        let mut given = Sockets::default();
        given.add("tidegate.socket", alone);
        let all = listen_all(&mut given, "shop", address.into(), 3).expect("it listens");
        let inodes = inodes(table("shop", &all).1.iter().map(|(_, socket)| socket));
        assert_eq!((inodes.len(), inodes.iter().collect::<BTreeSet<_>>().len()), (3, 1));
    }
}
