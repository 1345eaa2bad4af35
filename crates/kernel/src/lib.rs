//! New connections policed in the kernel, before their handshakes.
//!
//! A [`SynPolicer`] is a table of nftables of its own: token buckets by source prefix for the SYNs of one service. It
//! touches nothing else on the machine. `nft` installs it once, in one transaction; what happens every second (another
//! rate, another lease, the counters) goes over netlink in some microseconds (`netlink.rs`).
//!
//! # A rule without a controller
//!
//! A rule that drops connections must not outlive whoever knows why. So the rules match only while an element is in
//! the set `alive`, which expires after [`LEASE`] unless [`SynPolicer::renew`] puts it there again: killed, stopped
//! or hung, the policer ends by itself. The table has its owner's process and start time in a chain's name, so that
//! the next start removes what is left of a dead one, and leaves alone what a living one owns.
//!
//! # Why no library
//!
//! `nftables` and `nft` cost 16 ms for a change, more than a policer may at its rate. `nlink` does it in 20 us but
//! takes three minutes to build and follows one author; `rustables` and `nftnl` have no limit expression. Replacing
//! one rule takes the few messages here. eBPF (XDP) would keep buckets through a change of rate; but it needs a
//! compiler or a binary in the tree, native drivers to be cheaper, and is not taken by every interface. A dead band
//! keeps changes rare instead ([`SynPolicer::set_rate`]).

#![deny(clippy::print_stderr, clippy::print_stdout)]
#![deny(unsafe_code)]

pub mod helper;
mod netlink;
mod owner;
mod police;
mod policer;
pub mod privilege;
mod rules;
mod wire;

pub use helper::{Helper, PoliceError};
pub use owner::Owner;
pub use police::Police;
pub use policer::{InstallError, LEASE, SynPolicer};
pub use rules::{Counts, Plan, SourceClass};

use std::net::TcpListener;
use std::os::fd::AsRawFd;

/// Connections that wait to be accepted at this listener, and the most that may (TCP_INFO; half a microsecond).
///
/// # Errors
/// What the system says.
pub fn listen_queue(listener: &TcpListener) -> std::io::Result<(u32, u32)> {
    listen_queue_of(listener.as_raw_fd())
}

/// The same by descriptor, which must be open; one that is not, or no listener, is an error.
///
/// # Errors
/// What the system says.
#[expect(unsafe_code, reason = "`TCP_INFO` has no safe form")]
pub fn listen_queue_of(descriptor: std::os::fd::RawFd) -> std::io::Result<(u32, u32)> {
    // SAFETY: all zeros are a valid `tcp_info`, which is plain numbers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, whose size that is.
    let result = unsafe {
        libc::getsockopt(descriptor, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut length)
    };
    match result {
        0 => Ok((info.tcpi_unacked, info.tcpi_sacked)),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::time::{Duration, Instant};

    #[test]
    fn a_listener_tells_who_waits() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        assert_eq!(listen_queue(&listener).expect("it is open").0, 0);
        let clients: Vec<_> = (0..3).map(|_| TcpStream::connect(address).expect("a connection")).collect();
        // A client has its connection a moment before the listener has.
        let deadline = Instant::now() + Duration::from_secs(30);
        while listen_queue(&listener).expect("it is open").0 < 3 {
            assert!(Instant::now() < deadline, "the clients do not wait");
            std::thread::yield_now();
        }
        let (waiting, most) = listen_queue(&listener).expect("it is open");
        assert_eq!((waiting, most >= 3), (3, true));
        drop(clients);
        assert!(listen_queue_of(-1).is_err());
    }
}
