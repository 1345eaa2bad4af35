//! What one turn of a connection's task writes goes out together. `h2` hands each frame with data of some length to the
//! socket by itself: a call of the system for each answer, and over TLS a record, where eight of a kilobyte fit into
//! one.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::out::Out;

/// Bytes that go out together, at most: a record of TLS.
pub(super) const TOGETHER: usize = 16 * 1024;

/// A client's socket, for `h2` and for the connection's task: whoever polls `h2` polls [`Gathered::poll_out`] after it.
#[derive(Debug)]
pub(super) struct Gathered<T>(Rc<RefCell<Socket<T>>>);

impl<T> Clone for Gathered<T> {
    fn clone(&self) -> Self {
        Gathered(self.0.clone())
    }
}

#[derive(Debug)]
struct Socket<T> {
    io: T,
    /// At most [`TOGETHER`].
    out: Out,
}

impl<T: AsyncWrite + Unpin> Gathered<T> {
    pub(super) fn new(io: T) -> Self {
        Gathered(Rc::new(RefCell::new(Socket { io, out: Out::default() })))
    }

    /// Writes what was gathered; pending while the socket does not take all of it.
    pub(super) fn poll_out(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_out(cx)
    }
}

impl<T: AsyncWrite + Unpin> Socket<T> {
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.out.is_empty() {
            while !self.out.is_empty() {
                let io = Pin::new(&mut self.io);
                // There is one: small pieces are copied.
                ready!(self.out.poll_write(cx, |cx, pieces| io.poll_write(cx, &pieces[0])))?;
            }
            // Its buffer is for whoever writes next.
            self.out = Out::default();
        }
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        if self.out.left() + length > TOGETHER {
            ready!(self.poll_out(cx))?;
            if length > TOGETHER {
                return Pin::new(&mut self.io).poll_write_vectored(cx, pieces);
            }
        }
        pieces.iter().for_each(|piece| self.out.front().extend_from_slice(piece));
        Poll::Ready(Ok(length))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Gathered<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.borrow_mut().io).poll_read(cx, to)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Gathered<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_write(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_write(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.borrow().io.is_write_vectored()
    }

    /// `h2` flushes after each frame; the turn is not over.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = &mut *self.0.borrow_mut();
        ready!(socket.poll_out(cx))?;
        Pin::new(&mut socket.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket that takes so much until it is emptied, and counts the calls.
    #[derive(Debug, Default)]
    struct Narrow {
        room: usize,
        took: Vec<u8>,
        calls: usize,
    }

    impl AsyncWrite for Narrow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.room);
            if taken == 0 {
                return Poll::Pending;
            }
            self.calls += 1;
            self.room -= taken;
            self.took.extend_from_slice(&bytes[..taken]);
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn socket(room: usize) -> Gathered<Narrow> {
        Gathered::new(Narrow { room, ..Narrow::default() })
    }

    fn write(socket: &Gathered<Narrow>, bytes: &[u8]) -> Option<usize> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut socket = socket.clone();
        assert!(Pin::new(&mut socket).poll_flush(&mut cx).is_ready());
        match Pin::new(&mut socket).poll_write(&mut cx, bytes) {
            Poll::Ready(written) => Some(written.expect("no errors")),
            Poll::Pending => None,
        }
    }

    fn is_out(socket: &Gathered<Narrow>) -> bool {
        socket.poll_out(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[test]
    fn small_pieces_of_a_turn_are_one_call_and_large_ones_are_not_copied() {
        let socket = socket(usize::MAX);
        let answers: Vec<u8> = (0..8).flat_map(|answer| [answer; 1000]).collect();
        answers.chunks(100).for_each(|piece| assert_eq!(write(&socket, piece), Some(100)));
        assert_eq!(socket.0.borrow().io.calls, 0);
        assert!(is_out(&socket));
        assert_eq!((socket.0.borrow().io.calls, &socket.0.borrow().io.took), (1, &answers));
        // What is large goes out at once, behind what came before it.
        assert_eq!(write(&socket, b"head"), Some(4));
        assert_eq!(write(&socket, &[7; TOGETHER + 1]), Some(TOGETHER + 1));
        let socket = socket.0.borrow();
        assert_eq!((socket.io.calls, socket.out.left()), (3, 0));
        assert_eq!(socket.io.took[8000..8005], *b"head\x07");
    }

    #[test]
    fn a_socket_that_takes_nothing_holds_h2_up() {
        let socket = socket(100);
        let pieces: Vec<u8> = (0..255).flat_map(|piece| [piece; 1000]).collect();
        let taken = pieces.chunks(1000).take_while(|piece| write(&socket, piece).is_some()).count();
        assert_eq!(taken, TOGETHER / 1000, "the socket took 100 bytes of them, which is no room for the next");
        assert!(!is_out(&socket));
        socket.0.borrow_mut().io.room = usize::MAX;
        assert!(is_out(&socket));
        assert_eq!(socket.0.borrow().io.took, pieces[..taken * 1000]);
    }
}
