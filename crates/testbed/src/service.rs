//! The service of one server in real time: the model of its machine, a timer, and whoever waits for an answer.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_loadgen::timer::FineTimer;
use tidegate_workload::{Rng, ServiceTime, rng};
use tokio::sync::{Notify, oneshot};

use crate::cores::{Cores, JobId, Stats};
use crate::machine::{Machine, Use};
use crate::spec::{Route, ServerSpec};

/// The service of one server.
#[derive(Debug)]
pub(crate) struct Service {
    began: Instant,
    spec: ServerSpec,
    state: Mutex<State>,
    /// The timer must look again: something is due earlier than it knows.
    earlier: Notify,
    pub(crate) counters: Counters,
}

/// Counters that the model does not keep.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) abandoned: AtomicU64,
    pub(crate) overflowed: AtomicU64,
    pub(crate) failed: AtomicU64,
}

#[derive(Debug)]
struct State {
    machine: Machine,
    rng: Rng,
    /// Requests in service or waiting by route, in the order of the spec.
    by_route: Vec<usize>,
    /// At the last look at the status page: when, and the work done until then.
    looked: (f64, f64),
    waiters: HashMap<JobId, oneshot::Sender<()>>,
    /// The most of them at once since it was last asked.
    most: usize,
    /// When the timer will look next, seconds since the beginning.
    armed: f64,
}

/// There was no room for a request.
#[derive(Debug)]
pub(crate) struct Full;

impl Service {
    pub(crate) fn new(spec: &ServerSpec) -> Arc<Service> {
        let cores = Cores::new(spec.discipline, spec.cores, spec.concurrency, spec.accept_queue);
        let resources = spec.resources.iter().map(|of| Cores::new(of.discipline, of.units, None, None));
        let mut machine = Machine::new(std::iter::once(cores).chain(resources).collect());
        machine.set_speed(0.0, spec.speed);
        let state = State {
            machine,
            rng: rng(spec.seed, 0),
            by_route: vec![0; spec.routes.len()],
            looked: (0.0, 0.0),
            waiters: HashMap::new(),
            most: 0,
            armed: f64::INFINITY,
        };
        Arc::new(Service {
            began: Instant::now(),
            spec: spec.clone(),
            state: Mutex::new(state),
            earlier: Notify::new(),
            counters: Counters::default(),
        })
    }

    /// Serves one request of a route, with this time on a core; dropped before the end, the server gives it up.
    pub(crate) async fn serve(&self, route: usize, cost: f64) -> Result<(), Full> {
        let (done, wait) = oneshot::channel();
        let id = {
            let mut state = self.lock();
            let rounds = self.rounds(&mut state.rng, &self.spec.routes[route], cost);
            let arrived = state.machine.arrive(self.now(), rounds);
            if let Some(id) = arrived {
                state.waiters.insert(id, done);
                state.most = state.most.max(state.waiters.len());
                state.by_route[route] += 1;
            }
            self.settle(&mut state);
            arrived.ok_or(Full)?
        };
        let present = Present { service: self, id, route };
        // The sender lives in `waiters` until the job is done, or the server is gone and this task with it.
        let _ = wait.await;
        drop(present);
        Ok(())
    }

    /// The most requests that were there at once since the last call, waiting or in service.
    pub(crate) fn take_most(&self) -> usize {
        let mut state = self.lock();
        let level = state.waiters.len();
        std::mem::replace(&mut state.most, level)
    }

    /// A service time drawn from `law`, seconds of one core.
    pub(crate) fn draw(&self, law: &ServiceTime) -> f64 {
        law.sample(&mut self.lock().rng)
    }

    /// How the server is doing, in the form that nuclei read.
    pub(crate) fn status(&self) -> Value {
        let stats = self.stats();
        let mut state = self.lock();
        let now = self.now();
        let (since, work) = std::mem::replace(&mut state.looked, (now, stats.work_done));
        let cpu = if now > since { (stats.work_done - work) / (now - since) } else { 0.0 };
        let mut active: BTreeMap<&str, usize> = BTreeMap::new();
        for (route, count) in self.spec.routes.iter().zip(&state.by_route) {
            if !route.request_type.is_empty() {
                *active.entry(&route.request_type).or_default() += count;
            }
        }
        json!({
            "in_service": stats.in_service,
            "active": active,
            "queueing_delay": state.machine.wait(),
            "cpu": cpu,
            "cores": self.spec.cores,
        })
    }

    /// What a request does: its time on a core, and then its route's steps.
    fn rounds(&self, rng: &mut Rng, route: &Route, cost: f64) -> Vec<Vec<Use>> {
        let mut rounds = vec![vec![Use { station: 0, work: cost }]];
        for step in &route.steps {
            let name = step.resource.as_deref();
            let station = name.and_then(|name| self.spec.station(name)).unwrap_or(0);
            let rate = if station == 0 { 1.0 } else { self.spec.resources[station - 1].rate };
            let use_ = Use { station, work: step.amount.sample(rng) / rate };
            match rounds.last_mut().filter(|_| step.overlap) {
                Some(round) => round.push(use_),
                None => rounds.push(vec![use_]),
            }
        }
        rounds
    }

    pub(crate) fn set_speed(&self, speed: f64) {
        let mut state = self.lock();
        state.machine.set_speed(self.now(), speed);
        self.settle(&mut state);
    }

    pub(crate) fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.counters;
        let mut stats = Stats {
            connections: read(&c.connections),
            requests: read(&c.requests),
            abandoned: read(&c.abandoned),
            overflowed: read(&c.overflowed),
            failed: read(&c.failed),
            ..Stats::default()
        };
        let mut state = self.lock();
        state.machine.advance(self.now());
        self.settle(&mut state);
        state.machine.stats(&mut stats);
        stats
    }

    /// Answers what is done when it is done; never ends. One per server.
    pub(crate) async fn keep_time(&self, mut timer: FineTimer) -> io::Result<()> {
        loop {
            let next = self.look();
            if next.is_infinite() {
                self.earlier.notified().await;
                continue;
            }
            let at = self.began + Duration::try_from_secs_f64(next).unwrap_or(A_LONG_TIME);
            tokio::select! {
                result = timer.sleep_until(at) => result?,
                () = self.earlier.notified() => {}
            }
        }
    }

    /// Answers what is done, and says when to look again.
    fn look(&self) -> f64 {
        let mut state = self.lock();
        state.machine.advance(self.now());
        state.armed = f64::NEG_INFINITY;
        self.settle(&mut state);
        state.armed = state.machine.next_completion().unwrap_or(f64::INFINITY);
        state.armed
    }

    /// Tells those whose jobs are done, and the timer if it would sleep too long.
    fn settle(&self, state: &mut State) {
        for id in state.machine.take_done() {
            if let Some(waiter) = state.waiters.remove(&id) {
                // A client that left at this very moment does not listen any more.
                let _ = waiter.send(());
            }
        }
        if state.machine.next_completion().is_some_and(|next| next < state.armed) {
            self.earlier.notify_one();
        }
    }

    /// Seconds since the beginning. Read while holding the lock, so that the model's clock never goes back.
    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request in service or waiting; gone when dropped.
struct Present<'a> {
    service: &'a Service,
    id: JobId,
    route: usize,
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        let mut state = self.service.lock();
        state.by_route[self.route] -= 1;
        state.machine.advance(self.service.now());
        self.service.settle(&mut state);
        // Still listed among the waiters means: not done.
        if state.waiters.remove(&self.id).is_some() {
            self.service.counters.abandoned.fetch_add(1, Ordering::Relaxed);
            state.machine.abandon(self.service.now(), self.id);
            self.service.settle(&mut state);
        }
    }
}

/// Further ahead than any test or demo runs.
const A_LONG_TIME: Duration = Duration::from_secs(100 * 365 * 86_400);
