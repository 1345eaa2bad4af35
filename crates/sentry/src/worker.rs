//! A worker thread: one single-threaded runtime with its own listeners, connections and pools.

use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::spawn_local;
use tracing::error;

use crate::accept::accept;
use crate::app::App;
use crate::client::Wait;
use crate::config::Listen;
use crate::counters::Counter;
use crate::doorstep::Doorstep;
use crate::health;
use crate::heap;
use crate::share::{Scratch, WorkerApp};
use crate::shed;
use crate::supervise::supervise;
use crate::timer::{self, CpuMeter};
use crate::watchdog::Sockets;

/// How often a draining worker looks whether it is done.
const DRAIN_TICK: Duration = Duration::from_millis(10);

/// Between two looks at who holds most, while memory is short.
const BETWEEN_SHORTAGES: Duration = Duration::from_millis(5);

/// What all workers have in common.
#[derive(Clone, Debug)]
pub(crate) struct Crew {
    pub(crate) apps: Vec<Arc<App>>,
    /// How many there may be, those included that take others' places.
    pub(crate) room: usize,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) deadline: watch::Receiver<Option<Instant>>,
    pub(crate) meter: Arc<CpuMeter>,
    pub(crate) seed: u64,
}

impl Crew {
    /// A worker at `sockets`, which has the duties of worker `post`.
    ///
    /// # Errors
    /// When its thread cannot be started.
    pub(crate) fn begin(&self, index: usize, post: usize, sockets: Sockets) -> io::Result<JoinHandle<Left>> {
        let job = Job {
            index,
            post,
            apps: self.apps.iter().cloned().zip(sockets).collect(),
            stop: self.stop.clone(),
            deadline: self.deadline.clone(),
            meter: self.meter.clone(),
            seed: self.seed.wrapping_add(index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15),
        };
        std::thread::Builder::new().name(format!("sentry-{index}")).spawn(move || run(job))
    }
}

/// What a worker needs.
pub(crate) struct Job {
    /// Its number.
    pub(crate) index: usize,
    /// Whose duties it has. Worker 0 also runs what an application needs once: its timer and its health checks.
    pub(crate) post: usize,
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
    let Job { index, post, apps, mut stop, deadline, meter, seed } = job;
    if post == 0 {
        let all: Vec<Arc<App>> = apps.iter().map(|(app, _)| app.clone()).collect();
        for app in &all {
            once_for(app, "timer", timer::run);
            once_for(app, "health checks", health::run);
        }
        if let Some(first) = all.first().cloned() {
            let meter = meter.clone();
            once_for(&first, "memory", |_| heap::run());
            once_for(&first, "load report", move |_| timer::report(all.clone(), meter.clone()));
        }
    }
    let scratch = Scratch::shared();
    let doorstep = apps.first().map(|(app, _)| Doorstep::new(app.now()));
    let mut workers = Vec::new();
    let mut accepting = Vec::new();
    for ((app, listeners), doorstep) in apps.into_iter().zip(doorstep.into_iter().cycle()) {
        let worker = WorkerApp::new(app, index, (scratch.clone(), doorstep), seed);
        let (swept, meter) = (worker.clone(), meter.clone());
        spawn_local(supervise("sweep", panicked(&worker), move || sweep(swept.clone(), meter.clone())));
        let watching = worker.clone();
        spawn_local(supervise("cancel", panicked(&worker), move || end_runaways(watching.clone())));
        // They cannot change while the sentry runs.
        let listens = worker.app.live().config.listen.clone();
        for (listener, listen) in listeners.into_iter().zip(listens) {
            accepting.push(spawn_local(keep_accepting(worker.clone(), listener, listen, stop.clone())));
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

/// Runs what an application needs once.
fn once_for<F>(app: &Arc<App>, what: &'static str, run: impl Fn(Arc<App>) -> F + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let (app, counted) = (app.clone(), app.clone());
    let count = move || counted.counters.lane(0).bump(Counter::WorkerPanics);
    spawn_local(supervise(what, count, move || run(app.clone())));
}

/// Counts a panic of a worker's task.
fn panicked(worker: &Rc<WorkerApp>) -> impl Fn() + 'static {
    let worker = worker.clone();
    move || worker.lane().bump(Counter::WorkerPanics)
}

/// Accepts until the stop. The socket outlives the task that uses it, so that no connection is lost with a panic.
async fn keep_accepting(worker: Rc<WorkerApp>, listener: TcpListener, listen: Listen, stop: watch::Receiver<bool>) {
    let (count, listener) = (panicked(&worker), Rc::new(listener));
    let accept_again = move || {
        let (worker, stop, listener) = (worker.clone(), stop.clone(), listener.clone());
        async move {
            let accepted = match listener.try_clone() {
                Ok(listener) => accept(worker, listener, listen, stop).await,
                Err(error) => Err(error),
            };
            if let Err(error) = accepted {
                error!(%error, "a worker can accept no more connections");
            }
        }
    };
    supervise("accept", count, accept_again).await;
}

/// Every period: connections whose time has come, and the thread's own CPU time. Between: shortages of memory.
async fn sweep(worker: Rc<WorkerApp>, meter: Arc<CpuMeter>) {
    // Who hangs before its first look is seen, too.
    worker.lane().beat(worker.now());
    let mut next = Instant::now() + worker.sweep_period();
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {
                #[cfg(feature = "faults")]
                worker.app.faults.strike(crate::faults::Fault::Stall);
                worker.sweep();
                meter.read(worker.index);
                shed::help_others(&worker);
                next = Instant::now() + worker.sweep_period();
                shed::free_memory(&worker);
            }
            () = worker.shortage.of_memory.notified() => {
                shed::free_memory(&worker);
                // Those that were told to go have their turn before anybody is looked at again.
                tokio::time::sleep(BETWEEN_SHORTAGES).await;
            }
        }
    }
}

/// Ends requests that the controller wants ended, where they are this worker's.
async fn end_runaways(worker: Rc<WorkerApp>) {
    let mut news = worker.app.runaways.subscribe();
    // An error means that the application is gone.
    while news.changed().await.is_ok() {
        let tickets = news.borrow_and_update().clone();
        for (_, client) in &*worker.clients.borrow() {
            tickets.iter().for_each(|ticket| client.cancel(*ticket));
        }
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
            left.requests +=
                usize::from(!matches!(client.waits_for(), Wait::Idle | Wait::Handshake | Wait::Header | Wait::Linger));
        }
    }
    left
}
