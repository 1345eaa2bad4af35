//! Addresses for programs that cannot be asked which port they took.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as Name, UnixDatagram};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

/// An address on 127.0.0.1 at which nobody listens now, and which was given neither to this process before nor to
/// another one that still runs.
///
/// # Errors
/// When there is none.
pub fn free_address() -> io::Result<SocketAddr> {
    free_addresses(1)
}

/// The first of so many such addresses, at ports in a row.
///
/// # Errors
/// When there are none.
pub fn free_addresses(count: u16) -> io::Result<SocketAddr> {
    // Below the ports that the system gives away: whoever asks it for any port could otherwise get this one before its
    // program is there. Each process begins elsewhere.
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    static RESERVED: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());
    let begin = (std::process::id() % 750) as u16 * 16;
    for _ in 0..PORTS / count.max(1) {
        let at = begin.wrapping_add(TAKEN.fetch_add(count, Ordering::Relaxed)) % PORTS;
        if at + count > PORTS {
            continue;
        }
        let first = FROM + at;
        if let Ok(reservations) = (first..first + count).map(reserve).collect::<io::Result<Vec<_>>>() {
            RESERVED.lock().unwrap_or_else(PoisonError::into_inner).extend(reservations);
            return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, first)));
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, format!("no {count} ports in a row are free on 127.0.0.1")))
}

/// Keeps a port at which nobody listens from other processes that ask here: by a name that the system lets one socket
/// have, in the network in which the port is, and takes back when its process ends.
fn reserve(port: u16) -> io::Result<UnixDatagram> {
    let reservation = UnixDatagram::bind_addr(&Name::from_abstract_name(format!("tidegate-port-{port}"))?)?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map(|_| reservation)
}

const FROM: u16 = 20_000;
const PORTS: u16 = 12_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_nobodys_and_below_those_that_the_system_gives_away() {
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        let given_away = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768);
        let row = free_addresses(40).unwrap().port();
        let mut ports: Vec<u16> = (row..row + 40).chain((0..50).map(|_| free_address().unwrap().port())).collect();
        assert!(ports.iter().all(|port| *port < given_away), "{ports:?}");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 90, "none twice: {ports:?}");
        assert!(ports.iter().all(|port| reserve(*port).is_err()), "no other process is given one: {ports:?}");
        assert!(free_addresses(PORTS + 1).is_err());
    }

    #[test]
    fn where_somebody_listens_no_port_is_free() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert_eq!(reserve(port).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
