//! Connections that requests share: as many streams on each as the server allows, then further connections.
//!
//! *Order.* Who waits for a stream gets it in turn, and nobody overtakes. *Opening.* A server is not known until its
//! SETTINGS are here: a connection has no room before. Meanwhile its requests wait for it, and another one is opened
//! only for those that it could not hold. *Spreading.* A request goes to the connection with the fewest streams, so
//! that the threads behind a port share the load as far as there are connections for them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::{Rc, Weak};

use bytes::Bytes;
use h2::client::{Builder, Connection as Driver, SendRequest};
use tokio::sync::Notify;

use super::classify;
use crate::dial::{Dialer, Member, Transport};
use crate::exchange::{Told, not_connected};
use crate::report::ErrorKind;

/// Bytes of an answer, and of all answers on a connection, that a server may send before they are read. They are read
/// at once, so that only a generator that is late would hold a server up.
const WINDOW: u32 = 1 << 20;
const WINDOWS: u32 = 1 << 26;

/// How many streams a connection is thought to take until one has said so: as many as every server should allow
/// (RFC 9113, section 6.5.2).
const USUAL: usize = 100;

/// How far requests share connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Connections to each destination at most.
    pub(crate) connections: usize,
    /// Requests at once on one connection at most, where the server allows more.
    pub(crate) streams: usize,
    /// Whether connections are kept; otherwise each request has one of its own.
    pub(crate) keep_alive: bool,
    /// Whether the requests are gRPC's.
    pub(crate) is_grpc: bool,
}

/// The connections to one destination.
pub(crate) struct Connections {
    dialer: Dialer,
    bounds: Bounds,
    lanes: RefCell<HashMap<Member, Rc<Lane>>>,
    waits: Cell<u64>,
}

/// Those to one member.
#[derive(Default)]
struct Lane {
    connections: RefCell<Vec<Rc<Connection>>>,
    /// Connections that there are, those included that are being opened.
    open: Cell<usize>,
    opening: Cell<usize>,
    /// Streams that the last connection that was opened allows; 0: none was.
    usual: Cell<usize>,
    /// Requests that wait for a stream.
    waiting: Cell<usize>,
    /// There may be room now.
    changed: Notify,
}

/// A connection, driven by a task of its own until nobody holds it.
struct Connection {
    sender: SendRequest<Bytes>,
    streams: Cell<usize>,
    /// Streams that the server allows; 0 until it has said so.
    limit: Cell<usize>,
    /// Why it ended.
    end: Cell<Option<ErrorKind>>,
    /// One of the two above is known.
    settled: Notify,
}

/// A request's part of a connection; free again when dropped.
pub(super) struct Place {
    lane: Rc<Lane>,
    connection: Rc<Connection>,
}

impl Connections {
    pub(crate) fn new(dialer: Dialer, bounds: Bounds) -> Connections {
        Connections { dialer, bounds, lanes: RefCell::default(), waits: Cell::new(0) }
    }

    pub(crate) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    pub(super) fn is_grpc(&self) -> bool {
        self.bounds.is_grpc
    }

    /// Requests that found no room, and no further connection allowed.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.get()
    }

    /// Waits for a place on a connection.
    ///
    /// # Errors
    /// When the connection that was opened for it could not be made.
    pub(super) async fn place(&self, told: &Told<'_>) -> Result<Place, ErrorKind> {
        let member = self.dialer.member();
        let lane = Rc::clone(self.lanes.borrow_mut().entry(member).or_default());
        let mut has_waited = false;
        loop {
            // Who comes now does not go before those who wait.
            if (has_waited || lane.waiting.get() == 0)
                && let Some(connection) = lane.roomiest(&self.bounds)
            {
                told.held.set(false);
                if lane.waiting.get() > 0 {
                    lane.changed.notify_one();
                }
                return Ok(Place::new(&lane, &connection));
            }
            if lane.may_open(&self.bounds) {
                told.held.set(false);
                return self.open(&lane, member).await;
            }
            let is_held = lane.open.get() >= self.bounds.connections;
            told.held.set(is_held);
            if is_held && !has_waited {
                self.waits.set(self.waits.get() + 1);
            }
            has_waited = true;
            let _waiting = Counted::new(&lane.waiting);
            lane.changed.notified().await;
        }
    }

    /// Opens a connection, and takes a place on it.
    async fn open(&self, lane: &Rc<Lane>, member: Member) -> Result<Place, ErrorKind> {
        let opening = Opening::new(lane);
        let transport = self.dialer.dial(member).await.map_err(|error| not_connected(&error))?;
        let mut builder = Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOWS).enable_push(false);
        // Nothing is sent before the server has said how much.
        builder.initial_max_send_streams(0);
        let (sender, driver) = builder.handshake(transport).await.map_err(|error| classify(&error))?;
        let connection = Rc::new(Connection {
            sender,
            streams: Cell::new(0),
            limit: Cell::new(0),
            end: Cell::new(None),
            settled: Notify::new(),
        });
        // The one who opens it comes first.
        let place = Place::new(lane, &connection);
        tokio::task::spawn_local(drive(driver, Rc::downgrade(&connection), opening.hand_over()));
        while connection.limit.get() == 0 {
            if let Some(end) = connection.end.get() {
                return Err(end);
            }
            connection.settled.notified().await;
        }
        lane.usual.set(connection.limit.get());
        if self.bounds.keep_alive {
            lane.connections.borrow_mut().push(connection);
            lane.changed.notify_waiters();
        }
        drop(opening);
        Ok(place)
    }
}

/// Drives a connection to its end.
async fn drive(driver: Driver<Transport, Bytes>, of: Weak<Connection>, open: Open) {
    let mut driver = pin!(driver);
    let end = poll_fn(|cx| {
        let polled = driver.as_mut().poll(cx);
        if let Some(connection) = of.upgrade() {
            let limit = connection.sender.current_max_send_streams();
            if connection.limit.replace(limit) != limit {
                connection.settled.notify_one();
                open.lane.changed.notify_waiters();
            }
        }
        polled
    })
    .await;
    if let Some(connection) = of.upgrade() {
        open.lane.forget(&connection);
        connection.end.set(Some(end.map_or_else(|error| classify(&error), |()| ErrorKind::Closed)));
        connection.settled.notify_one();
    }
}

impl Lane {
    /// The connection with the fewest streams, if another one fits on it.
    fn roomiest(&self, bounds: &Bounds) -> Option<Rc<Connection>> {
        let connections = self.connections.borrow();
        let with_room = connections.iter().filter(|of| of.streams.get() < of.limit.get().min(bounds.streams));
        with_room.min_by_key(|connection| connection.streams.get()).cloned()
    }

    /// Whether another connection is wanted and allowed: one at a time, as long as those who wait will fit on it.
    fn may_open(&self, bounds: &Bounds) -> bool {
        let each = match self.usual.get() {
            _ if !bounds.keep_alive => 1,
            0 => USUAL,
            usual => usual,
        };
        let awaited = self.opening.get().saturating_mul(each.min(bounds.streams));
        self.open.get() < bounds.connections && awaited <= self.waiting.get()
    }

    /// Gives a connection no more requests; it closes after its last stream.
    fn forget(&self, connection: &Rc<Connection>) {
        self.connections.borrow_mut().retain(|of| !Rc::ptr_eq(of, connection));
    }
}

impl Place {
    fn new(lane: &Rc<Lane>, connection: &Rc<Connection>) -> Place {
        connection.streams.set(connection.streams.get() + 1);
        Place { lane: Rc::clone(lane), connection: Rc::clone(connection) }
    }

    pub(super) fn sender(&self) -> SendRequest<Bytes> {
        self.connection.sender.clone()
    }

    /// What it is when a stream failed so: where the whole connection ended, the reason for that.
    pub(super) fn why(&self, kind: ErrorKind) -> ErrorKind {
        self.connection.end.get().filter(|_| kind == ErrorKind::Closed).unwrap_or(kind)
    }

    /// The server wants no more on this connection.
    pub(super) fn leave(self) {
        self.lane.forget(&self.connection);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connection.streams.set(self.connection.streams.get() - 1);
        self.lane.changed.notify_one();
    }
}

/// One more, as long as it lives.
struct Counted<'a>(&'a Cell<usize>);

impl<'a> Counted<'a> {
    fn new(count: &'a Cell<usize>) -> Counted<'a> {
        count.set(count.get() + 1);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A connection that counts.
struct Open {
    lane: Rc<Lane>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.lane.open.set(self.lane.open.get() - 1);
        self.lane.changed.notify_waiters();
    }
}

/// A connection that is being opened; whoever waits for it looks again when that is over.
struct Opening<'a> {
    lane: &'a Rc<Lane>,
    open: Cell<Option<Open>>,
}

impl<'a> Opening<'a> {
    fn new(lane: &'a Rc<Lane>) -> Opening<'a> {
        lane.opening.set(lane.opening.get() + 1);
        lane.open.set(lane.open.get() + 1);
        Opening { lane, open: Cell::new(Some(Open { lane: Rc::clone(lane) })) }
    }

    /// From now on it counts as long as it is driven.
    fn hand_over(&self) -> Open {
        self.open.take().expect("handed over once")
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.lane.opening.set(self.lane.opening.get() - 1);
        self.lane.changed.notify_waiters();
    }
}
