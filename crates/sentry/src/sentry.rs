//! The sentry as a whole: start, reload, drain, stop.

mod refusal;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use crate::app::{App, AppError};
use crate::config::{self, Config};
use crate::descriptors::{self, Places};
use crate::ends::{Desk, Ends};
use crate::in_force::InForce;
use crate::memory;
use crate::monitor::Monitor;
use crate::names::{self, Names};
use crate::peers::{self, Peers};
use crate::plan::{Harbour, Plan, Taken};
use crate::record::RecordSink;
use crate::reports::{Listener, View};
use crate::sockets::Sockets;
use crate::spans::Spans;
use crate::syn_policing::Helper;
use crate::timer::CpuMeter;
use crate::watchdog::{Threads, Watchdog};
use crate::worker::{Crew, Left};
pub use refusal::{ReloadError, StartError};

/// Starts sentries.
#[derive(Debug)]
pub struct Sentry;

/// A running sentry. Dropped, it stops at once; [`SentryHandle::shutdown`] is gentler.
#[derive(Debug)]
pub struct SentryHandle {
    apps: Vec<Arc<App>>,
    plan: watch::Sender<Arc<Plan>>,
    harbour: Arc<Harbour>,
    workers: usize,
    threads: Threads,
    watchdog: Option<Watchdog>,
    reports: Option<Listener>,
    peers: Option<Peers>,
    ends: Option<Ends>,
    names: Option<Names>,
    monitors: Vec<Monitor>,
    /// The process that polices connections, if this one does not.
    helper: Option<Helper>,
    open: watch::Sender<bool>,
    stop: watch::Sender<bool>,
    deadline: watch::Sender<Option<Instant>>,
}

/// What a shutdown had to cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// Client connections that were open at the deadline.
    pub connections: usize,
    /// Requests that were in flight or waiting on them.
    pub requests: usize,
}

/// A worker that is not done so long after the time for a drain is stuck.
const STUCK: Duration = Duration::from_secs(5);

/// How often it is looked whether a worker is done.
const JOIN_TICK: Duration = Duration::from_millis(1);

impl Sentry {
    /// Starts a sentry: when this returns, it accepts. `records` is told of every finished request.
    ///
    /// # Errors
    /// When an application makes no sense, or the system does not give what it needs.
    pub fn start(config: Config, records: Arc<dyn RecordSink>) -> Result<SentryHandle, StartError> {
        let handle = Sentry::prepare(config, records, &mut Sockets::default())?;
        handle.open();
        Ok(handle)
    }

    /// The same, listening at the sockets that were `given` where they are what the configuration asks for. It takes
    /// them out of the table, and accepts from [`SentryHandle::open`] on.
    ///
    /// # Errors
    /// As those of [`Sentry::start`].
    pub fn prepare(
        config: Config,
        records: Arc<dyn RecordSink>,
        given: &mut Sockets,
    ) -> Result<SentryHandle, StartError> {
        let workers = config.sentry.workers.max(1);
        // Each may be replaced once, on the average.
        let room = 2 * workers;
        let spans = Spans::start(config.traces.as_ref()).map_err(StartError::Traces)?;
        let most_held = memory::held_each(config.applications.len());
        let (looks, desk) = (Arc::new(Notify::new()), Arc::new(Desk::default()));
        let mut plan = plan(&config.applications, config.sentry.drain, &Plan::default())?;
        let places = Arc::new(Places::raised(config.applications.len(), plan.fronts.len() * workers));
        let mut apps = Vec::new();
        // One clock for all: connections may be one application's and their requests another's.
        let origin = Instant::now();
        for (number, application) in config.applications.into_iter().enumerate() {
            let seed = seed(number as u64);
            let app = App::new(application, room, seed, records.clone())?;
            let app = app.with_spans(spans.clone()).with_most(places.clone(), most_held);
            let app = app.with_looks(looks.clone()).with_origin(origin).with_ends(desk.clone());
            apps.push(Arc::new(app));
        }
        places.belong_to(&apps);
        let harbour = Arc::new(Harbour::default());
        if let Err(Taken { app, address, source }) = harbour.open(&mut plan, workers, given) {
            return Err(StartError::Listen { app: apps[app].name().to_owned(), address, source });
        }
        let (plan, _) = watch::channel(Arc::new(plan));
        let (stop, _) = watch::channel(false);
        let (deadline, _) = watch::channel(None);
        let reports = match &config.reports {
            Some(reports) => Some(
                Listener::start(reports, &apps, given)
                    .map_err(|source| StartError::Reports { address: reports.listen, source })?,
            ),
            None => None,
        };
        let ends = config
            .ends
            .map(|address| Ends::start(address, desk, given).map_err(|source| StartError::Ends { address, source }));
        let ends = ends.transpose()?;
        let (open, opened) = watch::channel(false);
        let peers = config.peers.as_ref().map(|peers| {
            let started = Peers::start(peers, &apps, opened, looks.clone(), given);
            started.map_err(|source| StartError::Peers { address: peers.listen, source })
        });
        let peers = peers.transpose()?;
        let others = peers.as_ref().map(Peers::view);
        let names = Names::start(&apps, others, looks, &config.sentry.resolvers).map_err(StartError::Names)?;
        let helper = given.take_named(Helper::NAME).pop().and_then(Helper::adopt);
        let monitors = monitors(&apps, &plan.borrow(), &harbour, reports.is_none(), helper.as_ref())?;
        let (threads, watchdog, names) = (Threads::default(), None, Some(names));
        let mut handle = SentryHandle {
            apps,
            plan,
            harbour,
            workers,
            threads,
            watchdog,
            reports,
            peers,
            ends,
            names,
            monitors,
            helper,
            open,
            stop,
            deadline,
        };
        handle.begin(room).map_err(StartError::Thread)?;
        // Only now: who waits for the log must not keep clients waiting.
        descriptors::say(&handle.apps, &places);
        Ok(handle)
    }
}

impl SentryHandle {
    /// Starts the workers, and who watches them.
    fn begin(&mut self, room: usize) -> io::Result<()> {
        let crew = Crew {
            apps: self.apps.clone(),
            plan: self.plan.subscribe(),
            harbour: self.harbour.clone(),
            room,
            open: self.open.subscribe(),
            stop: self.stop.subscribe(),
            deadline: self.deadline.subscribe(),
            meter: Arc::new(CpuMeter::new(self.workers, room)),
            seed: seed(1000),
        };
        for index in 0..self.workers {
            let thread = crew.begin(index, index)?;
            self.threads().push(thread);
        }
        self.watchdog = Some(Watchdog::start(crew, self.workers, self.threads.clone())?);
        Ok(())
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<Left>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it accepts.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Every socket that it has bound, for a successor.
    ///
    /// # Errors
    /// When there are no file descriptors left.
    pub fn sockets(&self) -> io::Result<Sockets> {
        let mut sockets = self.harbour.table(&self.plan.borrow())?;
        if let Some(reports) = &self.reports {
            sockets.append(reports.sockets().try_clone()?);
        }
        if let Some(peers) = &self.peers {
            sockets.append(peers.sockets().try_clone()?);
        }
        if let Some(ends) = &self.ends {
            sockets.append(ends.sockets().try_clone()?);
        }
        if let Some(helper) = &self.helper {
            sockets.add(Helper::NAME, helper.door().try_clone_to_owned()?);
        }
        Ok(sockets)
    }

    /// The applications, in the order of the configuration.
    pub fn apps(&self) -> &[Arc<App>] {
        &self.apps
    }

    /// Where an application listens: with the port that the system chose where the configuration said 0.
    pub fn addresses(&self, app: &str) -> Vec<SocketAddr> {
        let index = self.apps.iter().position(|candidate| candidate.name() == app);
        index.map_or_else(Vec::new, |index| self.plan.borrow().addresses(index))
    }

    /// What nuclei report, if there is a listener for it.
    pub fn reports(&self) -> Option<&Arc<View>> {
        self.reports.as_ref().map(Listener::view)
    }

    /// What is known of other sentries before the same servers, if it speaks with them.
    pub fn peers(&self) -> Option<&Arc<peers::View>> {
        self.peers.as_ref().map(Peers::view)
    }

    /// Where proxies that ask tell of the ends of requests, if one asks.
    pub fn ends(&self) -> Option<SocketAddr> {
        self.ends.as_ref().map(Ends::address)
    }

    /// What is known of names of servers, and of files of servers.
    pub fn names(&self) -> Option<&Arc<names::View>> {
        self.names.as_ref().map(Names::view)
    }

    /// Puts a new configuration in force, for all applications or for none. Requests in flight and waiting ones are
    /// not touched. Addresses that are new are listened on; at those that are not there any more nobody is let in, and
    /// connections close after their next answer.
    ///
    /// # Errors
    /// When it makes no sense, changes what only a restart can change, or an address cannot be listened on.
    pub fn reload(&self, config: Config) -> Result<(), ReloadError> {
        self.check_reload(&config)?;
        let before = self.plan.borrow().clone();
        let mut plan = plan(&config.applications, config.sentry.drain, &before)?;
        if let Err(Taken { app, address, source }) = self.harbour.open(&mut plan, self.workers, &mut Sockets::default())
        {
            return Err(ReloadError::Listen { app: self.apps[app].name().to_owned(), address, source });
        }
        let plan = Arc::new(plan);
        if let Some(names) = &self.names {
            names.ask(&config.sentry.resolvers);
        }
        for (app, application) in self.apps.iter().zip(config.applications) {
            // What was opened is closed again.
            app.reconfigure(application).inspect_err(|_| self.harbour.keep(&before))?;
        }
        self.harbour.keep(&plan);
        self.plan.send_replace(plan);
        if let (Some(view), Some(reports)) = (self.reports(), &config.reports) {
            view.configure(reports);
        }
        if let (Some(view), Some(peers)) = (self.peers(), &config.peers) {
            view.configure(peers);
        }
        Ok(())
    }

    /// Whether [`SentryHandle::reload`] would take `config`.
    ///
    /// # Errors
    /// When it would not.
    pub fn check_reload(&self, config: &Config) -> Result<(), ReloadError> {
        let needs_restart = |what: String| Err(ReloadError::NeedsRestart { what });
        if config.sentry.workers.max(1) != self.workers {
            return needs_restart(String::from("the number of workers"));
        }
        let names = |mut names: Vec<&str>| {
            names.sort_unstable();
            names.join(", ")
        };
        let now = self.apps.iter().map(|app| app.name()).collect::<Vec<_>>();
        let then = config.applications.iter().map(|app| app.name.as_str()).collect::<Vec<_>>();
        if now != then {
            return needs_restart(format!("the list of applications ({} to {})", names(now), names(then)));
        }
        for (app, application) in self.apps.iter().zip(&config.applications) {
            let live = app.live();
            let now = &live.config;
            if now.listen != application.listen && now.setup.demands().signals {
                // What it measures, and the kernel's rules, are of its listeners.
                let policy = now.setup.admission.name();
                return needs_restart(format!("application \"{}\": listen, with admission = \"{policy}\"", app.name()));
            }
            if now.syn != application.syn {
                return needs_restart(format!("application \"{}\": syn_policing", app.name()));
            }
            let (before, after) = (&now.setup.admission, &application.setup.admission);
            if after.demands().signals && !before.demands().signals {
                return needs_restart(format!("application \"{}\": the policy to \"{}\"", app.name(), after.name()));
            }
            InForce::check(application)?;
        }
        Ok(())
    }

    /// Stops: no new connections, requests in flight and waiting ones are finished, idle connections closed; whatever
    /// is left after `grace` is cut off. Blocks until all is over.
    pub fn shutdown(self, grace: Duration) -> Shutdown {
        self.end(grace, None)
    }

    /// The same; with a `spread`, a successor serves, and connections end one after the other over that time.
    pub(crate) fn end(mut self, grace: Duration, spread: Option<Duration>) -> Shutdown {
        self.stop_workers(grace, spread)
    }

    fn stop_workers(&mut self, grace: Duration, spread: Option<Duration>) -> Shutdown {
        // First: they hold the listeners too, at which nobody would accept any more.
        self.monitors.clear();
        self.watchdog = None;
        self.harbour.keep(&Plan::default());
        self.names = None;
        // The others take over its part, or its successor does.
        self.peers = None;
        if spread.is_some() {
            // From now on they are told to the successor, which has the same socket.
            self.ends = None;
        }
        for app in &self.apps {
            app.drain(grace, spread);
        }
        self.deadline.send_replace(Some(Instant::now() + grace));
        self.stop.send_replace(true);
        let threads = std::mem::take(&mut *self.threads());
        let left = threads.into_iter().filter_map(|thread| join(thread, Instant::now() + grace + STUCK));
        let left = left.fold(Shutdown::default(), |sum, left| Shutdown {
            connections: sum.connections + left.connections,
            requests: sum.requests + left.requests,
        });
        // One exporter for all applications.
        if let Some(app) = self.apps.first() {
            app.spans.flush();
        }
        left
    }
}

impl Drop for SentryHandle {
    fn drop(&mut self) {
        self.stop_workers(Duration::ZERO, None);
    }
}

/// Waits for a worker's end, but not for one that is stuck: nothing ends it but the process's end.
fn join(thread: JoinHandle<Left>, deadline: Instant) -> Option<Left> {
    while !thread.is_finished() {
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(JOIN_TICK);
    }
    thread.join().ok()
}

/// A monitor for each application whose policy needs one.
fn monitors(
    apps: &[Arc<App>],
    plan: &Plan,
    harbour: &Harbour,
    samples: bool,
    helper: Option<&Helper>,
) -> Result<Vec<Monitor>, StartError> {
    let mut monitors = Vec::new();
    for (at, app) in apps.iter().enumerate() {
        if app.live().config.setup.demands().signals {
            // A Unix socket has no port, no SYNs, and no queue that the kernel tells of.
            let fronts = || plan.of_app(at).filter(|front| front.listen.socket.is_none());
            let listeners = fronts().flat_map(|front| harbour.copies(front.place)).collect();
            let ports: Vec<SocketAddr> = fronts().map(|front| front.address).collect();
            monitors.push(Monitor::start(app, &ports, listeners, samples, helper)?);
        }
    }
    Ok(monitors)
}

/// Where `apps` listen, on `before`'s ports where they have listened there before.
fn plan(apps: &[config::Application], drain: Duration, before: &Plan) -> Result<Plan, AppError> {
    Plan::of(apps, drain, before).map_err(|(app, problem)| AppError::Route { app: apps[app].name.clone(), problem })
}

/// A seed from the time: two sentries should not flip the same coins.
fn seed(salt: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(salt)
}
