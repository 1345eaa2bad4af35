//! Two models of a server hold each other to account: the simulator's, in virtual time, and the emulated server's.
//!
//! They were written independently, and differ in their arithmetic: [`Station`] counts nanoseconds and rounds up, and
//! its clock is moved by whoever asks; [`Cores`] counts seconds and passes the completions by itself. So each is the
//! oracle of the other: the same jobs must be done at the same instants.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_engine::{AdmissionConfig, ServerSetup, Setup, Sla, Statistic, Timestamp};
use tidegate_sim::{Offer, ServerModel, Station, World};
use tidegate_testbed::{Cores, JobId};
use tidegate_workload::Discipline;

/// What happens to the server. Jobs are numbered in the order of their arrival.
#[derive(Debug, Clone, Copy)]
enum Event {
    Job {
        seconds: f64,
    },
    Speed(f64),
    /// The client of a job goes. Only where cores are shared: in turn, a simulated job always stays to its end.
    Leave {
        job: u32,
    },
}

/// Events with the nanoseconds between them.
type Script = Vec<(u64, Event)>;

/// The simulator rounds each completion up to a nanosecond, and in turn the next job begins there.
const TOLERANCE: f64 = 1e-6;

fn disciplines() -> impl Strategy<Value = Discipline> {
    prop_oneof![Just(Discipline::ProcessorSharing), Just(Discipline::Fifo)]
}

fn scripts() -> impl Strategy<Value = Script> {
    let event = prop_oneof![
        6 => (0.0f64..0.3).prop_map(|seconds| Event::Job { seconds }),
        1 => prop_oneof![Just(0.0), Just(0.25), Just(1.0), Just(2.0)].prop_map(Event::Speed),
        1 => (0..60u32).prop_map(|job| Event::Leave { job }),
    ];
    prop::collection::vec((0..150_000_000u64, event), 1..80)
}

/// When each job is done, seconds, by the emulated server's model.
fn emulated(discipline: Discipline, units: u32, script: &Script) -> BTreeMap<u32, f64> {
    let mut cores = Cores::new(discipline, units, None, None);
    let (mut done, mut ids, mut nanos) = (BTreeMap::new(), Vec::<JobId>::new(), 0u64);
    for &(gap, event) in script {
        nanos += gap;
        let now = nanos as f64 * 1e-9;
        pass(&mut cores, &ids, now, &mut done);
        match event {
            Event::Job { seconds } => ids.push(cores.arrive(now, seconds).expect("there is no bound")),
            Event::Speed(speed) => cores.set_speed(now, speed),
            Event::Leave { job } if discipline == Discipline::ProcessorSharing => {
                ids.get(job as usize).into_iter().for_each(|id| cores.abandon(now, *id));
            }
            Event::Leave { .. } => {}
        }
    }
    cores.set_speed(nanos as f64 * 1e-9, 1.0);
    pass(&mut cores, &ids, f64::INFINITY, &mut done);
    done
}

fn pass(cores: &mut Cores, ids: &[JobId], end: f64, done: &mut BTreeMap<u32, f64>) {
    while let Some(at) = cores.next_completion().filter(|at| *at <= end) {
        cores.advance(at);
        for id in cores.take_done() {
            let job = ids.iter().position(|other| *other == id).expect("only what arrived is done");
            done.insert(job as u32, at);
        }
    }
}

/// When each job is done, seconds, by the simulator's model.
fn simulated(discipline: Discipline, units: u32, script: &Script) -> BTreeMap<u32, f64> {
    let mut station = Station::new(f64::from(units), discipline);
    let (mut done, mut jobs, mut now) = (BTreeMap::new(), 0, Timestamp::ZERO);
    for &(gap, event) in script {
        now = now + Duration::from_nanos(gap);
        step(&mut station, now, &mut done);
        match event {
            Event::Job { seconds } => {
                station.start(now, jobs, seconds);
                jobs += 1;
            }
            Event::Speed(speed) => station.set_speed(now, speed),
            Event::Leave { job } if discipline == Discipline::ProcessorSharing => station.retain(now, |id| id != job),
            Event::Leave { .. } => {}
        }
    }
    station.set_speed(now, 1.0);
    step(&mut station, Timestamp::MAX, &mut done);
    done
}

fn step(station: &mut Station, end: Timestamp, done: &mut BTreeMap<u32, f64>) {
    while let Some(at) = station.next().filter(|at| *at <= end) {
        while let Some(job) = station.complete(at) {
            done.insert(job, at.as_secs_f64());
        }
    }
}

/// When the clients of jobs leave, seconds.
fn leaving(script: &Script) -> BTreeMap<u32, f64> {
    let (mut all, mut nanos) = (BTreeMap::new(), 0u64);
    for &(gap, event) in script {
        nanos += gap;
        if let Event::Leave { job } = event {
            all.entry(job).or_insert(nanos as f64 * 1e-9);
        }
    }
    all
}

proptest! {
    #[test]
    fn the_same_jobs_are_done_at_the_same_instants(discipline in disciplines(), units in 1u32..5, script in scripts()) {
        let (ours, theirs) = (emulated(discipline, units, &script), simulated(discipline, units, &script));
        let left = leaving(&script);
        let all: std::collections::BTreeSet<u32> = ours.keys().chain(theirs.keys()).copied().collect();
        for job in all {
            // A client may leave at the very instant at which its job is done: then either is right.
            let instant = |done: &BTreeMap<u32, f64>| done.get(&job).or_else(|| left.get(&job)).copied();
            let (a, b) = (instant(&ours), instant(&theirs));
            let near = a.zip(b).is_some_and(|(a, b)| (a - b).abs() < TOLERANCE);
            prop_assert!(near, "job {job}: emulated {a:?}, simulated {b:?}");
        }
    }

    /// Whole servers, with so many places and so long a queue: the simulator's through its engine, which lets all in.
    #[test]
    fn the_same_requests_find_no_place(
        discipline in disciplines(),
        cores in 1u32..4,
        limit in 1u32..6,
        queue in 0u32..5,
        jobs in prop::collection::vec((0..100_000_000u64, 0.0f64..0.3), 1..60),
    ) {
        let mut nanos = 0;
        let jobs: Vec<(u64, f64)> = jobs.into_iter().map(|(gap, seconds)| { nanos += gap; (nanos, seconds) }).collect();
        let limit = if discipline == Discipline::Fifo { limit.min(cores) } else { limit };
        let (turned_away, mean, is_close) = whole_emulated(discipline, cores, (limit, queue), &jobs);
        // Whoever comes as another leaves finds a place, or not: either is right.
        prop_assume!(!is_close);
        let (failed, simulated) = whole_simulated(discipline, cores, (limit, queue), &jobs);
        prop_assert_eq!(turned_away, failed);
        prop_assert!((mean - simulated).abs() < TOLERANCE, "mean response: emulated {mean}, simulated {simulated}");
    }
}

/// Requests turned away, the mean response time of the others, seconds, and whether one came just as another was done.
fn whole_emulated(discipline: Discipline, cores: u32, room: (u32, u32), jobs: &[(u64, f64)]) -> (u64, f64, bool) {
    let mut server = Cores::new(discipline, cores, Some(room.0 as usize), Some(room.1 as usize));
    let (mut ids, mut arrived, mut done) = (Vec::new(), Vec::new(), BTreeMap::new());
    for &(nanos, seconds) in jobs {
        let now = nanos as f64 * 1e-9;
        pass(&mut server, &ids, now, &mut done);
        if let Some(id) = server.arrive(now, seconds) {
            ids.push(id);
            arrived.push(now);
        }
    }
    pass(&mut server, &ids, f64::INFINITY, &mut done);
    let sum: f64 = done.iter().map(|(job, at)| at - arrived[*job as usize]).sum();
    let is_close = |at: &f64| jobs.iter().any(|(nanos, _)| (*nanos as f64 * 1e-9 - at).abs() < TOLERANCE);
    ((jobs.len() - ids.len()) as u64, sum / ids.len() as f64, done.values().any(is_close))
}

fn whole_simulated(discipline: Discipline, cores: u32, room: (u32, u32), jobs: &[(u64, f64)]) -> (u64, f64) {
    let sla = Sla::constant(Statistic::P95, Duration::from_secs(60)).expect("more than zero");
    let mut setup = Setup::simple("oracle", sla, [ServerSetup::new("only")]);
    setup.admission = AdmissionConfig::from_name("none").expect("a policy of the table");
    let server =
        ServerModel { limit: Some(room.0), backlog: Some(room.1), ..ServerModel::new(f64::from(cores), discipline) };
    let offer = |&(nanos, work): &(u64, f64)| Offer {
        at: Duration::from_nanos(nanos),
        class: 0,
        request_type: 0,
        url: 1,
        work,
    };
    let world = World::new(setup, vec![server], Duration::ZERO);
    let report = world.run_with(1, jobs.iter().map(offer)).expect("the setup makes sense");
    let total = report.courses[0].total();
    (total.failed, total.responses.mean().expect("the first finds a place"))
}
