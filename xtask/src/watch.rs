//! A watch on the machine while something is measured on it: what did others take, and how late was a probe woken?
//!
//! *Stolen*: processor time that the machine below this one gave to others (`/proc/stat`). *Taken*: what programs
//! used that this one did not start. *Late*: a probe sleeps for [`NAP`] again and again and sums up by how much it
//! overslept; it sees also what no counter tells. Load of our own hardly delays it: a thread that has slept goes
//! before those that computed. A measurement may know more, for example that its load generator was late, and says so
//! in a line that begins with [`SAID`].

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::bench::proc_fs;

/// What a line of a measurement's output begins with that names a disturbance.
pub const SAID: &str = "disturbed: ";

/// Bounds, as parts of one core, over the whole of a measurement.
const STOLEN: f64 = 0.05;
const TAKEN: f64 = 0.10;
/// Of the time: what the probe overslept beyond [`GRACE`] each time.
const LATE: f64 = 0.02;

const NAP: Duration = Duration::from_millis(2);
/// Between two looks at what our processes have used: one that ends without anybody waiting for it takes that along.
const LOOK: Duration = Duration::from_millis(500);
/// The kernel may let a thread that computes go on for so long before another one has its turn.
const GRACE: Duration = Duration::from_millis(10);

/// What others did to the machine during a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Disturbance {
    /// Processor time that the hypervisor gave to others, as a part of one core.
    stolen: f64,
    /// Processor time that programs used which were not started here, as a part of one core.
    taken: f64,
    /// What the probe overslept, as a part of the time, and the longest time at once.
    late: f64,
    longest: Duration,
}

impl Disturbance {
    /// Whether figures from that time say something about our programs.
    pub fn is_calm(&self) -> bool {
        self.stolen <= STOLEN && self.taken <= TAKEN && self.late <= LATE
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| format!("{:.0} %", share * 1e2);
        write!(
            f,
            "others took {} of a core and the hypervisor {}; a probe overslept {} of the time, {} ms at once",
            percent(self.taken),
            percent(self.stolen),
            percent(self.late),
            self.longest.as_millis()
        )
    }
}

/// A watch that runs until it is asked.
#[derive(Debug)]
pub struct Watch {
    since: Instant,
    before: Machine,
    stop: Arc<AtomicBool>,
    probe: JoinHandle<Probed>,
}

impl Watch {
    /// Begins.
    ///
    /// # Errors
    /// When `/proc` does not tell what it should.
    pub fn start() -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, ours) = (stop.clone(), Ours::begin(std::process::id()));
        let probe = thread::Builder::new().name("probe".into()).spawn(move || probe(&stopped, ours))?;
        Ok(Self { since: Instant::now(), before: Machine::now()?, stop, probe })
    }

    /// Ends, and says what was seen.
    ///
    /// # Errors
    /// When `/proc` does not tell what it should.
    pub fn finish(self) -> Result<Disturbance> {
        let after = Machine::now()?;
        let seconds = self.since.elapsed().as_secs_f64();
        self.stop.store(true, Ordering::Relaxed);
        let probed = self.probe.join().ok().context("the probe panicked")?;
        let share = |time: f64| (time / seconds).max(0.0);
        Ok(Disturbance {
            stolen: share(after.stolen - self.before.stolen),
            taken: share(after.used - self.before.used - probed.ours),
            late: share(probed.overslept.as_secs_f64()),
            longest: probed.longest,
        })
    }
}

/// Processor time of the machine so far, in seconds.
#[derive(Debug, Clone, Copy)]
struct Machine {
    /// By all programs.
    used: f64,
    stolen: f64,
}

impl Machine {
    fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let (used, stolen) = machine_ticks(&text).context("/proc/stat has no line `cpu`")?;
        let tick = 1.0 / rustix::param::clock_ticks_per_second() as f64;
        Ok(Self { used: used as f64 * tick, stolen: stolen as f64 * tick })
    }
}

/// Processor time, in seconds, that this program and those that it started have used since the beginning.
///
/// The kernel adds what an ended process used to its parent, if that waits for it. A browser that is ended does not
/// wait for its own. So each process is looked at while it lives, too, and the larger sum counts: both leave something
/// out.
#[derive(Debug)]
struct Ours {
    root: u32,
    /// With ended ones, at the beginning and at the last look.
    waited_for: (f64, f64),
    /// Each process's own at the last look at it, and the sum at the beginning.
    seen: BTreeMap<u32, f64>,
    seen_before: f64,
}

impl Ours {
    fn begin(root: u32) -> Self {
        let mut ours = Self { root, waited_for: (0.0, 0.0), seen: BTreeMap::new(), seen_before: 0.0 };
        ours.look();
        ours.waited_for.0 = ours.waited_for.1;
        ours.seen_before = ours.seen.values().sum();
        ours
    }

    fn look(&mut self) {
        let used = proc_fs::used_by_tree(self.root);
        self.waited_for.1 = used.iter().map(|used| used.own + used.ended).sum();
        self.seen.extend(used.iter().map(|used| (used.pid, used.own)));
    }

    fn so_far(&self) -> f64 {
        let seen: f64 = self.seen.values().sum();
        (self.waited_for.1 - self.waited_for.0).max(seen - self.seen_before)
    }
}

/// What all programs used (user, nice and system), and what was stolen.
fn machine_ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let numbers: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    Some((numbers.get(..3)?.iter().sum(), *numbers.get(7)?))
}

/// What the probe found.
#[derive(Debug)]
struct Probed {
    /// Summed up, beyond the grace each time.
    overslept: Duration,
    longest: Duration,
    /// See [`Ours::so_far`].
    ours: f64,
}

/// Sleeps, sums up by how much it overslept, and looks at our processes now and then.
fn probe(stop: &AtomicBool, mut ours: Ours) -> Probed {
    let (mut overslept, mut longest, mut looked) = (Duration::ZERO, Duration::ZERO, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        thread::sleep(NAP);
        let late = began.elapsed().saturating_sub(NAP);
        overslept += late.saturating_sub(GRACE);
        longest = longest.max(late);
        if looked.elapsed() > LOOK {
            ours.look();
            looked = Instant::now();
        }
    }
    ours.look();
    Probed { overslept, longest, ours: ours.so_far() }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    const CALM: Disturbance = Disturbance { stolen: 0.0, taken: 0.02, late: 0.0, longest: Duration::from_millis(3) };

    #[test]
    fn each_bound_counts_alone_and_is_said() {
        assert!(CALM.is_calm());
        for disturbed in [
            Disturbance { stolen: 0.06, ..CALM },
            Disturbance { taken: 0.11, ..CALM },
            Disturbance { late: 0.03, ..CALM },
        ] {
            assert!(!disturbed.is_calm(), "{disturbed}");
        }
        let said = Disturbance { taken: 0.5, longest: Duration::from_millis(80), ..CALM }.to_string();
        assert!(said.contains("50 % of a core") && said.contains("80 ms"), "{said}");
    }

    #[test]
    fn the_machines_line_is_read() {
        let text = "cpu  10 20 30 400 50 60 70 80 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
        assert_eq!(machine_ticks(text), Some((60, 80)));
        assert_eq!(machine_ticks("intr 0\n"), None);
    }

    const BURN: &str = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";

    fn shell(script: &str) -> std::process::Child {
        std::process::Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn what_this_program_started_is_ours_also_when_it_has_ended() {
        let mut ours = Ours::begin(std::process::id());
        let before = Machine::now().unwrap();
        assert!(shell(BURN).wait().unwrap().success());
        ours.look();
        assert!(ours.so_far() >= 0.02, "{ours:?}");
        assert!(Machine::now().unwrap().used - before.used >= 0.02);
    }

    #[test]
    fn what_nobody_waited_for_is_ours_if_it_was_seen_alive() {
        let mut ours = Ours::begin(std::process::id());
        // The inner shell computes and waits; the outer one is killed, and so waits for nobody.
        let mut outer = shell(&format!("sh -c '{BURN}; read end' & wait"));
        let deadline = Instant::now() + Duration::from_secs(60);
        while ours.so_far() < 0.02 {
            assert!(Instant::now() < deadline, "it does not compute: {ours:?}");
            ours.look();
        }
        outer.kill().unwrap();
        outer.wait().unwrap();
        ours.look();
        assert!(ours.so_far() >= 0.02, "{ours:?}");
    }

    #[test]
    fn a_watch_ends_when_it_is_asked() {
        let seen = Watch::start().unwrap().finish().unwrap();
        assert!(seen.stolen >= 0.0 && seen.taken >= 0.0 && seen.late >= 0.0, "{seen}");
    }
}
