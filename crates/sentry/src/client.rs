//! One client's connection: what its gate, the service behind it, and the worker's sweep share.
//!
//! Everything of a connection runs in one task on one thread, so plain cells do. Time-outs are coarse on purpose:
//! a registered timer costs more than a refusal, so a connection only notes its deadline, and the worker's sweep
//! wakes those whose deadline has passed.

mod ends;
mod sharer;
mod slot;
mod wait;

use std::cell::{Cell, OnceCell, RefCell};
use std::net::{Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::HeaderValue;
use tidegate_engine::{Ticket, Timestamp};

use self::ends::compact;
pub(crate) use self::sharer::Sharer;
pub(crate) use self::slot::Slot;
pub(crate) use self::wait::Wait;
use crate::ending::Ending;
use crate::gate::Reader;
use crate::gate::head::Bad;
use crate::permit::Arrival;
use crate::tls::Facts;
use crate::tunnel::ServerEnd;

/// How far the current request is, with what one step of its way leaves for the next. The methods of [`Client`] are all
/// the steps there are.
#[derive(Debug, Default)]
enum Phase {
    /// There is none: the gate reads.
    #[default]
    Idle,
    /// hyper gets a request from the gate, which has decided about it if it was plain.
    Arrived(Option<Box<Arrival>>),
    /// The service answers it; under this ticket, once it is admitted.
    Serving(Option<Admission>),
    /// The same, while hyper has the answer's body and asks for no more of it: what is known of its end.
    Lent(Box<Ending>),
    /// The service answers it with a `101`: a tunnel to the server follows.
    Upgrading(Box<ServerEnd>),
    /// hyper has let go of the answer's body: after the next flush the message is over. `None`: it is, or the client is
    /// gone; either was reported.
    Answered(Option<Box<Ending>>),
    /// The same of a `101`.
    Upgraded(Option<Box<Ending>>, Box<ServerEnd>),
}

/// A place that an application gave: which application of its worker's, and the ticket.
pub(crate) type Admission = (u16, Ticket);

/// The current request's body, as it comes.
#[derive(Debug, Default)]
pub(crate) struct Upload {
    /// How many bytes of it came.
    pub(crate) bytes: Cell<u64>,
    /// Why it cannot be read on, once it cannot.
    pub(crate) fault: Cell<Option<Bad>>,
    /// It is not framed as it must be, whatever hyper makes of it; the connection ends after this request.
    pub(crate) is_lost: Cell<bool>,
    /// The server would take more of it, and the client does not send it.
    pub(crate) is_starved: Cell<bool>,
}

/// One client's connection. Ten thousand of these may be idle, so what only a request needs is boxed.
#[derive(Debug)]
pub(crate) struct Client {
    /// Who is served: the other end, or whom it speaks for. [`SocketAddr`] is nearly twice as large.
    peer: Cell<(Ipv6Addr, u16)>,
    /// What it connected to, where servers are told of that.
    local: Cell<ends::Local>,
    /// What its handshake said, where there was one.
    facts: OnceCell<Rc<Facts>>,
    phase: RefCell<Phase>,
    /// The current request's body.
    pub(crate) upload: Upload,
    /// The connection closes after the current answer.
    pub(crate) close: Cell<bool>,
    /// hyper is not needed, or not there: set by the sweep when nothing happens.
    pub(crate) shed: Cell<bool>,
    /// It is a stream of HTTP/2: closing it gives back memory, and no connection.
    pub(crate) is_stream: Cell<bool>,
    /// Which of its worker's entrances it came in by.
    pub(crate) entrance: Cell<u16>,
    /// It speaks HTTP/2: its client is told before it is closed, with a request on its way or not.
    pub(crate) says_goodbye: Cell<bool>,
    /// The request's target names a host and no path.
    pub(crate) asks_whole_server: Cell<bool>,
    /// Bytes that are held for it, as they are counted; KiB among them that its connection takes whatever it does.
    pub(crate) held: Cell<u32>,
    pub(crate) own: Cell<u16>,
    /// Bytes of an answer that hyper has and the socket has not taken.
    pub(crate) unwritten: Cell<u32>,
    /// How it reads, once it does not keep up.
    pub(crate) reader: Slot<Reader>,
    /// The peer's address as a header value, kept while hyper is there.
    forwarded_for: Slot<HeaderValue>,
    wait: Cell<Wait>,
    deadline: Cell<Timestamp>,
    request_deadline: Cell<Timestamp>,
    expired: Cell<Option<Wait>>,
    was_idle: Cell<bool>,
    waker: OnceCell<Waker>,
}

impl Client {
    /// A connection that waits for its first request until `deadline`.
    pub(crate) fn new(peer: SocketAddr, deadline: Timestamp) -> Rc<Self> {
        Rc::new(Client {
            peer: Cell::new(compact(peer)),
            local: Cell::default(),
            facts: OnceCell::new(),
            phase: RefCell::default(),
            upload: Upload::default(),
            close: Cell::default(),
            shed: Cell::new(true),
            is_stream: Cell::default(),
            entrance: Cell::default(),
            says_goodbye: Cell::default(),
            asks_whole_server: Cell::default(),
            held: Cell::default(),
            own: Cell::default(),
            unwritten: Cell::default(),
            reader: Slot::default(),
            forwarded_for: Slot::default(),
            wait: Cell::default(),
            deadline: Cell::new(deadline),
            request_deadline: Cell::new(Timestamp::MAX),
            expired: Cell::default(),
            was_idle: Cell::default(),
            waker: OnceCell::new(),
        })
    }

    /// Its handshake is done.
    pub(crate) fn learn(&self, facts: Facts) {
        self.facts.get_or_init(|| Rc::new(facts));
    }

    /// It is one of several that share a connection, and so what its handshake said.
    pub(crate) fn learn_from(&self, connection: &Client) {
        self.entrance.set(connection.entrance.get());
        self.local.set(connection.local.get());
        if let Some(facts) = connection.facts.get() {
            self.facts.get_or_init(|| facts.clone());
        }
    }

    /// What its handshake said; `None`: it speaks plain HTTP.
    pub(crate) fn facts(&self) -> Option<&Facts> {
        self.facts.get().map(|facts| &**facts)
    }

    /// The gate lets a request through to hyper.
    pub(crate) fn pass(&self, arrival: Option<Box<Arrival>>) {
        self.phase.replace(Phase::Arrived(arrival));
    }

    /// The service takes the request; the gate's decision, if it has made one.
    pub(crate) fn serve(&self) -> Option<Box<Arrival>> {
        match self.phase.replace(Phase::Serving(None)) {
            Phase::Arrived(arrival) => arrival,
            // Framing was lost, so the gate saw no head of it.
            _ => None,
        }
    }

    /// The answer's body goes on when hyper asks for more; until then `ending` is here.
    pub(crate) fn lend(&self, ending: Box<Ending>) {
        self.phase.replace(Phase::Lent(ending));
    }

    /// What the answer's body lent.
    pub(crate) fn take_back(&self) -> Option<Box<Ending>> {
        let mut phase = self.phase.borrow_mut();
        let Phase::Lent(ending) = &*phase else { return None };
        let serving = Phase::Serving(ending.admission());
        match std::mem::replace(&mut *phase, serving) {
            Phase::Lent(ending) => Some(ending),
            _ => None,
        }
    }

    /// Ends the answer that hyper asks for no more of. `false`: there is none, or its server is done with it.
    pub(crate) fn cancel_lent(&self) -> bool {
        match &mut *self.phase.borrow_mut() {
            Phase::Lent(ending) => ending.cancel(),
            _ => false,
        }
    }

    /// The request is admitted.
    pub(crate) fn admitted(&self, admission: Admission) {
        self.phase.replace(Phase::Serving(Some(admission)));
    }

    /// Ends the request, if it is that one and its server has not answered in full.
    pub(crate) fn cancel(&self, admission: Admission) {
        let own = match &*self.phase.borrow() {
            Phase::Serving(own) => *own,
            Phase::Lent(ending) => ending.admission(),
            _ => None,
        };
        if own == Some(admission) && !self.gives_way() {
            self.expired.set(Some(Wait::Cancelled));
            self.wake();
        }
    }

    /// The service answers with a `101`, after which `server` is at the other end.
    pub(crate) fn upgrade(&self, server: Box<ServerEnd>) {
        self.phase.replace(Phase::Upgrading(server));
    }

    /// hyper has let go of the answer's body. `ending`: what is to be reported once it is flushed.
    pub(crate) fn answer(&self, ending: Option<Box<Ending>>) {
        let answered = match self.phase.take() {
            Phase::Upgrading(server) => Phase::Upgraded(ending, server),
            _ => Phase::Answered(ending),
        };
        self.phase.replace(answered);
    }

    /// Whether hyper has let go of the answer's body.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Answered(_) | Phase::Upgraded(..))
    }

    /// Whether all of the answer is flushed, too.
    pub(crate) fn is_reported(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Answered(None))
    }

    /// What is to be reported now that the answer is flushed.
    pub(crate) fn take_ending(&self) -> Option<Box<Ending>> {
        match &mut *self.phase.borrow_mut() {
            Phase::Answered(ending) | Phase::Upgraded(ending, _) => ending.take(),
            _ => None,
        }
    }

    /// Whether a tunnel follows the answer.
    pub(crate) fn is_upgrading(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Upgrading(_) | Phase::Upgraded(..))
    }

    /// The server's side of the tunnel that follows.
    pub(crate) fn take_tunnel(&self) -> Option<Box<ServerEnd>> {
        let (ending, server) = match self.phase.take() {
            Phase::Upgrading(server) => (None, Some(server)),
            Phase::Upgraded(ending, server) => (ending, Some(server)),
            _ => (None, None),
        };
        self.phase.replace(Phase::Answered(ending));
        server
    }

    /// The message is over, or the connection is. An answer that was never flushed, a request that hyper never got:
    /// dropped here, both report that the client left.
    pub(crate) fn end_message(&self) {
        drop(self.phase.take());
    }

    /// What it waits for.
    pub(crate) fn waits_for(&self) -> Wait {
        self.wait.get()
    }

    /// It now waits for `wait`, until `deadline`.
    pub(crate) fn wait(&self, wait: Wait, deadline: Timestamp) {
        self.wait.set(wait);
        self.deadline.set(deadline);
        self.was_idle.set(false);
    }

    /// The answer is to go on within the bound on standing still; before that it may be time to look whether it is a
    /// stream.
    pub(crate) fn await_more(&self, idle: Timestamp, look_at: Option<Timestamp>) {
        match look_at {
            Some(at) if at < idle => self.wait(Wait::Look, at),
            _ => self.wait(Wait::ResponseBody, idle),
        }
    }

    /// The whole request must be over by `deadline`.
    pub(crate) fn bound_request(&self, now: Timestamp, most: Option<Duration>) {
        if let Some(most) = most {
            self.request_deadline.set(now + most);
        }
    }

    /// The request may take as long as it takes.
    pub(crate) fn unbound_request(&self) {
        self.request_deadline.set(Timestamp::MAX);
    }

    /// The request is over.
    pub(crate) fn idle(&self, deadline: Timestamp) {
        self.request_deadline.set(Timestamp::MAX);
        self.expired.set(None);
        self.wait(Wait::Idle, deadline);
    }

    /// The peer's address as a header value.
    pub(crate) fn forwarded_for(&self) -> HeaderValue {
        let kept = self.forwarded_for.take().unwrap_or_else(|| Box::new(address_value(self.peer())));
        let value = HeaderValue::clone(&kept);
        self.forwarded_for.put(kept);
        value
    }

    /// Whether it has something that only requests need.
    pub(crate) fn has_kept(&self) -> bool {
        self.forwarded_for.is_some()
    }

    /// Gives back what only requests need.
    pub(crate) fn rest(&self) {
        self.shed.set(true);
        self.forwarded_for.take();
    }

    /// Runs `future`, unless the whole request's time is up first.
    pub(crate) async fn in_time<T>(&self, future: impl Future<Output = T>) -> Result<T, Wait> {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|cx| match self.take_expired() {
            Some(wait) => Poll::Ready(Err(wait)),
            None => future.as_mut().poll(cx).map(Ok),
        })
        .await
    }

    /// The process is short of something: the connection is to go, unless a request comes on it at this moment.
    pub(crate) fn give_way(&self) {
        self.expired.set(Some(Wait::GiveWay));
        self.wake();
    }

    /// Whatever it does has taken too long.
    pub(crate) fn time_is_up(&self) {
        self.close.set(true);
        self.expired.set(Some(Wait::Request));
        self.wake();
    }

    /// Whether it is to go.
    pub(crate) fn gives_way(&self) -> bool {
        self.expired.get() == Some(Wait::GiveWay)
    }

    /// Takes note that a deadline has passed, if one has.
    pub(crate) fn take_expired(&self) -> Option<Wait> {
        self.expired.take()
    }

    /// Whether a deadline has passed that nobody took note of.
    pub(crate) fn expired(&self) -> Option<Wait> {
        self.expired.get()
    }

    /// Remembers whom to wake: the task that polls the connection, always the same.
    pub(crate) fn remember(&self, cx: &Context<'_>) {
        self.waker.get_or_init(|| cx.waker().clone());
    }

    /// Called by the sweep: wakes the connection when it has something to do about time. Where the sentry `stops`,
    /// it closes after its next answer, be its head on its way already; `idle_too` closes one that waits for a request.
    pub(crate) fn sweep(&self, now: Timestamp, stops: bool, idle_too: bool) {
        let idle = self.wait.get() == Wait::Idle;
        if stops {
            self.close.set(true);
        }
        if now >= self.request_deadline.get() {
            self.expired.set(Some(Wait::Request));
        } else if now >= self.deadline.get() || (idle_too && idle) {
            self.expired.set(Some(self.wait.get()));
        } else if idle && self.was_idle.replace(true) && !self.shed.get() {
            self.shed.set(true);
        } else {
            return;
        }
        self.wake();
    }

    /// Wakes the connection's task.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }
}

fn address_value(peer: SocketAddr) -> HeaderValue {
    let address = peer.ip().to_canonical().to_string();
    HeaderValue::from_str(&address).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_through_its_phases_and_the_next_begins_anew() {
        let client = Client::new(([192, 0, 2, 7], 1).into(), Timestamp::MAX);
        for _ in 0..2 {
            assert!(!client.is_answered() && !client.is_reported());
            client.pass(None);
            assert!(client.serve().is_none(), "the gate left the decision to the service");
            assert!(!client.is_answered(), "the service has it");
            client.answer(None);
            assert!(client.is_answered() && client.is_reported() && !client.is_upgrading());
            assert!(client.take_ending().is_none());
            client.end_message();
        }
    }
}
