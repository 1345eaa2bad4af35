//! Ports that no two tests get, though none of them listens there yet.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, PoisonError};

/// Takes a port until this process ends; `false`: it is taken already. Whoever wants a port takes it first and then
/// looks whether somebody listens there. What is really taken is the name of a socket, which ends with its process.
pub fn take(port: u16) -> bool {
    static TAKEN: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());
    let name = SocketAddr::from_abstract_name(format!("tidegate-test-port-{port}")).expect("a short name");
    let taken = UnixDatagram::bind_addr(&name);
    taken.map(|socket| TAKEN.lock().unwrap_or_else(PoisonError::into_inner).push(socket)).is_ok()
}
