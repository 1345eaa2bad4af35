//! A client that reads slowly: what it does not take yet is held for it, up to a bound, so that its server is done with
//! it; and it must take some.
//!
//! How much it takes cannot be seen from writes: the kernel lets them through in large steps, minutes apart for an
//! honest client behind a slow line. So when a client has stalled for as long as a body may stand still, the kernel is
//! asked how much of what it had is still unacknowledged.

use std::io;
use std::os::fd::AsRawFd;
use std::task::Poll;

use tidegate_engine::Timestamp;

use super::Gate;
use crate::client::Wait;

/// A client that does not take its answer as fast as it is written.
#[derive(Debug)]
pub(crate) struct Reader {
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
    pub(super) fn client_reads(&self, bytes: usize, all: bool) {
        if let Some(mut reader) = self.client.reader.take()
            && !all
        {
            reader.written += bytes as u64;
            return self.client.reader.put(reader);
        }
        if self.client.waits_for() == Wait::ResponseBody {
            self.client.wait(Wait::ResponseBody, self.worker.deadline(|timeouts| timeouts.body_idle));
        }
    }

    /// The socket takes no more of an answer now. A client whose time is up has it again if it took what it must.
    pub(super) fn client_stalls(&self) {
        if !matches!(self.client.waits_for(), Wait::ResponseBody | Wait::Look) {
            return;
        }
        let now = self.worker.lately();
        let Some(mut reader) = self.client.reader.take() else {
            let mut reader = Box::new(Reader::new(now, &self.io));
            self.look(now, &mut reader);
            return self.client.reader.put(reader);
        };
        match self.client.expired() {
            Some(Wait::Look) => self.look(now, &mut reader),
            Some(Wait::ResponseBody) => {
                let rate = self.worker.local().live.config.limits.body_rate;
                let taken = reader.taken(&self.io);
                if taken > 0 && taken as f64 >= rate as f64 * now.seconds_since(reader.since) {
                    self.look(now, &mut reader);
                    *reader = Reader::new(now, &self.io);
                }
            }
            _ => {}
        }
        self.client.reader.put(reader);
    }

    /// The client is to take more. An answer that it takes next to nothing of for many times the target is no work: its
    /// server waits, as we do.
    fn look(&self, now: Timestamp, reader: &mut Reader) {
        self.client.take_expired();
        let mut look_at = None;
        if let Some(mut ending) = self.client.take_back() {
            if let Some(over) = ending.judged_over() {
                let over = over.min(self.worker.local().live.config.timeouts.body_idle);
                if now >= reader.since + over {
                    ending.judge_pace(reader.taken(&self.io), reader.since, now);
                    *reader = Reader::new(now, &self.io);
                }
                look_at = Some(reader.since + over);
            }
            self.client.lend(ending);
        }
        self.client.await_more(self.worker.deadline(|timeouts| timeouts.body_idle), look_at);
    }
}

impl Reader {
    fn new(now: Timestamp, io: &impl AsRawFd) -> Self {
        Reader { since: now, untaken: unacknowledged(io), written: 0 }
    }

    /// What it took since it was last looked.
    fn taken(&self, io: &impl AsRawFd) -> u64 {
        (self.untaken + self.written).saturating_sub(unacknowledged(io))
    }
}

/// Bytes that were written to a socket and that its other end has not acknowledged; 0 where the system does not say.
#[expect(unsafe_code, reason = "a request to a socket that no library has")]
fn unacknowledged(io: &impl AsRawFd) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open for as long as `io` is borrowed, and the request writes one `c_int` (tcp(7),
    // SIOCOUTQ, which is TIOCOUTQ) to the place that it is given.
    let result = unsafe { libc::ioctl(io.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_a_client_takes_is_seen_before_the_socket_lets_more_be_written() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (mut io, _) = listener.accept().expect("a connection");
        io.set_nonblocking(true).expect("no waiting");
        let mut written = 0;
        while let Ok(n) = io.write(&[0; 1 << 16]) {
            written += n as u64;
        }
        let reader = Reader::new(Timestamp::ZERO, &io);
        assert!(reader.untaken > 0, "more than the client's system takes without it");
        // One byte more than its system had by then.
        let had = (written - reader.untaken) as usize;
        client.read_exact(&mut vec![0; had + 1]).expect("what was written");
        let deadline = Instant::now() + Duration::from_secs(60);
        while reader.taken(&io) == 0 {
            assert!(Instant::now() < deadline, "what was read is acknowledged in the end");
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}
