//! The model of a server that has more than cores: a disk, a network card, a back end. Each is a station of its own
//! ([`Cores`]), and a request goes through them in *rounds*: first its time on a core, then what its steps say. The
//! uses of one round run side by side; the next round begins at the very instant at which the last of them ends.
//!
//! Exact as `Cores` is: the clock passes the ends of uses one by one over all stations, so a driver that looks late
//! delays an answer, but never the work behind it.

use std::collections::HashMap;
use std::collections::VecDeque;

use crate::cores::{Cores, JobId, Stats};

/// The stations of one server and the requests in them. Time is seconds on the driver's clock.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The cores first, then the resources.
    stations: Vec<Cores>,
    requests: HashMap<JobId, Request>,
    /// Whose use it is, by station and job there.
    uses: HashMap<(usize, JobId), JobId>,
    done: Vec<JobId>,
    next_id: u64,
    completed: u64,
}

/// So much work at a station: seconds of one of its units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Use {
    /// The station's number: 0 are the cores.
    pub(crate) station: usize,
    /// Seconds.
    pub(crate) work: f64,
}

#[derive(Debug)]
struct Request {
    /// Rounds to come.
    rounds: VecDeque<Vec<Use>>,
    /// Uses under way, by station and job there.
    under_way: Vec<(usize, JobId)>,
}

impl Machine {
    /// A server with these stations, the cores first.
    pub(crate) fn new(stations: Vec<Cores>) -> Machine {
        Machine { stations, requests: HashMap::new(), uses: HashMap::new(), done: Vec::new(), next_id: 0, completed: 0 }
    }

    /// A request arrives; `None` when there is no room for it at a station of its first round.
    pub(crate) fn arrive(&mut self, now: f64, rounds: Vec<Vec<Use>>) -> Option<JobId> {
        self.advance(now);
        let id = JobId::new(self.next_id);
        self.next_id += 1;
        self.requests.insert(id, Request { rounds: rounds.into(), under_way: Vec::new() });
        let taken = self.begin_round(now, id);
        self.settle(now);
        taken.then_some(id)
    }

    /// A request's client has gone: nothing works on it any more. Nothing happens when it is done already.
    pub(crate) fn abandon(&mut self, now: f64, id: JobId) {
        self.advance(now);
        self.drop_request(now, id);
        self.settle(now);
    }

    /// The cores run at `speed` times their normal speed from now on; 0 stops them. The resources stay as they are.
    pub(crate) fn set_speed(&mut self, now: f64, speed: f64) {
        self.advance(now);
        self.stations[0].set_speed(now, speed);
    }

    /// Moves the clock; requests done until `now` are then given by [`Machine::take_done`].
    pub(crate) fn advance(&mut self, now: f64) {
        while let Some((station, at)) = self.next().filter(|(_, at)| *at <= now) {
            self.stations[station].advance(at);
            self.settle(at);
        }
        self.stations.iter_mut().for_each(|station| station.advance(now));
    }

    /// The requests done, in order, each told once.
    pub(crate) fn take_done(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.done)
    }

    /// When something ends next if nothing else happens.
    pub(crate) fn next_completion(&self) -> Option<f64> {
        self.next().map(|(_, at)| at)
    }

    /// How long the request waited for a core that came to its turn last, seconds; 0 while nobody waits.
    pub(crate) fn wait(&self) -> f64 {
        self.stations[0].wait()
    }

    /// Fills in the counters this model keeps. Work and busy time are those of the cores.
    pub(crate) fn stats(&self, stats: &mut Stats) {
        self.stations[0].stats(stats);
        stats.completed = self.completed;
        stats.in_service = self.requests.len() - stats.waiting;
    }

    fn next(&self) -> Option<(usize, f64)> {
        let ends = self.stations.iter().enumerate().filter_map(|(at, station)| Some((at, station.next_completion()?)));
        ends.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Begins the next round of a request, or ends it after the last one. Whether there was room.
    fn begin_round(&mut self, now: f64, id: JobId) -> bool {
        let Some(request) = self.requests.get_mut(&id) else { return true };
        let Some(round) = request.rounds.pop_front() else {
            self.requests.remove(&id);
            self.completed += 1;
            self.done.push(id);
            return true;
        };
        for Use { station, work } in round {
            let Some(job) = self.stations[station].arrive(now, work) else {
                self.drop_request(now, id);
                return false;
            };
            self.uses.insert((station, job), id);
            self.requests.get_mut(&id).expect("it is here").under_way.push((station, job));
        }
        true
    }

    /// Takes what ended at the stations at `now`, and begins what follows.
    fn settle(&mut self, now: f64) {
        loop {
            let ended: Vec<(usize, JobId)> = self.stations.iter_mut().enumerate().flat_map(ended_at).collect();
            if ended.is_empty() {
                return;
            }
            for of in ended {
                let Some(id) = self.uses.remove(&of) else { continue };
                let Some(request) = self.requests.get_mut(&id) else { continue };
                request.under_way.retain(|other| *other != of);
                if request.under_way.is_empty() {
                    // Room is asked for at the first round only: resources have no bound.
                    self.begin_round(now, id);
                }
            }
        }
    }

    fn drop_request(&mut self, now: f64, id: JobId) {
        let Some(request) = self.requests.remove(&id) else { return };
        for (station, job) in request.under_way {
            self.uses.remove(&(station, job));
            self.stations[station].abandon(now, job);
        }
    }
}

fn ended_at((at, station): (usize, &mut Cores)) -> Vec<(usize, JobId)> {
    station.take_done().into_iter().map(|job| (at, job)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tidegate_workload::Discipline;

    /// One core, a disk, and a network that is never short.
    fn machine() -> Machine {
        let disk = Cores::new(Discipline::Fifo, 1, None, None);
        Machine::new(vec![core(), disk, Cores::new(Discipline::ProcessorSharing, 1000, None, None)])
    }

    fn core() -> Cores {
        Cores::new(Discipline::ProcessorSharing, 1, None, None)
    }

    fn rounds(list: &[&[(usize, f64)]]) -> Vec<Vec<Use>> {
        list.iter().map(|round| round.iter().map(|&(station, work)| Use { station, work }).collect()).collect()
    }

    fn run_out(machine: &mut Machine) -> Vec<(JobId, f64)> {
        let mut all = Vec::new();
        while let Some(at) = machine.next_completion() {
            machine.advance(at);
            all.extend(machine.take_done().into_iter().map(|id| (id, at)));
        }
        all
    }

    #[test]
    fn rounds_follow_each_other_and_uses_of_a_round_run_together() {
        let mut machine = machine();
        let one = machine.arrive(0.0, rounds(&[&[(0, 1.0)], &[(1, 2.0), (2, 0.5)], &[(2, 0.25)]])).unwrap();
        assert_eq!(run_out(&mut machine), [(one, 3.25)]);
        let two = machine.arrive(4.0, rounds(&[&[(0, 1.0)], &[(1, 2.0)]])).unwrap();
        let three = machine.arrive(4.0, rounds(&[&[(0, 1.0)], &[(1, 2.0)]])).unwrap();
        // Both share the core until 6; the disk then takes one after the other.
        assert_eq!(run_out(&mut machine), [(two, 8.0), (three, 10.0)]);
        let mut stats = Stats::default();
        machine.stats(&mut stats);
        assert_eq!((stats.completed, stats.in_service, stats.work_done), (3, 0, 3.0));
    }

    #[test]
    fn a_late_clock_delays_no_round() {
        let work: &[&[(usize, f64)]] = &[&[(0, 0.1)], &[(1, 0.2)], &[(2, 0.3)]];
        let (mut prompt, mut late) = (machine(), machine());
        for _ in 0..20 {
            prompt.arrive(0.0, rounds(work)).unwrap();
            late.arrive(0.0, rounds(work)).unwrap();
        }
        let last = run_out(&mut prompt).last().unwrap().1;
        late.advance(last + 1e-6);
        assert_eq!(late.take_done().len(), 20);
    }

    #[test]
    fn who_leaves_frees_every_station() {
        let mut machine = machine();
        let one = machine.arrive(0.0, rounds(&[&[(0, 1.0)], &[(1, 5.0), (2, 5.0)]])).unwrap();
        let two = machine.arrive(2.0, rounds(&[&[(0, 1.0)], &[(1, 1.0)]])).unwrap();
        machine.abandon(3.5, one);
        machine.abandon(3.5, one);
        assert_eq!(run_out(&mut machine), [(two, 4.5)]);
        let mut stats = Stats::default();
        machine.stats(&mut stats);
        assert_eq!((stats.completed, stats.in_service), (1, 0));
        assert!(machine.uses.is_empty() && machine.requests.is_empty());
    }

    #[test]
    fn where_there_is_no_room_nothing_stays() {
        let mut machine = Machine::new(vec![Cores::new(Discipline::Fifo, 1, None, Some(0))]);
        machine.arrive(0.0, rounds(&[&[(0, 1.0)]])).unwrap();
        assert_eq!(machine.arrive(0.5, rounds(&[&[(0, 1.0)]])), None);
        assert_eq!(machine.requests.len(), 1);
    }

    proptest! {
        /// Without competition a request takes the sum of its rounds, each as long as its longest use.
        #[test]
        fn alone_a_request_takes_its_own_time(
            list in prop::collection::vec(prop::collection::btree_map(0usize..3, 0.0f64..1.0, 1..4), 1..6),
        ) {
            let mut machine = machine();
            let wanted: f64 = list.iter().map(|round| round.values().copied().fold(0.0, f64::max)).sum();
            let uses = list.iter().map(|round| round.iter().map(|(&station, &work)| Use { station, work }).collect());
            let id = machine.arrive(0.0, uses.collect()).unwrap();
            let done = run_out(&mut machine);
            prop_assert_eq!(done.len(), 1);
            prop_assert!(done[0].0 == id && (done[0].1 - wanted).abs() < 1e-9);
        }
    }
}
