//! Opening a connection to a server.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use hyper::client::conn::http1;
use tidegate_engine::Timestamp;
use tokio::net::{TcpStream, lookup_host};

use super::answers::Answers;
use super::multiplexed::Multiplexed;
use super::pool::Pool;
use super::{Line, Own, ServerConn, ServerIo, Watching};
use crate::in_force::Server;
use crate::transport::Transport;

/// Bytes that are read ahead of an answer, its head included.
const BUFFER: usize = 64 * 1024;

/// Opens a connection to the pool's server.
///
/// # Errors
/// `TimedOut` when it took longer than `timeout`; otherwise what the system said.
pub(crate) async fn connect(pool: &Rc<Pool>, timeout: Duration) -> io::Result<Box<ServerConn>> {
    #[cfg(any(test, feature = "fuzzing"))]
    if let Some(io) = crate::fuzz::dial() {
        return begin(pool, Transport::Plain(io?), SocketAddr::from(([127, 0, 0, 1], 1))).await;
    }
    let opened = tokio::time::timeout(timeout, open(&pool.server)).await;
    let (io, local) = opened.map_err(|_| io::ErrorKind::TimedOut)??;
    begin(pool, io, local).await
}

/// Opens a connection of HTTP/2 to the pool's server.
///
/// # Errors
/// Likewise.
pub(crate) async fn connect_shared(pool: &Pool, timeout: Duration) -> io::Result<Rc<Multiplexed>> {
    let opened = tokio::time::timeout(timeout, async {
        let (io, _) = open(&pool.server).await?;
        Multiplexed::begin(io, pool.server.tls.is_some()).await
    });
    opened.await.map_err(|_| io::ErrorKind::TimedOut)?
}

/// hyper takes a socket over.
async fn begin(pool: &Rc<Pool>, io: Transport, local: SocketAddr) -> io::Result<Box<ServerConn>> {
    pool.server.ledger.open(local);
    let answers = Rc::new(Answers::default());
    let io = ServerIo { socket: io, watching: Watching::Answers(answers.clone()) };
    let handshake = http1::Builder::new().max_buf_size(BUFFER).handshake(io).await;
    let (sender, connection) = handshake.map_err(io::Error::other)?;
    let idle_since = Timestamp::ZERO;
    let own = Own { sender, connection, answers, over: false, reused: false, idle_since, local };
    Ok(Box::new(ServerConn { line: Line::Own(own), home: Some(pool.clone()) }))
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

/// Opens a connection to a server, with a handshake where it speaks TLS; and this end's address.
///
/// # Errors
/// `InvalidData` when it is not the server that its address names; otherwise what the system said.
pub(crate) async fn open(server: &Server) -> io::Result<(Transport, SocketAddr)> {
    let socket = dial(server).await?;
    let local = socket.local_addr()?;
    match &server.tls {
        None => Ok((Transport::Plain(socket), local)),
        Some(Ok(tls)) => Ok((Transport::Tls(tls.shake(socket).await?), local)),
        Some(Err(problem)) => Err(io::Error::new(io::ErrorKind::InvalidData, problem.clone())),
    }
}

/// Opens a socket to a server, trying each of its addresses.
async fn dial(server: &Server) -> io::Result<TcpStream> {
    let stream = match server.numeric {
        Some(address) => TcpStream::connect(address).await?,
        None => {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the server's name has no address");
            let mut open = None;
            for address in lookup_host(&server.at).await? {
                match TcpStream::connect(address).await {
                    Ok(stream) => {
                        open = Some(stream);
                        break;
                    }
                    Err(error) => last = error,
                }
            }
            open.ok_or(last)?
        }
    };
    stream.set_nodelay(true)?;
    Ok(stream)
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
