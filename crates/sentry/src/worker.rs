//! A worker thread: one single-threaded runtime with its own listeners, connections and pools.

use std::cell::RefCell;
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
use crate::counters::Counter;
use crate::door::Door;
use crate::doorstep::Doorstep;
use crate::health;
use crate::heap;
use crate::plan::{Front, Harbour, Plan};
use crate::share::{Scratch, WorkerApp};
use crate::shed;
use crate::supervise::supervise;
use crate::timer::{self, CpuMeter};

/// How often a draining worker looks whether it is done.
const DRAIN_TICK: Duration = Duration::from_millis(10);

/// Between two looks at who holds most, while memory is short.
const BETWEEN_SHORTAGES: Duration = Duration::from_millis(5);

/// What all workers have in common.
#[derive(Clone, Debug)]
pub(crate) struct Crew {
    pub(crate) apps: Vec<Arc<App>>,
    /// Where they listen.
    pub(crate) plan: watch::Receiver<Arc<Plan>>,
    pub(crate) harbour: Arc<Harbour>,
    /// How many there may be, those included that take others' places.
    pub(crate) room: usize,
    /// Whether they may accept; before that, another process does.
    pub(crate) open: watch::Receiver<bool>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) deadline: watch::Receiver<Option<Instant>>,
    pub(crate) meter: Arc<CpuMeter>,
    pub(crate) seed: u64,
}

impl Crew {
    /// A worker which has the duties, and the sockets, of worker `post`.
    ///
    /// # Errors
    /// When its thread cannot be started.
    pub(crate) fn begin(&self, index: usize, post: usize) -> io::Result<JoinHandle<Left>> {
        let job = Job {
            index,
            post,
            apps: self.apps.clone(),
            plan: self.plan.clone(),
            harbour: self.harbour.clone(),
            open: self.open.clone(),
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
    pub(crate) apps: Vec<Arc<App>>,
    pub(crate) plan: watch::Receiver<Arc<Plan>>,
    pub(crate) harbour: Arc<Harbour>,
    pub(crate) open: watch::Receiver<bool>,
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
    let Job { index, post, apps: all, mut plan, harbour, open: turn, mut stop, deadline, meter, seed } = job;
    if post == 0 {
        for app in &all {
            once_for(app, "timer", timer::run);
            once_for(app, "health checks", health::run);
        }
        if let Some(first) = all.first().cloned() {
            let (all, meter) = (all.clone(), meter.clone());
            once_for(&first, "memory", |_| heap::run());
            once_for(&first, "load report", move |_| timer::report(all.clone(), meter.clone()));
        }
    }
    let scratch = Scratch::shared();
    let doorstep = all.first().map(|app| Doorstep::new(app.now()));
    let numbered = (0..).zip(all).zip(doorstep.into_iter().cycle());
    let workers = numbered.map(|(app, doorstep)| WorkerApp::new(app, index, (scratch.clone(), doorstep), seed));
    let workers: Rc<[Rc<WorkerApp>]> = workers.collect();
    for worker in &*workers {
        let (swept, meter) = (worker.clone(), meter.clone());
        spawn_local(supervise("sweep", panicked(worker), move || sweep(swept.clone(), meter.clone())));
        let (watching, all) = (worker.clone(), workers.clone());
        spawn_local(supervise("cancel", panicked(worker), move || end_runaways(watching.clone(), all.clone())));
    }
    let mut listening = Listening { workers: workers.clone(), post, harbour, turn, open: Vec::new(), next: 0 };
    loop {
        let now = plan.borrow_and_update().clone();
        listening.follow(&now);
        tokio::select! {
            // An error means that the handle is gone, which comes to the same.
            _ = stop.wait_for(|stop| *stop) => break,
            changed = plan.changed() => if changed.is_err() { break },
        }
    }
    listening.end().await;
    drain(&workers, *deadline.borrow()).await
}

/// A worker's listeners.
struct Listening {
    workers: Rc<[Rc<WorkerApp>]>,
    post: usize,
    harbour: Arc<Harbour>,
    /// Whether it may accept; before that, another process does.
    turn: watch::Receiver<bool>,
    open: Vec<Open>,
    /// The next one's number.
    next: u16,
}

/// One of them.
struct Open {
    front: Arc<Front>,
    /// What new connections come in by.
    door: Rc<RefCell<Rc<Door>>>,
    stop: watch::Sender<bool>,
    /// One for each of the worker's sockets there.
    accepting: Vec<JoinTask>,
}

type JoinTask = tokio::task::JoinHandle<()>;

impl Listening {
    /// Listens where `plan` says, and nowhere else.
    fn follow(&mut self, plan: &Plan) {
        let (stay, go): (Vec<Open>, Vec<Open>) =
            std::mem::take(&mut self.open).into_iter().partition(|open| plan.front(open.front.place).is_some());
        self.open = stay;
        for gone in go {
            // Its task ends once it has accepted what is there.
            gone.stop.send_replace(true);
            gone.door.borrow().close(plan.drain);
        }
        for front in &plan.fronts {
            match self.open.iter_mut().find(|open| open.front.place == front.place) {
                Some(open) => {
                    let door = open.door.borrow().renew(front.clone());
                    (open.front, _) = (front.clone(), open.door.replace(door));
                }
                None => self.begin(front),
            }
        }
    }

    fn begin(&mut self, front: &Arc<Front>) {
        let listeners = match self.harbour.sockets_of(front.place, self.post) {
            Ok(listeners) => listeners,
            // It is gone already, and the next plan says so.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return error!(address = %front.address, %error, "a worker cannot accept here"),
        };
        let door = Rc::new(RefCell::new(Door::new(self.next, &self.workers, front.clone())));
        self.next = self.next.wrapping_add(1);
        let (stop, stopped) = watch::channel(false);
        let accept =
            |listener| spawn_local(keep_accepting(door.clone(), listener, (self.turn.clone(), stopped.clone())));
        let accepting = listeners.into_iter().map(accept).collect();
        self.open.push(Open { front: front.clone(), door, stop, accepting });
    }

    /// Accepts once more what is there, and no more.
    async fn end(self) {
        for open in &self.open {
            open.stop.send_replace(true);
        }
        for accepting in self.open.into_iter().flat_map(|open| open.accepting) {
            let _ = accepting.await;
        }
    }
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

/// Accepts from its turn until the stop. The socket outlives the task that uses it, so that no connection is lost with
/// a panic.
async fn keep_accepting(
    door: Rc<RefCell<Rc<Door>>>,
    listener: TcpListener,
    (mut turn, stop): (watch::Receiver<bool>, watch::Receiver<bool>),
) {
    let mut stopped = stop.clone();
    tokio::select! {
        biased;
        // It was another's turn all along.
        _ = stopped.wait_for(|stop| *stop) => return,
        _ = turn.wait_for(|turn| *turn) => {}
    }
    let (count, listener) = (panicked(&door.borrow()), Rc::new(listener));
    let accept_again = move || {
        let (door, stop, listener) = (door.clone(), stop.clone(), listener.clone());
        async move {
            let accepted = match listener.try_clone() {
                Ok(listener) => accept(door, listener, stop).await,
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
                meter.read(worker.index, worker.doorstep.used_aside());
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

/// Ends requests that the controller wants ended, where they are this worker's. Their connections may be another
/// application's.
async fn end_runaways(worker: Rc<WorkerApp>, all: Rc<[Rc<WorkerApp>]>) {
    let mut news = worker.app.runaways.subscribe();
    // An error means that the application is gone.
    while news.changed().await.is_ok() {
        let tickets = news.borrow_and_update().clone();
        for app in &*all {
            for (_, client) in &*app.clients.borrow() {
                tickets.iter().for_each(|ticket| client.cancel((worker.number, *ticket)));
            }
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
