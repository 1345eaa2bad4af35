//! A worker thread: one single-threaded runtime with its own listeners, connections and pools.

use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::spawn_local;
use tracing::error;

use crate::accept::accept;
use crate::app::App;
use crate::client::Wait;
use crate::health;
use crate::share::{Scratch, WorkerApp};
use crate::timer::{self, CpuMeter};

/// How often a draining worker looks whether it is done.
const DRAIN_TICK: Duration = Duration::from_millis(10);

/// What a worker needs.
pub(crate) struct Job {
    /// Its number. Worker 0 also runs what an application needs once: its timer and its health checks.
    pub(crate) index: usize,
    pub(crate) apps: Vec<(Arc<App>, Vec<TcpListener>)>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) deadline: watch::Receiver<Option<Instant>>,
    pub(crate) meter: Arc<CpuMeter>,
    pub(crate) seed: u64,
}

/// What was still open when a worker ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Left {
    pub(crate) connections: usize,
    pub(crate) requests: usize,
}

/// Runs a worker to its end.
pub(crate) fn run(job: Job) -> Left {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
    match runtime {
        Ok(runtime) => runtime.block_on(work(job)),
        Err(error) => {
            error!(worker = job.index, %error, "a worker cannot start");
            Left::default()
        }
    }
}

async fn work(job: Job) -> Left {
    let Job { index, apps, mut stop, deadline, meter, seed } = job;
    if index == 0 {
        let all: Vec<Arc<App>> = apps.iter().map(|(app, _)| app.clone()).collect();
        for app in &all {
            spawn_local(timer::run(app.clone()));
            spawn_local(health::run(app.clone()));
        }
        spawn_local(timer::report(all, meter.clone()));
    }
    let scratch = Scratch::shared();
    let mut workers = Vec::new();
    let mut accepting = Vec::new();
    for (app, listeners) in apps {
        let worker = WorkerApp::new(app, index, scratch.clone(), seed);
        spawn_local(sweep(worker.clone(), meter.clone()));
        for listener in listeners {
            accepting.push(spawn_local(accept(worker.clone(), listener, stop.clone())));
        }
        workers.push(worker);
    }
    // An error means that the handle is gone, which comes to the same.
    let _ = stop.wait_for(|stop| *stop).await;
    for task in accepting {
        let _ = task.await;
    }
    drain(&workers, *deadline.borrow()).await
}

/// Every period: connections whose time has come, and the thread's own CPU time.
async fn sweep(worker: Rc<WorkerApp>, meter: Arc<CpuMeter>) {
    loop {
        tokio::time::sleep(worker.sweep_period()).await;
        worker.sweep();
        meter.read(worker.index);
    }
}

/// Waits until every connection is closed, or the deadline.
async fn drain(workers: &[Rc<WorkerApp>], deadline: Option<Instant>) -> Left {
    loop {
        workers.iter().for_each(|worker| worker.sweep());
        let left = left(workers);
        if left.connections == 0 || deadline.is_none_or(|deadline| Instant::now() >= deadline) {
            return left;
        }
        tokio::time::sleep(DRAIN_TICK).await;
    }
}

fn left(workers: &[Rc<WorkerApp>]) -> Left {
    let mut left = Left::default();
    for worker in workers {
        for (_, client) in &*worker.clients.borrow() {
            left.connections += 1;
            left.requests += usize::from(!matches!(client.waits_for(), Wait::Idle | Wait::Header | Wait::Linger));
        }
    }
    left
}
