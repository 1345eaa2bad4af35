//! A server: k processors, shared by all its jobs or given to them one after the other.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use tidegate_engine::Timestamp;

/// How a server divides its processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// All jobs at once, in equal parts; a job uses at most one processor.
    ProcessorSharing,
    /// First come, first served, one job a processor.
    Fifo,
}

/// A server in virtual time. Jobs are named by the caller's numbers.
#[derive(Debug)]
pub struct Station {
    processors: f64,
    speed: f64,
    discipline: Discipline,
    /// Work done per job so far under processor sharing, or time served under FIFO, seconds.
    clock: f64,
    changed: Timestamp,
    running: BinaryHeap<Job>,
    queue: VecDeque<(u64, f64)>,
}

/// A job that completes when the station's clock reaches `due`.
#[derive(Debug, PartialEq)]
struct Job {
    due: f64,
    id: u64,
}

impl Station {
    /// An idle server with `processors` processors.
    pub fn new(processors: f64, discipline: Discipline) -> Self {
        Station {
            processors,
            speed: 1.0,
            discipline,
            clock: 0.0,
            changed: Timestamp::ZERO,
            running: BinaryHeap::new(),
            queue: VecDeque::new(),
        }
    }

    /// A job of `work` seconds arrives.
    pub fn start(&mut self, now: Timestamp, id: u64, work: f64) {
        self.advance(now);
        if self.discipline == Discipline::Fifo && self.running.len() as f64 >= self.processors {
            self.queue.push_back((id, work));
        } else {
            self.running.push(Job { due: self.clock + work, id });
        }
    }

    /// When the next job completes, if nothing changes.
    pub fn next(&self) -> Option<Timestamp> {
        let job = self.running.peek()?;
        let left = (job.due - self.clock).max(0.0) / self.rate();
        // Up by a nanosecond, so that the clock has passed `due` when the time comes.
        Some(self.changed + Duration::from_secs_f64(left.min(1e9)) + Duration::from_nanos(1))
    }

    /// The next job that is complete at `now`.
    pub fn complete(&mut self, now: Timestamp) -> Option<u64> {
        self.advance(now);
        if self.running.peek()?.due > self.clock {
            return None;
        }
        let done = self.running.pop()?;
        if let Some((id, work)) = self.queue.pop_front() {
            self.running.push(Job { due: self.clock + work, id });
        }
        Some(done.id)
    }

    /// Changes the server's speed: 1 is normal, 0.5 half.
    pub fn set_speed(&mut self, now: Timestamp, speed: f64) {
        self.advance(now);
        self.speed = speed;
    }

    /// Jobs there, running or queued.
    pub fn jobs(&self) -> usize {
        self.running.len() + self.queue.len()
    }

    /// How fast the clock runs.
    fn rate(&self) -> f64 {
        let share = match self.discipline {
            Discipline::ProcessorSharing => (self.processors / self.running.len().max(1) as f64).min(1.0),
            Discipline::Fifo => 1.0,
        };
        self.speed * share
    }

    fn advance(&mut self, now: Timestamp) {
        self.clock += now.seconds_since(self.changed) * self.rate();
        self.changed = self.changed.max(now);
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
        other.due.total_cmp(&self.due).then(other.id.cmp(&self.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(station: &mut Station) -> Vec<(u64, u64)> {
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
    }

    #[test]
    fn half_speed_takes_twice_as_long() {
        let mut station = Station::new(1.0, Discipline::ProcessorSharing);
        station.start(Timestamp::ZERO, 1, 0.020);
        station.set_speed(Timestamp::from_millis(10), 0.5);
        assert_eq!(run(&mut station), [(1, 30)]);
    }
}
