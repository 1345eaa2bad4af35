//! Servers that break the protocol, each in one known way, for tests of whoever talks to servers.
//!
//! Raw TCP, so that nothing repairs what they do wrong. Each listens on a free loopback port, counts what it saw, and
//! ends when its handle is dropped.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// What a fault server does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Connections are refused: the port is taken, but nobody listens.
    Refuse,
    /// Connections are accepted and never read from.
    HangOnAccept,
    /// Requests are read and never answered.
    HangOnRequest,
    /// The connection is closed when a request has been read.
    CloseBeforeResponse,
    /// The connection is reset when a request has been read.
    ResetBeforeResponse,
    /// A body of `announced` bytes is promised; after `sent` of them the connection is reset.
    ResetMidBody {
        /// The `Content-Length`, bytes.
        announced: usize,
        /// Bytes of body really sent.
        sent: usize,
    },
    /// A body of `announced` bytes is promised; after `sent` of them the connection is closed in good order.
    CloseMidBody {
        /// The `Content-Length`, bytes.
        announced: usize,
        /// Bytes of body really sent.
        sent: usize,
    },
    /// The answer is not HTTP.
    Garbage,
    /// A chunked body whose second chunk has a size that is no number.
    BadChunkSize,
    /// A chunked body that ends without its last chunk.
    CutChunks,
    /// A correct answer whose body of `bytes` comes in pieces of `piece` bytes, `every` so often.
    SlowBody {
        /// Size of the body, bytes.
        bytes: usize,
        /// Size of one piece, bytes.
        piece: usize,
        /// Time before each piece.
        every: Duration,
    },
    /// `count` interim answers (103 Early Hints), then a correct one.
    Interim {
        /// How many of them.
        count: usize,
    },
    /// A body longer than its `Content-Length`.
    ExtraBody {
        /// The `Content-Length`, bytes.
        announced: usize,
        /// Bytes of body really sent.
        sent: usize,
    },
}

/// A running fault server. Dropping it ends it and breaks its connections.
#[derive(Debug)]
pub struct FaultServer {
    address: SocketAddr,
    seen: Arc<Seen>,
    task: Option<AbortHandle>,
    /// Holds a port on which nobody listens.
    _reserved: Option<Socket>,
}

#[derive(Debug, Default)]
struct Seen {
    connections: AtomicU64,
    requests: AtomicU64,
}

impl FaultServer {
    /// Starts a server with this fault on the current tokio runtime.
    ///
    /// # Errors
    /// When no loopback port can be had.
    pub async fn start(fault: Fault) -> io::Result<FaultServer> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let seen = Arc::new(Seen::default());
        if fault == Fault::Refuse {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.bind(&any.into())?;
            let address = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
            return Ok(FaultServer { address, seen, task: None, _reserved: Some(socket) });
        }
        let listener = TcpListener::bind(any).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(accept(listener, fault, Arc::clone(&seen))).abort_handle();
        Ok(FaultServer { address, seen, task: Some(task), _reserved: None })
    }

    /// Where it listens, or does not.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path on it, which begins with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Connections accepted until now.
    pub fn connections(&self) -> u64 {
        self.seen.connections.load(Ordering::Relaxed)
    }

    /// Request heads read until now.
    pub fn requests(&self) -> u64 {
        self.seen.requests.load(Ordering::Relaxed)
    }

    /// Ends it and breaks its connections.
    pub fn stop(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Drop for FaultServer {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn accept(listener: TcpListener, fault: Fault, seen: Arc<Seen>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        seen.connections.fetch_add(1, Ordering::Relaxed);
        connections.spawn(connection(stream, fault, Arc::clone(&seen)));
    }
}

/// Serves one connection until the fault or the client ends it; what it dies of does not matter.
async fn connection(mut stream: TcpStream, fault: Fault, seen: Arc<Seen>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    if fault == Fault::HangOnAccept {
        std::future::pending::<()>().await;
    }
    let mut buffer = Vec::new();
    while read_head(&mut stream, &mut buffer).await? {
        seen.requests.fetch_add(1, Ordering::Relaxed);
        if !misbehave(&mut stream, fault).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads to the end of a request head, leaving what follows it in `buffer`; false when the client has closed.
async fn read_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            buffer.drain(..at + 4);
            return Ok(true);
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(false);
        }
    }
}

/// Answers one request wrongly; whether the connection can go on.
async fn misbehave(stream: &mut TcpStream, fault: Fault) -> io::Result<bool> {
    match fault {
        Fault::Refuse | Fault::HangOnAccept | Fault::HangOnRequest => std::future::pending().await,
        Fault::CloseBeforeResponse => Ok(false),
        Fault::ResetBeforeResponse => reset(stream),
        Fault::ResetMidBody { announced, sent } => {
            send(stream, announced, sent).await?;
            reset(stream)
        }
        Fault::CloseMidBody { announced, sent } => send(stream, announced, sent).await.and(Ok(false)),
        Fault::Garbage => stream.write_all(b"\x00\x01\x02 this is no HTTP \xff\xfe\r\n\r\n").await.and(Ok(false)),
        Fault::BadChunkSize => send_chunks(stream, "5\r\nhello\r\nxyz\r\nworld\r\n0\r\n\r\n").await,
        Fault::CutChunks => send_chunks(stream, "5\r\nhello\r\n").await,
        Fault::SlowBody { bytes, piece, every } => send_slowly(stream, bytes, piece.max(1), every).await.and(Ok(true)),
        Fault::Interim { count } => {
            for _ in 0..count {
                stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n").await?;
            }
            send(stream, 2, 2).await.and(Ok(true))
        }
        Fault::ExtraBody { announced, sent } => send(stream, announced, sent).await.and(Ok(true)),
    }
}

async fn send(stream: &mut TcpStream, announced: usize, sent: usize) -> io::Result<()> {
    let mut message = head(announced);
    message.resize(message.len() + sent, b'x');
    stream.write_all(&message).await
}

async fn send_slowly(stream: &mut TcpStream, bytes: usize, piece: usize, every: Duration) -> io::Result<()> {
    stream.write_all(&head(bytes)).await?;
    let mut left = bytes;
    while left > 0 {
        tokio::time::sleep(every).await;
        let now = left.min(piece);
        stream.write_all(&vec![b'x'; now]).await?;
        left -= now;
    }
    Ok(())
}

async fn send_chunks(stream: &mut TcpStream, chunks: &str) -> io::Result<bool> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
    stream.write_all(chunks.as_bytes()).await.and(Ok(false))
}

fn head(length: usize) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n").into_bytes()
}

/// Makes the close that follows a reset.
fn reset(stream: &TcpStream) -> io::Result<bool> {
    SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
    Ok(false)
}
