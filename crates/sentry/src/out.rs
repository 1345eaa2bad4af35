//! What goes out by HTTP/1.1, to a client or to a server: heads and small pieces in one buffer, large pieces as they
//! are. The frames of a turn by HTTP/2 are small pieces.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::{HeaderName, HeaderValue};

use crate::gate::head::Framing;

/// So many bytes are made ready before they are written, if they are here.
const TOGETHER: usize = 64 * 1024;

/// A piece of up to so many bytes is written with what stands before it in one piece: copying it costs less than what
/// the kernel spends on a list.
const COPIED: usize = 2048;

/// Pieces that are written at once.
const PIECES: usize = 16;

/// A buffer that has grown larger than this is not kept.
const LARGE: usize = 64 * 1024;

thread_local! {
    /// A buffer that nobody uses now: most messages are out at once, and need none for longer.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes that the socket has not taken, in their order.
#[derive(Debug, Default)]
pub(crate) struct Out {
    /// A head, sizes of chunks, small pieces.
    front: Vec<u8>,
    /// How much of that is out.
    sent: usize,
    /// Large pieces, and whatever stands behind one.
    pieces: VecDeque<Bytes>,
    /// Bytes of them.
    length: usize,
}

/// A body ended before all that was promised of it was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short;

impl Out {
    /// The buffer, to be added to while no large piece waits.
    pub(crate) fn front(&mut self) -> &mut Vec<u8> {
        if self.front.capacity() == 0 {
            self.front = SPARE.take();
        }
        &mut self.front
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// Bytes that are to go out.
    pub(crate) fn left(&self) -> usize {
        self.front.len() - self.sent + self.length
    }

    /// Whether another piece can be taken. A chunk is three.
    pub(crate) fn has_room(&self) -> bool {
        self.left() < TOGETHER && self.pieces.len() + 3 < PIECES
    }

    /// A piece of a body that is framed so.
    pub(crate) fn push(&mut self, mut data: Bytes, framing: &mut Framing) {
        match framing {
            Framing::None => {}
            // What is beyond the length was not promised.
            Framing::Length(left) => {
                data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= data.len() as u64;
                self.append(data);
            }
            // An empty chunk would be the last.
            Framing::Chunked if data.is_empty() => {}
            Framing::Chunked => {
                let mut size = [0; 20];
                let mut free = &mut size[..];
                // There is room for the digits of any length.
                drop(write!(free, "{:X}\r\n", data.len()));
                let written = 20 - free.len();
                self.append_copy(&size[..written]);
                self.append(data);
                self.append(Bytes::from_static(b"\r\n"));
            }
        }
    }

    /// The body is over; `trailers` follow it where it is in chunks.
    ///
    /// # Errors
    /// When more of it was promised.
    pub(crate) fn end<'t>(
        &mut self,
        framing: Framing,
        trailers: impl Iterator<Item = (&'t HeaderName, &'t HeaderValue)>,
    ) -> Result<(), Short> {
        match framing {
            Framing::Length(1..) => return Err(Short),
            Framing::None | Framing::Length(0) => {}
            Framing::Chunked => {
                let mut trailers = trailers.peekable();
                if trailers.peek().is_none() {
                    self.append(Bytes::from_static(b"0\r\n\r\n"));
                    return Ok(());
                }
                let mut end = b"0\r\n".to_vec();
                trailers.for_each(|(name, value)| field(&mut end, name.as_str(), value.as_bytes()));
                end.extend_from_slice(b"\r\n");
                self.append(end.into());
            }
        }
        Ok(())
    }

    /// Writes some of it by `write`, which says how much was taken.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Context<'_>, &[IoSlice<'_>]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        let front = &self.front[self.sent..];
        let written = if self.pieces.is_empty() {
            ready!(write(cx, &[IoSlice::new(front)]))?
        } else {
            let mut slices = [IoSlice::new(&[]); PIECES];
            let all = [front].into_iter().chain(self.pieces.iter().map(|piece| &piece[..]));
            let all = all.filter(|piece| !piece.is_empty());
            let count = slices.iter_mut().zip(all).map(|(slot, piece)| *slot = IoSlice::new(piece)).count();
            ready!(write(cx, &slices[..count]))?
        };
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(written);
        Poll::Ready(Ok(()))
    }

    fn append(&mut self, data: Bytes) {
        if self.pieces.is_empty() && self.front.len() + data.len() <= COPIED {
            self.front().extend_from_slice(&data);
        } else if !data.is_empty() {
            self.length += data.len();
            self.pieces.push_back(data);
        }
    }

    /// The same of a few bytes that are somebody else's.
    fn append_copy(&mut self, data: &[u8]) {
        if self.pieces.is_empty() {
            self.front().extend_from_slice(data);
        } else {
            self.append(Bytes::copy_from_slice(data));
        }
    }

    fn advance(&mut self, written: usize) {
        let of_front = written.min(self.front.len() - self.sent);
        self.sent += of_front;
        if self.sent == self.front.len() {
            self.front.clear();
            self.sent = 0;
        }
        let mut written = written - of_front;
        self.length -= written;
        while let Some(first) = self.pieces.front_mut()
            && written > 0
        {
            let of_first = written.min(first.len());
            first.advance(of_first);
            written -= of_first;
            if first.is_empty() {
                self.pieces.pop_front();
            }
        }
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        let mut front = std::mem::take(&mut self.front);
        if (1..=LARGE).contains(&front.capacity()) {
            front.clear();
            SPARE.set(front);
        }
    }
}

/// Appends a field to a head.
pub(crate) fn field(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    // One reservation, and no look at the room for each part.
    head.reserve(name.len() + value.len() + 4);
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        head.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What goes out of this body, by a socket that takes so many bytes at once.
    fn sent(pieces: &[&'static [u8]], framing: Framing, at_once: usize) -> Result<Vec<u8>, Short> {
        let (mut out, mut framing, mut all) = (Out::default(), framing, Vec::new());
        out.front().extend_from_slice(b"head\r\n\r\n");
        for &piece in pieces {
            out.push(Bytes::from_static(piece), &mut framing);
            assert!(out.has_room());
        }
        out.end(framing, [].into_iter())?;
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while !out.is_empty() {
            let take = |_: &mut Context<'_>, slices: &[IoSlice<'_>]| {
                let joined: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
                let taken = joined.len().min(at_once);
                all.extend_from_slice(&joined[..taken]);
                Poll::Ready(Ok(taken))
            };
            assert!(matches!(out.poll_write(&mut cx, take), Poll::Ready(Ok(()))));
        }
        assert!(out.front.is_empty() && out.pieces.is_empty() && out.length == 0);
        Ok(all)
    }

    const LONG: &[u8] = &[b'x'; 3000];

    #[test]
    fn a_body_goes_out_as_it_is_framed_however_little_is_taken() {
        for at_once in [1, 7, 1000, usize::MAX] {
            let whole = [b"head\r\n\r\nab", LONG, b"c"].concat();
            assert_eq!(sent(&[b"ab", LONG, b"cd"], Framing::Length(3003), at_once), Ok(whole));
            let chunks = [b"head\r\n\r\n2\r\nab\r\nBB8\r\n", LONG, b"\r\n1\r\nc\r\n0\r\n\r\n"].concat();
            assert_eq!(sent(&[b"ab", b"", LONG, b"c"], Framing::Chunked, at_once), Ok(chunks));
            assert_eq!(sent(&[b"ab", LONG], Framing::None, at_once), Ok(b"head\r\n\r\n".to_vec()));
        }
    }

    #[test]
    fn less_than_was_promised_is_no_end() {
        assert_eq!(sent(&[b"ab"], Framing::Length(3), 10), Err(Short));
        assert_eq!(sent(&[], Framing::Length(0), 10), Ok(b"head\r\n\r\n".to_vec()));
    }

    #[test]
    fn trailers_stand_behind_the_last_chunk() {
        let mut out = Out::default();
        let (name, value) = (HeaderName::from_static("a"), HeaderValue::from_static("b"));
        out.end(Framing::Chunked, [(&name, &value)].into_iter()).expect("nothing was promised");
        assert_eq!(out.front(), b"0\r\na: b\r\n\r\n");
    }

    #[test]
    fn no_more_is_taken_than_is_written_soon() {
        let mut out = Out::default();
        let mut framing = Framing::Chunked;
        let mut pieces = 0;
        while out.has_room() {
            out.push(Bytes::from_static(LONG), &mut framing);
            pieces += 1;
        }
        assert!(out.pieces.len() <= PIECES && pieces > 2, "{pieces}");
    }

    #[test]
    fn a_socket_that_takes_nothing_is_an_error() {
        let mut out = Out::default();
        out.front().push(b'x');
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let polled = out.poll_write(&mut cx, |_, _| Poll::Ready(Ok(0)));
        assert!(matches!(polled, Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::WriteZero));
    }
}
