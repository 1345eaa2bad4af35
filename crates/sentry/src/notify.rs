//! Telling systemd how it stands with the process: sd_notify(3).
//!
//! A datagram of lines to the socket that `NOTIFY_SOCKET` names. Where there is none, nobody wants to know. What is not
//! taken is not said again: the service goes on either way.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tracing::debug;

/// Whether somebody wants to know.
pub fn is_wanted() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// The service is ready; after a reload or an upgrade: again.
pub fn ready() {
    say(&format!("READY=1\nMAINPID={}", std::process::id()));
}

/// Something is under way that changes it, `what` in words.
pub fn reloading(what: &str) {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32);
    say(&format!("RELOADING=1\nMONOTONIC_USEC={}\nSTATUS={what}", now.as_micros()));
}

/// It stops.
pub fn stopping() {
    say("STOPPING=1");
}

/// Another process is the service from now on.
pub fn main_is(pid: u32) {
    say(&format!("READY=1\nMAINPID={pid}\nSTATUS=process {pid} has taken over"));
}

/// It is alive. To be said more often than `WATCHDOG_USEC` says.
pub fn alive() {
    say("WATCHDOG=1");
}

/// How often systemd wants to hear that it is alive; `None`: never.
pub fn watchdog() -> Option<Duration> {
    let given: u64 = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    Some(Duration::from_micros(given)).filter(|given| !given.is_zero())
}

fn say(what: &str) {
    if let Err(error) = try_say(what, &[]) {
        debug!(%error, "systemd is not told: {what}");
    }
}

/// Keeps `sockets` in systemd's store, by which they survive the end of this process: as many as the unit has room for.
pub fn store(name: &str, socket: BorrowedFd<'_>) {
    if let Err(error) = try_say(&format!("FDSTORE=1\nFDNAME={name}"), &[socket]) {
        debug!(%error, "systemd does not keep the socket {name}");
    }
}

/// Whether systemd keeps sockets.
pub fn stores() -> bool {
    std::env::var("FDSTORE").is_ok_and(|room| room.parse().is_ok_and(|room: u64| room > 0))
}

fn try_say(what: &str, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let path = path.as_encoded_bytes();
    let address = match path.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::path::Path::new(std::ffi::OsStr::from_bytes(path)))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() {
        with.push(SendAncillaryMessage::ScmRights(sockets));
    }
    sendmsg(&socket, &[io::IoSlice::new(what.as_bytes())], &mut with, SendFlags::NOSIGNAL)?;
    Ok(())
}

use std::os::unix::ffi::OsStrExt;
