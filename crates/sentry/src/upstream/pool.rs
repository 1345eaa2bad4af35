//! One worker's idle connections to one server: last in, first out, so that what is not needed ages and is closed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tidegate_engine::Timestamp;

use super::sharing::Shared;
use super::{Line, ServerConn};
use crate::config::ProxyOut;
use crate::counters::{Counter, Lane};
use crate::in_force::Server;
use crate::proxy_protocol::out::Ends;

/// Idle connections to a server.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The server.
    pub(crate) server: Arc<Server>,
    /// Of HTTP/1.1, all of them: a stream of HTTP/2 does not come back.
    #[allow(clippy::vec_box, reason = "each moves to and from the request that uses it, and is large")]
    idle: RefCell<Vec<Box<ServerConn>>>,
    /// When half of those that were not needed lately were closed last.
    thinned: Cell<Timestamp>,
    /// Those of HTTP/2.
    pub(super) shared: Rc<Shared>,
}

impl Pool {
    pub(crate) fn new(server: Arc<Server>) -> Rc<Self> {
        Rc::new(Pool { server, idle: RefCell::default(), thinned: Cell::default(), shared: Rc::default() })
    }

    /// An idle connection that the server has not closed, as far as can be known.
    /// `ends`: for whom, where connections are for one client each.
    pub(crate) fn take(
        self: &Rc<Self>,
        cx: &mut Context<'_>,
        lane: &Lane,
        ends: Option<Ends>,
    ) -> Option<Box<ServerConn>> {
        loop {
            let mut conn = self.newest(ends)?;
            let Line::Own(own) = &mut conn.line else { continue };
            if own.conn.is_quiet(cx) {
                conn.home = Some(self.clone());
                lane.bump(Counter::ServerReuses);
                return Some(conn);
            }
            lane.bump(Counter::ServerStale);
        }
    }

    /// The one that rested last, of those that are for this client.
    fn newest(&self, ends: Option<Ends>) -> Option<Box<ServerConn>> {
        let mut idle = self.idle.borrow_mut();
        if self.server.proxy == ProxyOut::Off {
            return idle.pop();
        }
        let at = idle.iter().rposition(|conn| matches!(&conn.line, Line::Own(own) if own.ends == ends))?;
        Some(idle.remove(at))
    }

    pub(super) fn put(&self, conn: Box<ServerConn>, most: usize) {
        let mut idle = self.idle.borrow_mut();
        if self.server.proxy != ProxyOut::Off && idle.len() >= most && most > 0 {
            // The oldest is most likely of a client that has left.
            idle.remove(0);
        }
        if idle.len() < most {
            idle.push(conn);
        }
    }

    /// Closes all: how many.
    pub(crate) fn close_resting(&self) -> usize {
        self.idle.take().len() + self.shared.close_resting()
    }

    /// Closes what the server has closed, what was idle for longer than `longest`, and half of what was not needed for
    /// a sixth of that, each sixth: a server with a process for each connection has them for others again.
    pub(crate) fn sweep(&self, now: Timestamp, longest: Duration, lane: &Lane) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut unneeded = self.unneeded(now, longest / 6);
        self.idle.borrow_mut().retain_mut(|conn| {
            let Line::Own(own) = &mut conn.line else { return false };
            // The oldest come first.
            if unneeded > 0 || now.since(own.idle_since) >= longest {
                unneeded = unneeded.saturating_sub(1);
                return false;
            }
            let is_quiet = own.conn.is_quiet(&mut cx);
            if !is_quiet {
                lane.bump(Counter::ServerStale);
            }
            is_quiet
        });
        self.shared.sweep(|since| now.since(since) >= longest);
    }

    /// How many are to be closed for want of use, if it is time for it.
    fn unneeded(&self, now: Timestamp, period: Duration) -> usize {
        if now.since(self.thinned.get()) < period {
            return 0;
        }
        self.thinned.set(now);
        let rests = |conn: &ServerConn| matches!(&conn.line, Line::Own(own) if now.since(own.idle_since) >= period);
        self.idle.borrow().iter().take_while(|conn| rests(conn)).count() / 2
    }
}
