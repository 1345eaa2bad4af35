//! Who gets a stream on which of a worker's connections to one server of HTTP/2, and who opens another.
//!
//! One connection is opened at a time, for all who need it: by the first who waits, in its own time. Whatever becomes
//! free goes to who has waited longest. A server that allows few streams at once gets so many connections and no more
//! ([`MOST`]): it has said that it wants to be asked little at once, and hundreds of connections would ask it much by
//! other means. What is beyond that waits here, for as long as its own time lasts.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use tidegate_engine::Timestamp;
use tokio::sync::oneshot;

use super::failure::Failure;
use super::multiplexed::{Multiplexed, Stream};

/// Connections of a worker to a server that allows fewer streams on one than we would send ([`STREAMS`]). Where it
/// allows as many, admission alone bounds how many connections there are: 16 times a hundred would be too few for
/// streams that stay open.
///
/// [`STREAMS`]: super::multiplexed::STREAMS
const MOST: usize = 16;

/// A worker's connections to one server, and who waits for a stream.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    connections: RefCell<Vec<Rc<Multiplexed>>>,
    /// The first has waited longest. As many as requests are under way.
    waiting: RefCell<VecDeque<oneshot::Sender<Offer>>>,
    is_opening: Cell<bool>,
}

/// What a request gets.
#[derive(Debug)]
pub(crate) enum Offer {
    /// A stream.
    Stream(Stream),
    /// It is to open a connection, for itself and for others.
    Open(Opener),
    /// There is no connection.
    Failed(Failure),
}

/// A place in the queue.
#[derive(Debug)]
pub(crate) struct Place(oneshot::Receiver<Offer>);

impl Place {
    /// Until its turn comes.
    pub(crate) async fn turn(self) -> Offer {
        self.0.await.unwrap_or(Offer::Failed(Failure::Connect))
    }
}

impl Shared {
    /// What a request can have at once, or its place in the queue. `fresh`: on no connection that was there before,
    /// where another one may be opened.
    pub(crate) fn ask(self: &Rc<Self>, fresh: bool) -> Result<Offer, Place> {
        if fresh && self.may_open() {
            return Ok(self.opener());
        }
        self.settle();
        if self.waiting.borrow().is_empty()
            && let Some(offer) = self.offer()
        {
            return Ok(offer);
        }
        let (sender, receiver) = oneshot::channel();
        self.waiting.borrow_mut().push_back(sender);
        Err(Place(receiver))
    }

    /// Gives what there is to who waits.
    pub(super) fn settle(self: &Rc<Self>) {
        while self.is_awaited() {
            let Some(offer) = self.offer() else { return };
            let first = self.waiting.borrow_mut().pop_front();
            if let Some(first) = first {
                // It waits still, so this cannot fail.
                drop(first.send(offer));
            }
        }
    }

    /// Lets go of those that rest: how many.
    pub(crate) fn close_resting(&self) -> usize {
        let mut connections = self.connections.borrow_mut();
        let before = connections.len();
        connections.retain(|connection| connection.rests_since().is_none());
        before - connections.len()
    }

    /// Lets go of those that are closed, and of those that rest for as long as `is_old` says.
    pub(crate) fn sweep(&self, is_old: impl Fn(Timestamp) -> bool) {
        self.connections
            .borrow_mut()
            .retain(|connection| connection.is_usable() && !connection.rests_since().is_some_and(&is_old));
    }

    /// Whether somebody waits; who has left meanwhile is forgotten.
    fn is_awaited(&self) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        while waiting.front().is_some_and(oneshot::Sender::is_closed) {
            waiting.pop_front();
        }
        !waiting.is_empty()
    }

    /// What the next one gets, if there is anything.
    fn offer(self: &Rc<Self>) -> Option<Offer> {
        let found = self.connections.borrow().iter().find(|connection| connection.has_room()).cloned();
        match found {
            Some(found) => Some(Offer::Stream(Stream::new(&found))),
            None => self.may_open().then(|| self.opener()),
        }
    }

    /// Whether another connection may be opened now.
    fn may_open(&self) -> bool {
        if self.is_opening.get() {
            return false;
        }
        let mut connections = self.connections.borrow_mut();
        // Requests that are on them hold them still.
        connections.retain(|connection| connection.is_usable());
        connections.len() < MOST || connections.iter().all(|connection| connection.takes_all())
    }

    fn opener(self: &Rc<Self>) -> Offer {
        self.is_opening.set(true);
        Offer::Open(Opener(self.clone()))
    }
}

/// Opens a connection for all who wait for it.
#[derive(Debug)]
pub(crate) struct Opener(Rc<Shared>);

impl Opener {
    /// There it is.
    pub(crate) fn opened(self, connection: Rc<Multiplexed>) -> Stream {
        let stream = Stream::new(&connection);
        self.0.connections.borrow_mut().push(connection);
        stream
    }

    /// There is none, for nobody.
    pub(crate) fn failed(self, why: Failure) {
        for waiting in self.0.waiting.take() {
            drop(waiting.send(Offer::Failed(why)));
        }
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.is_opening.set(false);
        self.0.settle();
    }
}
