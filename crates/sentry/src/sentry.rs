//! The sentry as a whole: start, reload, drain, stop.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::watch;

use crate::accept::listen;
use crate::app::{App, AppError};
use crate::config::Config;
use crate::descriptors;
use crate::in_force::InForce;
use crate::monitor::{Monitor, SynRequired};
use crate::record::RecordSink;
use crate::reports::{Listener, View};
use crate::spans::Spans;
use crate::timer::CpuMeter;
use crate::watchdog::{Sockets, Threads, Watchdog};
use crate::worker::{Crew, Left};

/// Starts sentries.
#[derive(Debug)]
pub struct Sentry;

/// A running sentry. Dropped, it stops at once; [`SentryHandle::shutdown`] is gentler.
#[derive(Debug)]
pub struct SentryHandle {
    apps: Vec<Arc<App>>,
    addresses: Vec<Vec<SocketAddr>>,
    workers: usize,
    threads: Threads,
    watchdog: Option<Watchdog>,
    reports: Option<Listener>,
    monitors: Vec<Monitor>,
    stop: watch::Sender<bool>,
    deadline: watch::Sender<Option<Instant>>,
}

/// Why a sentry does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An application makes no sense.
    #[error(transparent)]
    App(#[from] AppError),
    /// An address cannot be listened on.
    #[error("application \"{app}\": cannot listen on {address}: {source}")]
    Listen {
        /// The application.
        app: String,
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Reports cannot be listened for.
    #[error("cannot listen for reports on {address} (UDP): {source}")]
    Reports {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Spans cannot be sent.
    #[error("cannot start [traces]: {0}")]
    Traces(io::Error),
    /// New connections cannot be policed as the configuration demands.
    #[error(transparent)]
    Syn(#[from] SynRequired),
    /// A worker thread cannot be started.
    #[error("cannot start a worker thread: {0}")]
    Thread(io::Error),
}

/// Why a configuration is not put in force. Nothing has changed then.
#[derive(Debug, Error)]
pub enum ReloadError {
    /// An application makes no sense.
    #[error(transparent)]
    App(#[from] AppError),
    /// The change needs a restart.
    #[error("{what} cannot change while the sentry runs; restart it")]
    NeedsRestart {
        /// What was changed.
        what: String,
    },
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
        let workers = config.sentry.workers.max(1);
        // Each may be replaced once, on the average.
        let room = 2 * workers;
        let spans = Spans::start(config.traces.as_ref()).map_err(StartError::Traces)?;
        let most_connections = descriptors::connections_each(config.applications.len());
        let mut apps = Vec::new();
        let mut addresses = Vec::new();
        let mut listeners: Vec<Vec<Vec<TcpListener>>> = (0..workers).map(|_| Vec::new()).collect();
        for (number, application) in config.applications.into_iter().enumerate() {
            let wanted: Vec<_> = application.listen.iter().map(|listen| listen.address).collect();
            let seed = seed(number as u64);
            let app = App::new(application, room, seed, records.clone())?;
            let app = app.with_spans(spans.clone()).with_connections(most_connections);
            let (actual, per_worker) = listen_all(app.name(), &wanted, workers)?;
            for (worker, sockets) in listeners.iter_mut().zip(per_worker) {
                worker.push(sockets);
            }
            addresses.push(actual);
            apps.push(Arc::new(app));
        }
        let (stop, _) = watch::channel(false);
        let (deadline, _) = watch::channel(None);
        let reports = match &config.reports {
            Some(reports) => Some(
                Listener::start(reports, &apps)
                    .map_err(|source| StartError::Reports { address: reports.listen, source })?,
            ),
            None => None,
        };
        let monitors = monitors(&apps, &addresses, &listeners, reports.is_none())?;
        let threads = Threads::default();
        let mut handle =
            SentryHandle { apps, addresses, workers, threads, watchdog: None, reports, monitors, stop, deadline };
        handle.begin(listeners, room).map_err(StartError::Thread)?;
        // Only now: who waits for the log must not keep clients waiting.
        for app in &handle.apps {
            descriptors::say(app, handle.apps.len(), most_connections);
        }
        Ok(handle)
    }
}

impl SentryHandle {
    /// Starts the workers, and who watches them.
    fn begin(&mut self, listeners: Vec<Sockets>, room: usize) -> io::Result<()> {
        let crew = Crew {
            apps: self.apps.clone(),
            room,
            stop: self.stop.subscribe(),
            deadline: self.deadline.subscribe(),
            meter: Arc::new(CpuMeter::new(self.workers, room)),
            seed: seed(1000),
        };
        let copy = |sockets: &Vec<TcpListener>| sockets.iter().map(TcpListener::try_clone).collect();
        let copies = listeners.iter().map(|sockets| sockets.iter().map(copy).collect::<io::Result<Sockets>>());
        let copies = copies.collect::<io::Result<Vec<_>>>()?;
        for (index, sockets) in listeners.into_iter().enumerate() {
            let thread = crew.begin(index, index, sockets)?;
            self.threads().push(thread);
        }
        self.watchdog = Some(Watchdog::start(crew, copies, self.threads.clone())?);
        Ok(())
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<Left>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The applications, in the order of the configuration.
    pub fn apps(&self) -> &[Arc<App>] {
        &self.apps
    }

    /// Where an application listens: with the port that the system chose where the configuration said 0.
    pub fn addresses(&self, app: &str) -> &[SocketAddr] {
        let index = self.apps.iter().position(|candidate| candidate.name() == app);
        index.map_or(&[], |index| &self.addresses[index])
    }

    /// What nuclei report, if there is a listener for it.
    pub fn reports(&self) -> Option<&Arc<View>> {
        self.reports.as_ref().map(Listener::view)
    }

    /// Puts a new configuration in force, for all applications or for none. Requests in flight and waiting ones are
    /// not touched.
    ///
    /// # Errors
    /// When it makes no sense, or changes what only a restart can change.
    pub fn reload(&self, config: Config) -> Result<(), ReloadError> {
        self.check_reload(&config)?;
        for (app, application) in self.apps.iter().zip(config.applications) {
            app.reconfigure(application)?;
        }
        if let (Some(view), Some(reports)) = (self.reports(), &config.reports) {
            view.configure(reports.silent_after, reports.when_silent);
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
            if app.live().config.listen != application.listen {
                return needs_restart(format!("application \"{}\": listen", app.name()));
            }
            let now = &app.live().config;
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
    pub fn shutdown(mut self, grace: Duration) -> Shutdown {
        self.stop_workers(grace)
    }

    fn stop_workers(&mut self, grace: Duration) -> Shutdown {
        // First: they hold the listeners too, at which nobody would accept any more.
        self.monitors.clear();
        self.watchdog = None;
        for app in &self.apps {
            app.drain();
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
        self.stop_workers(Duration::ZERO);
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

/// The addresses with the ports they got, and each worker's sockets.
type Listening = (Vec<SocketAddr>, Vec<Vec<TcpListener>>);

/// A monitor for each application whose policy needs one.
fn monitors(
    apps: &[Arc<App>],
    addresses: &[Vec<SocketAddr>],
    workers: &[Vec<Vec<TcpListener>>],
    samples: bool,
) -> Result<Vec<Monitor>, StartError> {
    let mut monitors = Vec::new();
    for (at, app) in apps.iter().enumerate() {
        if app.live().config.setup.demands().signals {
            let listeners = workers.iter().flat_map(|worker| &worker[at]);
            let listeners = listeners.filter_map(|listener| listener.try_clone().ok()).collect();
            monitors.push(Monitor::start(app, &addresses[at], listeners, samples)?);
        }
    }
    Ok(monitors)
}

/// One socket per worker for each address; the kernel spreads connections over them.
fn listen_all(app: &str, wanted: &[SocketAddr], workers: usize) -> Result<Listening, StartError> {
    let mut actual = Vec::new();
    let mut sockets: Vec<Vec<TcpListener>> = (0..workers).map(|_| Vec::new()).collect();
    for &address in wanted {
        let failed = |source| StartError::Listen { app: String::from(app), address, source };
        // The first socket settles the port, where it was left open.
        let mut exact = address;
        for (index, worker) in sockets.iter_mut().enumerate() {
            let socket = listen(exact).map_err(failed)?;
            if index == 0 {
                exact = socket.local_addr().map_err(failed)?;
            }
            worker.push(socket);
        }
        actual.push(exact);
    }
    Ok((actual, sockets))
}

/// A seed from the time: two sentries should not flip the same coins.
fn seed(salt: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(salt)
}
