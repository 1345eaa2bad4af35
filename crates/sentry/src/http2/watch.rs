//! Frames that ask for nothing. `h2` answers each PING and SETTINGS and skips what it does not know, for as long as a
//! client likes; so the frames' heads are followed on their way to it, and counted.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tidegate_engine::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::conduct::STRICT;

/// Such frames in a second, on average over the connection's last second or two: gRPC sends a PING for each burst of
/// data to measure its line, some ten a second; a thousand is a flood.
const MOST: u32 = 1000;

/// After so many, more is read only when the connection's task has judged them, and others have had their turn: `h2`
/// reads on within one turn for as long as there is something to read, and a flood never lets it come to an end.
const MOST_PER_TURN: u32 = MOST / STRICT;

const FRAME_HEAD: usize = 9;

/// The head of a WINDOW_UPDATE, and the room that it gives.
const UPDATE: usize = FRAME_HEAD + 4;

/// Room for so few bytes makes work and moves next to nothing.
const LITTLE_ROOM: u32 = 256;

/// How many frames asked for nothing.
#[derive(Debug, Default)]
pub(super) struct Oddities {
    count: Cell<u32>,
    since: Cell<Timestamp>,
    /// Since they were judged.
    fresh: Cell<u32>,
    /// Nothing more is read in this turn.
    is_over: Cell<bool>,
}

impl Oddities {
    /// A turn of the connection's task begins: there may be more to read.
    pub(super) fn begin_turn(&self) {
        self.is_over.set(false);
    }

    /// What was read is brought to an end in this turn, and nothing more begun.
    pub(super) fn end_turn(&self) {
        self.is_over.set(true);
    }

    /// One more, of another kind.
    pub(super) fn note(&self) {
        self.count.update(|count| count.saturating_add(1));
    }

    /// Whether there were too many of late; `strictness` says how much less is borne than at most.
    pub(super) fn are_too_many(&self, now: Timestamp, strictness: impl FnOnce() -> u32) -> bool {
        self.fresh.set(0);
        let count = self.count.get();
        if count > MOST || (count > MOST / STRICT && count > MOST / strictness()) {
            return true;
        }
        if now.since(self.since.get()) >= Duration::from_secs(1) {
            self.since.set(now);
            self.count.set(0);
        }
        false
    }

    /// More that was read.
    fn add(&self, odd: u32) {
        self.count.update(|count| count.saturating_add(odd));
        self.fresh.update(|fresh| fresh.saturating_add(odd));
    }
}

/// A client's socket as `h2` sees it.
#[derive(Debug)]
pub(super) struct Watched<T> {
    io: T,
    /// Read before there was an `h2`.
    ahead: Bytes,
    frames: Follower,
    oddities: Rc<Oddities>,
}

impl<T> Watched<T> {
    pub(super) fn new(io: T, ahead: Bytes) -> (Self, Rc<Oddities>) {
        let oddities = Rc::<Oddities>::default();
        (Watched { io, ahead, frames: Follower::default(), oddities: oddities.clone() }, oddities)
    }
}

/// Where in the frames a connection is.
#[derive(Debug)]
struct Follower {
    /// Bytes until the next frame's head: at first those of the preface.
    skip: usize,
    head: [u8; UPDATE],
    /// How much of it is here.
    have: usize,
}

impl Default for Follower {
    fn default() -> Self {
        Follower { skip: 24, head: [0; UPDATE], have: 0 }
    }
}

impl Follower {
    /// How many bytes of a frame's beginning say what it is, as far as is known yet.
    fn wanted(&self) -> usize {
        let is_update = self.have >= FRAME_HEAD && self.head[..4] == [0, 0, 4, 8];
        if is_update { UPDATE } else { FRAME_HEAD }
    }

    /// How many of the frames that begin in `bytes` ask for nothing.
    fn follow(&mut self, mut bytes: &[u8]) -> u32 {
        let mut odd = 0;
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let taken = (self.wanted() - self.have).min(bytes.len());
            self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have == self.wanted() {
                let beyond = self.have - FRAME_HEAD;
                self.have = 0;
                let [a, b, c, kind, flags, .., w, x, y, z] = self.head;
                let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.skip = length - beyond;
                let gives_little = beyond > 0 && u32::from_be_bytes([w, x, y, z]) < LITTLE_ROOM;
                odd += u32::from(gives_little || asks_for_nothing(kind, flags, length));
            }
        }
        odd
    }
}

/// PRIORITY, SETTINGS and PING, unless they acknowledge ours; what nobody knows; and DATA without data, unless it ends
/// a body.
fn asks_for_nothing(kind: u8, flags: u8, length: usize) -> bool {
    const FLAG: u8 = 1;
    match kind {
        0 => length == 0 && flags & FLAG == 0,
        4 | 6 => flags & FLAG == 0,
        1 | 3 | 8 | 9 => false,
        _ => true,
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.oddities.fresh.get() >= MOST_PER_TURN || this.oddities.is_over.get() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = to.filled().len();
        if this.ahead.is_empty() {
            ready!(Pin::new(&mut this.io).poll_read(cx, to))?;
        } else {
            let part = this.ahead.len().min(to.remaining());
            to.put_slice(&this.ahead[..part]);
            this.ahead.advance(part);
        }
        let odd = this.frames.follow(&to.filled()[before..]);
        this.oddities.add(odd);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        [&[0, 0, length, kind, flags, 0, 0, 0, 1][..], &vec![6; length.into()]].concat()
    }

    #[test]
    fn a_flood_is_judged_before_more_of_it_is_read() {
        let mut flood = vec![6; 24];
        flood.extend(frame(6, 0, 8).repeat(10 * MOST_PER_TURN as usize));
        let (mut io, oddities) = Watched::new(&flood[..], Bytes::new());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut read = || {
            let mut part = [0; 100];
            Pin::new(&mut io).poll_read(&mut cx, &mut ReadBuf::new(&mut part)).is_ready()
        };
        while read() {}
        let once = oddities.count.get();
        assert!((MOST_PER_TURN..2 * MOST_PER_TURN).contains(&once), "{once}");
        assert!(!read(), "not judged yet");
        oddities.are_too_many(Timestamp::ZERO, || 1);
        assert!(read());
        oddities.end_turn();
        assert!(!read(), "the turn is over");
        oddities.begin_turn();
        assert!(read());
    }

    #[test]
    fn frames_are_counted_however_they_are_cut() {
        let frames = [
            vec![6; 24],
            frame(4, 0, 6),
            frame(4, 1, 0),
            frame(1, 5, 9),
            frame(6, 0, 8),
            frame(6, 1, 8),
            frame(0, 0, 0),
            frame(0, 1, 0),
            frame(0, 0, 3),
            frame(2, 0, 5),
            frame(8, 0, 4),
            [&frame(8, 0, 4)[..9], &[0, 0, 0, 255]].concat(),
            [&frame(8, 0, 4)[..9], &[0, 0, 1, 0]].concat(),
            frame(77, 0, 1),
        ]
        .concat();
        for step in 1..=frames.len() {
            let mut follower = Follower::default();
            let odd: u32 = frames.chunks(step).map(|part| follower.follow(part)).sum();
            assert_eq!(odd, 6, "cut into pieces of {step}");
        }
    }
}
