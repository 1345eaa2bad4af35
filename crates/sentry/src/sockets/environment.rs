//! Sockets that a service manager opened: the contract of systemd's socket activation and file descriptor store,
//! sd_listen_fds(3).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use rustix::io::{FdFlags, fcntl_setfd};

use super::{Named, Sockets};

/// The first descriptor that is passed.
const FIRST: RawFd = 3;

/// More are taken for a mistake.
const MOST: i32 = 10_000;

impl Sockets {
    /// The sockets of `LISTEN_FDS`, with the names of `LISTEN_FDNAMES`; none where `LISTEN_PID` is another process.
    /// To be called once, before anything is opened.
    ///
    /// # Errors
    /// When the variables make no sense.
    pub fn from_environment() -> io::Result<Sockets> {
        let read = |name: &str| std::env::var(name).ok();
        if read("LISTEN_PID").and_then(|pid| pid.parse().ok()) != Some(std::process::id()) {
            return Ok(Sockets::default());
        }
        let count = read("LISTEN_FDS").and_then(|count| count.parse::<i32>().ok()).filter(|n| (0..=MOST).contains(n));
        let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "LISTEN_FDS is not a number of sockets");
        let names = names(&read("LISTEN_FDNAMES").unwrap_or_default(), count.ok_or_else(wrong)?);
        names
            .into_iter()
            .zip(FIRST..)
            .map(|(name, number)| Ok(Named { name, socket: inherit(number)? }))
            .collect::<io::Result<_>>()
            .map(Sockets)
    }
}

/// As many names as there are sockets.
fn names(given: &str, count: i32) -> Vec<String> {
    let given = given.split(':').map(str::to_owned).chain(std::iter::repeat(String::new()));
    given.take(usize::try_from(count).unwrap_or_default()).collect()
}

/// A descriptor that was open when the process began. From now on it is nobody's else, and no child's.
#[expect(unsafe_code, reason = "descriptors come as numbers, and no call makes one's owner of them")]
fn inherit(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the number comes from the contract of LISTEN_FDS, by which the descriptors from 3 on are this process's
    // from its beginning and nobody else's in it; each is taken once. One that is not open is found out below, by a
    // call that the kernel refuses, before anything else is done with it.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    match fcntl_setfd(&socket, FdFlags::CLOEXEC) {
        Ok(()) => Ok(socket),
        Err(error) => {
            // It is not open: there is nothing to close.
            std::mem::forget(socket);
            Err(io::Error::other(format!("LISTEN_FDS names descriptor {number}: {error}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_socket_has_a_name_be_it_empty() {
        assert_eq!(names("a:b", 2), ["a", "b"]);
        assert_eq!(names("a", 3), ["a", "", ""]);
        assert_eq!(names("", 1), [""]);
        assert!(names("a:b", 0).is_empty());
    }
}
