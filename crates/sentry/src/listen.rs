//! Sockets to listen on that are no plain TCP socket of one address: every address of both families, and Unix sockets.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use socket2::{Domain, SockAddr, Socket, Type};

use crate::accept::BACKLOG;
use crate::config::SocketFile;

/// The address to listen on instead of `[::]` where this machine has no IPv6: every IPv4 address. Any other as it is.
pub fn usable(address: SocketAddr) -> SocketAddr {
    let is_any = address.ip() == Ipv6Addr::UNSPECIFIED;
    if is_any && !has_ipv6() { SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())) } else { address }
}

/// Whether something can be bound to `[::]`.
fn has_ipv6() -> bool {
    std::net::UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok()
}

/// Opens a Unix socket, in place of one that nobody listens at any more. Its permissions are set before anybody can
/// connect.
///
/// # Errors
/// When somebody listens there, or what is there is no socket; else what the system says.
pub(crate) fn unix(file: SocketFile) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    let address = SockAddr::unix(file.path())?;
    match socket.bind(&address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_over(file.path())? => {
            std::fs::remove_file(file.path())?;
            socket.bind(&address)?;
        }
        bound => bound?,
    }
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(file.mode))?;
    socket.listen(BACKLOG)?;
    // It is accepted from, and cloned, as any other stream socket.
    Ok(TcpListener::from(OwnedFd::from(socket)))
}

/// Whether a file is a socket at which nobody listens.
fn is_left_over(path: &Path) -> io::Result<bool> {
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        let what = "a file is there that is no socket; remove it, or listen elsewhere";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    Ok(UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_is_left_over_is_replaced_and_nothing_else() {
        let path = std::env::temp_dir().join(format!("tidegate-listen-{}.sock", std::process::id()));
        let file = SocketFile::new(&path, 0o600);
        let first = unix(file).expect("a socket");
        let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(unix(file).expect_err("it is in use").kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(path.exists(), "it stays behind");
        drop(unix(file).expect("in its place"));
        std::fs::remove_file(&path).expect("removes");
        std::fs::write(&path, "precious").expect("writes");
        assert_eq!(unix(file).expect_err("no socket").kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "precious");
        std::fs::remove_file(&path).expect("removes");
    }

    #[test]
    fn only_every_address_may_change_its_family() {
        for address in ["127.0.0.1:80", "0.0.0.0:80", "[::1]:80"] {
            let address = address.parse().expect("an address");
            assert_eq!(usable(address), address);
        }
        let any = usable("[::]:80".parse().expect("an address"));
        assert!(any.ip().is_unspecified() && any.port() == 80 && any.is_ipv6() == has_ipv6());
    }
}
