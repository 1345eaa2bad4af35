//! The gate as a socket: what hyper calls, and the two ways of moving bytes that both sides of the sentry use.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::ReadBufCursor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Gate, Mode, Turn};
use crate::transport::Transport;

/// Writes of up to so many bytes in several pieces are made into one.
const TOGETHER: usize = 2048;

impl hyper::rt::Read for Gate {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if matches!(this.mode, Mode::Answering) && this.client.is_reported() {
            // The answer was complete before the request was: this is the first read after both.
            this.client.end_message();
            this.mode = Mode::BOUNDARY;
            this.worker.idle(&this.client);
        }
        if matches!(this.mode, Mode::Boundary { .. }) && ready!(this.poll_boundary(cx, true))? == Turn::End {
            return Poll::Ready(Ok(()));
        }
        match this.mode {
            Mode::Boundary { .. } | Mode::Giving { .. } => this.poll_give(cx, to),
            Mode::Answering | Mode::Whole(_) => this.poll_hold(cx),
            Mode::Loose => this.poll_loose(cx, to),
        }
    }
}

impl hyper::rt::Write for Gate {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let pieces = [io::IoSlice::new(bytes)];
        if self.poll_flush_out(cx)?.is_pending() {
            return self.kept(&pieces);
        }
        let polled = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.written(&pieces, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.poll_flush_out(cx)?.is_pending() {
            return self.kept(slices);
        }
        let polled = write_together(&mut self.io, cx, slices);
        self.written(slices, polled)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// hyper flushes once it has handed everything to `poll_write`: after the last byte of an answer, this is its end.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.poll_flush_out(cx)?.is_pending() {
            // The server may have more, and there may be room for it: nothing else would wake hyper.
            if std::mem::take(&mut self.held_more) {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        if self.client.is_answered() {
            self.end_of_message(cx);
        }
        Poll::Ready(Ok(()))
    }

    /// The connection's task closes the socket: it may have to linger, or to become a tunnel.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl Gate {
    /// What came of writing `pieces`: what the socket does not take is held.
    fn written(&mut self, pieces: &[io::IoSlice<'_>], polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let Poll::Ready(written) = polled else {
            self.client_stalls();
            return self.kept(pieces);
        };
        let bytes = written?;
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.client_reads(bytes, bytes == length);
        let written = Poll::Ready(Ok(bytes));
        self.note_written(&written);
        written
    }

    /// What of `pieces` is held for a client that takes nothing now.
    fn kept(&mut self, pieces: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let kept = self.hold_answer(pieces);
        self.note_written(&kept);
        kept
    }
}

/// Writes small pieces as one: copying a kilobyte costs less than what the kernel spends on a list of pieces.
pub(crate) fn write_together(
    io: &mut Transport,
    cx: &mut Context<'_>,
    slices: &[io::IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    let io = Pin::new(io);
    match slices {
        [only] => return io.poll_write(cx, only),
        _ if slices.iter().map(|slice| slice.len()).sum::<usize>() > TOGETHER => {
            return io.poll_write_vectored(cx, slices);
        }
        _ => {}
    }
    let mut together = [0; TOGETHER];
    let mut length = 0;
    for slice in slices {
        together[length..length + slice.len()].copy_from_slice(slice);
        length += slice.len();
    }
    io.poll_write(cx, &together[..length])
}

/// Reads from the socket into hyper's own buffer; how many bytes.
pub(crate) fn poll_read_straight(
    io: &mut Transport,
    cx: &mut Context<'_>,
    to: ReadBufCursor<'_>,
) -> Poll<io::Result<usize>> {
    let mut read = 0;
    poll_read_watched(io, cx, to, |bytes| {
        read = bytes.len();
        Ok(())
    })
    .map_ok(|()| read)
}

/// The same, where `watch` sees what was read, and may say that it is not to be read.
#[expect(unsafe_code, reason = "hyper's buffers are filled so")]
pub(crate) fn poll_read_watched(
    io: &mut Transport,
    cx: &mut Context<'_>,
    mut to: ReadBufCursor<'_>,
    watch: impl FnOnce(&[u8]) -> io::Result<()>,
) -> Poll<io::Result<()>> {
    // SAFETY: tokio's `ReadBuf` tracks what is initialised and never takes it back; `poll_read` of a transport writes
    // only initialised bytes, and `advance` is told exactly how many it filled.
    let filled = unsafe {
        let mut buffer = ReadBuf::uninit(to.as_mut());
        ready!(Pin::new(io).poll_read(cx, &mut buffer))?;
        watch(buffer.filled())?;
        buffer.filled().len()
    };
    // SAFETY: these bytes were filled just above.
    unsafe { to.advance(filled) };
    Poll::Ready(Ok(()))
}
