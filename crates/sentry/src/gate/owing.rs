//! What a connection keeps of the sentry's memory: bytes that its client sent ahead, and answers that it has not read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

use super::{Gate, Turn};
use crate::client::Wait;

impl Gate {
    /// The client does not take its answers now. It has as long for the next byte of them as for any answer's; unless
    /// all clients together keep too much here, and it is among those that give way ([`crate::shed`]).
    pub(super) fn poll_owing(&mut self) -> Poll<io::Result<Turn>> {
        if self.client.waits_for() != Wait::ResponseBody {
            self.client.wait(Wait::ResponseBody, self.worker.deadline(|timeouts| timeouts.body_idle));
        }
        self.count_held();
        Poll::Pending
    }

    /// After hyper wrote: what it could not get rid of counts as held.
    pub(super) fn note_written(&self, written: &Poll<io::Result<usize>>) {
        let unwritten = &self.client.unwritten;
        match written {
            Poll::Ready(Ok(bytes)) => {
                unwritten.set(unwritten.get().saturating_sub(u32::try_from(*bytes).unwrap_or(u32::MAX)));
            }
            Poll::Ready(Err(_)) => return,
            Poll::Pending => {}
        }
        // Answers that are taken at once are never counted.
        if written.is_pending() || self.client.holds() {
            self.count_held();
        }
    }

    /// Keeps the books on what this connection holds.
    pub(super) fn count_held(&self) {
        self.worker.count_held(&self.client, self.held.capacity() + self.out.capacity());
    }

    /// Writes answers; what the socket does not take now is owed.
    pub(super) fn answer(&mut self, cx: &mut Context<'_>, answers: &[u8]) -> io::Result<()> {
        let mut left = answers;
        if self.out.is_empty()
            && !left.is_empty()
            && let Poll::Ready(written) = Pin::new(&mut self.io).poll_write(cx, left)
        {
            left = &left[written?..];
        }
        self.out.extend_from_slice(left);
        Ok(())
    }

    /// Writes what is owed.
    pub(super) fn poll_flush_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            let Poll::Ready(written) = Pin::new(&mut self.io).poll_write(cx, &self.out) else {
                self.client_stalls();
                return Poll::Pending;
            };
            let n = written?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.out.drain(..n);
            self.client_reads(n, self.out.is_empty());
        }
        if self.out.capacity() > 0 {
            self.out = Vec::new();
            self.count_held();
        }
        if self.is_flushed(cx)? {
            return Poll::Ready(Ok(()));
        }
        self.client_stalls();
        Poll::Pending
    }

    /// Whether the transport has let go of all that was written.
    fn is_flushed(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        match Pin::new(&mut self.io).poll_flush(cx) {
            Poll::Ready(flushed) => flushed.map(|()| true),
            Poll::Pending => Ok(false),
        }
    }

    /// Gives back what memory it can: an idle connection keeps no buffer.
    pub(crate) fn release_buffers(&mut self) {
        if self.held_is_empty() {
            self.forget_held();
        }
        self.held.shrink_to_fit();
        self.out.shrink_to_fit();
        self.count_held();
    }
}
