//! Looking through the files of processes for sockets.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Processes that had nothing to do with the service are looked at again after this long: what was a shell may be the
/// server now, or its number another process's.
const FORGET: Duration = Duration::from_secs(60);

/// The processes of a machine, and which of them need not be looked at.
#[derive(Debug)]
pub(super) struct Search {
    proc: PathBuf,
    others: HashSet<u32>,
    /// The listeners of the service when `others` were looked at, and since when.
    listeners: Vec<u32>,
    since: Option<Instant>,
}

/// A process that has a connection, and the file by which it has it.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) pid: u32,
    file: PathBuf,
}

impl Search {
    /// A search through the processes in the folder `proc`.
    pub(super) fn new(proc: &Path) -> Search {
        Search { proc: proc.to_owned(), others: HashSet::new(), listeners: Vec::new(), since: None }
    }

    /// Who has the `connections` (inodes), each with a process of one thread for it alone. Processes of the service are
    /// known by its `listeners` (inodes) or by a connection. Those in `busy` are not looked at.
    pub(super) fn find(
        &mut self,
        now: Instant,
        listeners: &[u32],
        connections: &HashSet<u32>,
        busy: &HashSet<u32>,
    ) -> HashMap<u32, Holder> {
        let Ok(pids) = numbers_in(&self.proc) else { return HashMap::new() };
        self.forget(now, listeners, &pids);
        let mut found = HashMap::new();
        for pid in pids {
            if self.others.contains(&pid) || busy.contains(&pid) {
                continue;
            }
            let process = self.proc.join(pid.to_string());
            let mut sockets = sockets_of(&process);
            let listens = sockets.iter().any(|(_, inode)| listeners.contains(inode));
            sockets.retain(|(_, inode)| connections.contains(inode));
            // As its input and its output, say.
            sockets.sort_unstable_by_key(|(_, inode)| *inode);
            sockets.dedup_by_key(|(_, inode)| *inode);
            if !listens && sockets.is_empty() {
                self.others.insert(pid);
            }
            let is_its_own = sockets.len() == 1 && is_single_threaded(&process);
            for (number, inode) in sockets {
                let file = process.join("fd").join(number.to_string());
                match found.entry(inode) {
                    Entry::Vacant(entry) => drop(entry.insert(is_its_own.then_some(Holder { pid, file }))),
                    // A connection that several processes have is nobody's.
                    Entry::Occupied(mut entry) => drop(entry.insert(None)),
                }
            }
        }
        found.into_iter().filter_map(|(inode, holder)| Some((inode, holder?))).collect()
    }

    fn forget(&mut self, now: Instant, listeners: &[u32], pids: &[u32]) {
        let is_old = self.since.is_none_or(|since| now.saturating_duration_since(since) >= FORGET);
        if is_old || self.listeners != listeners {
            (self.listeners, self.since) = (listeners.to_owned(), Some(now));
            self.others.clear();
        }
        let pids: HashSet<u32> = pids.iter().copied().collect();
        self.others.retain(|pid| pids.contains(pid));
    }
}

impl Holder {
    /// The inode of the socket that the file is now.
    pub(super) fn socket(&self) -> Option<u32> {
        socket_at(&self.file)
    }
}

/// The sockets of a process by its folder in `/proc`: numbers of its files, and inodes. None when it is gone or may not
/// be looked at.
pub(crate) fn sockets_of(process: &Path) -> Vec<(u32, u32)> {
    let folder = process.join("fd");
    let numbers = numbers_in(&folder).unwrap_or_default();
    numbers.into_iter().filter_map(|number| Some((number, socket_at(&folder.join(number.to_string()))?))).collect()
}

fn socket_at(file: &Path) -> Option<u32> {
    let target = fs::read_link(file).ok()?;
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

fn numbers_in(folder: &Path) -> std::io::Result<Vec<u32>> {
    let entries = fs::read_dir(folder)?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

fn is_single_threaded(process: &Path) -> bool {
    fs::read_dir(process.join("task")).is_ok_and(|tasks| tasks.count() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::testing::Tree;

    /// A process of `threads` with the listener 7, where it has that, and these sockets.
    fn process(tree: &Tree, pid: u32, threads: u32, sockets: &[u32]) {
        (0..threads).for_each(|thread| tree.write(&format!("{pid}/task/{}/comm", pid + thread), "server"));
        for (number, inode) in sockets.iter().enumerate() {
            tree.link(&format!("{pid}/fd/{}", 3 + number), &format!("socket:[{inode}]"));
        }
    }

    fn find(search: &mut Search, now: Instant, connections: &[u32]) -> Vec<(u32, u32)> {
        let found = search.find(now, &[7], &connections.iter().copied().collect(), &HashSet::new());
        let mut found: Vec<_> = found.iter().map(|(inode, holder)| (*inode, holder.pid)).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn each_connection_has_the_process_that_has_it_alone() {
        let tree = Tree::new(&[("self/comm", "no number"), ("meminfo", "")]);
        process(&tree, 10, 1, &[7]);
        process(&tree, 11, 1, &[7, 100]);
        process(&tree, 12, 1, &[7, 101, 5]);
        process(&tree, 13, 2, &[7, 102]);
        process(&tree, 14, 1, &[7, 103, 104]);
        process(&tree, 15, 1, &[7, 105]);
        process(&tree, 16, 1, &[105]);
        // It closed the listener, and has its connection as input and output.
        process(&tree, 17, 1, &[106, 106]);
        let mut search = Search::new(tree.root());
        let all: Vec<u32> = (100..108).collect();
        assert_eq!(find(&mut search, Instant::now(), &all), [(100, 11), (101, 12), (106, 17)]);
        let holder = &search.find(Instant::now(), &[7], &HashSet::from([100]), &HashSet::from([12]))[&100];
        assert_eq!(holder.socket(), Some(100));
        assert!(search.find(Instant::now(), &[7], &HashSet::from([100]), &HashSet::from([11])).is_empty(), "busy");
    }

    #[test]
    fn a_process_that_others_share_with_is_left_out_whoever_is_seen_first() {
        for (one, two) in [(20, 21), (21, 20)] {
            let tree = Tree::new(&[]);
            process(&tree, one, 1, &[7, 100]);
            process(&tree, two, 3, &[7, 100, 101]);
            assert_eq!(find(&mut Search::new(tree.root()), Instant::now(), &[100, 101]), []);
        }
    }

    #[test]
    fn strangers_are_looked_at_once_a_minute_or_when_somebody_listens_anew() {
        let tree = Tree::new(&[]);
        process(&tree, 30, 1, &[7, 100]);
        process(&tree, 31, 1, &[1]);
        let (mut search, start) = (Search::new(tree.root()), Instant::now());
        assert_eq!(find(&mut search, start, &[100, 101]), [(100, 30)]);
        tree.link("31/fd/9", "socket:[101]");
        assert_eq!(find(&mut search, start + Duration::from_secs(59), &[100, 101]), [(100, 30)]);
        assert_eq!(find(&mut search, start + Duration::from_secs(60), &[100, 101]), [(100, 30), (101, 31)]);
        process(&tree, 32, 1, &[2]);
        let later = start + Duration::from_secs(61);
        assert_eq!(find(&mut search, later, &[102]), []);
        tree.link("32/fd/9", "socket:[102]");
        let found = search.find(later, &[7, 8], &HashSet::from([102]), &HashSet::new());
        assert_eq!(found.get(&102).map(|holder| holder.pid), Some(32));
    }
}
