//! How much of its core the service was denied by other programs.
//!
//! A comparison between one minute and the next means little when other programs take a part of the core that changes.
//! That part is measured in every run; a reader sees it, and the short form allows for it. What others do while the
//! service has nothing to do is not counted: it takes nothing away, and counting it would excuse a sentry that leaves
//! the service idle. So a thread looks fifty times a second whether any process of the service wants to run; the part
//! of time in which one does, less the processor time that the service got, is what it was denied.

use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::bench::proc_fs;

const LOOK: Duration = Duration::from_millis(20);

/// A look at a service, from its start to [`CoreUse::finish`].
#[derive(Debug)]
pub struct CoreUse {
    pid: u32,
    at: Instant,
    /// Processor time of the service until then, microseconds.
    used: f64,
    done: SyncSender<()>,
    looks: JoinHandle<Looks>,
}

/// How often it was looked at, and how often it wanted to run.
#[derive(Debug, Default, Clone, Copy)]
struct Looks {
    all: u32,
    wanting: u32,
}

impl CoreUse {
    /// Begins to look at a process and its children, which share one core.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn start(pid: u32) -> Result<Self> {
        let (done, is_done) = mpsc::sync_channel::<()>(0);
        let used = proc_fs::cpu_micros_with_ended(pid)?;
        let looks = thread::spawn(move || {
            let mut looks = Looks::default();
            while is_done.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                looks.all += 1;
                looks.wanting += u32::from(wants_to_run(pid));
            }
            looks
        });
        Ok(Self { pid, at: Instant::now(), used, done, looks })
    }

    /// Ends it: the part of the time in which the service wanted the core and others had it.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn finish(self) -> Result<f64> {
        let passed = self.at.elapsed().as_secs_f64() * 1e6;
        let used = proc_fs::cpu_micros_with_ended(self.pid)? - self.used;
        drop(self.done);
        let looks = self.looks.join().unwrap_or_default();
        Ok(denied(looks, used / passed))
    }
}

fn denied(looks: Looks, used: f64) -> f64 {
    let wanted = f64::from(looks.wanting) / f64::from(looks.all.max(1));
    (wanted - used).clamp(0.0, 1.0)
}

/// Whether the process or a child of it runs or could run.
fn wants_to_run(pid: u32) -> bool {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let mut pids = children.split_whitespace().filter_map(|pid| pid.parse().ok()).chain([pid]);
    pids.any(proc_fs::is_runnable)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use rustix::process::{Pid, Signal, kill_process_group};

    use super::*;

    #[test]
    fn what_is_not_wanted_is_not_denied() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(denied(Looks { all: 100, wanting: 100 }, 0.6), 0.4);
        near(denied(Looks { all: 100, wanting: 30 }, 0.3), 0.0);
        near(denied(Looks { all: 100, wanting: 28 }, 0.3), 0.0);
        near(denied(Looks::default(), 0.0), 0.0);
    }

    #[test]
    fn a_busy_child_wants_to_run_and_a_waiting_one_does_not() {
        let busy = Command::new("sh").args(["-c", "while :; do :; done & wait"]).process_group(0).spawn().unwrap();
        let idle = Command::new("tail").args(["-f", "/dev/null"]).process_group(0).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut seen = (false, false);
        while seen != (true, true) && Instant::now() < deadline {
            seen = (seen.0 || wants_to_run(busy.id()), seen.1 || !wants_to_run(idle.id()));
            thread::yield_now();
        }
        let part = CoreUse::start(busy.id()).unwrap().finish();
        for mut child in [busy, idle] {
            kill_process_group(Pid::from_child(&child), Signal::KILL).unwrap();
            child.wait().unwrap();
        }
        assert_eq!(seen, (true, true));
        assert!((0.0..=1.0).contains(&part.unwrap()));
        assert!(!wants_to_run(u32::MAX));
    }
}
