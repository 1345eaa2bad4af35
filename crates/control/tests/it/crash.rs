//! Killed anywhere, again and again: nothing is lost and nothing doubled.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;
use tidegate_control::backend::{Backend, FileBackend, StoreError};
use tidegate_control::plane::{Input, Plane, Process, Step, What};
use tidegate_engine::Timestamp;
use tidegate_engine::units::Seconds;
use tidegate_provision::{
    ApplicationReport, FollowConfig, Place, Pool, Posts, ProvisionConfig, SentryRule, ServerNews, Site,
};

use crate::support::Store;
use crate::support::application::application;
use crate::support::folder::folder;

const SERVERS: u32 = 8;
/// So much room a store may need in memory, bytes.
const ROOM: u64 = 2 << 30;

pub fn site() -> Site {
    let follow = FollowConfig {
        every: Seconds(1.0),
        smooth: Seconds(3.0),
        trend: Seconds(10.0),
        hold: Seconds(5.0),
        ..FollowConfig::default()
    };
    Site {
        servers: SERVERS,
        pool: Pool { setup_time: Duration::from_secs(2), drain_limit: Duration::from_secs(10), ..Pool::default() },
        applications: vec![application("shop"), application("mail")],
        policy: ProvisionConfig::Follow(follow),
        sentries: SentryRule::default(),
        posts: Posts::default(),
    }
}

/// The machine that servers run on: it outlives every control plane.
#[derive(Debug, Default)]
struct Machine {
    /// Per place the steps whose processes run.
    running: BTreeMap<usize, Vec<u64>>,
    /// Steps that a process was started for, and whether it has died by itself since.
    started: BTreeMap<u64, bool>,
    /// Steps for which another process was started although theirs was there.
    doubled: Vec<u64>,
}

impl Machine {
    /// What a provider promises: see `Provider::apply`.
    fn apply(&mut self, step: &Step) -> Option<Process> {
        let there = self.running.entry(step.place).or_default();
        match step.what {
            What::Start { .. } => {
                if !there.contains(&step.number) {
                    there.clear();
                    there.push(step.number);
                    // Killed before it was marked, and its process died meanwhile: then it is to be done again.
                    if self.started.insert(step.number, false) == Some(false) {
                        self.doubled.push(step.number);
                    }
                }
                Some(Process { pid: step.number as u32, started: 1, step: step.number })
            }
            What::Stop => {
                there.retain(|number| *number >= step.number);
                None
            }
        }
    }

    fn die(&mut self, server: usize) {
        for step in self.running.remove(&server).unwrap_or_default() {
            self.started.insert(step, true);
        }
    }

    fn is_running(&self, server: usize) -> bool {
        self.running.get(&server).is_some_and(|there| !there.is_empty())
    }
}

/// A folder for what is written to the disk again and again: in memory where there is room. A test kills programs and
/// cuts no machine's power, and no test waits for a disk that others use.
fn quick_folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let has_room = rustix::fs::statvfs(memory).is_ok_and(|fs| fs.f_bavail.saturating_mul(fs.f_frsize) >= ROOM);
    let made = has_room.then(|| tempfile::Builder::new().prefix("tidegate-").tempdir_in(memory).ok());
    made.flatten().unwrap_or_else(folder)
}

fn open(path: &Path) -> Result<Store, StoreError> {
    FileBackend::new(path).open(1)
}

/// A daemon, as far as it matters here, that can be killed at any moment.
struct Daemon {
    open: Option<(Store, Plane)>,
    now: u64,
    folder: TempDir,
}

impl Daemon {
    fn new() -> Daemon {
        let mut daemon = Daemon { open: None, now: 1_000_000_000, folder: quick_folder() };
        daemon.begin();
        daemon
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("control.redb")
    }

    fn begin(&mut self) {
        let mut store = open(&self.path()).expect("opens");
        let plane = store.plane(site()).expect("reads");
        self.open = Some((store, plane));
        let now = Timestamp::from_nanos(self.now);
        self.input(&Input::Began { now });
    }

    /// Gone, with everything that it had not written.
    fn kill(&mut self) {
        let before = serde_json::to_string(&self.plane().state()).expect("text");
        self.open = None;
        let mut store = open(&self.path()).expect("opens");
        let plane = store.plane(site()).expect("reads");
        assert_eq!(serde_json::to_string(&plane.state()).expect("text"), before, "nothing is lost");
        drop(store);
        self.begin();
    }

    fn input(&mut self, input: &Input) {
        let (store, plane) = self.open.as_mut().expect("it runs");
        store.handle(plane, input).expect("is written");
    }

    fn plane(&self) -> &Plane {
        &self.open.as_ref().expect("it runs").1
    }

    fn store(&self) -> &Store {
        &self.open.as_ref().expect("it runs").0
    }

    /// Carries out the first pending step; killed before it, between it and its mark, or not at all.
    fn step(&mut self, machine: &mut Machine, killed: u8) -> bool {
        let Some(step) = self.plane().pending().next().cloned() else { return false };
        if killed == 1 {
            self.kill();
            return true;
        }
        let process = machine.apply(&step);
        if killed == 2 {
            self.kill();
            return true;
        }
        let now = Timestamp::from_nanos(self.now);
        self.input(&Input::Done { now, step: step.number, process });
        true
    }
}

/// One turn: what is offered, whether something dies, and where the daemon is killed.
#[derive(Clone, Debug)]
struct Turn {
    rates: [u64; 2],
    dies: Option<usize>,
    kills: Vec<u8>,
}

fn turn() -> impl Strategy<Value = Turn> {
    let rates = prop_oneof![Just([20, 20]), Just([100, 10]), Just([5, 90]), Just([0, 0])];
    let dies = prop_oneof![5 => Just(None), 1 => (0..SERVERS as usize).prop_map(Some)];
    (rates, dies, prop::collection::vec(0u8..4, 0..6)).prop_map(|(rates, dies, kills)| Turn { rates, dies, kills })
}

fn play(daemon: &mut Daemon, machine: &mut Machine, turn: &Turn) {
    daemon.now += 1_000_000_000;
    let now = Timestamp::from_nanos(daemon.now);
    let report = |rate: &u64| Some(ApplicationReport { offered: vec![*rate], ..ApplicationReport::default() });
    daemon.input(&Input::Period { now, reports: turn.rates.iter().map(report).collect(), sentries: Vec::new() });
    if let Some(server) = turn.dies {
        machine.die(server);
    }
    for killed in &turn.kills {
        daemon.step(machine, *killed);
    }
    for server in 0..SERVERS as usize {
        let waits = daemon.plane().pending().any(|step| step.place == server);
        let news = match daemon.plane().places()[server] {
            _ if waits => continue,
            Place::Coming { .. } if machine.is_running(server) => ServerNews::Up,
            Place::Draining { .. } if machine.is_running(server) => ServerNews::Drained,
            Place::Coming { .. } | Place::Serving { .. } | Place::Draining { .. } if !machine.is_running(server) => {
                ServerNews::Failed
            }
            _ => continue,
        };
        daemon.input(&Input::Server { now, server, news, reason: String::from("seen") });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn every_step_is_carried_out_once_whatever_is_killed_when(turns in prop::collection::vec(turn(), 1..40)) {
        let mut daemon = Daemon::new();
        let mut machine = Machine::default();
        for turn in &turns {
            play(&mut daemon, &mut machine, turn);
        }
        while daemon.step(&mut machine, 0) {}
        prop_assert!(machine.doubled.is_empty(), "{:?}", machine.doubled);
        for (server, place) in daemon.plane().places().iter().enumerate() {
            let used = !matches!(place, Place::Free | Place::Failed { .. });
            let processes = machine.running.get(&server).map_or(0, Vec::len);
            // One that has just died is not known to have died yet.
            prop_assert!(processes <= usize::from(used), "{server} {place:?}: {processes} processes");
        }
        let numbers = |records: &[serde_json::Value]| -> Vec<u64> {
            records.iter().map(|record| record["number"].as_u64().unwrap_or(0)).collect()
        };
        let audit = daemon.store().audit(0, 100_000).expect("reads");
        let starts = audit.iter().filter(|record| record["kind"] == "start").count();
        prop_assert!(starts >= machine.started.len(), "every start is on record");
        let mut sorted = numbers(&audit);
        sorted.dedup();
        prop_assert_eq!(sorted.len(), audit.len(), "none twice");
    }
}

#[test]
fn a_long_run_is_kept_short_and_goes_on() {
    let mut daemon = Daemon::new();
    let mut machine = Machine::default();
    let busy = Turn { rates: [100, 10], dies: None, kills: vec![0; 6] };
    let quiet = Turn { rates: [5, 5], ..busy.clone() };
    for at in 0..700 {
        play(&mut daemon, &mut machine, if at % 100 < 50 { &busy } else { &quiet });
        if at % 97 == 0 {
            daemon.kill();
        }
    }
    let plan = daemon.plane().plan();
    assert_eq!((plan[0].application.as_str(), plan[0].inputs.offered.map(f64::round)), ("shop", Some(21.0)));
    let audit = daemon.store().audit(0, 100_000).expect("reads");
    let wanted: Vec<_> = audit.iter().filter(|record| record["kind"] == "servers-wanted").collect();
    assert!(wanted.len() > 14, "{}", wanted.len());
    assert!(wanted.iter().all(|record| record["inputs"]["offered"].is_number() && record["text"] != ""));
}

#[test]
fn of_a_provider_that_hangs_few_steps_wait_and_nothing_is_doubled_afterwards() {
    let (mut plane, mut machine) = (Plane::new(site()).expect("a plane"), Machine::default());
    for second in 1..5000 {
        let rates = if second % 60 < 30 { [100, 100] } else { [0, 0] };
        let report = |rate: u64| Some(ApplicationReport { offered: vec![rate], ..ApplicationReport::default() });
        let now = Timestamp::from_millis(second * 1000);
        plane.handle(&Input::Period { now, reports: rates.map(report).to_vec(), sentries: Vec::new() });
        let mut waiting = [0; SERVERS as usize];
        plane.pending().for_each(|step| waiting[step.place] += 1);
        assert!(waiting.iter().all(|steps| *steps <= 3), "after {second} s: {waiting:?}");
    }
    loop {
        let Some(step) = plane.pending().next().cloned() else { break };
        let process = machine.apply(&step);
        plane.handle(&Input::Done { now: plane.now(), step: step.number, process });
    }
    let starts = machine.started.len();
    assert!(starts <= 2 * SERVERS as usize, "{starts} starts to catch up with what is over");
    for (server, place) in plane.places().iter().enumerate() {
        let is_used = !matches!(place, Place::Free | Place::Failed { .. });
        assert_eq!(machine.is_running(server), is_used, "{server} {place:?}");
    }
}

#[test]
fn whatever_sentries_say_the_state_can_be_read_again() {
    let mut daemon = Daemon::new();
    let odd = [f64::MAX, f64::MIN_POSITIVE, -1.0, 0.0, 1e300];
    for turn in 0..400_u64 {
        daemon.now += if turn % 3 == 0 { 1 } else { 1_000_000_000 };
        let value = odd[turn as usize % odd.len()];
        let report = |count: u64| ApplicationReport {
            offered: vec![count],
            refused: u64::MAX,
            busy: value,
            mean_service: Some(value),
            service_variation: Some(value),
            arrival_variation: Some(odd[(turn / 25) as usize % odd.len()]),
            processors: Some(odd[(turn / 5) as usize % odd.len()]),
        };
        let reports = vec![Some(report(u64::MAX)), Some(report(turn % 7))];
        let sentries = vec![(0, 0, value), (1, 9, -value), (7, 0, value)];
        let now = Timestamp::from_nanos(daemon.now);
        daemon.input(&Input::Period { now, reports, sentries });
        if turn % 50 == 0 {
            daemon.kill();
        }
    }
    assert_eq!(daemon.plane().plan().len(), 2);
}

#[test]
fn a_store_belongs_to_one_control_plane_and_one_site() {
    let mut daemon = Daemon::new();
    let path = daemon.path();
    let error = open(&path).expect_err("is held");
    assert!(matches!(error, StoreError::Held { .. }), "{error}");
    let busy = FileBackend::new(&path).look().expect_err("is held");
    assert!(matches!(busy, StoreError::Busy { .. }) && busy.to_string().contains("admin"), "{busy}");
    let (term, before) = (daemon.store().term(), serde_json::to_string(&daemon.plane().state()).expect("text"));
    let records = daemon.store().audit(0, 100).expect("reads");
    daemon.open = None;
    for _ in 0..2 {
        let mut looked = FileBackend::new(&path).look().expect("is free");
        assert_eq!(looked.term(), term, "looking changes nothing");
        let plane = looked.plane(site()).expect("reads");
        assert_eq!(serde_json::to_string(&plane.state()).expect("text"), before);
        assert_eq!(looked.audit(0, 100).expect("reads"), records);
        assert!(looked.audit(u64::MAX, 100).expect("reads").is_empty());
    }
    assert!(matches!(FileBackend::new(Path::new("/nonexistent/store")).look(), Err(StoreError::Missing { .. })));
    let mut store = open(&path).expect("is free");
    assert_eq!(store.term(), term + 1);
    let (mut plane, now) = (store.plane(site()).expect("reads"), Timestamp::from_nanos(1));
    store.handle(&mut plane, &Input::Began { now }).expect("is written");
    store.keep_state(&plane).expect("is written");
    let mut other = site();
    other.applications[0].name = String::from("other");
    let error = store.plane(other).expect_err("another site").to_string();
    assert!(error.contains("begin with an empty store"), "{error}");
    drop(store);
    assert!(open(Path::new("/nonexistent/folder/store")).is_err());
}
