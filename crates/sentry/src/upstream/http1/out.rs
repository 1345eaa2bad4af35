//! What goes out to a server: heads and small pieces in one buffer, large pieces as they are.

use std::cell::Cell;
use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use tokio::io::AsyncWrite;

use super::request::{Sending, may_follow, write_field};
use crate::gate::wire::write_together;
use crate::transport::Transport;

/// Pieces of up to so many bytes are copied.
const SMALL: usize = 2048;

/// The buffer has room for another piece until it is so large.
const ROOM: usize = 16 * 1024;

const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

thread_local! {
    /// A buffer that nobody uses now: most requests are out at once, and need none for longer.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes that the socket has not taken, in their order.
#[derive(Debug, Default)]
pub(super) struct Out {
    /// A head, sizes of chunks, small pieces.
    front: Vec<u8>,
    /// How much of that is out.
    sent: usize,
    /// A large piece.
    piece: Bytes,
    /// What ends its chunk.
    behind: &'static [u8],
}

impl Out {
    /// A buffer for a request's head.
    pub(super) fn begin(&mut self) -> &mut Vec<u8> {
        if self.front.capacity() == 0 {
            self.front = SPARE.take();
        }
        &mut self.front
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent == self.front.len() && self.piece.is_empty() && self.behind.is_empty()
    }

    /// Whether another piece can be taken.
    pub(super) fn has_room(&self) -> bool {
        self.piece.is_empty() && self.behind.is_empty() && self.front.len() < ROOM
    }

    /// A piece of a body.
    pub(super) fn push(&mut self, mut data: Bytes, sending: &mut Sending) {
        let is_chunked = match sending {
            Sending::Nothing => return,
            // What is beyond the length was not promised.
            Sending::Length(left) => {
                data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= data.len() as u64;
                false
            }
            Sending::Chunked(_) => true,
        };
        if data.is_empty() {
            return;
        }
        let front = self.begin();
        if is_chunked {
            // Writing to memory does not fail.
            drop(write!(front, "{:X}\r\n", data.len()));
        }
        let end: &[u8] = if is_chunked { b"\r\n" } else { b"" };
        if data.len() <= SMALL {
            front.extend_from_slice(&data);
            front.extend_from_slice(end);
        } else {
            self.piece = data;
            self.behind = end;
        }
    }

    /// The last chunk, and what may follow it of `trailers`.
    pub(super) fn end_chunks(&mut self, sending: &Sending, trailers: Option<&HeaderMap>) {
        let Sending::Chunked(announced) = sending else { return };
        if !self.behind.is_empty() {
            self.behind = b"\r\n0\r\n\r\n";
            return;
        }
        let front = self.begin();
        let begin = front.len();
        front.extend_from_slice(LAST_CHUNK);
        for (name, value) in trailers.into_iter().flatten() {
            if announced.contains(name) && may_follow(name) {
                if front.len() == begin + LAST_CHUNK.len() {
                    front.truncate(front.len() - 2);
                }
                write_field(front, name, value);
            }
        }
        if front.len() > begin + LAST_CHUNK.len() {
            front.extend_from_slice(b"\r\n");
        }
    }

    /// Writes some of it.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, socket: &mut Transport) -> Poll<io::Result<()>> {
        let front = &self.front[self.sent..];
        let mut written = if self.piece.is_empty() && self.behind.is_empty() {
            ready!(Pin::new(socket).poll_write(cx, front))?
        } else {
            ready!(write_together(socket, cx, &[front, &self.piece, self.behind].map(IoSlice::new)))?
        };
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        let of_front = written.min(front.len());
        self.sent += of_front;
        written -= of_front;
        if self.sent == self.front.len() {
            self.front.clear();
            self.sent = 0;
        }
        let of_piece = written.min(self.piece.len());
        self.piece.advance(of_piece);
        if self.piece.is_empty() {
            self.piece = Bytes::new();
        }
        self.behind = &self.behind[written - of_piece..];
        Poll::Ready(Ok(()))
    }

    /// There is no more for now: nothing is kept here.
    pub(super) fn clear(&mut self) {
        let mut front = std::mem::take(self).front;
        if (1..=4 * ROOM).contains(&front.capacity()) {
            front.clear();
            SPARE.set(front);
        }
    }
}
