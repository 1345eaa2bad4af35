//! Processors: how many may be used, and how many are.

use std::path::Path;

use super::cgroup::{Cgroups, count_list};
use super::{Growth, Source, value_of};

/// Processor time in use, by the cheapest exact source there is: the cgroup's meter (nanoseconds), else `/proc/stat`
/// (ticks).
#[derive(Debug)]
pub(crate) struct Cpu {
    meter: Meter,
    growth: Growth,
    /// Processors that may be used.
    cores: Option<f64>,
}

#[derive(Debug)]
enum Meter {
    V2(Source),
    V1(Source),
    Stat(Source),
}

/// `/proc/stat` counts hundredths of a second (`USER_HZ`), on every architecture that Linux runs servers on.
const TICKS: f64 = 100.0;

impl Cpu {
    pub(crate) fn new(root: &Path, cgroups: Option<&Cgroups>, group: &Path) -> Cpu {
        let found = cgroups.and_then(|cgroups| {
            let (mut meter, usage): (Meter, fn(&str) -> Option<f64>) = match cgroups {
                Cgroups::V2(_) => (Meter::V2(cgroups.source("cpu", group, "cpu.stat")), usage_v2),
                Cgroups::V1(_) => (Meter::V1(cgroups.source("cpuacct", group, "cpuacct.usage")), usage_v1),
            };
            let (Meter::V1(source) | Meter::V2(source) | Meter::Stat(source)) = &mut meter;
            source.read().and_then(usage).is_some().then_some(meter)
        });
        let meter = found.unwrap_or_else(|| Meter::Stat(Source::new(root, "proc/stat")));
        let mut cpu = Cpu { meter, growth: Growth::default(), cores: None };
        cpu.look_at_limits(root, cgroups, group);
        cpu
    }

    /// Limits change seldom: call this now and then.
    pub(crate) fn look_at_limits(&mut self, root: &Path, cgroups: Option<&Cgroups>, group: &Path) {
        let online = Source::new(root, "sys/devices/system/cpu/online").read().and_then(count_list);
        let online = online.or_else(|| Source::new(root, "proc/stat").read().and_then(count_cpus));
        let limits = [online, cgroups.and_then(|c| c.cpuset(group)), cgroups.and_then(|c| c.quota(group))];
        self.cores = limits.into_iter().flatten().reduce(f64::min);
    }

    /// Processors that may be used.
    pub(crate) fn cores(&self) -> Option<f64> {
        self.cores
    }

    /// Processors in use since the last call.
    pub(crate) fn used(&mut self, seconds: f64) -> Option<f64> {
        let total = match &mut self.meter {
            Meter::V2(source) => source.read().and_then(usage_v2),
            Meter::V1(source) => source.read().and_then(usage_v1),
            Meter::Stat(source) => source.read().and_then(usage_stat),
        };
        self.growth.rate(total, seconds)
    }
}

/// Seconds, from `cpu.stat`.
fn usage_v2(text: &str) -> Option<f64> {
    value_of::<u64>(text, "usage_usec").map(|micros| micros as f64 * 1e-6)
}

/// Seconds, from `cpuacct.usage`.
fn usage_v1(text: &str) -> Option<f64> {
    text.trim().parse::<u64>().ok().map(|nanos| nanos as f64 * 1e-9)
}

/// Seconds, from the first line of `/proc/stat`: all but idle and waiting for disks.
fn usage_stat(text: &str) -> Option<f64> {
    let mut words = text.lines().next()?.split_ascii_whitespace();
    if words.next()? != "cpu" {
        return None;
    }
    let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
    // Without the idle ones there is no telling what the others are.
    ticks.get(4)?;
    let busy = ticks.iter().enumerate().filter(|(at, _)| !matches!(at, 3 | 4)).map(|(_, ticks)| *ticks as f64);
    Some(busy.sum::<f64>() / TICKS)
}

fn count_cpus(text: &str) -> Option<f64> {
    let is_one =
        |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let count = text.lines().filter(is_one).count();
    (count > 0).then_some(count as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::Tree;
    use super::*;

    const STAT: &str = "cpu  100 0 50 1000 20 5 5 40 0 0\ncpu0 1 1\ncpu1 1 1\nintr 5\n";

    fn cpu(tree: &Tree, group: &str) -> Cpu {
        Cpu::new(tree.root(), Cgroups::find(tree.root()).as_ref(), Path::new(group))
    }

    #[test]
    fn without_cgroups_the_machine_counts() {
        let tree = Tree::new(&[("proc/stat", STAT)]);
        let mut cpu = cpu(&tree, "");
        assert_eq!(cpu.cores(), Some(2.0));
        assert_eq!(cpu.used(1.0), None);
        tree.write("proc/stat", &STAT.replace("cpu  100", "cpu  250"));
        assert_eq!(cpu.used(1.0), Some(1.5));
    }

    #[test]
    fn a_container_has_its_own_meter_and_limit() {
        let tree = Tree::new(&[
            ("proc/stat", STAT),
            ("sys/devices/system/cpu/online", "0-7\n"),
            ("sys/fs/cgroup/cgroup.controllers", ""),
            ("sys/fs/cgroup/cpu.stat", "usage_usec 1000000\nuser_usec 7\n"),
            ("sys/fs/cgroup/cpu.max", "250000 100000\n"),
        ]);
        let mut cpu = cpu(&tree, "/");
        assert_eq!((cpu.cores(), cpu.used(0.1)), (Some(2.5), None));
        tree.write("sys/fs/cgroup/cpu.stat", "usage_usec 1200000\n");
        assert!((cpu.used(0.1).expect("the second time") - 2.0).abs() < 1e-9);
    }

    #[test]
    fn version_1_counts_nanoseconds() {
        let tree = Tree::new(&[("sys/fs/cgroup/cpuacct/web/cpuacct.usage", "5000000000\n"), ("proc/stat", STAT)]);
        let mut cpu = cpu(&tree, "web");
        assert_eq!(cpu.used(1.0), None);
        tree.write("sys/fs/cgroup/cpuacct/web/cpuacct.usage", "5500000000\n");
        assert_eq!(cpu.used(1.0), Some(0.5));
    }

    #[test]
    fn garbage_is_not_measured() {
        for text in ["", "cpu", "cpu a b c", "cpu 1 2", "garbage\n", "\u{0}\u{0}"] {
            let tree = Tree::new(&[("proc/stat", text), ("sys/fs/cgroup/cpuacct/cpuacct.usage", text)]);
            let mut cpu = cpu(&tree, "");
            assert_eq!((cpu.used(1.0), cpu.used(1.0), cpu.cores()), (None, None, None), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_does_no_harm(text in "[cpu0-9 \n.-]{0,80}") {
            for usage in [usage_stat, usage_v1, usage_v2] {
                prop_assert!(usage(&text).is_none_or(|seconds| seconds >= 0.0));
            }
        }
    }
}
