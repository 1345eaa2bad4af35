//! A sentry as a process: the data path, its access log, the admin API, reloads and the control plane's thread, started
//! and stopped in the one order that works.
//!
//! Programs and tests that want all of it start a [`Process`]; [`Sentry::start`] is the data path alone.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::access_log::AccessLog;
use crate::acme::Issuer;
use crate::admin::{AdminServer, stuck};
use crate::board::Board;
use crate::config::Config;
use crate::control::Follower;
use crate::reload::{Reloader, Watcher};
use crate::sentry::{Sentry, SentryHandle, Shutdown, StartError};
use crate::upgrade::{Given, Handover, State};

/// A running sentry with everything around it. Dropped, it stops at once; [`Process::shutdown`] is gentler.
///
/// The fields are dropped in this order: who reloads goes before what is reloaded.
#[derive(Debug)]
pub struct Process {
    issuer: Option<Issuer>,
    watcher: Option<Watcher>,
    follower: Option<Follower>,
    sentry: Arc<SentryHandle>,
    admin: Option<AdminServer>,
    board: Arc<Board>,
    log: Arc<AccessLog>,
}

/// Why a process does not start.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// The access log cannot be opened.
    #[error("cannot open the access log: {0}")]
    AccessLog(io::Error),
    /// The data path does not start.
    #[error(transparent)]
    Sentry(#[from] StartError),
    /// The admin API cannot listen.
    #[error("the admin API cannot listen on {address}: {source}")]
    Admin {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The thread that watches the configuration file cannot be started.
    #[error("cannot watch the configuration file: {0}")]
    Watch(io::Error),
    /// The thread that orders certificates cannot be started.
    #[error("cannot start ordering certificates: {0}")]
    Acme(io::Error),
    /// The thread that follows the control plane cannot be started.
    #[error("cannot start following the control plane: {0}")]
    Control(io::Error),
}

impl Process {
    /// Starts everything that `config` names: when this returns, it accepts, and the admin API answers. `file`: where
    /// `config` comes from, watched for changes; `None` for no reloads.
    ///
    /// # Errors
    /// When an application makes no sense, or the system does not give what it needs. Nothing runs then.
    pub fn start(config: Config, file: Option<&Path>) -> Result<Process, ProcessError> {
        let process = Process::prepare(config, file, &mut Given::default())?;
        process.open();
        Ok(process)
    }

    /// The same of a successor: it listens at the sockets that were `given`, which it takes out of the table, knows
    /// what was known before, and accepts from [`Process::open`] on.
    ///
    /// # Errors
    /// As those of [`Process::start`].
    pub fn prepare(config: Config, file: Option<&Path>, given: &mut Given) -> Result<Process, ProcessError> {
        let log = Arc::new(AccessLog::open(&config.access_log).map_err(ProcessError::AccessLog)?);
        let sentry = Arc::new(Sentry::prepare(config.clone(), log.clone(), &mut given.sockets)?);
        let board = Arc::new(Board::new(config.clone(), sentry.apps().to_vec(), log.dropped()));
        log.attach(&board);
        if let Some(view) = sentry.reports() {
            board.show_reports(view.clone());
        }
        if let Some(view) = sentry.peers() {
            board.show_peers(view.clone());
        }
        if let Some(view) = sentry.names() {
            board.show_names(view.clone());
        }
        // First the servers, then what was learned of them.
        let followed = given.state.as_ref().and_then(State::followed);
        let before = followed.zip(config.control.as_ref()).map(|(before, control)| before.obey(sentry.apps(), control));
        if let Some(state) = &given.state {
            sentry.apps().iter().for_each(|app| app.recall_from(state));
        }
        let mut process = Process { issuer: None, watcher: None, follower: None, sentry, admin: None, board, log };
        if let Some(address) = config.admin.listen {
            let started = AdminServer::start(address, &config.admin, process.board.clone(), &mut given.sockets);
            process.admin = Some(started.map_err(|source| ProcessError::Admin { address, source })?);
        }
        if let Some(file) = file {
            let reloader = Reloader::new(file, process.sentry.clone(), process.board.clone(), process.log.clone());
            process.watcher = Some(Watcher::start(reloader).map_err(ProcessError::Watch)?);
            process.issuer = Some(Issuer::start(process.board.clone()).map_err(ProcessError::Acme)?);
        }
        if let Some(control) = &config.control {
            let started = Follower::start(control, process.sentry.apps(), &process.board, before);
            process.follower = Some(started.map_err(ProcessError::Control)?);
        }
        Ok(process)
    }

    /// From now on it accepts.
    pub fn open(&self) {
        self.sentry.open();
    }

    /// What a successor gets.
    ///
    /// # Errors
    /// When there are no file descriptors left.
    pub fn handover(&self) -> io::Result<Handover> {
        let mut sockets = self.sentry.sockets()?;
        if let Some(admin) = &self.admin {
            sockets.append(admin.sockets().try_clone()?);
        }
        let apps = self.sentry.apps().to_vec();
        let view = self.follower.as_ref().map(|follower| follower.view().clone());
        let now = move || State::now(&apps, view.as_ref().map(|view| view.followed()));
        Ok(Handover { sockets, state: Box::new(now) })
    }

    /// What it knows now, to be kept.
    pub fn state(&self) -> State {
        State::now(self.sentry.apps(), None)
    }

    /// Begins with what another process knew, instead of what it was given first. Before [`Process::open`].
    pub fn recall(&self, state: &State) {
        self.sentry.apps().iter().for_each(|app| app.recall_from(state));
    }

    /// Opens the access log anew, and reads the configuration file again, changed or not. Whether there is a file; what
    /// comes of it is shown on the board.
    pub fn reload(&self) -> bool {
        self.log.reopen();
        self.watcher.as_ref().map(Watcher::reload).is_some()
    }

    /// Stops: `/readyz` fails from now on, no new connections are taken, what was begun is finished; what is left after
    /// `grace` is cut off. The admin API answers to the last, so that whoever asks sees why it is not ready. Blocks
    /// until all is over.
    pub fn shutdown(self, grace: Duration) -> Shutdown {
        self.end(grace, None)
    }

    /// Leaves the service to a successor, which accepts by now: what was begun is finished, and connections are told to
    /// end one after the other over `spread`, so that their clients do not all come back at once. What is left after
    /// `grace` is cut off. Blocks until all is over.
    pub fn leave(mut self, grace: Duration, spread: Duration) -> Shutdown {
        // Who asks is answered by the successor from now on.
        if let Some(admin) = &mut self.admin {
            admin.leave();
        }
        self.end(grace, Some(spread))
    }

    fn end(self, grace: Duration, spread: Option<Duration>) -> Shutdown {
        let Process { issuer, watcher, follower, sentry, admin, board, log } = self;
        drop(issuer);
        drop(watcher);
        // Its servers go to the other sentries from now on.
        drop(follower);
        board.drain();
        // The watcher had the only other handle.
        let cut = Arc::into_inner(sentry).map_or_else(Shutdown::default, |sentry| sentry.end(grace, spread));
        drop(admin);
        log.flush();
        cut
    }

    /// Whether no worker is stuck.
    pub fn is_alive(&self) -> bool {
        self.sentry.apps().iter().all(|app| stuck(&app.counters, app.now()).is_none())
    }

    /// The data path.
    pub fn sentry(&self) -> &SentryHandle {
        &self.sentry
    }

    /// Where the admin API listens, with the port that the system chose where the configuration said 0.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(AdminServer::address)
    }

    /// The process as the admin API and metrics see it.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// The access log.
    pub fn access_log(&self) -> &Arc<AccessLog> {
        &self.log
    }
}
