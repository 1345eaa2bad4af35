//! A client that reads slowly: what it does not take yet is held for it, up to a bound, so that its server is done with
//! it; and it must take some.
//!
//! How much it takes cannot be seen from writes: the kernel lets them through in large steps, minutes apart for an honest
//! client behind a slow line. So when a client has stalled for as long as a body may stand still, the kernel is asked how
//! much of what it had is still unacknowledged.

use std::io;
use std::os::fd::AsRawFd;
use std::task::Poll;

use tidegate_engine::Timestamp;
use tokio::net::TcpStream;

use super::Gate;
use crate::client::Wait;

/// A client that does not take its answer as fast as it is written.
#[derive(Debug)]
pub(super) struct Reader {
    /// When it was last looked how much it takes.
    since: Timestamp,
    /// Bytes in the kernel that it had not taken then.
    untaken: u64,
    /// Bytes that the kernel was given since.
    written: u64,
}

impl Gate {
    /// Holds what of an answer the socket does not take now; how much. `Pending`: no more.
    pub(super) fn hold_answer(&mut self, pieces: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let most = self.worker.local().live.config.limits.ahead;
        let mut room = most.saturating_sub(self.out.len());
        if room == 0 || !self.worker.may_read_ahead() {
            return Poll::Pending;
        }
        let before = self.out.len();
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        // No more than is needed: it is in the books.
        self.out.reserve_exact(length.min(room));
        for piece in pieces {
            let part = &piece[..piece.len().min(room)];
            self.out.extend_from_slice(part);
            room -= part.len();
        }
        self.held_more = true;
        self.count_held();
        Poll::Ready(Ok(self.out.len() - before))
    }

    /// The socket took `bytes` of an answer; `all`: that was all there was.
    pub(super) fn client_reads(&mut self, bytes: usize, all: bool) {
        match &mut self.reader {
            Some(reader) if !all => return reader.written += bytes as u64,
            Some(_) => self.reader = None,
            None => {}
        }
        if self.client.waits_for() == Wait::ResponseBody {
            self.client.wait(Wait::ResponseBody, self.worker.deadline(|timeouts| timeouts.body_idle));
        }
    }

    /// The socket takes no more of an answer now. A client whose time is up has it again if it took what it must.
    pub(super) fn client_stalls(&mut self) {
        if self.client.waits_for() != Wait::ResponseBody {
            return;
        }
        let now = self.worker.lately();
        let Some(reader) = &mut self.reader else {
            let reader = Reader { since: now, untaken: unacknowledged(&self.io), written: 0 };
            self.reader = Some(Box::new(reader));
            return;
        };
        if self.client.expired() != Some(Wait::ResponseBody) {
            return;
        }
        let rate = self.worker.local().live.config.limits.body_rate;
        let untaken = unacknowledged(&self.io);
        let taken = (reader.untaken + reader.written).saturating_sub(untaken);
        if taken > 0 && taken as f64 >= rate as f64 * now.seconds_since(reader.since) {
            **reader = Reader { since: now, untaken, written: 0 };
            self.client.take_expired();
            self.client.wait(Wait::ResponseBody, self.worker.deadline(|timeouts| timeouts.body_idle));
        }
    }
}

/// Bytes that were written to a socket and that its other end has not acknowledged; 0 where the system does not say.
fn unacknowledged(io: &TcpStream) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open for as long as `io` is borrowed, and the request writes one `c_int` (tcp(7),
    // SIOCOUTQ, which is TIOCOUTQ) to the place that it is given.
    let result = unsafe { libc::ioctl(io.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
}
