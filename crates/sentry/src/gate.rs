//! The gate: hyper's view of a client's socket, with the read side kept in our own hands.
//!
//! At a message boundary (every earlier request is answered in full and flushed, and hyper has nothing of this
//! connection unread) the gate reads the next head in place ([`head`]). A plain request that is refused is answered
//! from a prepared response, and one without a body is read here for the service ([`whole`]); hyper never hears of
//! either, unless it has the connection. Any other request is given to hyper byte by byte as it came, and
//! exactly to the end of its body: the gate follows its framing, so that it knows where the next head begins, and holds
//! back whatever the client sends ahead. So there is always one message at most between the two readers, and every
//! head passes both.

pub(crate) mod bad;
mod beginning;
pub(crate) mod chunked;
mod closing;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
pub(crate) mod head;
mod owing;
mod reader;
pub(crate) mod sift;
pub(crate) mod whole;
pub(crate) mod wire;

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::rt::ReadBufCursor;
use tokio::io::{AsyncRead, ReadBuf};

use self::chunked::Follower;
use self::closing::Closing;
use self::head::{Bad, Framing};
pub(crate) use self::reader::Reader;
use self::sift::{Origin, Passing, Step, sift};
use self::whole::Whole;
use self::wire::poll_read_straight;
use crate::client::{Client, Wait};
use crate::door::Door;
use crate::share::Scratch;
use crate::transport::Transport;

/// How much a client may send ahead while its request is being answered.
const HOLD_AT_MOST: usize = 64 * 1024;

/// A larger buffer is given back once it is empty.
const KEEP_AT_MOST: usize = 16 * 1024;

/// A client's socket as hyper sees it.
#[derive(Debug)]
pub(crate) struct Gate {
    io: Transport,
    worker: Rc<Door>,
    client: Rc<Client>,
    mode: Mode,
    /// Bytes read and not yet given to hyper, from `held_at` on.
    held: Vec<u8>,
    // Smaller than a `usize`: it makes an idle connection's task half as large (`serve`).
    held_at: u32,
    /// Answers that the socket did not take at once.
    out: Vec<u8>,
    /// More of an answer is held since hyper last asked whether all is written.
    held_more: bool,
    /// The client has closed its sending side.
    eof: bool,
    /// Nothing more is read; the connection closes when `out` is written.
    closing: Closing,
    /// No request came yet: it may still turn out to be HTTP/2.
    is_new: bool,
}

/// Whose turn it is.
#[derive(Debug)]
enum Mode {
    /// Ours: after `discard` bytes of a refused request's body, which are thrown away, the next head begins.
    Boundary {
        discard: u64,
        /// Of an unfinished head so many bytes were examined.
        examined: u32,
    },
    /// The service gets a request that was read here.
    Whole(Box<Whole>),
    /// hyper gets `fixed` more bytes, and then what `chunks` still follows.
    Giving { fixed: u64, chunks: Option<Follower> },
    /// hyper, or the service, has the whole request; its answer is awaited.
    Answering,
    /// The request's framing was lost: hyper gets everything, its body counts as broken, and the connection closes
    /// after the answer.
    Loose,
}

impl Mode {
    const BOUNDARY: Mode = Mode::Boundary { discard: 0, examined: 0 };
}

/// What came of the time at a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// hyper gets a request.
    Pass,
    /// The service gets a request without hyper.
    Serve,
    /// The client speaks HTTP/2.
    Http2,
    /// It is HAProxy, and asks for others.
    Spop,
    /// The connection is over.
    End,
}

impl Gate {
    pub(crate) fn new(io: Transport, worker: Rc<Door>, client: Rc<Client>) -> Self {
        Gate {
            io,
            worker,
            client,
            mode: Mode::BOUNDARY,
            held: Vec::new(),
            held_at: 0,
            out: Vec::new(),
            held_more: false,
            eof: false,
            closing: Closing::No,
            is_new: true,
        }
    }

    /// Between requests, without hyper: until there is one for it, or the connection is over.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Turn>> {
        match self.mode {
            Mode::Boundary { .. } => self.poll_boundary(cx, false),
            Mode::Whole(_) => Poll::Ready(Ok(Turn::Serve)),
            _ => Poll::Ready(Ok(Turn::Pass)),
        }
    }

    /// The request that the service gets without hyper.
    pub(crate) fn take_whole(&mut self) -> Option<Box<Whole>> {
        match std::mem::replace(&mut self.mode, Mode::Answering) {
            Mode::Whole(whole) => Some(whole),
            _ => None,
        }
    }

    /// Whether hyper has nothing to do here: no request, no bytes.
    pub(crate) fn at_rest(&self) -> bool {
        matches!(self.mode, Mode::Boundary { .. }) && self.closing == Closing::No
    }

    /// Answers with an error at a boundary, and closes.
    pub(crate) fn fail(&mut self, bad: Bad) {
        sift::answer_bad(&self.worker, bad, &mut self.out);
        self.take_step(Step::Close { unread: true });
    }

    /// The socket, and what was read from it ahead.
    pub(crate) fn into_parts(mut self) -> (Transport, Vec<u8>) {
        self.held.drain(..self.held_at as usize);
        (self.io, self.held)
    }

    fn held_is_empty(&self) -> bool {
        self.held().is_empty()
    }

    fn held(&self) -> &[u8] {
        &self.held[self.held_at as usize..]
    }

    /// The first `n` bytes held are dealt with. No more than a few heads are ever held, so this stays small.
    fn let_go(&mut self, n: usize) {
        self.held_at += n as u32;
    }

    fn forget_held(&mut self) {
        if self.held.capacity() > KEEP_AT_MOST {
            self.held = Vec::new();
        }
        self.held.clear();
        self.held_at = 0;
    }

    fn poll_boundary(&mut self, cx: &mut Context<'_>, has_hyper: bool) -> Poll<io::Result<Turn>> {
        let polled = self.poll_boundary_uncounted(cx, has_hyper);
        self.count_held();
        polled
    }

    fn poll_boundary_uncounted(&mut self, cx: &mut Context<'_>, has_hyper: bool) -> Poll<io::Result<Turn>> {
        loop {
            // Answers go out before anything more is read or decided: a client that only sends is owed one pass's
            // answers at most.
            if self.poll_flush_out(cx)?.is_pending() {
                return self.poll_owing();
            }
            if self.closing != Closing::No {
                return Poll::Ready(Ok(Turn::End));
            }
            if self.is_new
                && !self.held_is_empty()
                && let Some(turn) = ready!(self.poll_beginning(cx))?
            {
                return Poll::Ready(Ok(turn));
            }
            if self.fresh_bytes() {
                match self.sift_held(has_hyper) {
                    Some(turn) => return Poll::Ready(Ok(turn)),
                    None => continue,
                }
            }
            if self.client.waits_for() == Wait::ResponseBody {
                self.worker.idle(&self.client);
            }
            match self.poll_read_and_sift(cx, has_hyper)? {
                Poll::Ready(Some(Turn::End)) => self.close(false),
                Poll::Ready(Some(turn)) => return Poll::Ready(Ok(turn)),
                Poll::Ready(None) => {}
                // A request that is already here is still answered; only then does a closing connection close.
                Poll::Pending if self.client.close.get() && self.held_is_empty() => self.close(false),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Reads, and goes over what came. The common case, nothing held, works in the worker's buffer and copies only
    /// what a pass leaves.
    fn poll_read_and_sift(&mut self, cx: &mut Context<'_>, has_hyper: bool) -> Poll<io::Result<Option<Turn>>> {
        if self.is_new || !self.held_is_empty() {
            // No more than shows that the head is too large.
            let most = self.worker.head().bytes + 1;
            if ready!(self.poll_fill(cx, most))? == 0 {
                return Poll::Ready(Ok(Some(Turn::End)));
            }
            let is_due = !self.is_new && self.must_examine(most);
            return Poll::Ready(Ok(if is_due { self.sift_held(has_hyper) } else { None }));
        }
        let scratch = self.worker.scratch.clone();
        let Scratch { input, out, .. } = &mut *scratch.borrow_mut();
        let mut buffer = ReadBuf::new(input);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer))?;
        let input = buffer.filled();
        if input.is_empty() {
            self.eof = true;
            return Poll::Ready(Ok(Some(Turn::End)));
        }
        let input = &input[self.skip_discarded(input.len())..];
        if input.is_empty() {
            return Poll::Ready(Ok(None));
        }
        out.clear();
        let sifted = sift(&self.worker, Origin::of(&self.client, has_hyper), input, out);
        self.forget_held();
        self.held.extend_from_slice(&input[sifted.consumed..]);
        self.answer(cx, out)?;
        Poll::Ready(Ok(self.take_step(sifted.step)))
    }

    /// How many of `available` new bytes belong to a request that was refused already.
    fn skip_discarded(&mut self, available: usize) -> usize {
        let Mode::Boundary { discard, .. } = &mut self.mode else { return 0 };
        let skipped = (*discard).min(available as u64);
        *discard -= skipped;
        if skipped > 0 && *discard == 0 {
            self.worker.idle(&self.client);
        }
        skipped as usize
    }

    /// Whether bytes are held that no pass has been over: those that came while hyper was busy.
    fn fresh_bytes(&self) -> bool {
        !self.held_is_empty() && self.client.waits_for() != Wait::Header
    }

    /// Whether it is worth while to go over an unfinished head again.
    fn must_examine(&self, most: usize) -> bool {
        let Mode::Boundary { examined, .. } = self.mode else { return true };
        self.held().len() >= most || head::has_grown(self.held(), examined as usize)
    }

    /// One pass over what is held.
    fn sift_held(&mut self, has_hyper: bool) -> Option<Turn> {
        let input = &self.held[self.held_at as usize..];
        let sifted = sift(&self.worker, Origin::of(&self.client, has_hyper), input, &mut self.out);
        self.let_go(sifted.consumed);
        self.take_step(sifted.step)
    }

    fn take_step(&mut self, step: Step) -> Option<Turn> {
        match step {
            Step::Pass(passing) => return Some(self.begin(passing)),
            Step::Discard(missing) => {
                self.mode = Mode::Boundary { discard: missing, examined: 0 };
                self.forget_held();
                // It was answered: when the rest does not come, there is nothing more to say.
                self.client.idle(self.worker.deadline(|timeouts| timeouts.header));
            }
            Step::Close { unread } => {
                self.close(unread || !self.held_is_empty());
                self.forget_held();
            }
            // The rest of the pass follows once these answers are taken.
            Step::Full => self.client.wait(Wait::ResponseBody, self.worker.deadline(|timeouts| timeouts.body_idle)),
            // Empty lines ask for nothing, so they gain no time either.
            Step::Blank => self.forget_held(),
            Step::More if self.held_is_empty() => {
                self.forget_held();
                self.worker.idle(&self.client);
            }
            Step::More => {
                self.held.drain(..self.held_at as usize);
                self.held_at = 0;
                self.mode = Mode::Boundary { discard: 0, examined: self.held.len() as u32 };
                if self.client.waits_for() != Wait::Header {
                    let deadline = self.worker.deadline(|timeouts| timeouts.header);
                    self.client.wait(Wait::Header, deadline);
                }
            }
        }
        None
    }

    fn begin(&mut self, passing: Passing) -> Turn {
        let turn = if passing.whole.is_some() { Turn::Serve } else { Turn::Pass };
        self.mode = passing.whole.map_or_else(
            || {
                let chunks = (passing.framing == Framing::Chunked).then(Follower::default);
                let body = if let Framing::Length(length) = passing.framing { length } else { 0 };
                Mode::Giving { fixed: passing.head as u64 + body, chunks }
            },
            Mode::Whole,
        );
        self.client.asks_whole_server.set(passing.whole_server);
        // It asked in time: what was held against it as an idle connection is void.
        self.client.take_expired();
        self.client.pass(passing.arrival);
        let deadline = self.worker.deadline(|timeouts| timeouts.header);
        self.client.wait(Wait::RequestBody, deadline);
        turn
    }

    /// Reads into `held`, until that has `most` bytes or by one byte; how many bytes.
    fn poll_fill(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<usize>> {
        let room = most.saturating_sub(self.held().len()).max(1);
        let scratch = self.worker.scratch.clone();
        let mut buffer = scratch.borrow_mut();
        let room = room.min(buffer.input.len());
        let mut buffer = ReadBuf::new(&mut buffer.input[..room]);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer))?;
        let read = buffer.filled();
        self.held.extend_from_slice(read);
        if read.is_empty() {
            self.eof = true;
        }
        Poll::Ready(Ok(read.len()))
    }

    /// Gives hyper bytes of the current request.
    fn poll_give(&mut self, cx: &mut Context<'_>, mut to: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if self.held_is_empty() {
            self.forget_held();
            if let Mode::Giving { fixed, chunks: None } = &mut self.mode
                && *fixed >= to.remaining() as u64
            {
                let read = ready!(poll_read_straight(&mut self.io, cx, to))?;
                *fixed -= read as u64;
                self.eof |= read == 0;
                self.end_of_giving();
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_fill(cx, HOLD_AT_MOST))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        let ready = &self.held[self.held_at as usize..];
        let most = ready.len().min(to.remaining());
        let Mode::Giving { fixed, chunks } = &mut self.mode else { return Poll::Ready(Ok(())) };
        let mut give = most.min(usize::try_from(*fixed).unwrap_or(usize::MAX));
        *fixed -= give as u64;
        if let Some(follower) = chunks
            && *fixed == 0
        {
            give += follower.follow(&ready[give..most]);
        }
        to.put_slice(&ready[..give]);
        self.let_go(give);
        self.end_of_giving();
        Poll::Ready(Ok(()))
    }

    fn end_of_giving(&mut self) {
        match &self.mode {
            Mode::Giving { chunks: Some(follower), .. } if follower.lost() => {
                self.client.close.set(true);
                self.client.upload.is_lost.set(true);
                self.mode = Mode::Loose;
            }
            Mode::Giving { fixed: 0, chunks } if chunks.is_none_or(Follower::done) => self.mode = Mode::Answering,
            _ => {}
        }
    }

    /// While the answer is awaited: keeps what the client sends ahead, and tells only that the client left.
    pub(crate) fn poll_hold(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.eof && self.held().len() < HOLD_AT_MOST && !self.worker.holds_too_much() {
            let filled = self.poll_fill(cx, HOLD_AT_MOST);
            self.count_held();
            ready!(filled)?;
        }
        // Who sent more before it left has left all the same, unless an end of its sending is none of its reading here.
        let has_left = self.eof && (self.held_is_empty() || !self.worker.local().live.config.half_close);
        if has_left { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn poll_loose(&mut self, cx: &mut Context<'_>, mut to: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if self.client.is_answered() {
            return Poll::Ready(Ok(()));
        }
        if self.held_is_empty() {
            return poll_read_straight(&mut self.io, cx, to).map_ok(|read| self.eof |= read == 0);
        }
        let ready = &self.held[self.held_at as usize..];
        let give = ready.len().min(to.remaining());
        to.put_slice(&ready[..give]);
        self.let_go(give);
        Poll::Ready(Ok(()))
    }

    /// hyper has written all of an answer: the message is over, and the next one may begin.
    fn end_of_message(&mut self, cx: &Context<'_>) {
        if let Some(ending) = self.client.take_ending() {
            ending.report();
        }
        if !matches!(self.mode, Mode::Answering) || self.client.is_upgrading() {
            // The client still sends its body: hyper drains it or closes.
            return;
        }
        self.client.end_message();
        self.client.unwritten.set(0);
        self.mode = Mode::BOUNDARY;
        self.client.reader.take();
        self.worker.idle(&self.client);
        // hyper saw `Pending` for bytes that were held back, and nothing else would wake it.
        if !self.held_is_empty() || self.client.close.get() || self.eof {
            cx.waker().wake_by_ref();
        }
    }
}
