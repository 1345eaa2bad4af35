//! A TLS session over a socket: rustls with the I/O done by hand, so that the gate reads plain text and knows when all
//! that it wrote is out.

use std::io::{self, BufRead, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::Connection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::budget::Usage;

/// Plain text that is sealed ahead of a socket that takes no more, bytes.
const SEALED_AHEAD: usize = 32 * 1024;

/// A session and its socket.
#[derive(Debug)]
pub(crate) struct Tls {
    io: TcpStream,
    session: Connection,
    /// It ends without a farewell: what was sent is not all that there was to send.
    is_cut: bool,
    said_farewell: bool,
}

impl Tls {
    pub(crate) fn new(io: TcpStream, mut session: Connection) -> Box<Self> {
        session.set_buffer_limit(Some(SEALED_AHEAD));
        Box::new(Tls { io, session, is_cut: false, said_farewell: false })
    }

    /// Until both sides have agreed.
    pub(crate) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(cx))?;
            if !self.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_receive(cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    pub(crate) fn session(&self) -> &Connection {
        &self.session
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.io
    }

    /// The other side is not to take what it got for all.
    pub(crate) fn cut(&mut self) {
        self.is_cut = true;
    }

    /// Reads what the socket has, once: how many bytes.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut socket = Socket { io: &mut self.io, cx };
        let read = match self.session.read_tls(&mut socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            read => read?,
        };
        self.process(cx)?;
        Poll::Ready(Ok(read))
    }

    /// Makes something of what was read. An alert about it goes out if the socket takes it at once, or with
    /// [`Tls::poll_send`].
    fn process(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let processed = self.session.process_new_packets();
        if self.session.wants_write() {
            let sent = self.poll_send(cx);
            if processed.is_ok()
                && let Poll::Ready(sent) = sent
            {
                sent?;
            }
        }
        processed.map(drop).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Sends what is sealed, and alerts.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            let mut socket = Socket { io: &mut self.io, cx };
            match self.session.write_tls(&mut socket) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Tls {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match this.session.reader().fill_buf() {
                Ok(plain) => {
                    let n = plain.len().min(to.remaining());
                    to.put_slice(&plain[..n]);
                    this.session.reader().consume(n);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Clients often leave without a farewell; their requests say themselves where they end. A server's
                // answer may not.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    let is_client_s = matches!(this.session, Connection::Server(_));
                    return Poll::Ready(if is_client_s { Ok(()) } else { Err(error) });
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
            ready!(this.poll_receive(cx))?;
        }
    }
}

impl AsyncWrite for Tls {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // What was sealed before goes first: a socket that takes nothing is then seen here, as with plain ones.
        ready!(self.poll_send(cx))?;
        let n = self.session.writer().write(bytes)?;
        if let Poll::Ready(sent) = self.poll_send(cx) {
            sent?;
        }
        Poll::Ready(Ok(n))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx))?;
        let n = self.session.writer().write_vectored(slices)?;
        if let Poll::Ready(sent) = self.poll_send(cx) {
            sent?;
        }
        Poll::Ready(Ok(n))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_cut {
            if !std::mem::replace(&mut self.said_farewell, true) {
                self.session.send_close_notify();
            }
            ready!(self.poll_send(cx))?;
        }
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// A socket as rustls wants one: what is not ready would block, and the task is woken when it is.
struct Socket<'a, 'c, 'w> {
    io: &'a mut TcpStream,
    cx: &'c mut Context<'w>,
}

impl Read for Socket<'_, '_, '_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut to = ReadBuf::new(to);
        match Pin::new(&mut *self.io).poll_read(self.cx, &mut to) {
            Poll::Ready(read) => read.map(|()| to.filled().len()),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for Socket<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        would_block(Pin::new(&mut *self.io).poll_write(self.cx, bytes))
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        would_block(Pin::new(&mut *self.io).poll_write_vectored(self.cx, slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn would_block(polled: Poll<io::Result<usize>>) -> io::Result<usize> {
    match polled {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// What this thread has had of a processor; without what it waited for where the system does not say.
pub(crate) fn usage() -> Usage {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let mut numbers = told.split_ascii_whitespace().map_while(|number| number.parse().ok()).map(Duration::from_nanos);
    match (numbers.next(), numbers.next()) {
        (Some(used), Some(waited)) => Usage { used, waited },
        _ => Usage { used: processor_time(), waited: Duration::ZERO },
    }
}

/// This thread's.
pub(crate) fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
