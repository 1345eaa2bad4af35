//! Processes, their threads, and the cores that these may use.

use std::collections::HashSet;
use std::fs;

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tidegate_wire::IsolationProblem;

use super::list::CoreList;

/// A process is gone through so often at most; who creates threads faster than that is not waited for.
const PASSES: usize = 16;

/// A process; its number may be another's later, its start tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// Of the process it was started by.
    pub(super) parent: u32,
    /// Ticks since the machine started.
    pub(super) start: u64,
}

/// What became of a process that was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// All of its threads.
    All,
    /// The process or thread has ended.
    Gone,
}

impl Process {
    /// The process of a number, if there is one.
    pub(super) fn find(pid: u32) -> Option<Process> {
        let (parent, start) = parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        Some(Process { pid, parent, start })
    }

    /// Whether it still runs.
    pub(super) fn is_there(&self) -> bool {
        Process::find(self.pid).is_some_and(|now| now.start == self.start)
    }

    /// Its threads now.
    pub(super) fn threads(&self) -> Vec<u32> {
        let Ok(folder) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return Vec::new() };
        folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
    }

    /// When a thread of it started.
    pub(super) fn thread_start(&self, thread: u32) -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{}/task/{thread}/stat", self.pid)).ok()?;
        Some(parse_stat(&text)?.1)
    }

    /// Moves all of its threads onto `cores`, also those that are created meanwhile.
    pub(super) fn confine(&self, cores: &CoreList) -> Result<Moved, IsolationProblem> {
        let mask = cores.mask();
        self.set(|_| Some(mask))
    }

    /// Gives every thread the mask that `mask` has for it.
    pub(super) fn set(&self, mask: impl Fn(u32) -> Option<CpuSet>) -> Result<Moved, IsolationProblem> {
        let mut done = HashSet::new();
        for _ in 0..PASSES {
            let threads = self.threads();
            if threads.is_empty() {
                return Ok(Moved::Gone);
            }
            let before = done.len();
            for thread in threads {
                if done.insert(thread)
                    && let Some(mask) = mask(thread)
                {
                    set_mask(thread, &mask)?;
                }
            }
            if done.len() == before {
                break;
            }
        }
        Ok(Moved::All)
    }
}

/// The cores that a thread may use; `None`: it has ended.
pub(super) fn mask_of(thread: u32) -> Option<CoreList> {
    let pid = Pid::from_raw(i32::try_from(thread).ok()?)?;
    sched_getaffinity(Some(pid)).ok().map(|mask| CoreList::of(&mask))
}

fn set_mask(thread: u32, mask: &CpuSet) -> Result<(), IsolationProblem> {
    let Some(pid) = i32::try_from(thread).ok().and_then(Pid::from_raw) else { return Ok(()) };
    match sched_setaffinity(Some(pid), mask) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(Errno::PERM) => Err(IsolationProblem::NoPermission),
        Err(_) => Err(IsolationProblem::Refused),
    }
}

/// Parent and start of `pid (name) state ppid ...`. The name may hold anything, also brackets.
fn parse_stat(text: &str) -> Option<(u32, u64)> {
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    Some((parent, fields.nth(17)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_its_parent_are_known() {
        let own = Process::find(std::process::id()).expect("this one");
        assert_eq!((own.parent, own.is_there()), (std::os::unix::process::parent_id(), true));
        assert!(own.threads().contains(&own.pid));
        assert!(!Process { start: own.start + 1, ..own }.is_there(), "another of the same number");
        assert_eq!(Process::find(u32::MAX), None);
        assert_eq!(parse_stat("7 (a) b) (c) S 3 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 99 1"), Some((3, 99)));
        assert_eq!(parse_stat("7 (a"), None);
    }
}
