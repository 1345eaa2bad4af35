//! Opening a connection to a server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use tidegate_engine::Timestamp;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};

use super::http1::Conn;
use super::multiplexed::Multiplexed;
use super::pool::Pool;
use super::{Line, Own, ServerConn};
use crate::client::Client;
use crate::config::ProxyOut;
use crate::in_force::{Endpoint, Server};
use crate::proxy_protocol::out::{self, Ends};
use crate::tls::Facts;
use crate::transport::Transport;

/// Between two tries to get into the queue of a Unix socket.
const QUEUE_FULL: Duration = Duration::from_millis(5);

/// This end of a connection that has no address of its own.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Opens a connection to the pool's server, for this client.
///
/// # Errors
/// `TimedOut` when it took longer than `timeout`; otherwise what the system said.
pub(crate) async fn connect(pool: &Rc<Pool>, client: &Client, timeout: Duration) -> io::Result<Box<ServerConn>> {
    let ends = ends(&pool.server, client);
    #[cfg(any(test, feature = "fuzzing"))]
    if let Some(io) = crate::fuzz::dial() {
        return Ok(begin(pool, Transport::Plain(io?), SocketAddr::from(([127, 0, 0, 1], 1)), ends));
    }
    let head = out::header(pool.server.proxy, ends, client.facts().and_then(Facts::host));
    let opened = tokio::time::timeout(timeout, open(&pool.server, &head)).await;
    let (io, local) = opened.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok(begin(pool, io, local, ends))
}

/// Opens a connection of HTTP/2 to the pool's server.
///
/// # Errors
/// Likewise.
pub(crate) async fn connect_shared(pool: &Pool, timeout: Duration) -> io::Result<Rc<Multiplexed>> {
    let opened = tokio::time::timeout(timeout, async {
        // It is for many clients.
        let head = out::header(pool.server.proxy, None, None);
        let (io, _) = open(&pool.server, &head).await?;
        Multiplexed::begin(io, pool.server.tls.is_some(), &pool.shared).await
    });
    opened.await.map_err(|_| io::ErrorKind::TimedOut)?
}

/// HTTP/1.1 begins on a socket.
fn begin(pool: &Rc<Pool>, io: Transport, local: SocketAddr, ends: Option<Ends>) -> Box<ServerConn> {
    pool.server.ledger.open(local);
    let own = Own { conn: Conn::new(io), reused: false, idle_since: Timestamp::ZERO, local, ends };
    Box::new(ServerConn { line: Line::Own(own), home: Some(pool.clone()) })
}

/// Whether it is this machine that lacks something: descriptors, ports, memory. That says nothing about a server.
pub(crate) fn is_local(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL, Errno::AGAIN];
    error.raw_os_error().is_some_and(|code| lacks.iter().any(|errno| errno.raw_os_error() == code))
}

/// Whether the process, or the system, has no descriptor left.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let code = error.raw_os_error();
    code == Some(Errno::MFILE.raw_os_error()) || code == Some(Errno::NFILE.raw_os_error())
}

/// For whom a connection to a server is, where that is said.
pub(super) fn ends(server: &Server, client: &Client) -> Option<Ends> {
    if server.proxy == ProxyOut::Off { None } else { client.ends() }
}

/// Opens a connection to a server, which begins with `head`, then a handshake where it speaks TLS; and this end's
/// address.
///
/// # Errors
/// `InvalidData` when it is not the server that its address names; otherwise what the system said.
pub(crate) async fn open(server: &Server, head: &[u8]) -> io::Result<(Transport, SocketAddr)> {
    let socket = dial(server, head).await?;
    let local = match &server.endpoint {
        Some(Endpoint::Unix(_)) => NOWHERE,
        _ => socket.local_addr()?,
    };
    match &server.tls {
        None => Ok((Transport::Plain(socket), local)),
        Some(Ok(tls)) => Ok((Transport::Tls(tls.shake(socket).await?), local)),
        Some(Err(problem)) => Err(io::Error::new(io::ErrorKind::InvalidData, problem.clone())),
    }
}

/// Opens a socket to a server, and writes `head`.
///
/// # Errors
/// What the system said.
pub(crate) async fn dial(server: &Server, head: &[u8]) -> io::Result<TcpStream> {
    let mut socket = dial_bare(server).await?;
    if !head.is_empty() {
        socket.write_all(head).await?;
    }
    Ok(socket)
}

async fn dial_bare(server: &Server) -> io::Result<TcpStream> {
    match &server.endpoint {
        Some(Endpoint::Tcp(address)) => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        }
        Some(Endpoint::Unix(path)) => dial_here(path).await,
        None => Err(io::Error::new(io::ErrorKind::NotFound, "the server's address makes no sense")),
    }
}

/// Opens a Unix socket. The rest of the way it is a stream like any other: nothing but this asks for its kind.
async fn dial_here(path: &Path) -> io::Result<TcpStream> {
    loop {
        match UnixStream::connect(path).await {
            // Its queue is full. Over TCP the kernel would try again by itself.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(QUEUE_FULL).await,
            Err(error) => return Err(error),
            Ok(stream) => {
                let socket = std::os::fd::OwnedFd::from(stream.into_std()?);
                return TcpStream::from_std(socket.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_machine_lacks_is_not_the_server_s() {
        let of = |errno: rustix::io::Errno| is_local(&io::Error::from(errno));
        assert!(of(rustix::io::Errno::MFILE) && of(rustix::io::Errno::ADDRNOTAVAIL));
        assert!(!of(rustix::io::Errno::CONNREFUSED) && !of(rustix::io::Errno::TIMEDOUT));
        assert!(!is_local(&io::ErrorKind::NotFound.into()));
    }
}
