//! Memory: how much may be used, and how much is.

use std::path::Path;

use super::cgroup::Cgroups;
use super::{Source, value_of};

/// Bytes of memory that this process may have: the machine's, or the limit of its cgroup or of one above it, if that is
/// less; `None` where the system does not say.
pub fn memory_limit() -> Option<u64> {
    limit_of_process(Path::new("/")).map(|limit| limit as u64)
}

fn limit_of_process(root: &Path) -> Option<f64> {
    let (cgroups, group) = (Cgroups::find(root), Cgroups::own(root));
    let mut memory = Memory::new(root, cgroups.as_ref(), &group);
    memory.look_at_limits(cgroups.as_ref(), &group);
    memory.read().1
}

/// The cgroup's memory where it is limited, else the machine's.
#[derive(Debug)]
pub(crate) struct Memory {
    info: Source,
    group: Option<Group>,
    limit: Option<f64>,
}

#[derive(Debug)]
struct Group {
    used: Source,
    stat: Source,
    /// The name of the part that can be had back at once.
    cache: &'static str,
}

impl Memory {
    pub(crate) fn new(root: &Path, cgroups: Option<&Cgroups>, group: &Path) -> Memory {
        let group = cgroups.map(|cgroups| {
            let (used, cache) = match cgroups {
                Cgroups::V2(_) => ("memory.current", "inactive_file"),
                Cgroups::V1(_) => ("memory.usage_in_bytes", "total_inactive_file"),
            };
            let source = |file| cgroups.source("memory", group, file);
            Group { used: source(used), stat: source("memory.stat"), cache }
        });
        Memory { info: Source::new(root, "proc/meminfo"), group, limit: None }
    }

    /// Limits change seldom: call this now and then.
    pub(crate) fn look_at_limits(&mut self, cgroups: Option<&Cgroups>, group: &Path) {
        self.limit = cgroups.and_then(|cgroups| cgroups.memory_limit(group));
    }

    /// Bytes in use, and bytes that may be.
    pub(crate) fn read(&mut self) -> (Option<f64>, Option<f64>) {
        let (used, total) = self.info.read().map_or((None, None), machine);
        let limited = self.limit.filter(|limit| total.is_none_or(|total| *limit < total));
        match (&mut self.group, limited) {
            (Some(group), Some(limit)) => (group.used(), Some(limit)),
            _ => (used, total),
        }
    }
}

impl Group {
    /// As container tools count it: without file pages that were not used lately.
    fn used(&mut self) -> Option<f64> {
        let used = self.used.read()?.trim().parse::<u64>().ok()?;
        let cache: u64 = self.stat.read().and_then(|text| value_of(text, self.cache)).unwrap_or(0);
        Some(used.saturating_sub(cache) as f64)
    }
}

fn machine(text: &str) -> (Option<f64>, Option<f64>) {
    let bytes = |key| value_of::<u64>(text, key).map(|kib| kib as f64 * 1024.0);
    let (total, available) = (bytes("MemTotal:"), bytes("MemAvailable:"));
    let used = total.zip(available).map(|(total, available)| (total - available).max(0.0));
    (used, total)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Tree;
    use super::*;

    const INFO: &str = "MemTotal:        1000 kB\nMemFree: 1 kB\nMemAvailable:     400 kB\n";

    fn read(tree: &Tree, group: &str) -> (Option<f64>, Option<f64>) {
        let (cgroups, group) = (Cgroups::find(tree.root()), Path::new(group));
        let mut memory = Memory::new(tree.root(), cgroups.as_ref(), group);
        memory.look_at_limits(cgroups.as_ref(), group);
        memory.read()
    }

    #[test]
    fn the_machine_or_a_limited_group() {
        assert_eq!(read(&Tree::new(&[("proc/meminfo", INFO)]), ""), (Some(614_400.0), Some(1_024_000.0)));
        let files = [
            ("proc/meminfo", INFO),
            ("sys/fs/cgroup/cgroup.controllers", ""),
            ("sys/fs/cgroup/memory.max", "500000\n"),
            ("sys/fs/cgroup/memory.current", "300000\n"),
            ("sys/fs/cgroup/memory.stat", "anon 5\ninactive_file 100000\n"),
        ];
        let tree = Tree::new(&files);
        assert_eq!(read(&tree, ""), (Some(200_000.0), Some(500_000.0)));
        tree.write("sys/fs/cgroup/memory.max", "5000000000\n");
        assert_eq!(read(&tree, "").1, Some(1_024_000.0), "a limit above what there is limits nothing");
    }

    #[test]
    fn a_process_may_have_what_its_own_group_may() {
        let files = [
            ("proc/meminfo", INFO),
            ("proc/self/cgroup", "0::/system.slice/web.service\n"),
            ("sys/fs/cgroup/cgroup.controllers", ""),
            ("sys/fs/cgroup/system.slice/memory.max", "300000\n"),
            ("sys/fs/cgroup/system.slice/web.service/memory.max", "max\n"),
        ];
        let tree = Tree::new(&files);
        assert_eq!(limit_of_process(tree.root()), Some(300_000.0), "the limit of a group above counts");
        tree.write("sys/fs/cgroup/system.slice/web.service/memory.max", "200000\n");
        assert_eq!(limit_of_process(tree.root()), Some(200_000.0));
        let files = [
            ("proc/meminfo", INFO),
            ("proc/self/cgroup", "5:cpuset:/\n4:cpu,memory:/app\n0::/\n"),
            ("sys/fs/cgroup/memory/app/memory.limit_in_bytes", "1000"),
        ];
        assert_eq!(limit_of_process(Tree::new(&files).root()), Some(1000.0));
        // A container's own view: what it is called outside is not to be seen, and the root is its own.
        let files = [
            ("proc/meminfo", INFO),
            ("proc/self/cgroup", "4:memory:/docker/1\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000"),
        ];
        assert_eq!(limit_of_process(Tree::new(&files).root()), Some(2000.0));
        assert_eq!(limit_of_process(Tree::new(&[("proc/meminfo", INFO)]).root()), Some(1_024_000.0));
        assert_eq!(limit_of_process(Tree::new(&[]).root()), None);
        assert!(memory_limit().is_some_and(|bytes| bytes > 1 << 20), "that of the process that tests");
    }

    #[test]
    fn version_1_missing_files_and_garbage() {
        let tree = Tree::new(&[
            ("sys/fs/cgroup/memory/app/memory.limit_in_bytes", "1000"),
            ("sys/fs/cgroup/memory/app/memory.usage_in_bytes", "900"),
        ]);
        assert_eq!(read(&tree, "app"), (Some(900.0), Some(1000.0)));
        assert_eq!(read(&Tree::new(&[]), ""), (None, None));
        assert_eq!(read(&Tree::new(&[("proc/meminfo", "MemTotal: x kB\nMemAvailable")]), ""), (None, None));
    }
}
