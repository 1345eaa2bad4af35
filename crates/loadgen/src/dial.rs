//! Connections to one destination, opened: its addresses, its members, TLS.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::tls::Secure;

/// Which of the members a request goes to.
pub(crate) type Member = Option<SocketAddr>;

/// The way to one destination.
pub(crate) struct Dialer {
    pub(crate) addresses: Vec<SocketAddr>,
    /// Who stands for the destination, where that changes.
    pub(crate) members: Option<watch::Receiver<Vec<SocketAddr>>>,
    /// TLS, below all else.
    pub(crate) secure: Option<Secure>,
    /// How long a connection may take; `None`: as long as the request.
    pub(crate) patience: Option<Duration>,
    pub(crate) turn: Cell<usize>,
    /// Connections opened.
    pub(crate) opened: Cell<u64>,
}

impl Dialer {
    pub(crate) fn new(addresses: Vec<SocketAddr>) -> Dialer {
        Dialer { addresses, members: None, secure: None, patience: None, turn: Cell::new(0), opened: Cell::new(0) }
    }

    /// Whose turn it is.
    pub(crate) fn member(&self) -> Member {
        let members = self.members.as_ref()?.borrow();
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        members.get(turn % members.len().max(1)).copied()
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// What the system says; `TimedOut` when patience is over; `InvalidData` when it is not whom it should be.
    pub(crate) async fn dial(&self, member: Member) -> io::Result<Transport> {
        let connecting = async {
            let stream = match member {
                Some(address) => TcpStream::connect(address).await,
                None => TcpStream::connect(&self.addresses[..]).await,
            }?;
            stream.set_nodelay(true)?;
            match &self.secure {
                Some(secure) => Ok(Transport::Secure(Box::new(secure.shake(stream).await?))),
                None => Ok::<_, io::Error>(Transport::Plain(stream)),
            }
        };
        let transport = match self.patience {
            Some(patience) => timeout(patience, connecting).await??,
            None => connecting.await?,
        };
        self.opened.set(self.opened.get() + 1);
        Ok(transport)
    }
}

/// What bytes go over.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Transport {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Transport::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Transport::Secure(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Transport::Secure(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Transport::Secure(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Secure(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Secure(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Secure(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
