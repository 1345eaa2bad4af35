//! The model of a server: `k` cores shared by the jobs in service.
//!
//! Pure and exact. All running jobs progress at the same speed, so one number, the *attained service* a job that was
//! there from the beginning would have, tells the progress of all: it grows by `speed * min(1, k/n)` per second while n
//! run. A job that starts at attained service `a` with cost `c` is done when it reaches `a + c`, whoever comes and goes
//! in between. Advancing the clock passes the completions one by one at their own instants, and lets waiting jobs start
//! at exactly those. So a timer that fires late delays an answer, but never the work behind it: throughput at
//! saturation is exact, and errors do not add up.
//!
//! FIFO on `k` cores is the same model with at most `k` jobs in service.
//!
//! The simulator has a model of its own (`tidegate_sim::Station`). Each is the other's oracle: `tests/it/oracle.rs`
//! plays the same jobs through both.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::Serialize;
use tidegate_workload::Discipline;

/// The name of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u64);

impl JobId {
    pub(crate) fn new(number: u64) -> JobId {
        JobId(number)
    }
}

/// The state of the cores, and the jobs on them and before them. Time is seconds on the driver's clock.
#[derive(Debug)]
pub struct Cores {
    cores: f64,
    speed: f64,
    /// Jobs in service at most.
    limit: usize,
    /// Jobs waiting at most.
    queue: usize,
    now: f64,
    /// Service attained by a job that has been running for ever, seconds of one core.
    attained: f64,
    /// Jobs in service by the attained service at which they are done. Positive floats order like their bits.
    running: BTreeMap<(u64, JobId), ()>,
    /// Where a job is: in service until this attained service, or waiting.
    jobs: HashMap<JobId, Option<u64>>,
    /// Jobs waiting with their costs and since when; abandoned ones stay until their turn.
    waiting: VecDeque<(JobId, f64, f64)>,
    waiting_count: usize,
    /// How long the job waited that came to its turn last, seconds.
    waited: f64,
    next_id: u64,
    done: Vec<JobId>,
    completed: u64,
    work_done: f64,
    busy: f64,
}

/// A server's counters since its start.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Stats {
    /// Number of connections that were accepted.
    pub connections: u64,
    /// Requests whose head was read.
    pub requests: u64,
    /// Requests whose service was completed.
    pub completed: u64,
    /// Requests given up by their client before that.
    pub abandoned: u64,
    /// Requests turned away because the accept queue was full.
    pub overflowed: u64,
    /// Requests answered with an error on purpose ([`crate::Mode::Fail`]).
    pub failed: u64,
    /// Requests in service now.
    pub in_service: usize,
    /// In the accept queue now.
    pub waiting: usize,
    /// Work done, seconds of one core.
    pub work_done: f64,
    /// Seconds in which at least one core worked.
    pub busy: f64,
}

impl Cores {
    /// `cores` cores at normal speed, with at most `limit` jobs in service and `queue` jobs waiting.
    pub fn new(discipline: Discipline, cores: u32, limit: Option<usize>, queue: Option<usize>) -> Cores {
        let limit = limit.unwrap_or(usize::MAX);
        Cores {
            cores: f64::from(cores.max(1)),
            speed: 1.0,
            limit: match discipline {
                Discipline::ProcessorSharing => limit.max(1),
                Discipline::Fifo => limit.clamp(1, cores.max(1) as usize),
            },
            queue: queue.unwrap_or(usize::MAX),
            now: 0.0,
            attained: 0.0,
            running: BTreeMap::new(),
            jobs: HashMap::new(),
            waiting: VecDeque::new(),
            waiting_count: 0,
            waited: 0.0,
            next_id: 0,
            done: Vec::new(),
            completed: 0,
            work_done: 0.0,
            busy: 0.0,
        }
    }

    /// A job of `cost` seconds of one core arrives; `None` when there is no room for it.
    pub fn arrive(&mut self, now: f64, cost: f64) -> Option<JobId> {
        self.advance(now);
        let id = JobId(self.next_id);
        if self.running.len() < self.limit {
            self.begin(id, cost);
        } else if self.waiting_count < self.queue {
            self.waiting.push_back((id, cost, self.now));
            self.waiting_count += 1;
            self.jobs.insert(id, None);
        } else {
            return None;
        }
        self.next_id += 1;
        Some(id)
    }

    /// A job's client has gone: the cores do not work on it any more. Nothing happens when it is done already.
    pub fn abandon(&mut self, now: f64, id: JobId) {
        self.advance(now);
        match self.jobs.remove(&id) {
            None => {}
            Some(None) => {
                self.waiting_count -= 1;
                self.forget_gone();
            }
            Some(Some(finish)) => {
                self.running.remove(&(finish, id));
                self.refill();
            }
        }
    }

    /// The cores run at `speed` times their normal speed from now on; 0 stops them.
    pub fn set_speed(&mut self, now: f64, speed: f64) {
        self.advance(now);
        self.speed = if speed.is_finite() { speed.max(0.0) } else { 1.0 };
    }

    /// Moves the clock; jobs done until `now` are then given by [`Cores::take_done`]. A clock that goes back stands.
    pub fn advance(&mut self, now: f64) {
        while let Some(at) = self.next_completion().filter(|at| *at <= now) {
            let ((finish, id), ()) = self.running.pop_first().expect("the next completion is that of a running job");
            let n = self.running.len() + 1;
            self.pass(at, n);
            self.attained = f64::from_bits(finish);
            self.jobs.remove(&id);
            self.done.push(id);
            self.completed += 1;
            self.refill();
        }
        let n = self.running.len();
        self.pass(now, n);
        if n == 0 {
            // Nobody refers to the attained service: start afresh, before it loses digits.
            self.attained = 0.0;
        }
    }

    /// The jobs done, in order of completion, each told once.
    pub fn take_done(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.done)
    }

    /// When the next job will be done if nothing else happens.
    pub fn next_completion(&self) -> Option<f64> {
        let ((finish, _), ()) = self.running.first_key_value()?;
        let rate = self.rate(self.running.len());
        (rate > 0.0).then(|| self.now + (f64::from_bits(*finish) - self.attained).max(0.0) / rate)
    }

    /// Number of jobs in service.
    pub fn in_service(&self) -> usize {
        self.running.len()
    }

    /// How long the job waited that came to its turn last, seconds; 0 while nobody waits.
    pub fn wait(&self) -> f64 {
        if self.waiting_count > 0 { self.waited } else { 0.0 }
    }

    /// Fills in the counters this model keeps.
    pub fn stats(&self, stats: &mut Stats) {
        stats.completed = self.completed;
        stats.in_service = self.running.len();
        stats.waiting = self.waiting_count;
        stats.work_done = self.work_done;
        stats.busy = self.busy;
    }

    fn begin(&mut self, id: JobId, cost: f64) {
        let finish = (self.attained + cost.max(0.0)).to_bits();
        self.running.insert((finish, id), ());
        self.jobs.insert(id, Some(finish));
    }

    /// Lets waiting jobs start while there is room.
    fn refill(&mut self) {
        while self.running.len() < self.limit {
            let Some((id, cost, since)) = self.waiting.pop_front() else { return };
            if self.jobs.contains_key(&id) {
                self.waiting_count -= 1;
                self.waited = self.now - since;
                self.begin(id, cost);
            }
        }
    }

    /// Drops abandoned jobs once they are most of the queue, so that it cannot grow without bound.
    fn forget_gone(&mut self) {
        if self.waiting.len() > 64 && self.waiting.len() > 2 * self.waiting_count {
            self.waiting.retain(|(id, ..)| self.jobs.contains_key(id));
        }
    }

    /// Lets time pass with `n` jobs in service.
    fn pass(&mut self, now: f64, n: usize) {
        let length = now - self.now;
        if length <= 0.0 {
            return;
        }
        self.now = now;
        if n > 0 {
            let progress = self.rate(n) * length;
            self.attained += progress;
            self.work_done += progress * n as f64;
            self.busy += length;
        }
    }

    /// How fast each of `n` jobs progresses.
    fn rate(&self, n: usize) -> f64 {
        self.speed * (self.cores / n as f64).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ps(cores: u32) -> Cores {
        Cores::new(Discipline::ProcessorSharing, cores, None, None)
    }

    /// Lets everything finish; the completions with their instants.
    fn run_out(cores: &mut Cores) -> Vec<(JobId, f64)> {
        let mut all = Vec::new();
        while let Some(at) = cores.next_completion() {
            cores.advance(at);
            all.extend(cores.take_done().into_iter().map(|id| (id, at)));
        }
        all
    }

    #[test]
    fn two_jobs_share_one_core() {
        let mut cores = ps(1);
        let a = cores.arrive(0.0, 1.0).unwrap();
        let b = cores.arrive(0.5, 1.0).unwrap();
        // a has half of its work left at 0.5 and is served at half speed: done at 1.5. b then has half left.
        let done = run_out(&mut cores);
        assert_eq!(done, vec![(a, 1.5), (b, 2.0)]);
    }

    #[test]
    fn two_jobs_on_two_cores_do_not_meet() {
        let mut cores = ps(2);
        let a = cores.arrive(0.0, 1.0).unwrap();
        let b = cores.arrive(0.25, 1.0).unwrap();
        assert_eq!(run_out(&mut cores), vec![(a, 1.0), (b, 1.25)]);
    }

    #[test]
    fn fifo_serves_in_order() {
        let mut cores = Cores::new(Discipline::Fifo, 1, None, None);
        let ids: Vec<JobId> = [3.0, 1.0, 1.0].map(|cost| cores.arrive(0.0, cost).unwrap()).into();
        cores.advance(3.5);
        assert_eq!((cores.wait(), cores.take_done()), (3.0, vec![ids[0]]), "the second waited 3 s");
        assert_eq!(run_out(&mut cores), vec![(ids[1], 4.0), (ids[2], 5.0)]);
        assert_eq!(cores.wait(), 0.0);
    }

    #[test]
    fn an_abandoned_job_frees_its_share() {
        let mut cores = ps(1);
        let a = cores.arrive(0.0, 1.0).unwrap();
        let b = cores.arrive(0.0, 1.0).unwrap();
        cores.abandon(1.0, b);
        assert_eq!(run_out(&mut cores), vec![(a, 1.5)]);
        cores.abandon(2.0, a);
        let mut stats = Stats::default();
        cores.stats(&mut stats);
        assert_eq!((stats.completed, stats.work_done, stats.busy), (1, 1.5, 1.5));
    }

    #[test]
    fn a_full_queue_turns_away_and_a_leaver_makes_room() {
        let mut cores = Cores::new(Discipline::Fifo, 1, None, Some(1));
        cores.arrive(0.0, 1.0).unwrap();
        let waiting = cores.arrive(0.0, 1.0).unwrap();
        assert_eq!(cores.arrive(0.0, 1.0), None);
        assert_eq!(cores.wait(), 0.0, "nobody has come to a turn yet");
        cores.abandon(0.1, waiting);
        assert!(cores.arrive(0.2, 1.0).is_some());
        assert_eq!(run_out(&mut cores).len(), 2);
    }

    #[test]
    fn speed_changes_under_way() {
        let mut cores = ps(1);
        let a = cores.arrive(0.0, 1.0).unwrap();
        cores.set_speed(0.5, 0.0);
        assert_eq!(cores.next_completion(), None);
        cores.set_speed(2.0, 0.25);
        assert_eq!(run_out(&mut cores), vec![(a, 4.0)]);
    }

    #[test]
    fn a_late_clock_changes_nothing_but_the_answer() {
        let mut prompt = Cores::new(Discipline::Fifo, 2, None, None);
        let mut late = Cores::new(Discipline::Fifo, 2, None, None);
        for i in 0..100 {
            prompt.arrive(0.0, 0.01 * f64::from(i % 7));
            late.arrive(0.0, 0.01 * f64::from(i % 7));
        }
        let last = run_out(&mut prompt).last().unwrap().1;
        late.advance(last + 1e-9);
        assert_eq!(late.take_done().len(), 100);
        assert_eq!(late.next_completion(), None);
    }

    proptest! {
        #[test]
        fn work_is_conserved(
            discipline in prop_oneof![Just(Discipline::ProcessorSharing), Just(Discipline::Fifo)],
            cores in 1u32..5,
            jobs in prop::collection::vec((0.0f64..0.1, 0.0f64..0.3, prop::option::of(0.0f64..0.5)), 1..60),
        ) {
            let mut model = Cores::new(discipline, cores, None, None);
            let (mut now, mut total, mut leaving) = (0.0, 0.0, Vec::new());
            for (gap, cost, patience) in jobs {
                now += gap;
                let id = model.arrive(now, cost).unwrap();
                match patience {
                    Some(patience) => leaving.push((now + patience, id, cost)),
                    None => total += cost,
                }
            }
            leaving.sort_by(|a, b| a.0.total_cmp(&b.0));
            let at_most = total + leaving.iter().map(|l| l.2).sum::<f64>();
            let left = leaving.len();
            for (at, id, _) in leaving {
                model.abandon(at.max(now), id);
            }
            run_out(&mut model);
            let mut stats = Stats::default();
            model.stats(&mut stats);
            prop_assert!(stats.work_done >= total - 1e-6 && stats.work_done <= at_most + 1e-6);
            prop_assert!(stats.busy * f64::from(cores) >= stats.work_done - 1e-6);
            prop_assert_eq!((stats.in_service, stats.waiting), (0, 0));
            prop_assert!(stats.completed as usize + left >= model.next_id as usize);
        }
    }
}
