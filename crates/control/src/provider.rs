//! Providers start and stop servers, and sentries at posts.
//!
//! | file | question |
//! |---|---|
//! | `local.rs` | processes on this machine |
//! | `process.rs` | which of them are ours, and which of those |
//! | `kubernetes.rs`, `kubernetes/` | pods, with the feature `kubernetes` |
//! | `check.rs` | whether a server serves |

mod check;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod local;
mod process;

use std::fmt::Debug;
use std::sync::Arc;

use thiserror::Error;

use crate::config::{self, Config};
use crate::plane::{Process, Step, Unit, What};

/// Starts and stops servers, or sentries; a sentry's place is its post. Its methods block; they are called from threads
/// of their own.
pub trait Provider: Debug + Send + Sync {
    /// Carries a step out. It may be a step that was carried out before, wholly or in part, by a daemon that was killed
    /// then: what is there already is not made again. `known` is the process that is on record for the server.
    ///
    /// # Errors
    /// Why it could not.
    fn apply(&self, step: &Step, known: Option<Process>) -> Result<Option<Process>, ProviderError>;

    /// How a server is.
    fn look(&self, server: usize, known: Option<Process>) -> Presence;

    /// Begins; called once, before anything else. These places were in use before, or are about to be.
    fn adopt(&self, _servers: &[Adopted]) {}

    /// Where a server listens now, `host:port`, where the configuration does not say it; `None`: nowhere.
    fn address(&self, _server: usize) -> Option<String> {
        None
    }

    /// What a sentry there calls itself; `None`: not known now, or there are no sentries.
    fn name(&self, _post: usize) -> Option<String> {
        None
    }

    /// What else there is to say since this was last asked: the kind of event, and a text.
    fn take_notes(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// A place that was in use before the daemon began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// The place in the pool.
    pub server: usize,
    /// Index of the application that the server belongs to.
    pub application: usize,
    /// What is on record of it.
    pub process: Option<Process>,
}

/// How a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is not there.
    Absent,
    /// It is there and does not answer.
    Silent,
    /// The server answers requests.
    Serving,
}

/// Why a provider could not do it.
#[derive(Debug, Error)]
pub enum ProviderError {
    /// The program cannot be started.
    #[error("cannot start \"{program}\": {source}; check command in {table}")]
    Start {
        /// Name of the program.
        program: String,
        /// What the system said.
        source: std::io::Error,
        /// Where the configuration has the command.
        table: &'static str,
    },
    /// It cannot be stopped.
    #[error("process {pid} does not end")]
    Stop {
        /// Process number of the server.
        pid: u32,
    },
    /// What a later step started is there: another control plane has gone on since.
    #[error("step {step} comes late: a later one was carried out already")]
    Superseded {
        /// Number of the step.
        step: u64,
    },
    /// Kubernetes could not, for this reason.
    #[error("Kubernetes: {0}")]
    Kubernetes(String),
    /// The system does not tell what runs.
    #[error("cannot read {what}: {source}")]
    System {
        /// What.
        what: String,
        /// What it said.
        source: std::io::Error,
    },
}

/// Who starts and stops what.
#[derive(Clone, Debug)]
pub struct Providers {
    servers: Arc<dyn Provider>,
    sentries: Arc<dyn Provider>,
}

impl Providers {
    /// Those that a configuration names. `store` marks what is started.
    ///
    /// # Errors
    /// When the folder for what they print cannot be made, or it is not known how Kubernetes is reached.
    pub fn build(config: &Config, store: u64) -> Result<Providers, ProviderError> {
        let sentries = match &config.sentries {
            Some(sentries) => build(sentries, store)?,
            // There are no posts: it is never asked.
            None => Arc::new(Pretend),
        };
        Ok(Providers { servers: build(&config.provider, store)?, sentries })
    }

    /// A dry run's.
    pub fn pretend() -> Providers {
        Providers { servers: Arc::new(Pretend), sentries: Arc::new(Pretend) }
    }

    /// Who starts and stops these.
    pub fn of(&self, unit: Unit) -> &Arc<dyn Provider> {
        match unit {
            Unit::Server => &self.servers,
            Unit::Sentry => &self.sentries,
        }
    }
}

/// The provider that a table of a configuration names. `store` marks what is started.
///
/// # Errors
/// When the folder for what they print cannot be made, or it is not known how Kubernetes is reached.
pub fn build(config: &config::Provider, store: u64) -> Result<Arc<dyn Provider>, ProviderError> {
    Ok(match config {
        config::Provider::Static { .. } => Arc::new(Static(config.clone())),
        config::Provider::Local(local) => Arc::new(local::Processes::new(local.clone(), store)?),
        #[cfg(feature = "kubernetes")]
        config::Provider::Kubernetes(kubernetes) => Arc::new(kubernetes::Pods::new(kubernetes)?),
        #[cfg(not(feature = "kubernetes"))]
        config::Provider::Kubernetes(_) => {
            return Err(ProviderError::Kubernetes(String::from("this tidegate was built without it")));
        }
    })
}

/// Servers that always run: they are put to use when they answer.
#[derive(Debug)]
struct Static(config::Provider);

impl Provider for Static {
    fn apply(&self, _step: &Step, _known: Option<Process>) -> Result<Option<Process>, ProviderError> {
        Ok(None)
    }

    fn look(&self, server: usize, _known: Option<Process>) -> Presence {
        let path = self.0.check().path.as_deref();
        match self.0.address(server).is_some_and(|address| check::answers(&address, path)) {
            true => Presence::Serving,
            false => Presence::Silent,
        }
    }
}

/// A dry run: everything succeeds and nothing is done.
#[derive(Debug, Default)]
pub struct Pretend;

impl Provider for Pretend {
    fn apply(&self, step: &Step, _known: Option<Process>) -> Result<Option<Process>, ProviderError> {
        match step.what {
            What::Start { .. } => Ok(Some(Process { pid: 0, started: 0, step: step.number })),
            What::Stop => Ok(None),
        }
    }

    fn look(&self, _server: usize, known: Option<Process>) -> Presence {
        if known.is_some() { Presence::Serving } else { Presence::Absent }
    }
}
