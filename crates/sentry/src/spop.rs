//! HAProxy's way to ask, SPOP 2.0: it sends requests to their servers itself, and asks here whether it may.
//!
//! *Intuition.* A connection carries the questions of many requests, in turn and without waiting; each is answered when
//! it is its request's turn, in any order. A question is the head of a request, and goes the way of every request
//! ([`crate::proxy`]); what its client would be told becomes variables of HAProxy's, by which HAProxy goes on or
//! refuses. When the request is over, HAProxy's log tells of it ([`crate::ends`]). *Awkward cases.* HAProxy does not
//! say that a client left while it waits: its turn comes, and the end at once after it. When a connection breaks, its
//! questions are asked by nobody any more, and HAProxy goes on as if there were no sentry. What is malformed, too
//! large, or in parts ends the connection with the status that says so.
//!
//! *Source.* HAProxy's `doc/SPOE.txt`, section 3.

mod asked;
mod frame;
mod question;
mod value;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{Response, Uri, request};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinSet;

use self::asked::Asked;
use self::frame::{Heard, LARGEST, Of, Set, Status};
use crate::client::{Client, Wait};
use crate::config::Asker;
use crate::counters::Counter;
use crate::door::Door;
use crate::ending::{self, Refused};
use crate::gate::head::Bad;
use crate::headers;
use crate::http2::{conduct, head};
use crate::permit::{BodyIs, Policed, police};
use crate::proxy::View;
use crate::record::Protocol;
use crate::reject;
use crate::serve::LINGER;
use crate::share::{Scratch, WorkerApp};

/// Frames that are read before other tasks get their turn.
const BATCH: usize = 64;

/// While so many bytes of answers are not taken, no more is read.
const UNTAKEN: usize = 256 * 1024;

/// How often a connection with open questions looks whether the sentry drains.
const TICK: Duration = Duration::from_secs(1);

/// Whether a connection that begins with these bytes speaks SPOP: a frame's length has four bytes and no more than two
/// of them are needed, while every request begins with a letter.
pub(crate) fn begins(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0)
}

/// Whether HAProxy asks here.
pub(crate) fn is_spoken(door: &Door) -> bool {
    door.is_asked_by(Asker::Haproxy)
}

/// What a connection and its questions share.
#[derive(Debug)]
struct Shared {
    worker: Rc<Door>,
    /// The connection.
    client: Rc<Client>,
    /// Questions that wait for their answers.
    open: Cell<usize>,
    /// What is to be written.
    out: RefCell<BytesMut>,
    /// The largest frame, bytes.
    largest: Cell<usize>,
}

impl Shared {
    fn answer(&self, of: Of, variables: &[(&str, Set)]) {
        frame::ack(&mut self.out.borrow_mut(), of, variables, self.largest.get());
        self.client.wake();
    }

    fn opened(&self) {
        if self.open.replace(self.open.get() + 1) == 0 {
            self.client.wait(Wait::Queue, self.worker.lately() + TICK);
        }
    }

    fn closed(&self) {
        self.open.update(|open| open - 1);
        self.rest();
    }

    /// Without a question it waits for the next one.
    fn rest(&self) {
        if self.open.get() == 0 && self.client.waits_for() == Wait::Queue {
            self.worker.idle(&self.client);
        }
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// HAProxy has not greeted.
    New,
    /// It asks.
    Asking,
    /// Once all is written it closes.
    Ending,
}

/// Serves a connection to its end. `ahead`: what was read of it. `client` is registered, and polled by the same task
/// from its first poll on.
pub(crate) async fn serve<T>(io: T, ahead: &[u8], worker: Rc<Door>, client: Rc<Client>)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    client.close.set(false);
    client.says_goodbye.set(true);
    client.wait(Wait::Header, worker.deadline(|timeouts| timeouts.header));
    let (open, out, largest) = (Cell::new(0), RefCell::default(), Cell::new(LARGEST));
    let shared = Rc::new(Shared { worker, client, open, out, largest });
    let mut served = Served { io, read: ahead.into(), shared, questions: JoinSet::new(), state: State::New };
    // An error means that HAProxy is gone.
    let _ = poll_fn(|cx| served.poll(cx)).await;
}

/// A connection. Dropped, what it asks for is asked by nobody.
struct Served<T> {
    io: T,
    /// What is no whole frame yet.
    read: BytesMut,
    shared: Rc<Shared>,
    questions: JoinSet<()>,
    state: State,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Served<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.client.remember(cx);
        for _ in 0..BATCH {
            while let Poll::Ready(Some(_)) = self.questions.poll_join_next(cx) {}
            if self.is_out_of_time() {
                return Poll::Ready(Ok(()));
            }
            let written = self.poll_write(cx)?;
            if self.state == State::Ending {
                ready!(written);
                return Pin::new(&mut self.io).poll_shutdown(cx);
            }
            match frame::next(&mut self.read, self.shared.largest.get()) {
                Ok(Some(heard)) => self.hear(heard),
                Ok(None) if self.shared.out.borrow().len() > UNTAKEN => return Poll::Pending,
                Ok(None) => {
                    if ready!(self.poll_read(cx))? == 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
                Err(status) => self.end(status),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Looks at the time. `true`: nothing more is waited for.
    fn is_out_of_time(&mut self) -> bool {
        let Shared { worker, client, open, .. } = &*self.shared;
        match client.take_expired() {
            None => {}
            Some(Wait::Queue) if open.get() > 0 => client.wait(Wait::Queue, worker.lately() + TICK),
            Some(Wait::Idle | Wait::Queue) if worker.is_closing(client.peer()) => self.end(Status::Normal),
            Some(Wait::Idle | Wait::Queue) => {
                worker.lane().bump(Counter::TimeoutClientIdle);
                self.end(Status::TimedOut);
            }
            Some(Wait::Header) => self.end(Status::TimedOut),
            Some(_) => return true,
        }
        false
    }

    /// Reads what is there: how many bytes.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let scratch = self.shared.worker.scratch.clone();
        let Scratch { input, .. } = &mut *scratch.borrow_mut();
        let mut buffer = ReadBuf::new(input);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer))?;
        self.read.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Writes what is to be written, as far as it is taken.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        let mut out = self.shared.out.borrow_mut();
        while !out.is_empty() {
            match Pin::new(&mut self.io).poll_write(cx, &out)? {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => out.advance(written),
            }
        }
        Ok(Pin::new(&mut self.io).poll_flush(cx)?.map(|()| ()))
    }

    fn hear(&mut self, heard: Heard) {
        match (self.state, heard) {
            (State::New, Heard::Hello { largest, is_check }) => {
                frame::hello(&mut self.shared.out.borrow_mut(), largest);
                self.shared.largest.set(largest);
                self.shared.worker.idle(&self.shared.client);
                self.state = State::Asking;
                if is_check {
                    self.close();
                }
            }
            (State::Asking, Heard::Notify(of, payload)) => self.take(of, &payload),
            (_, Heard::Disconnect) => self.end(Status::Normal),
            (State::New, _) | (_, Heard::Hello { .. }) => self.end(Status::Invalid),
            (_, Heard::Other | Heard::Notify(..)) => {}
        }
    }

    /// Says why, and closes.
    fn end(&mut self, status: Status) {
        frame::disconnect(&mut self.shared.out.borrow_mut(), status);
        if !matches!(status, Status::Normal | Status::TimedOut) {
            self.shared.worker.lane().bad(Bad::Syntax);
        }
        self.close();
    }

    fn close(&mut self) {
        self.state = State::Ending;
        self.shared.client.wait(Wait::Linger, self.shared.worker.deadline(|_| LINGER));
    }

    /// Settles what a request asks for, and whose it is.
    fn settle(&self, parts: &mut request::Parts) -> Result<Rc<WorkerApp>, Bad> {
        let Shared { worker, client, .. } = &*self.shared;
        head::settle(parts, &worker.head())?;
        // What a handshake said was said by HAProxy.
        let found = worker.find(&View { parts, client }, None)?;
        if found.is_asked_by(Asker::Haproxy) { Ok(found.clone()) } else { Err(Bad::NoApplication) }
    }

    /// Answers what is refused, and gives any other question a task.
    fn take(&mut self, of: Of, payload: &[u8]) {
        let shared = &self.shared;
        let asked = match question::read(payload) {
            Ok(Some(asked)) => asked,
            Ok(None) => return shared.answer(of, &[]),
            Err(_) => return self.end(Status::Invalid),
        };
        let settled = asked.and_then(|mut parts| {
            let came = parts.uri.clone();
            self.settle(&mut parts).map(|worker| (worker, parts, came))
        });
        match settled {
            Ok((worker, parts, came)) => self.judge(of, &worker, parts, &came),
            Err(bad) => {
                let lane = shared.worker.lane();
                lane.bad(bad);
                lane.status(bad.status());
                shared.refuse(of, reject::error(bad.status(), bad.name()));
            }
        }
    }

    /// Polices a request whose target came as `came`.
    fn judge(&mut self, of: Of, worker: &Rc<WorkerApp>, parts: request::Parts, came: &Uri) {
        let shared = &self.shared;
        let peer = shared.client.peer();
        if !conduct::has_room(&shared.worker, peer.ip()) {
            worker.lane().status(503);
            return shared.refuse(of, reject::error(503, "crowded"));
        }
        let view = View { parts: &parts, client: &shared.client };
        let arrival = police(worker, &view, worker.now(), BodyIs::Here);
        if let Policed::Refused(rejection) = &arrival.policed {
            let live = &arrival.local.live;
            let answer = reject::response(live, rejection, &parts.headers);
            let (status, bytes_out) = (reject::status(live, rejection), answer.body().len());
            let refused = Refused { status, grpc_status: None, bytes_out, protocol: Protocol::Http1 };
            ending::record_refusal(worker, &arrival, &view, peer, refused);
            return shared.refuse(of, answer);
        }
        let quality = headers::quality(arrival.local.live.policer.quality(arrival.request.request_type));
        let changes = question::changes(came, &parts.uri, quality);
        let asked = Asked::new(shared, of, arrival, &parts.headers);
        self.questions.spawn_local(asked.run(parts, changes));
    }
}

impl Shared {
    /// Tells HAProxy to give this answer.
    fn refuse(&self, of: Of, answer: Response<Bytes>) {
        let (head, body) = answer.into_parts();
        self.answer(of, &question::refusal(&Response::from_parts(head, ()), body));
    }
}
