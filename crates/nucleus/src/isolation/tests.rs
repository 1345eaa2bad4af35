//! On real processes of this machine. With a single core there is nothing to divide, and nothing is tested.

use std::fs;
use std::os::unix::process::{CommandExt, parent_id};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::masks::mask_of;
use super::*;

const MS: Duration = Duration::from_millis(1);
/// Nothing in these tests takes this long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(60);
/// The user that owns nothing.
const NOBODY: u32 = 65_534;

/// A data service and an application, each one sleeping process, and the files that name them.
struct House {
    folder: PathBuf,
    data: Child,
    application: Child,
    now: Instant,
}

impl House {
    /// `None` where there is one core only.
    fn new(name: &str) -> Option<House> {
        House::with(name, None)
    }

    fn with(name: &str, user: Option<u32>) -> Option<House> {
        if CoreList::online().len() < 2 {
            eprintln!("one core: there is nothing to divide");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("tidegate-isolation-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let sleeper = || {
            let mut command = Command::new("sleep");
            let command = command.arg("300").stdout(Stdio::null());
            user.map(|user| command.uid(user));
            command.spawn().expect("sleep starts")
        };
        let house = House { data: sleeper(), application: sleeper(), now: Instant::now(), folder };
        fs::write(house.folder.join("data"), house.data.id().to_string()).expect("a file");
        fs::write(house.folder.join("application"), house.application.id().to_string()).expect("a file");
        Some(house)
    }

    fn config(&self) -> IsolationConfig {
        let online = CoreList::online();
        let side = |name: &str| Side { pid_file: Some(self.folder.join(name)), ..Side::default() };
        IsolationConfig {
            cores: online.range(0, 2),
            method: Method::Affinity,
            data: side("data"),
            application: side("application"),
            hold: 3000 * MS,
            state_file: self.folder.join("state/isolation.json"),
            root: PathBuf::from("/"),
        }
    }

    /// The cores that both sides may use.
    fn cores(&self) -> [CoreList; 2] {
        [&self.data, &self.application].map(|child| mask_of(child.id()).expect("it runs"))
    }
}

impl Drop for House {
    fn drop(&mut self) {
        for child in [&mut self.data, &mut self.application] {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Places of the first two cores: the data service's and the application's.
fn places(data: (usize, usize), application: (usize, usize)) -> [CoreList; 2] {
    let online = CoreList::online();
    [online.range(data.0, data.1), online.range(application.0, application.1)]
}

fn problem(isolation: &Isolation) -> Option<IsolationProblem> {
    let mut gauges = Gauges::default();
    isolation.show(&mut gauges);
    IsolationProblem::of(gauges.get(Gauge::IsolationProblem)? as u8)
}

fn in_force(isolation: &Isolation) -> Option<f64> {
    let mut gauges = Gauges::default();
    isolation.show(&mut gauges);
    gauges.get(Gauge::IsolatedCores)
}

#[test]
fn the_boundary_moves_and_everything_is_put_back_at_the_end() {
    let Some(house) = House::new("moves") else { return };
    let own = Process::find(house.data.id()).expect("it runs");
    // It was not allowed everything before.
    own.confine(&CoreList::online().range(1, 2)).expect("confined");
    let before = house.cores();
    let mut isolation = Isolation::new(house.config());
    assert_eq!((house.cores(), in_force(&isolation)), (before.clone(), None), "nobody asked for anything");
    isolation.order(0, 1, house.now);
    assert_eq!((house.cores(), in_force(&isolation)), (places((0, 1), (1, 2)), Some(1.0)));
    isolation.order(0, 0, house.now + MS);
    assert_eq!((house.cores(), in_force(&isolation)), (places((0, 2), (1, 2)), Some(0.0)));
    assert!(isolation.last_move.is_some_and(|time| time > Duration::ZERO));
    isolation.leave();
    assert_eq!((house.cores(), in_force(&isolation)), (before, None));
    assert!(!house.config().state_file.exists());
}

#[test]
fn after_kill_9_the_next_nucleus_puts_everything_back() {
    let Some(house) = House::new("killed") else { return };
    let before = house.cores();
    let mut killed = Isolation::new(house.config());
    killed.order(0, 1, house.now);
    assert_eq!(house.cores(), places((0, 1), (1, 2)));
    std::mem::forget(killed);
    let next = Isolation::new(house.config());
    assert_eq!((house.cores(), in_force(&next)), (before, None));
}

#[test]
fn a_sentry_that_says_nothing_any_more_has_no_say() {
    let Some(house) = House::new("silent") else { return };
    let before = house.cores();
    let mut isolation = Isolation::new(house.config());
    isolation.order(0, 1, house.now);
    isolation.tick(house.now + 2999 * MS);
    assert_eq!(in_force(&isolation), Some(1.0));
    isolation.tick(house.now + 3000 * MS);
    assert_eq!((house.cores(), in_force(&isolation)), (before, None));
}

#[test]
fn of_several_sentries_the_most_careful_has_its_way() {
    let Some(house) = House::new("several") else { return };
    let mut isolation = Isolation::new(house.config());
    isolation.order(0, 1, house.now);
    isolation.order(1, 0, house.now + MS);
    isolation.order(0, 1, house.now + 2 * MS);
    assert_eq!((house.cores(), in_force(&isolation)), (places((0, 2), (1, 2)), Some(0.0)));
    // The careful one is gone.
    isolation.order(0, 1, house.now + 2000 * MS);
    isolation.tick(house.now + 3002 * MS);
    assert_eq!(in_force(&isolation), Some(1.0));
}

#[test]
fn neither_side_is_left_without_a_core() {
    let Some(house) = House::new("greedy") else { return };
    let mut isolation = Isolation::new(house.config());
    isolation.order(0, 1, house.now);
    for cores in [2, 3, u16::MAX] {
        isolation.order(0, cores, house.now + MS);
        assert_eq!(problem(&isolation), Some(IsolationProblem::NoCoreLeft), "{cores}");
        assert_eq!((house.cores(), in_force(&isolation)), (places((0, 1), (1, 2)), Some(1.0)), "what was, stays");
    }
    assert_eq!(isolation.failures, 3);
    isolation.order(0, 0, house.now + 2 * MS);
    assert_eq!((problem(&isolation), in_force(&isolation)), (None, Some(0.0)));
}

#[test]
fn missing_processes_are_named_and_nobody_is_moved() {
    let Some(house) = House::new("missing") else { return };
    let before = house.cores();
    for (missing, expected) in
        [("data", IsolationProblem::NoDataService), ("application", IsolationProblem::NoApplication)]
    {
        let file = house.folder.join(missing);
        let number = fs::read_to_string(&file).expect("a file");
        fs::remove_file(&file).expect("removed");
        let mut isolation = Isolation::new(house.config());
        isolation.order(0, 1, house.now);
        assert_eq!((problem(&isolation), in_force(&isolation)), (Some(expected), None));
        assert_eq!(house.cores(), before);
        // It is looked for again, not with every command.
        fs::write(&file, number).expect("a file");
        isolation.order(0, 1, house.now + MS);
        assert_eq!((problem(&isolation), isolation.failures), (Some(expected), 1));
        isolation.order(0, 1, house.now + SEARCH);
        assert_eq!((problem(&isolation), in_force(&isolation)), (None, Some(1.0)));
    }
}

#[test]
fn without_a_state_file_nothing_is_changed() {
    let Some(house) = House::new("no-file") else { return };
    let before = house.cores();
    // Where its folder should be, there is a file.
    fs::write(house.folder.join("state"), "").expect("a file");
    let mut isolation = Isolation::new(house.config());
    isolation.order(0, 1, house.now);
    assert_eq!((problem(&isolation), house.cores()), (Some(IsolationProblem::NoStateFile), before));
}

#[test]
fn without_permission_it_says_so() {
    let root = rustix::process::geteuid().is_root();
    let Some(house) = House::with("permission", root.then_some(NOBODY)) else { return };
    if !root {
        // The first process is root's.
        fs::write(house.folder.join("data"), "1").expect("a file");
    }
    let (config, now, before) = (house.config(), house.now, house.cores());
    // Capabilities are a thread's own.
    let refused = std::thread::spawn(move || {
        let mut own = capabilities(None).expect("capabilities");
        own.effective.remove(CapabilitySet::SYS_NICE);
        set_capabilities(None, own).expect("fewer");
        let mut isolation = Isolation::new(config);
        isolation.order(0, 1, now);
        (problem(&isolation), in_force(&isolation), isolation.failures)
    });
    let refused = refused.join().expect("no panic");
    assert_eq!(refused, (Some(IsolationProblem::NoPermission), None, 1));
    assert_eq!(house.cores(), before);
}

/// A child that is ended with its test, also when that fails.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// As a child of the test below: it creates threads as fast as it can, until it is ended or alone.
#[test]
#[ignore = "run by threads_that_are_created_meanwhile_are_moved_too, in a process of its own"]
fn creates_threads() {
    let test = parent_id();
    let end = Instant::now() + 4 * PATIENCE;
    while Instant::now() < end && parent_id() == test {
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(std::thread::yield_now)).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}

#[test]
fn threads_that_are_created_meanwhile_are_moved_too() {
    if CoreList::online().len() < 2 {
        return;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let command = command.args(["--exact", "isolation::tests::creates_threads", "--ignored"]);
    let child = Ended(command.stdout(Stdio::null()).spawn().expect("starts"));
    let process = Process::find(child.0.id()).expect("it runs");
    let deadline = Instant::now() + PATIENCE;
    while process.threads().len() < 3 {
        assert!(Instant::now() < deadline, "it creates no threads");
        std::thread::yield_now();
    }
    for at in 0..40 {
        let cores = CoreList::online().range(at % 2, at % 2 + 1);
        assert_eq!(process.confine(&cores), Ok(Moved::All));
        for thread in process.threads() {
            // A thread may end meanwhile.
            assert!(mask_of(thread).is_none_or(|mask| mask == cores), "thread {thread} was left behind");
        }
    }
}
