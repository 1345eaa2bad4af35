//! Finds the provider's own processes in /proc.
//!
//! *Intuition.* A process carries its name in its environment: the store, the place in the pool, and the step that
//! started it. So it is found again by a daemon that was killed right after it had started it, before it could write
//! its number down; and the processes that it started itself are found with it. A number alone proves nothing: numbers
//! are used again, so that it counts only together with the time of its start.

use std::fs::{self, File};
use std::io::{self, Read};
use std::time::{Duration, Instant};

use super::ProviderError;
use crate::plane::Unit;

/// The variable that marks a process.
pub(super) fn variable(unit: Unit) -> &'static str {
    match unit {
        Unit::Server => "TIDEGATE_SERVER",
        Unit::Sentry => "TIDEGATE_POST",
    }
}

/// How often, and after which pause, it is looked at a process without an environment again.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_micros(500);
/// For how long it is looked at one without words, too.
const CHANGE: Duration = Duration::from_secs(5);
/// More than almost every environment has, in bytes.
const AT_ONCE: usize = 1 << 16;

/// A process that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) pid: u32,
    /// Ticks since boot.
    pub(super) started: u64,
    pub(super) group: u32,
    /// The step that it was started by; 0 where only its number is known.
    pub(super) step: u64,
}

impl Found {
    /// Whether it is the one that was started, not one that it started.
    pub(super) fn leads(&self) -> bool {
        self.pid == self.group
    }
}

/// What marks the process of a step.
pub(super) fn mark(store: u64, place: usize, step: u64) -> String {
    format!("{store:016x}/{place}/{step}")
}

/// Every running process that a store has started for a place in the pool, or a post.
pub(super) fn find(store: u64, unit: Unit, place: usize) -> Result<Vec<Found>, ProviderError> {
    let prefix = format!("{}={store:016x}/{place}/", variable(unit));
    let all = fs::read_dir("/proc").map_err(|source| ProviderError::System { what: String::from("/proc"), source })?;
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    Ok(pids.filter_map(|pid| marked(pid, prefix.as_bytes())).collect())
}

fn marked(pid: u32, prefix: &[u8]) -> Option<Found> {
    // Those of other users cannot be read, and are not ours.
    let environment = environment(pid)?;
    let value = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(prefix))?;
    let step = std::str::from_utf8(value).ok()?.parse().ok()?;
    running(pid).map(|found| Found { step, ..found })
}

/// What a process has in its environment; none where that cannot be seen. Kernel threads never have a program.
///
/// While a process gets its next program it has neither words nor an environment, for as long as others take its
/// processor. If that were not waited for, what was started just now would be started again. The few programs without
/// an environment have words.
fn environment(pid: u32) -> Option<Vec<u8>> {
    let deadline = Instant::now() + CHANGE;
    let mut looks = 0;
    while looks < LOOKS && Instant::now() < deadline {
        let environment = read_at_once(&format!("/proc/{pid}/environ"))?;
        if !environment.is_empty() || fs::read_link(format!("/proc/{pid}/exe")).is_err() {
            return Some(environment);
        }
        looks += u32::from(!fs::read(format!("/proc/{pid}/cmdline")).ok()?.is_empty());
        std::thread::sleep(PAUSE);
    }
    None
}

/// What is in a file, by one read as a rule: a second one would find nothing more of a process that has got its next
/// program in between.
fn read_at_once(path: &str) -> Option<Vec<u8>> {
    let mut content = Vec::with_capacity(AT_ONCE);
    File::open(path).ok()?.read_to_end(&mut content).ok()?;
    Some(content)
}

/// A process by its number, unless it has ended.
pub(super) fn running(pid: u32) -> Option<Found> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in brackets and may hold anything; what follows does not.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let (state, group, started) = (*fields.first()?, fields.get(2)?.parse().ok()?, fields.get(19)?.parse().ok()?);
    (!matches!(state, "Z" | "X")).then_some(Found { pid, started, group, step: 0 })
}

/// Sends a signal to the groups of these processes, unless they have ended meanwhile.
pub(super) fn signal(processes: &[Found], signal: rustix::process::Signal) {
    let mut groups: Vec<u32> = processes
        .iter()
        .filter(|process| running(process.pid).is_some_and(|now| now.started == process.started))
        .map(|process| process.group)
        .collect();
    groups.sort_unstable();
    groups.dedup();
    for group in groups {
        let Some(group) = rustix::process::Pid::from_raw(group as i32) else { continue };
        // One that has just ended needs no signal.
        let _: Result<(), _> = rustix::process::kill_process_group(group, signal).map_err(io::Error::from);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn this_process_runs_and_is_not_marked() {
        let me = running(std::process::id()).expect("runs");
        assert!(me.started > 0);
        assert_eq!(running(u32::MAX), None);
        assert_eq!(find(0x1234_5678_9abc_def0, Unit::Server, 3).expect("/proc"), []);
    }

    #[test]
    fn one_that_changes_its_program_is_never_lost() {
        let store = u64::from(std::process::id()) << 32 | 9;
        let again = r#"[ "$1" = 0 ] || exec sh -c "$2" sh $(($1 - 1)) "$2"; exec sleep 100"#;
        let mut command = Command::new("sh");
        command.args(["-c", again, "sh", "2000", again]).env(variable(Unit::Server), mark(store, 3, 1));
        let mut child = command.process_group(0).spawn().expect("starts");
        let is_lost = |_: &u32| find(store, Unit::Server, 3).expect("/proc").len() != 1;
        let lost = (0..3000).filter(is_lost).count();
        child.kill().expect("runs");
        child.wait().expect("ends");
        assert_eq!(lost, 0, "of 3000 looks");
    }
}
