//! One worker's share of an application: what its requests need, with no lock and no other thread in sight.

use std::cell::{Cell, Ref, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;
use tidegate_classify::RequestView;
use tidegate_engine::{ServerId, Timestamp};

use crate::access::client_of;
use crate::app::{App, DRAIN_IDLE};
use crate::client::Client;
use crate::config::{Asker, Timeouts};
use crate::counters::{Counter, Lane};
use crate::doorstep::Doorstep;
use crate::gate::head::{Bad, Framing};
use crate::http2::conduct::Conduct;
use crate::in_force::InForce;
use crate::mirror::Shadow;
use crate::reject::Refusals;
use crate::serve::Date;
use crate::shed::Shortage;
use crate::tls::Facts;
use crate::upstream::pool::Pool;

/// How much is read from a client at once.
const SCRATCH: usize = 64 * 1024;

/// While more connections than this have hyper, one that becomes idle gives it and its buffers (22 KiB) back at once,
/// not after a second. Making them again costs a few hundredths of a request; keeping a thousand costs more memory than
/// ten thousand idle connections take without them.
const HYPERS_KEPT: usize = 64;

/// A worker's share of one application.
#[derive(Debug)]
pub(crate) struct WorkerApp {
    /// The application, shared by all workers.
    pub(crate) app: Arc<App>,
    /// Which of its applications, in the order of the file.
    pub(crate) number: u16,
    /// This worker's number: its lane in counters and policer.
    pub(crate) index: usize,
    /// Where reads from clients land; never held across an `await`.
    pub(crate) scratch: Rc<RefCell<Scratch>>,
    /// Prepared refusals.
    pub(crate) refusals: RefCell<Refusals>,
    /// Connections from clients.
    pub(crate) clients: RefCell<Slab<Rc<Client>>>,
    /// How many of them have hyper.
    pub(crate) hypers: Cell<usize>,
    /// How many requests are watched that nobody waits for.
    pub(crate) ghosts: Cell<usize>,
    /// Handshakes, of all applications of this worker.
    pub(crate) doorstep: Rc<Doorstep>,
    /// How its clients behave.
    pub(crate) conduct: Conduct,
    /// What it lacked lately.
    pub(crate) shortage: Shortage,
    local: RefCell<Rc<Local>>,
    /// The last reading of the clock: good enough for deadlines.
    coarse: Cell<Timestamp>,
    turn: Cell<usize>,
    budget: Cell<f64>,
    random: Cell<u64>,
    /// Listeners that are gone, while there are connections of them.
    closing: RefCell<Vec<Closing>>,
}

/// A listener that is gone.
#[derive(Clone, Copy, Debug)]
struct Closing {
    entrance: u16,
    since: Timestamp,
    until: Timestamp,
}

/// The configuration in force, with this worker's connections to each server.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) live: Arc<InForce>,
    pools: Vec<Option<Rc<Pool>>>,
    /// Where copies of requests go.
    pub(crate) shadow: Option<Rc<Shadow>>,
}

impl WorkerApp {
    pub(crate) fn new(
        (number, app): (u16, Arc<App>),
        index: usize,
        (scratch, doorstep): (Rc<RefCell<Scratch>>, Rc<Doorstep>),
        seed: u64,
    ) -> Rc<Self> {
        let local = Local::new(app.live(), None);
        let coarse = Cell::new(app.now());
        Rc::new(WorkerApp {
            app,
            number,
            index,
            scratch,
            refusals: RefCell::default(),
            clients: RefCell::default(),
            hypers: Cell::default(),
            ghosts: Cell::default(),
            doorstep,
            conduct: Conduct::default(),
            shortage: Shortage::default(),
            local: RefCell::new(Rc::new(local)),
            coarse,
            turn: Cell::new(index),
            budget: Cell::new(RETRY_BURST),
            random: Cell::new(seed | 1),
            closing: RefCell::default(),
        })
    }

    /// The configuration in force: one relaxed load when nothing has changed.
    pub(crate) fn local(&self) -> Rc<Local> {
        let local = self.local.borrow().clone();
        if local.live.generation == self.app.generation() { local } else { self.refresh(&local) }
    }

    /// The same, to be looked at only.
    fn current(&self) -> Ref<'_, Rc<Local>> {
        if self.local.borrow().live.generation != self.app.generation() {
            self.local();
        }
        self.local.borrow()
    }

    #[cold]
    fn refresh(&self, old: &Local) -> Rc<Local> {
        let local = Rc::new(Local::new(self.app.live(), Some(old)));
        self.refusals.borrow_mut().forget();
        *self.local.borrow_mut() = local.clone();
        local
    }

    /// Reads the clock.
    pub(crate) fn now(&self) -> Timestamp {
        let now = self.app.now();
        self.coarse.set(now);
        now
    }

    /// A deadline from now, without reading the clock: at most one sweep early.
    pub(crate) fn deadline(&self, timeout: impl FnOnce(&Timeouts) -> Duration) -> Timestamp {
        self.coarse.get() + timeout(&self.local.borrow().live.config.timeouts)
    }

    /// What is asked of its clients before their first request.
    pub(crate) fn asks(&self) -> u64 {
        self.current().live.config.tls.as_ref().map_or(0, |tls| tls.asks)
    }

    /// Whether a client may ask this application.
    pub(crate) fn lets_in(&self, view: &impl RequestView) -> bool {
        let local = self.current();
        let config = &local.live.config;
        config
            .routing
            .access
            .as_ref()
            .is_none_or(|access| client_of(view, &config.forwarded.trust).is_none_or(|client| access.lets_in(client)))
    }

    /// Whether no request of a client can be let in, whatever it says.
    pub(crate) fn keeps_out(&self, client: IpAddr) -> bool {
        let local = self.current();
        let config = &local.live.config;
        config.routing.access.as_ref().is_some_and(|access| {
            let client = client.to_canonical();
            !access.lets_in(client) && !config.forwarded.trust.iter().any(|network| network.contains(&client))
        })
    }

    /// Whether this proxy asks for its clients.
    pub(crate) fn is_asked_by(&self, asker: Asker) -> bool {
        self.current().live.behind == Some(asker)
    }

    /// Whether it takes a request that comes by itself, with a body not larger than it takes, as far as its head says.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn takes(&self, framing: Framing) -> Result<(), Bad> {
        let live = &self.current().live;
        match (framing, live.head.body) {
            _ if live.behind.is_some_and(|asker| !asker.asks_by_http()) => Err(Bad::NoApplication),
            (Framing::Length(length), Some(most)) if length > most => Err(Bad::BodyTooLarge),
            _ => Ok(()),
        }
    }

    /// Connections that came in by an entrance of this worker close, and are cut off after `drain`.
    pub(crate) fn close_entrance(&self, number: u16, drain: Duration) {
        let now = self.now();
        self.closing.borrow_mut().push(Closing { entrance: number, since: now, until: now + drain });
    }

    /// Whether a request for `authority` may come over a connection of which this is known.
    pub(crate) fn belongs(&self, facts: &Facts, authority: Option<&str>) -> bool {
        let local = self.current();
        let matches = local.live.config.tls.as_ref().is_none_or(|tls| tls.match_host);
        !matches || facts.is_for(authority)
    }

    /// The last reading of the clock: good enough to see whether a client is slow.
    pub(crate) fn lately(&self) -> Timestamp {
        self.coarse.get()
    }

    /// `client` now waits for its next request.
    pub(crate) fn idle(&self, client: &Client) {
        client.idle(self.deadline(|timeouts| timeouts.client_idle));
        if self.hypers.get() > HYPERS_KEPT {
            client.shed.set(true);
        }
    }

    /// A connection itself now takes so many KiB, whatever is held for its client besides.
    pub(crate) fn count_own(&self, client: &Client, kib: u16) {
        let before = u32::from(client.own.replace(kib)) * 1024;
        let after = u32::from(kib) * 1024;
        self.lane().count_own(before.into(), after.into());
        self.count(client, (client.held.get() - before).saturating_add(after));
    }

    /// A connection's gate now holds so many bytes that its client sent ahead or has not read.
    pub(crate) fn count_held(&self, client: &Client, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(client.unwritten.get());
        self.count(client, bytes.saturating_add(u32::from(client.own.get()) * 1024));
    }

    /// A connection is over: nothing is held for its client.
    pub(crate) fn count_gone(&self, client: &Client) {
        client.unwritten.set(0);
        self.count_own(client, 0);
        self.count(client, 0);
    }

    fn count(&self, client: &Client, bytes: u32) {
        let before = client.held.replace(bytes);
        if bytes != before {
            self.lane().hold(before.into(), bytes.into());
        }
        if bytes > before && self.holds_too_much() {
            self.shortage.of_memory.notify_one();
        }
    }

    /// Bytes that may be held for all connections together.
    pub(crate) fn most_held(&self) -> u64 {
        self.app.most_held(&self.local.borrow().live)
    }

    /// Whether all connections together hold more than they may.
    pub(crate) fn holds_too_much(&self) -> bool {
        self.app.counters.held() > self.most_held()
    }

    /// Whether they hold so much more that nobody may come for whom nobody goes: a worker that is short of time accepts
    /// faster than those go that are told to.
    pub(crate) fn is_full(&self) -> bool {
        self.app.counters.held() / 5 > self.most_held() / 4
    }

    /// Whether there is room to hold what could also wait outside: half of the bound is kept for what cannot.
    pub(crate) fn may_read_ahead(&self) -> bool {
        let (held, most) = (self.app.counters.held(), self.most_held());
        held < most && held.saturating_sub(self.app.counters.own()) < most / 2
    }

    /// Closes the connections to servers that rest: how many.
    pub(crate) fn close_resting(&self) -> usize {
        self.local().pools.iter().flatten().map(|pool| pool.close_resting()).sum()
    }

    /// Whether a request may need a connection to itself.
    pub(crate) fn asks_by_http1(&self) -> bool {
        self.local().pools.iter().flatten().any(|pool| !pool.server.http2)
    }

    /// This worker's counters.
    pub(crate) fn lane(&self) -> &Lane {
        self.app.counters.lane(self.index)
    }

    /// A server for a request that is exempt from policing: each in turn.
    pub(crate) fn server_in_turn(&self, live: &InForce) -> Option<ServerId> {
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        live.any_server(turn)
    }

    /// Random bits, for request ids. Not for secrets.
    pub(crate) fn random(&self) -> u64 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A request is sent for the first time: it earns its share of the retry budget.
    pub(crate) fn earn_retry(&self, share: f64) {
        self.budget.set((self.budget.get() + share).min(RETRY_BURST));
    }

    /// Takes one retry from the budget, if there is one.
    pub(crate) fn spend_retry(&self) -> bool {
        let enough = self.budget.get() >= 1.0;
        if enough {
            self.budget.set(self.budget.get() - 1.0);
        } else {
            self.lane().bump(Counter::RetriesDenied);
        }
        enough
    }

    /// How often [`WorkerApp::sweep`] should be called: a quarter of the shortest time-out, within reason.
    pub(crate) fn sweep_period(&self) -> Duration {
        let live = self.local().live.clone();
        let t = &live.config.timeouts;
        let all = [t.header, t.body_idle, t.first_byte, t.client_idle, t.server_idle, t.request.unwrap_or(t.header)];
        let shortest = all.into_iter().min().unwrap_or(t.header);
        (shortest / 4).clamp(Duration::from_millis(20), Duration::from_secs(1))
    }

    /// Wakes connections whose time has come, and closes idle ones to servers.
    pub(crate) fn sweep(&self) {
        let now = self.now();
        self.lane().beat(now);
        let (stops, idle_too) = (self.app.stops(), self.app.leaves_idle(now));
        let closing = self.closing.take();
        for (_, client) in &*self.clients.borrow() {
            let closing = closing.iter().find(|closing| closing.entrance == client.entrance.get());
            if closing.is_some_and(|closing| now >= closing.until) {
                client.time_is_up();
                continue;
            }
            let is_leaving = || closing.is_some() || self.app.is_leaving(now, client.peer());
            let idle_too = idle_too
                || (client.says_goodbye.get() && is_leaving())
                || closing.is_some_and(|closing| now.since(closing.since) >= DRAIN_IDLE);
            client.sweep(now, stops || closing.is_some(), idle_too);
        }
        if !closing.is_empty() {
            let is_left = |one: &Closing| self.clients.borrow().iter().any(|(_, c)| c.entrance.get() == one.entrance);
            self.closing.borrow_mut().extend(closing.into_iter().filter(is_left));
        }
        let local = self.local();
        let idle = local.live.config.timeouts.server_idle;
        for pool in local.pools.iter().flatten() {
            pool.sweep(now, idle, self.lane());
        }
    }
}

/// Retries that may come at once after a quiet time.
const RETRY_BURST: f64 = 10.0;

/// A worker's buffers for what clients send and for their refusals: connections own none while nothing is left over.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// What was read.
    pub(crate) input: Box<[u8]>,
    /// The answers to it.
    pub(crate) out: Vec<u8>,
    /// The time as answers say it.
    pub(crate) date: Date,
}

impl Scratch {
    pub(crate) fn shared() -> Rc<RefCell<Scratch>> {
        Rc::new(RefCell::new(Scratch {
            input: vec![0; SCRATCH].into_boxed_slice(),
            out: Vec::new(),
            date: Date::default(),
        }))
    }
}

impl Local {
    /// Takes over the connections of servers that are still the same.
    fn new(live: Arc<InForce>, before: Option<&Local>) -> Self {
        let slots = live.servers().map(|server| server.id.index() + 1).max().unwrap_or(0);
        let mut pools = vec![None; slots];
        for server in live.servers() {
            let old = before.and_then(|local| local.pool(server.id)).filter(|pool| Arc::ptr_eq(&pool.server, server));
            pools[server.id.index()] = Some(old.cloned().unwrap_or_else(|| Pool::new(server.clone())));
        }
        let shadow = Shadow::of(&live.config, before.and_then(|local| local.shadow.as_ref()));
        Local { live, pools, shadow }
    }

    /// This worker's connections to a server.
    pub(crate) fn pool(&self, id: ServerId) -> Option<&Rc<Pool>> {
        self.pools.get(id.index())?.as_ref()
    }
}
