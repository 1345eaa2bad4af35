//! The handle to an emulated server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_loadgen::timer::FineTimer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::cores::Stats;
use crate::serve::{Site, accept};
use crate::service::Service;
use crate::spec::{Mode, ServerSpec, SpecError};

/// A running emulated server. Dropping it ends it at once, as [`EmulatedServer::kill`] does.
#[derive(Debug)]
pub struct EmulatedServer {
    name: String,
    address: SocketAddr,
    service: Arc<Service>,
    mode: watch::Sender<Mode>,
    draining: watch::Sender<bool>,
    ended: watch::Receiver<bool>,
    tasks: [AbortHandle; 2],
}

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The spec makes no sense.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// It could not listen.
    #[error("emulated server {name:?} cannot listen on {address}: {error}")]
    Listen {
        /// Name of the server.
        name: String,
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// No timer, thread or runtime could be had.
    #[error("cannot start emulated servers: {0}")]
    System(#[from] io::Error),
}

impl EmulatedServer {
    /// Starts a server on the current tokio runtime, which needs I/O and time enabled.
    ///
    /// # Errors
    /// When the spec makes no sense or the address cannot be listened on.
    pub async fn start(spec: ServerSpec) -> Result<EmulatedServer, StartError> {
        spec.validate()?;
        let listening = TcpListener::bind(spec.listen).await;
        let failed = |error| StartError::Listen { name: spec.name.clone(), address: spec.listen, error };
        let listener = listening.map_err(failed)?;
        let address = listener.local_addr()?;
        let timer = FineTimer::new()?;
        let service = Service::new(&spec);
        let (mode, modes) = watch::channel(Mode::Serve);
        let (draining, drain) = watch::channel(false);
        let (end, ended) = watch::channel(false);
        let site = Arc::new(Site::new(&spec, Arc::clone(&service), modes));
        let accepting = tokio::spawn(async move {
            accept(listener, site, drain).await;
            end.send_replace(true);
        });
        let timing = Arc::clone(&service);
        let timing = tokio::spawn(async move { timing.keep_time(timer).await });
        let tasks = [accepting.abort_handle(), timing.abort_handle()];
        Ok(EmulatedServer { name: spec.name, address, service, mode, draining, ended, tasks })
    }

    /// Name of the server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path on it, which begins with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Counters until now.
    pub fn stats(&self) -> Stats {
        self.service.stats()
    }

    /// The most requests that it had at work at once since the last call, waiting for a core or served.
    pub fn take_most(&self) -> usize {
        self.service.take_most()
    }

    /// Changes the speed of its cores, also for the requests in service: 1 is normal, 0 stops them.
    pub fn set_speed(&self, speed: f64) {
        self.service.set_speed(speed);
    }

    /// Changes how it treats requests from now on, those that hang included.
    pub fn set_mode(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Accepts nothing more, answers what is under way for at most `patience`, then ends. Its address is free when this
    /// returns. Returns the final counters.
    pub async fn stop(&self, patience: Duration) -> Stats {
        self.draining.send_replace(true);
        let mut ended = self.ended.clone();
        // Either all is answered, or patience is over: the end is the same.
        let _ = tokio::time::timeout(patience, ended.wait_for(|ended| *ended)).await;
        self.kill();
        // The sender goes with the accepting task, after the listener.
        while ended.changed().await.is_ok() {}
        self.stats()
    }

    /// Ends at once: all connections break, as when the process is killed. Its address may stay taken for a moment; to
    /// start another server there, use [`EmulatedServer::stop`] with no patience.
    pub fn kill(&self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Drop for EmulatedServer {
    fn drop(&mut self) {
        self.kill();
    }
}
