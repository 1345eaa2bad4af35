//! What `/proc` says about a process and all its children: CPU time and memory.

use std::fs;

use anyhow::{Context, Result};

/// CPU time used so far by a process and its living children, all threads, user and system, in microseconds.
///
/// # Errors
/// When the process is gone.
pub fn cpu_micros(pid: u32) -> Result<f64> {
    let mut ticks = 0;
    for pid in tree(pid) {
        ticks += read_stat(pid)?.ticks;
    }
    Ok(ticks as f64 * 1e6 / rustix::param::clock_ticks_per_second() as f64)
}

/// Processor time of a process and of those that it started, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    /// The process.
    pub pid: u32,
    /// By itself.
    pub own: f64,
    /// By what it started, that has ended and that it waited for.
    pub ended: f64,
}

/// What a process and its living descendants have used so far.
pub fn used_by_tree(root: u32) -> Vec<Used> {
    let tick = 1.0 / rustix::param::clock_ticks_per_second() as f64;
    let seconds = |pid: u32| {
        let stat = read_stat(pid).ok()?;
        Some(Used { pid, own: stat.ticks as f64 * tick, ended: stat.ended_ticks as f64 * tick })
    };
    tree(root).into_iter().filter_map(seconds).collect()
}

/// Memory of a process and its children, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident pages; those shared between processes count in each.
    pub rss: u64,
    /// Resident pages; those shared between processes are divided among them.
    pub pss: u64,
}

/// The memory of a process and its living children.
///
/// # Errors
/// When the process is gone or belongs to someone else.
pub fn memory(pid: u32) -> Result<Memory> {
    let mut sum = Memory::default();
    for pid in tree(pid) {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let one = parse_rollup(&text);
        sum.rss += one.rss;
        sum.pss += one.pss;
    }
    Ok(sum)
}

/// A process and all its living descendants.
pub fn tree(root: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = pids.filter_map(|pid| Some((pid, read_stat(pid).ok()?.parent))).collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found
}

struct Stat {
    parent: u32,
    ticks: u64,
    /// Of children that have ended and were waited for.
    ended_ticks: u64,
}

fn read_stat(pid: u32) -> Result<Stat> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}: has it ended?"))?;
    parse_stat(&text).with_context(|| format!("cannot understand {path}"))
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name in brackets may hold anything, also spaces and brackets.
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = number(11)? + number(12)?;
    Some(Stat { parent: u32::try_from(number(1)?).ok()?, ticks, ended_ticks: number(13)? + number(14)? })
}

fn parse_rollup(text: &str) -> Memory {
    let kib = |key: &str| {
        let value =
            text.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse::<u64>().ok());
        value.unwrap_or(0) * 1024
    };
    Memory { rss: kib("Rss:"), pss: kib("Pss:") }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn stat_is_read_after_the_last_bracket() {
        let text = "42 (a ) (b) S 7 42 42 0 -1 4194560 1 2 3 4 150 50 9 9 20 0 1 0 100 0 0";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.parent, stat.ticks, stat.ended_ticks), (7, 200, 18));
    }

    #[test]
    fn rollup_sums_in_bytes() {
        let memory = parse_rollup("00 ---p 00 [rollup]\nRss:  12 kB\nPss:   5 kB\nPss_Dirty: 4 kB\n");
        assert_eq!(memory, Memory { rss: 12 * 1024, pss: 5 * 1024 });
    }

    #[test]
    fn a_process_of_ours_is_measured_with_its_children() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let family = tree(std::process::id());
        assert!(family.contains(&child.id()));
        assert!(cpu_micros(std::process::id()).unwrap() >= 0.0);
        assert!(memory(child.id()).unwrap().rss > 0);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(memory(child.id()).is_err());
    }
}
