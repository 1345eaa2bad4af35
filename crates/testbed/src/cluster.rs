//! Several emulated servers, on the current runtime or on a thread of their own.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::cores::Stats;
use crate::server::{EmulatedServer, StartError};
use crate::spec::{Mode, ServerSpec};

/// Servers of one kind.
#[derive(Debug)]
pub struct EmulatedCluster {
    servers: Vec<EmulatedServer>,
}

impl EmulatedCluster {
    /// Starts `n` servers like `spec`, on the current runtime. Number i, from 0, has `-i` after its name, another seed,
    /// and, when the spec names a port, the i-th port after it.
    ///
    /// # Errors
    /// When the spec makes no sense or an address is not free; servers started before are then ended.
    pub async fn start(n: usize, spec: ServerSpec) -> Result<EmulatedCluster, StartError> {
        let mut servers = Vec::with_capacity(n);
        for i in 0..n {
            servers.push(EmulatedServer::start(numbered(&spec, i)).await?);
        }
        Ok(EmulatedCluster { servers })
    }

    /// Starts `n` servers like `spec` on one thread of their own, so that they neither need a runtime nor share one.
    ///
    /// # Errors
    /// As [`EmulatedCluster::start`], or when the machine refuses the thread.
    pub fn start_on_thread(n: usize, spec: ServerSpec) -> Result<ThreadedCluster, StartError> {
        let (started_in, started) = mpsc::sync_channel(1);
        let (stop, stopped) = oneshot::channel::<()>();
        let body = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(started_in.send(Err(error.into()))),
            };
            let result = runtime.block_on(EmulatedCluster::start(n, spec));
            // The starter waits for this message; the thread then serves until the handle is dropped.
            drop(started_in.send(result.map(Arc::new)));
            let _ = runtime.block_on(stopped);
        };
        let thread = std::thread::Builder::new().name("tidegate-servers".to_owned()).spawn(body)?;
        let died = || StartError::System(std::io::Error::other("the thread of the emulated servers died"));
        let cluster = started.recv().map_err(|_| died())??;
        Ok(ThreadedCluster { cluster, stop: Some(stop), thread: Some(thread) })
    }

    /// The emulated servers, in their order.
    pub fn servers(&self) -> &[EmulatedServer] {
        &self.servers
    }

    /// The addresses on which the servers listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(EmulatedServer::address).collect()
    }

    /// The counters of all together.
    pub fn stats(&self) -> Stats {
        self.servers.iter().map(EmulatedServer::stats).fold(Stats::default(), add)
    }

    /// The most requests that any of them had at work at once since the last call.
    pub fn take_most(&self) -> usize {
        self.servers.iter().map(EmulatedServer::take_most).max().unwrap_or(0)
    }

    /// Changes the speed of all.
    pub fn set_speed(&self, speed: f64) {
        self.servers.iter().for_each(|server| server.set_speed(speed));
    }

    /// Changes the mode of all.
    pub fn set_mode(&self, mode: Mode) {
        self.servers.iter().for_each(|server| server.set_mode(mode));
    }

    /// Stops all gracefully, each within `patience`, one after the other. Returns the final counters.
    pub async fn stop(&self, patience: Duration) -> Stats {
        let mut total = Stats::default();
        for server in &self.servers {
            total = add(total, server.stop(patience).await);
        }
        total
    }
}

/// Servers on a thread of their own; dereferences to the cluster. Dropping it ends them and the thread.
#[derive(Debug)]
pub struct ThreadedCluster {
    cluster: Arc<EmulatedCluster>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Deref for ThreadedCluster {
    type Target = EmulatedCluster;

    fn deref(&self) -> &EmulatedCluster {
        &self.cluster
    }
}

impl Drop for ThreadedCluster {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

fn numbered(spec: &ServerSpec, i: usize) -> ServerSpec {
    let mut spec = spec.clone();
    spec.name = format!("{}-{i}", spec.name);
    spec.seed = spec.seed.wrapping_add(i as u64);
    if spec.listen.port() != 0 {
        spec.listen.set_port(spec.listen.port().wrapping_add(i as u16));
    }
    spec
}

fn add(a: Stats, b: Stats) -> Stats {
    Stats {
        connections: a.connections + b.connections,
        requests: a.requests + b.requests,
        completed: a.completed + b.completed,
        abandoned: a.abandoned + b.abandoned,
        overflowed: a.overflowed + b.overflowed,
        failed: a.failed + b.failed,
        in_service: a.in_service + b.in_service,
        waiting: a.waiting + b.waiting,
        work_done: a.work_done + b.work_done,
        busy: a.busy + b.busy,
    }
}
