//! A run on a thread of its own, and the handle to it.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::thread::JoinHandle;
use std::time::Duration;

use http::Uri;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{oneshot, watch};

use crate::client::{Way, host};
use crate::generator::generate;
use crate::limits::raise_open_files_limit;
use crate::plan::{Destination, Plan, PlanError, is_secure};
use crate::progress::Progress;
use crate::report::Report;
use crate::tls::TlsError;
use crate::users::{UsersPlan, UsersReport};

/// Why a run could not be made, or gave no report.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The plan makes no sense.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A host name could not be resolved.
    #[error("cannot find the address of {authority}: {error}")]
    Resolve {
        /// Host and port, from the URL.
        authority: String,
        /// What the resolver said.
        error: io::Error,
    },
    /// There is nothing to begin TLS with.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The thread or its runtime could not be made.
    #[error("cannot start the load generator: {0}")]
    Start(#[from] io::Error),
    /// The thread ended without a report: a bug.
    #[error("the load generator's thread died without a report")]
    Died,
}

/// A run under way. Dropping it stops the run.
#[derive(Debug)]
pub struct LoadRun<R = Report> {
    thread: Option<JoinHandle<()>>,
    report: oneshot::Receiver<io::Result<R>>,
    stop: watch::Sender<bool>,
    progress: watch::Receiver<Progress>,
}

/// Stops a run from elsewhere, such as a signal handler.
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<bool>);

impl LoadRun {
    /// Checks the plan, resolves its hosts (this blocks), raises the limit of open files, and starts sending.
    ///
    /// # Errors
    /// When the plan is not valid, a host is unknown, nobody can be believed, or the machine refuses the thread.
    pub fn start(plan: Plan) -> Result<LoadRun, LoadError> {
        plan.validate()?;
        let way = Way::of_plan(&plan)?;
        let destinations = resolve(&plan, &way)?;
        spawn(plan.duration, |stopped, progress| generate(plan, way, destinations, stopped, progress))
    }
}

impl LoadRun<UsersReport> {
    /// Resolves the host (this blocks), raises the limit of open files, and lets the users begin.
    ///
    /// # Errors
    /// When the host is unknown, nobody can be believed, or the machine refuses the thread.
    pub fn start_users(plan: UsersPlan) -> Result<LoadRun<UsersReport>, LoadError> {
        let way = Way::of_users(&plan)?;
        let destination = resolve_one(plan.base(), &way)?;
        spawn(plan.duration, |stopped, progress| crate::users::drive(plan, way, destination, stopped, progress))
    }
}

/// Starts the thread; `generate` makes the future that is the whole run.
fn spawn<R, F>(
    duration: Duration,
    generate: impl FnOnce(watch::Receiver<bool>, watch::Sender<Progress>) -> F + Send + 'static,
) -> Result<LoadRun<R>, LoadError>
where
    R: Send + 'static,
    F: Future<Output = io::Result<R>>,
{
    raise_open_files_limit();
    let (stop, stopped) = watch::channel(false);
    let (progress_in, progress) = watch::channel(Progress { duration, ..Progress::default() });
    let (report_in, report) = oneshot::channel();
    let body = move || {
        let built = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let result = built.and_then(|rt| rt.block_on(generate(stopped, progress_in)));
        // Nobody listens any more when the handle was dropped.
        drop(report_in.send(result));
    };
    let thread = std::thread::Builder::new().name("tidegate-load".to_owned()).spawn(body)?;
    Ok(LoadRun { thread: Some(thread), report, stop, progress })
}

impl<R> LoadRun<R> {
    /// The state of the run, renewed ten times a second. The last one has `finished` set.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Ends the run now: nothing more is sent, requests under way are given up and counted as unfinished.
    pub fn stop(&self) {
        self.stopper().stop();
    }

    /// A handle that can stop the run from elsewhere.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Blocks until the run is over. Not inside an async runtime: there, use [`LoadRun::wait`].
    ///
    /// # Errors
    /// When the generator could not work.
    pub fn join(mut self) -> Result<R, LoadError> {
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|_| LoadError::Died)?;
        }
        Ok(self.report.try_recv().map_err(|_| LoadError::Died)??)
    }

    /// Waits until the run is over.
    ///
    /// # Errors
    /// When the generator could not work.
    pub async fn wait(mut self) -> Result<R, LoadError> {
        Ok((&mut self.report).await.map_err(|_| LoadError::Died)??)
    }
}

impl<R> Drop for LoadRun<R> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Stopper {
    /// Ends the run now.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

fn resolve(plan: &Plan, way: &Way) -> Result<Vec<Destination>, LoadError> {
    let mut destinations: Vec<Destination> = Vec::new();
    for (url, _) in plan.streams.iter().flat_map(|stream| &stream.urls) {
        if !destinations.iter().any(|destination| destination.is_of(url)) {
            destinations.push(resolve_one(url, way)?);
        }
    }
    Ok(destinations)
}

fn resolve_one(url: &Uri, way: &Way) -> Result<Destination, LoadError> {
    let authority = url.authority().map_or("", |a| a.as_str());
    let usual = if is_secure(url) { 443 } else { 80 };
    let found = (host(url), url.port_u16().unwrap_or(usual)).to_socket_addrs();
    let failed = |error| LoadError::Resolve { authority: authority.to_owned(), error };
    let addresses: Vec<SocketAddr> = found.map_err(failed)?.collect();
    if addresses.is_empty() {
        return Err(failed(io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
    }
    Ok(Destination { authority: authority.to_owned(), addresses, secure: way.secure(url)? })
}
