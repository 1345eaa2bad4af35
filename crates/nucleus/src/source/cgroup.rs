//! Files and limits of a cgroup, in version 1 and 2.
//!
//! What is to be seen decides: in a container with a cgroup namespace the root *is* the container's cgroup, on a
//! machine it is the machine. A server's own cgroup must be named. Limits of the groups above count too.

use std::path::{Path, PathBuf};

use super::Source;

const MOUNT: &str = "sys/fs/cgroup";
/// How deep a group may lie for limits above it to be found.
const DEEPEST: usize = 16;

/// The cgroup hierarchies of a system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cgroups {
    /// One hierarchy for everything.
    V2(PathBuf),
    /// A hierarchy per controller, below this folder.
    V1(PathBuf),
}

impl Cgroups {
    /// The ones below `root`, if any.
    pub(crate) fn find(root: &Path) -> Option<Cgroups> {
        let mount = root.join(MOUNT);
        if mount.join("cgroup.controllers").exists() {
            return Some(Cgroups::V2(mount));
        }
        let has = |name: &str| mount.join(name).is_dir();
        ["cpuacct", "cpu,cpuacct", "cpu", "memory"].into_iter().any(has).then_some(Cgroups::V1(mount))
    }

    /// The group that limits this process's memory; the root where that is not to be seen.
    pub(crate) fn own(root: &Path) -> PathBuf {
        let text = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let lines = text.lines().filter_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
            // Version 2 names none.
            let is_it = controllers.is_empty() || controllers.split(',').any(|name| name == "memory");
            is_it.then_some((controllers.is_empty(), group))
        });
        // Where both versions are mounted, limits of memory may be with version 1.
        PathBuf::from(lines.min().map_or("", |(_, group)| group))
    }

    /// The folder of `group` under a controller (of version 1; version 2 has one for all).
    pub(crate) fn folder(&self, controller: &str, group: &Path) -> PathBuf {
        let group = group.strip_prefix("/").unwrap_or(group);
        match self {
            Cgroups::V2(mount) => mount.join(group),
            Cgroups::V1(mount) => {
                let combined = ["cpu,cpuacct", "cpuacct,cpu"].into_iter().map(|name| mount.join(name));
                let own = mount.join(controller);
                let fits =
                    |folder: &PathBuf| controller.starts_with("cpu") && controller != "cpuset" && folder.is_dir();
                let hierarchy = if own.is_dir() { own } else { combined.into_iter().find(fits).unwrap_or(own) };
                hierarchy.join(group)
            }
        }
    }

    /// A group's file.
    pub(crate) fn source(&self, controller: &str, group: &Path, file: &str) -> Source {
        Source::new(Path::new("/"), self.folder(controller, group).join(file))
    }

    /// Processors that a group may use by its quota and those above it; `None`: no limit.
    pub(crate) fn quota(&self, group: &Path) -> Option<f64> {
        let limits = self.lineage(group).into_iter().filter_map(|group| {
            let read = |file: &str| std::fs::read_to_string(self.folder("cpu", &group).join(file)).ok();
            match self {
                Cgroups::V2(_) => parse_max(&read("cpu.max")?),
                Cgroups::V1(_) => parse_quota(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?),
            }
        });
        limits.reduce(f64::min)
    }

    /// Processors of the group's cpuset, counted; `None`: no limit is to be seen.
    pub(crate) fn cpuset(&self, group: &Path) -> Option<f64> {
        let folder = self.folder("cpuset", group);
        let files = ["cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"];
        let list = files.into_iter().find_map(|file| std::fs::read_to_string(folder.join(file)).ok())?;
        count_list(&list)
    }

    /// Bytes of memory that a group may use, by its limit and those above it; `None`: no limit.
    pub(crate) fn memory_limit(&self, group: &Path) -> Option<f64> {
        let file = match self {
            Cgroups::V2(_) => "memory.max",
            Cgroups::V1(_) => "memory.limit_in_bytes",
        };
        let limits = self.lineage(group).into_iter().filter_map(|group| {
            let text = std::fs::read_to_string(self.folder("memory", &group).join(file)).ok()?;
            // Version 1 writes "no limit" as a number near 2^63.
            text.trim().parse::<f64>().ok().filter(|limit| *limit > 0.0 && *limit < 1e18)
        });
        limits.reduce(f64::min)
    }

    /// The group and those above it.
    fn lineage(&self, group: &Path) -> Vec<PathBuf> {
        let group = group.strip_prefix("/").unwrap_or(group);
        group.ancestors().take(DEEPEST).map(Path::to_path_buf).collect()
    }
}

/// `"50000 100000"`, or `"max 100000"`.
fn parse_max(text: &str) -> Option<f64> {
    let mut words = text.split_ascii_whitespace();
    let (quota, period) = (words.next()?, words.next()?);
    parse_quota(quota, period)
}

fn parse_quota(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    let processors = quota / period;
    (quota > 0.0 && period > 0.0 && processors.is_finite()).then_some(processors)
}

/// How many numbers a list such as `"0-3,8"` names.
pub(crate) fn count_list(text: &str) -> Option<f64> {
    let mut count = 0u32;
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    (count > 0).then_some(f64::from(count))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::Tree;
    use super::*;

    #[test]
    fn version_2_with_limits_above() {
        let tree = Tree::new(&[
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory"),
            ("sys/fs/cgroup/web/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/web/memory.max", "max\n"),
            ("sys/fs/cgroup/web/app/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/web/app/memory.max", "1048576\n"),
            ("sys/fs/cgroup/web/app/cpuset.cpus.effective", "0-1,4\n"),
        ]);
        let cgroups = Cgroups::find(tree.root()).expect("there");
        let group = Path::new("/web/app");
        assert_eq!(cgroups.quota(group), Some(1.5));
        assert_eq!(cgroups.memory_limit(group), Some(1_048_576.0));
        assert_eq!(cgroups.cpuset(group), Some(3.0));
        assert_eq!((cgroups.quota(Path::new("")), cgroups.memory_limit(Path::new("web"))), (None, None));
        assert_eq!(cgroups.source("cpu", group, "cpu.max").read(), Some("max 100000\n"));
    }

    #[test]
    fn version_1_with_a_combined_hierarchy() {
        let tree = Tree::new(&[
            ("sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", "30000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/app/cpuacct.usage", "123\n"),
            ("sys/fs/cgroup/memory/app/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        let cgroups = Cgroups::find(tree.root()).expect("there");
        let group = Path::new("app");
        assert_eq!((cgroups.quota(group), cgroups.memory_limit(group)), (Some(0.3), None));
        assert_eq!(cgroups.source("cpuacct", group, "cpuacct.usage").read(), Some("123\n"));
        assert_eq!(cgroups.cpuset(group), None);
    }

    #[test]
    fn none_and_nonsense() {
        assert_eq!(Cgroups::find(Tree::new(&[]).root()), None);
        let files = ["cpu.max", "memory.max", "cpuset.cpus.effective"];
        for text in ["", "garbage", "-5 0", "0 0", "max", "1-", "5-1", "\u{0}"] {
            let tree = Tree::new(&[("sys/fs/cgroup/cgroup.controllers", "")]);
            files.iter().for_each(|file| tree.write(&format!("sys/fs/cgroup/{file}"), text));
            let cgroups = Cgroups::find(tree.root()).expect("there");
            let found =
                (cgroups.quota(Path::new("")), cgroups.memory_limit(Path::new("")), cgroups.cpuset(Path::new("")));
            assert_eq!(found, (None, None, None), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_does_no_harm(text in ".{0,60}") {
            prop_assert!(parse_max(&text).is_none_or(|processors| processors > 0.0));
            prop_assert!(count_list(&text).is_none_or(|count| count > 0.0));
        }
    }
}
