//! An arena: servers, load and what happens to them, in which policies meet; and what could be answered in time there
//! by somebody who knows everything.

use std::time::Duration;

use tidegate_engine::{AdmissionConfig, ClassSetup, ServerSetup, Setup, Sla, Statistic};
use tidegate_sim::{Discipline, Fault, FaultKind, Knee, Manner, ServerModel, Stream, Url, World};
use tidegate_workload::{ArrivalProcess, Profile, Retry, ServiceTime, Wait};

/// Servers, load, and what happens to them.
#[derive(Clone, Debug)]
pub struct Arena {
    /// What it is called in the tables.
    pub name: String,
    /// Processors of each server.
    pub processors: Vec<f64>,
    /// How a server divides them.
    pub discipline: Discipline,
    /// What is lost when too many are in service.
    pub knee: Option<Knee>,
    /// The target, at the 95th percentile.
    pub target: Duration,
    /// How many classes there are.
    pub classes: usize,
    /// What arrives.
    pub loads: Vec<Load>,
    /// Tries of a client that is refused, the first included; it comes again at once.
    pub tries: u32,
    /// When clients leave; `None`: they wait for as long as it takes.
    pub leaves: Option<Leaves>,
    /// Changes of speed: second, server, speed; 0: it fails, and comes back with the next.
    pub speeds: Vec<(f64, usize, f64)>,
    /// How long it lasts, seconds.
    pub seconds: u32,
    /// From which second on it is judged.
    pub from: u32,
    /// When something changed, for the time of recovery.
    pub disturbed: Option<u32>,
}

/// Requests of one class and URL.
#[derive(Clone, Debug)]
pub struct Load {
    /// Their class, 0 = most important.
    pub class: u8,
    /// The rate over time.
    pub profile: Profile,
    /// What they cost, seconds on a processor.
    pub cost: ServiceTime,
}

/// When clients leave.
#[derive(Clone, Copy, Debug)]
pub struct Leaves {
    /// After so long.
    pub after: Duration,
    /// They say so with their requests, as a deadline.
    pub says: bool,
}

/// What could be answered in time, second by second.
#[derive(Clone, Debug, Default)]
pub struct Ideal {
    /// Seconds of work.
    pub work: Vec<f64>,
    /// Requests, when every one costs what is the mean of those that arrive.
    pub requests: Vec<f64>,
}

/// The fluid is worked out in steps of this length, seconds.
const STEP: f64 = 0.01;

impl Arena {
    /// Four processors, exponential requests of 40 ms, half a second to answer them.
    pub fn four(name: &str, profile: &str, seconds: u32, from: u32) -> Arena {
        let cost = ServiceTime::exponential(0.04).unwrap_or_else(|error| unreachable!("{error}"));
        Arena {
            name: name.into(),
            processors: vec![4.0],
            discipline: Discipline::ProcessorSharing,
            knee: None,
            target: Duration::from_millis(500),
            classes: 1,
            loads: vec![Load { class: 0, profile: profile_of(profile), cost }],
            tries: 1,
            leaves: None,
            speeds: Vec::new(),
            seconds,
            from,
            disturbed: None,
        }
    }

    /// The same with requests that cost something else.
    #[must_use]
    pub fn costing(mut self, cost: ServiceTime) -> Arena {
        self.loads.iter_mut().for_each(|load| load.cost = cost);
        self
    }

    /// Processors of all servers together.
    pub fn all_processors(&self) -> f64 {
        self.processors.iter().sum()
    }

    /// The world under a policy.
    pub fn world(&self, policy: AdmissionConfig) -> World {
        let sla = Sla::constant(Statistic::P95, self.target).unwrap_or_else(|error| unreachable!("{error}"));
        let names = (0..self.processors.len()).map(|at| ServerSetup::new(format!("s{at}")));
        let mut setup = Setup::simple("arena", sla, names);
        setup.classes = (1..=self.classes).map(|class| ClassSetup::new(format!("class {class}"))).collect();
        setup.admission = policy;
        let server = |cores: &f64| ServerModel { knee: self.knee, ..ServerModel::new(*cores, self.discipline) };
        let servers = self.processors.iter().map(server).collect();
        let mut world = World::new(setup, servers, Duration::from_secs(self.seconds.into()));
        world.streams = (1..).zip(&self.loads).map(|(key, load)| self.stream(key, load)).collect();
        world.faults = self.faults();
        world.by_answer = false;
        world
    }

    fn stream(&self, key: u64, load: &Load) -> Stream {
        let again = Retry { tries: self.tries, wait: Wait::AtOnce, time: None, jitter: 0.0, says: false };
        Stream {
            class: load.class,
            profile: load.profile.clone(),
            process: ArrivalProcess::Poisson,
            urls: vec![Url::new(key, load.cost)],
            retry: (self.tries > 1).then_some(again),
            manner: self.leaves.map_or_else(Manner::default, |Leaves { after, says }| Manner {
                patience: Some(after),
                deadline: says.then_some(after),
                ..Manner::default()
            }),
        }
    }

    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut down = vec![false; self.processors.len()];
        for &(at, server, speed) in &self.speeds {
            let mut push = |what| {
                let (at, noticed_after) = (Duration::from_secs_f64(at), Duration::from_millis(500));
                faults.push(Fault { at, tier: None, server, what, noticed_after });
            };
            if speed == 0.0 {
                push(FaultKind::Fail);
            } else if down[server] {
                push(FaultKind::Recover);
            } else {
                push(FaultKind::Speed(speed));
            }
            down[server] = speed == 0.0;
        }
        faults
    }

    /// Speed of the servers, as processors, at a time.
    fn speed_at(&self, at: f64) -> f64 {
        let speed = |server: usize| {
            let mut changes = self.speeds.iter().filter(|(from, of, _)| *of == server && *from <= at);
            changes.next_back().map_or(1.0, |(_, _, speed)| *speed)
        };
        self.processors.iter().enumerate().map(|(server, processors)| processors * speed(server)).sum()
    }

    /// What could be answered in time: whatever arrives flows into the servers as fast as they work; of what waits,
    /// they can have done in time what is worth a target, or their clients' patience. Requests are no fluid, so this is
    /// a little more than anybody can reach; and by number less, where it pays to prefer small ones.
    pub fn ideal(&self) -> Ideal {
        let mut ideal = Ideal::default();
        let patience = self.leaves.map_or(self.target, |leaves| leaves.after.min(self.target)).as_secs_f64();
        let (mut waits, mut at) = (0.0, 0.0);
        for _ in 0..self.seconds {
            let (mut work, mut arrived, mut count) = (0.0, 0.0, 0.0);
            for _ in 0..(1.0 / STEP) as u32 {
                let now = Duration::from_secs_f64(at);
                let rates = self.loads.iter().map(|load| (load.profile.rate_at(now).per_second(), load.cost.mean()));
                let (rate, brings) = rates.fold((0.0, 0.0), |sum, (rate, cost)| (sum.0 + rate, sum.1 + rate * cost));
                let speed = self.speed_at(at);
                let done = (speed * STEP).min(waits + brings * STEP);
                waits = (waits + brings * STEP - done).min(speed * patience);
                (work, arrived, count, at) = (work + done, arrived + brings * STEP, count + rate * STEP, at + STEP);
            }
            let mean = if count > 0.0 { arrived / count } else { self.mean_cost() };
            ideal.work.push(work);
            ideal.requests.push(work / mean);
        }
        ideal
    }

    fn mean_cost(&self) -> f64 {
        self.loads.iter().map(|load| load.cost.mean()).sum::<f64>() / self.loads.len().max(1) as f64
    }
}

/// A profile from its text.
///
/// # Panics
/// When the text is none: it is ours.
pub(super) fn profile_of(text: &str) -> Profile {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_answered_is_what_arrives_or_what_servers_can() {
        let sum = |arena: &Arena| arena.ideal().requests.iter().sum::<f64>();
        assert!((sum(&Arena::four("calm", "80/s", 10, 0)) - 800.0).abs() < 1.0);
        assert!((sum(&Arena::four("twice", "200/s", 10, 0)) - 1000.0).abs() < 1.0);
        // 60 in a tenth of a second: ten are done meanwhile, fifty within the target.
        let burst = Arena::four("burst", "0ms:600/s, 100ms:0/s", 2, 0);
        assert!((sum(&burst) - 60.0).abs() < 1.5, "{}", sum(&burst));
        let dies = Arena { processors: vec![2.0, 2.0], speeds: vec![(5.0, 1, 0.0)], ..Arena::four("", "200/s", 10, 0) };
        assert!((sum(&dies) - 750.0).abs() < 2.0, "{}", sum(&dies));
    }
}
