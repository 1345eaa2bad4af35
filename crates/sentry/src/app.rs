//! One application as all workers share it: its controller behind a short lock, and what a reload swaps.

mod aside;
mod delivery;
mod drain;
mod governed;
mod laid;
mod learned;
mod leavers;
mod rebuild;
mod servers;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use thiserror::Error;
use tidegate_classify::{ClassifyError, RuleProblem};
use tidegate_engine::{
    ClassId, Controller, LoadReport, Rejection, ServerId, ServerState, SetupError, Snapshot, Status, Ticket, Timestamp,
};
use tokio::sync::{Notify, oneshot, watch};

use delivery::Delivery;
pub(crate) use drain::DRAIN_IDLE;
use drain::Drain;
use laid::Overlay;

use crate::cancels::Cancels;
use crate::config;
use crate::counters::Counters;
use crate::descriptors::Places;
use crate::ends::Desk;
use crate::event_ring::EventRing;
use crate::in_force::InForce;
use crate::mirror;
use crate::record::RecordSink;
use crate::repeats::Repeats;
use crate::spans::Spans;
use crate::syn_policing::Syn;

pub use governed::Governed;
pub(crate) use laid::{Found, Laid, Wanted};
pub use leavers::Leaver;

/// One protected service.
#[derive(Debug)]
pub struct App {
    name: String,
    origin: Instant,
    core: Mutex<Core>,
    live: ArcSwap<InForce>,
    generation: AtomicU64,
    drain: OnceLock<Drain>,
    /// Connections of clients that there are descriptors for.
    places: Arc<Places>,
    most_held: u64,
    /// What lies over what the file says. Taken before the controller's lock.
    overlay: Mutex<Overlay>,
    /// Wakes who looks names up, when there may be others.
    pub(crate) looks: Arc<Notify>,
    /// Controllers that were built anew after a panic, and workers that were replaced.
    rebuilt: AtomicU64,
    /// When that was last, nanoseconds; 0: never.
    rebuilt_at: AtomicU64,
    replaced: AtomicU64,
    /// What goes wrong in a test.
    #[cfg(feature = "faults")]
    pub faults: crate::faults::Faults,
    /// Wakes the timer task when the controller's next deadline came nearer.
    pub(crate) rearm: Notify,
    /// Requests in flight that the controller wants ended, the last few: each worker looks for its own.
    pub(crate) runaways: watch::Sender<Vec<Ticket>>,
    /// The ids of requests that came lately.
    pub(crate) repeats: Repeats,
    /// What the data path counts.
    pub counters: Counters,
    /// Copies of requests for a shadow server.
    pub(crate) mirror: mirror::Counts,
    /// What the controller did, and why.
    pub events: EventRing,
    /// New connections: at which rate they are let in.
    pub syn: Arc<Syn>,
    /// Where finished requests are told of.
    pub(crate) records: Arc<dyn RecordSink>,
    /// Where ends are waited for of requests that others send on.
    pub(crate) ends: Arc<Desk>,
    /// Makes the spans of its requests.
    pub(crate) spans: Spans,
    /// Who left requests behind.
    cancels: Mutex<Cancels>,
}

/// What the lock guards.
pub(crate) struct Core {
    /// Decides.
    pub(crate) controller: Controller,
    /// Requests in class queues, by ticket.
    pub(crate) waiters: HashMap<Ticket, oneshot::Sender<Woken>>,
    /// Data servers whose cores are to be divided anew.
    divisions: Vec<(ServerId, u32)>,
    /// Requests in flight that are to be ended.
    runaways: Vec<Ticket>,
    /// Until when the timer task sleeps.
    pub(crate) armed: Timestamp,
    /// Carries out the rate of new connections.
    pub(crate) syn: Arc<Syn>,
    /// Which [`InForce`] the controller's setup belongs to.
    pub(crate) generation: u64,
    /// Which controller it is: counts up when one is built anew.
    pub(crate) epoch: u64,
}

/// What became of a request that waited.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Woken {
    /// Send it.
    Start(ServerId),
    /// Refuse it.
    Refuse(Rejection),
}

/// Why an application cannot be built, or reloaded.
#[derive(Debug, Error)]
pub enum AppError {
    /// The controller does not take the setup.
    #[error("application \"{app}\": {source}")]
    Setup {
        /// The application.
        app: String,
        /// What is wrong.
        source: SetupError,
    },
    /// There is no class of that rank.
    #[error("application \"{app}\" has no class {class}")]
    NoClass {
        /// The application.
        app: String,
        /// The rank, from 1.
        class: usize,
    },
    /// A route is for no host, or no path.
    #[error("application \"{app}\": route: {problem}")]
    Route {
        /// The application.
        app: String,
        /// What is wrong.
        problem: RuleProblem,
    },
    /// The classifier does not take the rules.
    #[error("application \"{app}\": {source}")]
    Classify {
        /// The application.
        app: String,
        /// What is wrong.
        source: ClassifyError,
    },
}

impl App {
    /// An application for `lanes` workers.
    ///
    /// # Errors
    /// When the setup or the rules make no sense.
    pub fn new(
        config: config::Application,
        lanes: usize,
        seed: u64,
        records: Arc<dyn RecordSink>,
    ) -> Result<Self, AppError> {
        let name = config.name.clone();
        let events = EventRing::new();
        let laid = Overlay::default().lay(&config);
        let controller = Controller::new(laid.config.setup.clone(), lanes, seed, Box::new(events.clone()))
            .map_err(|source| AppError::Setup { app: name.clone(), source })?;
        let live = InForce::new(config, laid, &controller, 0, None)?;
        let syn = Arc::new(Syn::default());
        let core = Core {
            controller,
            waiters: HashMap::new(),
            divisions: Vec::new(),
            runaways: Vec::new(),
            armed: Timestamp::MAX,
            syn: syn.clone(),
            generation: 0,
            epoch: 0,
        };
        Ok(App {
            name,
            origin: Instant::now(),
            core: Mutex::new(core),
            live: ArcSwap::from_pointee(live),
            generation: AtomicU64::new(0),
            drain: OnceLock::new(),
            places: Arc::new(Places::any()),
            most_held: u64::MAX,
            overlay: Mutex::default(),
            looks: Arc::default(),
            rebuilt: AtomicU64::new(0),
            rebuilt_at: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
            #[cfg(feature = "faults")]
            faults: crate::faults::Faults::default(),
            rearm: Notify::new(),
            runaways: watch::Sender::default(),
            repeats: Repeats::default(),
            counters: Counters::new(lanes),
            mirror: mirror::Counts::default(),
            events,
            syn,
            records,
            ends: Arc::default(),
            spans: Spans::default(),
            cancels: Mutex::default(),
        })
    }

    /// The same with its clock beginning then.
    pub(crate) fn with_origin(self, origin: Instant) -> Self {
        App { origin, ..self }
    }

    /// The same with its requests traced.
    pub(crate) fn with_spans(self, spans: Spans) -> Self {
        App { spans, ..self }
    }

    /// The same with ends told there.
    pub(crate) fn with_ends(self, ends: Arc<Desk>) -> Self {
        App { ends, ..self }
    }

    /// The same with somebody who looks its names up, and is woken when there may be others.
    pub(crate) fn with_looks(self, looks: Arc<Notify>) -> Self {
        App { looks, ..self }
    }

    /// The same with these places for connections of clients, whatever its configuration says, and so many bytes held
    /// for them unless it says how many.
    pub(crate) fn with_most(self, places: Arc<Places>, held: u64) -> Self {
        App { places, most_held: held, ..self }
    }

    /// Whether one more connection of a client may be, where its configuration says how many.
    pub(crate) fn has_place(&self, limit: usize) -> bool {
        let open = self.counters.connections_open();
        open < limit as u64 && self.places.has_one(open, self.now())
    }

    /// How many bytes may be held for clients by this configuration.
    pub(crate) fn most_held(&self, live: &InForce) -> u64 {
        live.config.limits.held_bytes.unwrap_or(self.most_held)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Now, on this application's clock.
    pub fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }

    /// The instant at which the clock shows `at`.
    pub fn instant(&self, at: Timestamp) -> Instant {
        self.origin + Duration::from_nanos(at.as_nanos())
    }

    pub(crate) fn at(&self, instant: Instant) -> Timestamp {
        Timestamp::from_nanos(instant.saturating_duration_since(self.origin).as_nanos() as u64)
    }

    /// What is in force now.
    pub fn live(&self) -> Arc<InForce> {
        self.live.load_full()
    }

    /// Counts up with every reload: tells a worker cheaply that its copy of [`App::live`] is old.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Everything metrics and the admin API show of the controller.
    pub fn snapshot(&self) -> Snapshot {
        let core = self.lock();
        core.controller.snapshot(self.now())
    }

    /// Admitted and not yet answered.
    pub fn in_flight(&self) -> usize {
        self.lock().controller.in_flight()
    }

    /// Waiting in class queues.
    pub fn waiting(&self) -> usize {
        self.lock().controller.waiting()
    }

    /// Decides and counts without refusing (`true`), or enforces.
    pub fn set_shadow(&self, shadow: bool) {
        self.engine(|core, now| core.controller.set_shadow(now, shadow));
    }

    /// Tells the controller what was measured.
    pub fn report(&self, report: LoadReport) {
        self.engine(|core, now| core.controller.handle_report(now, report));
    }

    /// Puts a new configuration in force. What is in flight, and what was learned, is kept.
    ///
    /// # Errors
    /// When it makes no sense; then nothing has changed.
    pub fn reconfigure(&self, config: config::Application) -> Result<(), AppError> {
        let mut overlay = self.overlay();
        // It was read together with its files.
        overlay.found.files.clear();
        let laid = overlay.lay(&config);
        InForce::check(&laid.config)?;
        overlay.found.keep(&laid.wanted);
        self.engine(|core, now| self.put_in_force(core, now, config, laid))
    }

    /// Changes a class's guaranteed rate, requests per second, until the next reload. What was set by hand before,
    /// shadow mode and drains, stays.
    ///
    /// # Errors
    /// When the rate makes no sense, or there is no such class; then nothing has changed.
    pub fn set_guarantee(&self, class: ClassId, min_rate: f64) -> Result<(), AppError> {
        self.amend(&self.overlay(), |config| match config.setup.classes.get_mut(class.index()) {
            Some(class) => {
                class.min_rate = min_rate;
                Ok(())
            }
            None => Err(AppError::NoClass { app: self.name.clone(), class: class.index() + 1 }),
        })
    }

    /// More servers will serve at that instant; `None`: none is on its way.
    pub fn expect_capacity(&self, at: Option<Instant>) {
        self.report(LoadReport::Coming(at.map(|at| self.at(at))));
    }

    /// Changes a part of what is in force; what was set by hand before stays.
    fn amend(
        &self,
        overlay: &Overlay,
        change: impl FnOnce(&mut config::Application) -> Result<(), AppError>,
    ) -> Result<(), AppError> {
        self.engine(|core, now| {
            let before = self.live();
            let mut config = before.declared.clone();
            config.setup.shadow = core.controller.setup().shadow;
            change(&mut config)?;
            let laid = overlay.lay(&config);
            // By hand: those that are not the application's any more drain, too, and come back when they are.
            let own = |server: &ServerState| before.config.servers.iter().any(|own| own.name == server.name);
            let drained = |server: &&ServerState| server.status == Status::Draining && own(server);
            let drained: Vec<_> = core.controller.servers().iter().filter(drained).map(|server| server.id).collect();
            self.put_in_force(core, now, config, laid)?;
            for server in drained {
                if let Some(server) = self.live().server(server) {
                    server.set_health(Status::Draining);
                }
                core.controller.handle_server(now, server, Status::Draining);
            }
            Ok(())
        })
    }

    fn put_in_force(
        &self,
        core: &mut Core,
        now: Timestamp,
        declared: config::Application,
        laid: Laid,
    ) -> Result<(), AppError> {
        let old = self.live();
        let failed = |source| AppError::Setup { app: self.name.clone(), source };
        core.controller.reconfigure(now, laid.config.setup.clone()).map_err(failed)?;
        let generation = core.generation + 1;
        let wants_others = laid.wanted != old.wanted;
        let live = InForce::new(declared, laid, &core.controller, generation, Some(&old))?;
        core.generation = generation;
        self.live.store(Arc::new(live));
        self.generation.store(generation, Ordering::Release);
        if wants_others {
            self.looks.notify_one();
        }
        Ok(())
    }

    /// Calls the controller: the one place that takes its lock, reads the clock while holding it, carries out what
    /// the controller then wants, and keeps the timer task in step.
    pub(crate) fn engine<T>(&self, call: impl FnOnce(&mut Core, Timestamp) -> T) -> T {
        let mut woken = Vec::new();
        let (value, nearer) = {
            let mut core = self.lock();
            let now = self.now();
            #[cfg(feature = "faults")]
            self.faults.strike(crate::faults::Fault::Engine);
            let value = call(&mut core, now);
            core.drain(now, &mut woken);
            if !core.divisions.is_empty() {
                self.divide(&mut core);
            }
            if !core.runaways.is_empty() {
                self.end_runaways(&mut core);
            }
            (value, core.rearm())
        };
        if nearer {
            self.rearm.notify_one();
        }
        if !woken.is_empty() {
            self.deliver(woken);
        }
        value
    }

    /// Tells waiting requests what became of them, outside the lock. A waiter may be gone by now: then its start is
    /// cancelled, which may start others.
    #[cold]
    fn deliver(&self, mut woken: Vec<Delivery>) {
        while !woken.is_empty() {
            let gone: Vec<Ticket> = woken.drain(..).filter_map(Delivery::deliver).collect();
            if gone.is_empty() {
                return;
            }
            let mut core = self.lock();
            for ticket in gone {
                core.controller.handle_cancel(self.now(), ticket);
            }
            core.drain(self.now(), &mut woken);
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(|poisoned| self.rebuild(poisoned.into_inner()))
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("waiters", &self.waiters.len()).finish_non_exhaustive()
    }
}
