//! Addresses for programs that cannot be asked which port they took.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// An address on 127.0.0.1 at which nobody listens now, and which this process was not given before.
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
    let begin = (std::process::id() % 750) as u16 * 16;
    for _ in 0..PORTS / count.max(1) {
        let at = begin.wrapping_add(TAKEN.fetch_add(count, Ordering::Relaxed)) % PORTS;
        let mut ports = FROM + at..FROM + at + count;
        if at + count <= PORTS && ports.clone().all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()) {
            return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, ports.next().unwrap_or(FROM))));
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, format!("no {count} ports in a row are free on 127.0.0.1")))
}

const FROM: u16 = 20_000;
const PORTS: u16 = 12_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, for a second one beside it would bring the counter round.
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

        let kept = TcpListener::bind(free_address().unwrap()).unwrap();
        let taken = kept.local_addr().unwrap();
        assert!((0..PORTS).all(|_| free_address().unwrap() != taken), "somebody listens at {taken}");
        assert!(free_addresses(PORTS + 1).is_err());
    }
}
