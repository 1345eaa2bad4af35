//! A watch on the machine while something is measured on it: what did others take, and how late was a probe woken?
//!
//! *Stolen*: processor time that the machine below this one gave to others (`/proc/stat`). *Taken*: what programs
//! used that this one did not start. *Late*: a probe sleeps for [`NAP`] again and again and sums up by how much it
//! overslept; it sees also what no counter tells. Load of our own hardly delays it: a thread that has slept goes
//! before those that computed. A measurement may know more, for example that its load generator was late, and says so
//! in a line that begins with [`SAID`].

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
    before: Use,
    stop: Arc<AtomicBool>,
    probe: JoinHandle<(Duration, Duration)>,
}

impl Watch {
    /// Begins.
    ///
    /// # Errors
    /// When `/proc` does not tell what it should.
    pub fn start() -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let probe = thread::Builder::new().name("probe".into()).spawn(move || probe(&stopped))?;
        Ok(Self { since: Instant::now(), before: Use::now()?, stop, probe })
    }

    /// Ends, and says what was seen.
    ///
    /// # Errors
    /// When `/proc` does not tell what it should.
    pub fn finish(self) -> Result<Disturbance> {
        let after = Use::now()?;
        let seconds = self.since.elapsed().as_secs_f64();
        self.stop.store(true, Ordering::Relaxed);
        let (overslept, longest) = self.probe.join().ok().context("the probe panicked")?;
        let share = |before: f64, after: f64| ((after - before) / seconds).max(0.0);
        Ok(Disturbance {
            stolen: share(self.before.stolen, after.stolen),
            taken: share(self.before.others(), after.others()),
            late: overslept.as_secs_f64() / seconds,
            longest,
        })
    }
}

/// Processor time used so far, in seconds.
#[derive(Debug, Clone, Copy)]
struct Use {
    /// By all programs.
    all: f64,
    /// By this one and those that it started, the ended ones included.
    ours: f64,
    stolen: f64,
}

impl Use {
    fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let (all, stolen) = machine_ticks(&text).context("/proc/stat has no line `cpu`")?;
        let tick = 1.0 / rustix::param::clock_ticks_per_second() as f64;
        let ours = proc_fs::tree_micros(std::process::id())? / 1e6;
        Ok(Self { all: all as f64 * tick, ours, stolen: stolen as f64 * tick })
    }

    fn others(&self) -> f64 {
        self.all - self.ours
    }
}

/// What all programs used (user, nice and system), and what was stolen.
fn machine_ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let numbers: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    Some((numbers.get(..3)?.iter().sum(), *numbers.get(7)?))
}

/// Sleeps and sums up by how much it overslept beyond the grace, and the longest time.
fn probe(stop: &AtomicBool) -> (Duration, Duration) {
    let (mut overslept, mut longest) = (Duration::ZERO, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        thread::sleep(NAP);
        let late = began.elapsed().saturating_sub(NAP);
        overslept += late.saturating_sub(GRACE);
        longest = longest.max(late);
    }
    (overslept, longest)
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn what_this_program_started_is_ours_also_when_it_has_ended() {
        let before = Use::now().unwrap();
        let burnt =
            std::process::Command::new("sh").args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]).status();
        assert!(burnt.unwrap().success());
        let after = Use::now().unwrap();
        assert!(after.ours - before.ours >= 0.02, "{before:?} {after:?}");
        assert!(after.all - before.all >= 0.02);
    }

    #[test]
    fn a_watch_ends_when_it_is_asked() {
        let seen = Watch::start().unwrap().finish().unwrap();
        assert!(seen.stolen >= 0.0 && seen.taken >= 0.0 && seen.late >= 0.0, "{seen}");
    }
}
