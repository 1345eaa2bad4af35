//! Who had the service's core: the service, nobody, or others.
//!
//! A comparison between one minute and the next means little when other programs take a part of the core that changes.
//! Their part is measured in every run; a reader sees it, and the short form allows for it.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::bench::proc_fs;

/// Time used so far.
#[derive(Debug)]
pub struct CoreUse {
    core: usize,
    pid: u32,
    at: Instant,
    /// By anyone, also by interrupts and by the machine below a virtual one, microseconds.
    busy: f64,
    /// By the service, also by processes of it that have ended, microseconds.
    service: f64,
}

impl CoreUse {
    /// Reads the use of a core, and of the process tree that is the service.
    ///
    /// # Errors
    /// When the process is gone or `/proc` says something unexpected.
    pub fn now(core: usize, pid: u32) -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let ticks = busy_ticks(&text, core).with_context(|| format!("/proc/stat has no core {core}"))?;
        let busy = ticks as f64 * 1e6 / rustix::param::clock_ticks_per_second() as f64;
        Ok(Self { core, pid, at: Instant::now(), busy, service: proc_fs::cpu_micros_with_ended(pid)? })
    }

    /// The part of the core that others have had since.
    ///
    /// # Errors
    /// As [`CoreUse::now`].
    pub fn others_since(&self) -> Result<f64> {
        let now = Self::now(self.core, self.pid)?;
        let passed = now.at.duration_since(self.at).as_secs_f64() * 1e6;
        let others = (now.busy - self.busy) - (now.service - self.service);
        Ok((others / passed).clamp(0.0, 1.0))
    }
}

/// User, nice, system, irq, softirq and steal; not idle, not waiting, and no guest twice.
fn busy_ticks(stat: &str, core: usize) -> Option<u64> {
    let name = format!("cpu{core}");
    let fields = stat.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(&name)).then(|| words.filter_map(|word| word.parse().ok()).collect::<Vec<u64>>())
    })?;
    [0, 1, 2, 5, 6, 7].iter().map(|&index| fields.get(index).copied()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_neither_idle_nor_waiting() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 4 1000 1000 8 16 32 64 64\ncpu1 5 0 0 1 1 0 0 0 0 0\nintr 1\n";
        assert_eq!(busy_ticks(stat, 0), Some(63));
        assert_eq!(busy_ticks(stat, 1), Some(5));
        assert_eq!(busy_ticks(stat, 7), None);
    }

    #[test]
    fn this_machine_can_be_read() {
        let before = CoreUse::now(0, std::process::id()).unwrap();
        let others = before.others_since().unwrap();
        assert!((0.0..=1.0).contains(&others), "{others}");
        assert!(CoreUse::now(100_000, std::process::id()).is_err());
    }
}
