//! One resource of a server: processors, a disk or a network card, shared by all its jobs or given to them in turn.
//!
//! *Intuition.* Under processor sharing every job receives the same, so one clock serves all: it counts the work that
//! each job has received since the beginning, and a job is done when the clock has moved on by its work. A job arrives
//! or leaves by changing how fast the clock runs, in O(log n), however many there are.
//!
//! The emulated servers have a model of their own, in real time (`tidegate_testbed::Cores`), and a property test there
//! holds the two against each other.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use tidegate_engine::Timestamp;
use tidegate_workload::Discipline;

/// A resource in virtual time. Jobs are named by the caller's numbers.
#[derive(Debug)]
pub struct Station {
    units: f64,
    speed: f64,
    discipline: Discipline,
    /// Work done per job so far under processor sharing, or time served under FIFO, seconds.
    clock: f64,
    changed: Timestamp,
    running: BinaryHeap<Job>,
    queue: VecDeque<(u32, f64)>,
    started: u32,
    /// Units in use, summed up over time, unit-seconds.
    busy: f64,
}

/// A job that completes when the station's clock reaches `due`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Job {
    due: f64,
    /// Decides ties: first in, first out.
    order: u32,
    id: u32,
}

/// Longer than any run, seconds: what takes longer never happens.
const NEVER: f64 = 1e9;

impl Station {
    /// An idle resource with `units` units.
    pub fn new(units: f64, discipline: Discipline) -> Self {
        Station {
            units,
            speed: 1.0,
            discipline,
            clock: 0.0,
            changed: Timestamp::ZERO,
            running: BinaryHeap::new(),
            queue: VecDeque::new(),
            started: 0,
            busy: 0.0,
        }
    }

    /// A job of `work` seconds arrives.
    pub fn start(&mut self, now: Timestamp, id: u32, work: f64) {
        self.advance(now);
        if self.discipline == Discipline::Fifo && self.running.len() as f64 >= self.units {
            self.queue.push_back((id, work));
        } else {
            self.run(id, work);
        }
    }

    /// When the next job completes, if nothing changes.
    pub fn next(&self) -> Option<Timestamp> {
        let job = self.running.peek()?;
        let left = ((job.due - self.clock).max(0.0) / self.rate()).min(NEVER);
        // Up by a nanosecond, so that the clock has passed `due` when the time comes.
        Some(Timestamp::from_nanos(self.changed.as_nanos() + (left * 1e9) as u64 + 1))
    }

    /// The next job that is complete at `now`.
    pub fn complete(&mut self, now: Timestamp) -> Option<u32> {
        self.advance(now);
        if self.running.peek()?.due > self.clock {
            return None;
        }
        let done = self.running.pop()?;
        if let Some((id, work)) = self.queue.pop_front() {
            self.run(id, work);
        }
        Some(done.id)
    }

    /// Changes the speed: 1 is normal, 0.5 half.
    pub fn set_speed(&mut self, now: Timestamp, speed: f64) {
        self.advance(now);
        self.speed = speed;
    }

    /// Changes the number of units of a resource under processor sharing.
    pub fn set_units(&mut self, now: Timestamp, units: f64) {
        self.advance(now);
        self.units = units;
    }

    /// Forgets every job that is not to stay; whoever is next in turn begins.
    pub fn retain(&mut self, now: Timestamp, stays: impl Fn(u32) -> bool) {
        self.advance(now);
        self.running.retain(|job| stays(job.id));
        self.queue.retain(|(id, _)| stays(*id));
        while (self.running.len() as f64) < self.units
            && let Some((id, work)) = self.queue.pop_front()
        {
            self.run(id, work);
        }
    }

    /// Jobs there, running or queued.
    pub fn jobs(&self) -> usize {
        self.running.len() + self.queue.len()
    }

    /// How many units there are.
    pub fn units(&self) -> f64 {
        self.units
    }

    /// Units in use since the start, summed up over time: unit-seconds up to `now`.
    pub fn busy_until(&mut self, now: Timestamp) -> f64 {
        self.advance(now);
        self.busy
    }

    fn run(&mut self, id: u32, work: f64) {
        self.started = self.started.wrapping_add(1);
        self.running.push(Job { due: self.clock + work, order: self.started, id });
    }

    /// How fast the clock runs.
    fn rate(&self) -> f64 {
        let jobs = self.running.len() as f64;
        if self.discipline == Discipline::Fifo || jobs <= self.units {
            return self.speed;
        }
        self.speed * (self.units / jobs)
    }

    fn advance(&mut self, now: Timestamp) {
        let elapsed = now.seconds_since(self.changed);
        if elapsed > 0.0 {
            self.clock += elapsed * self.rate();
            self.busy += elapsed * self.units.min(self.running.len() as f64);
            self.changed = now;
        }
    }
}

impl Eq for Job {}

impl PartialOrd for Job {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Job {
    /// The earliest is the greatest, so that it is on top of the heap.
    fn cmp(&self, other: &Self) -> Ordering {
        other.due.total_cmp(&self.due).then(other.order.cmp(&self.order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_taken_away_and_given_back() {
        let mut station = Station::new(2.0, Discipline::ProcessorSharing);
        (1..=2).for_each(|id| station.start(Timestamp::ZERO, id, 0.020));
        station.set_units(Timestamp::from_millis(10), 0.0);
        assert!(station.next().expect("jobs wait").as_secs_f64() > 1e8);
        station.set_units(Timestamp::from_millis(50), 1.0);
        assert_eq!(run(&mut station), [(1, 70), (2, 70)]);
        assert!((station.busy_until(Timestamp::from_millis(100)) - 0.040).abs() < 1e-6);
    }

    fn run(station: &mut Station) -> Vec<(u32, u64)> {
        let mut done = Vec::new();
        while let Some(at) = station.next() {
            while let Some(id) = station.complete(at) {
                done.push((id, at.as_nanos().div_euclid(1_000_000)));
            }
        }
        done
    }

    #[test]
    fn sharing_slows_everyone_and_the_short_leave_first() {
        let mut station = Station::new(1.0, Discipline::ProcessorSharing);
        station.start(Timestamp::ZERO, 1, 0.030);
        station.start(Timestamp::ZERO, 2, 0.010);
        assert_eq!(run(&mut station), [(2, 20), (1, 40)]);
    }

    #[test]
    fn two_processors_serve_two_jobs_at_full_speed() {
        let mut station = Station::new(2.0, Discipline::ProcessorSharing);
        (1..=2).for_each(|id| station.start(Timestamp::ZERO, id, 0.010));
        assert_eq!(run(&mut station), [(1, 10), (2, 10)]);
    }

    #[test]
    fn in_turn_the_second_waits_for_the_first() {
        let mut station = Station::new(1.0, Discipline::Fifo);
        station.start(Timestamp::ZERO, 1, 0.030);
        station.start(Timestamp::ZERO, 2, 0.010);
        assert_eq!(run(&mut station), [(1, 30), (2, 40)]);
        assert!((station.busy_until(Timestamp::from_millis(100)) - 0.040).abs() < 1e-6);
    }

    #[test]
    fn who_leaves_makes_room_for_the_next_in_turn() {
        let mut station = Station::new(1.0, Discipline::Fifo);
        (1..=3).for_each(|id| station.start(Timestamp::ZERO, id, 0.030));
        station.retain(Timestamp::from_millis(10), |id| id != 1);
        assert_eq!((run(&mut station), station.jobs()), (vec![(2, 40), (3, 70)], 0));
    }

    #[test]
    fn half_speed_takes_twice_as_long() {
        let mut station = Station::new(1.0, Discipline::ProcessorSharing);
        station.start(Timestamp::ZERO, 1, 0.020);
        station.set_speed(Timestamp::from_millis(10), 0.5);
        assert_eq!(run(&mut station), [(1, 30)]);
    }

    #[test]
    fn equal_jobs_leave_in_the_order_of_their_arrival() {
        for discipline in [Discipline::ProcessorSharing, Discipline::Fifo] {
            let mut station = Station::new(1.0, discipline);
            [7, 3, 5].into_iter().for_each(|id| station.start(Timestamp::ZERO, id, 0.010));
            let ids: Vec<u32> = run(&mut station).into_iter().map(|(id, _)| id).collect();
            assert_eq!(ids, [7, 3, 5]);
        }
    }
}
