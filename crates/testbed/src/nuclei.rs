//! Nuclei of emulated servers: the real agent beside each, fed by the server's listener and its own status page, on one
//! thread for all. Each can be silenced, killed and restarted.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_nucleus::{Config, ConfigError, Given, Nucleus};
use tidegate_wire::Keys;

/// Where servers with a nucleus tell how they are doing. Apache gives its page in a form for programs for the query.
pub const STATUS_PATH: &str = "/tidegate-status?auto";

/// The nuclei of several servers, which report to one sentry. Dropping it ends them without a word, as a crash does.
#[derive(Debug)]
pub struct Nuclei {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    places: Mutex<Vec<Place>>,
    stop: AtomicBool,
}

/// Beside one server.
#[derive(Debug)]
struct Place {
    config: Config,
    /// `None`: killed.
    nucleus: Option<Nucleus>,
    is_silent: bool,
}

/// Why nuclei cannot run.
#[derive(Debug, thiserror::Error)]
pub enum NucleiError {
    /// The settings make no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// One has no key: a bug.
    #[error(transparent)]
    Start(#[from] tidegate_nucleus::StartError),
    /// The machine refuses the thread.
    #[error("cannot start nuclei: {0}")]
    System(#[from] io::Error),
}

impl Nuclei {
    /// Starts a nucleus beside each of `servers`, which reports to the sentry that listens at `to` once every
    /// `interval`. The servers tell how they are doing at `/tidegate-status`, where they have it.
    ///
    /// # Errors
    /// When the interval is not possible, or the machine refuses the thread.
    pub fn start(
        servers: &[SocketAddr],
        to: SocketAddr,
        keys: &Keys,
        interval: Duration,
    ) -> Result<Nuclei, NucleiError> {
        Nuclei::begin(servers, to, keys, interval, false)
    }

    /// As [`Nuclei::start`]; with `connections` they also measure processor time by connection.
    pub fn begin(
        servers: &[SocketAddr],
        to: SocketAddr,
        keys: &Keys,
        interval: Duration,
        connections: bool,
    ) -> Result<Nuclei, NucleiError> {
        let config = |server: &SocketAddr| {
            let given = Given {
                server: Some(server.to_string()),
                interval: Some(format!("{}ms", interval.as_millis())),
                status: Some(format!("http://{server}{STATUS_PATH}")),
                connections: Some(connections),
                ..Given::default()
            };
            Ok(Config { to: vec![to.to_string()], keys: Some(keys.clone()), ..given.resolve(false)? })
        };
        let configs: Vec<Config> = servers.iter().map(config).collect::<Result<_, ConfigError>>()?;
        let place = |config: Config| {
            let nucleus = Some(Nucleus::new(&config)?);
            Ok(Place { config, nucleus, is_silent: false })
        };
        let places = configs.into_iter().map(place).collect::<Result<_, tidegate_nucleus::StartError>>()?;
        let shared = Arc::new(Shared { places: Mutex::new(places), stop: AtomicBool::new(false) });
        let body = {
            let shared = Arc::clone(&shared);
            move || shared.report(interval)
        };
        let thread = std::thread::Builder::new().name("tidegate-nuclei".to_owned()).spawn(body)?;
        Ok(Nuclei { shared, thread: Some(thread) })
    }

    /// Number `at` lives on, but nothing of it arrives, until it is told to speak.
    ///
    /// # Panics
    /// When there is no such number, here as below.
    pub fn silence(&self, at: usize) {
        self.shared.lock()[at].is_silent = true;
    }

    /// Number `at` is heard again.
    pub fn speak(&self, at: usize) {
        self.shared.lock()[at].is_silent = false;
    }

    /// Number `at` dies without a word.
    pub fn kill(&self, at: usize) {
        self.shared.lock()[at].nucleus = None;
    }

    /// Number `at` is started, in place of the one that there may still be: for the sentry it is another one.
    ///
    /// # Errors
    /// When it has no key, which does not happen.
    pub fn restart(&self, at: usize) -> Result<(), NucleiError> {
        let place = &mut self.shared.lock()[at];
        place.nucleus = Some(Nucleus::new(&place.config)?);
        Ok(())
    }

    /// How many have been answered by the sentry.
    pub fn heard(&self) -> usize {
        let heard = |place: &Place| place.nucleus.as_ref().is_some_and(|nucleus| nucleus.heard() > 0);
        self.shared.lock().iter().filter(|place| heard(place)).count()
    }
}

impl Drop for Nuclei {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Makes all report, again and again.
    fn report(&self, interval: Duration) {
        let mut next = Instant::now();
        while !self.stop.load(Relaxed) {
            for place in self.lock().iter_mut().filter(|place| !place.is_silent) {
                if let Some(nucleus) = &mut place.nucleus {
                    nucleus.report();
                }
            }
            // What was missed is not made up for.
            next = (next + interval).max(Instant::now());
            std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
