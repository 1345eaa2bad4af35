//! What bytes of a connection go over: a socket, or a TLS session on one. An enum, not a trait object: the plain case
//! stays what it was, and no larger.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::tls::HTTP2;
use crate::tls::session::Tls;

/// A connection's bytes.
#[derive(Debug)]
pub(crate) enum Transport {
    /// As they are.
    Plain(TcpStream),
    /// Sealed.
    Tls(Box<Tls>),
}

impl Transport {
    /// Whether both sides agreed on HTTP/2; `None`: without TLS, a connection's first bytes say it.
    pub(crate) fn agreed_on_http2(&self) -> Option<bool> {
        match self {
            Transport::Plain(_) => None,
            Transport::Tls(tls) => Some(tls.session().alpn_protocol() == Some(HTTP2)),
        }
    }

    /// Until there may be something to read: memory for it need not be there before. Of what is sealed nobody knows.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Transport::Plain(io) => io.poll_read_ready(cx),
            Transport::Tls(_) => Poll::Ready(Ok(())),
        }
    }

    /// It ends before all was sent: the other side is to be able to tell.
    pub(crate) fn cut(&mut self) {
        if let Transport::Tls(tls) = self {
            tls.cut();
        }
    }
}

impl AsyncRead for Transport {
    #[inline]
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Transport::Plain(io) => Pin::new(io).poll_read(cx, to),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_read(cx, to),
        }
    }
}

impl AsyncWrite for Transport {
    #[inline]
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Transport::Plain(io) => Pin::new(io).poll_write(cx, bytes),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Transport::Plain(io) => Pin::new(io).poll_write_vectored(cx, slices),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Plain bytes are out once they are written; sealed ones may still be here.
    #[inline]
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Transport::Plain(_) => Poll::Ready(Ok(())),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Transport::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_shutdown(cx),
        }
    }
}

impl AsRawFd for Transport {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Transport::Plain(io) => io.as_raw_fd(),
            Transport::Tls(tls) => tls.socket().as_raw_fd(),
        }
    }
}
