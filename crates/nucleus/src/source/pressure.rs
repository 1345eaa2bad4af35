//! Pressure stall information: the share of time in which something waited for a resource.

use std::path::Path;

use super::Source;
use super::cgroup::Cgroups;

/// `some avg10` of processors, memory and disks.
#[derive(Debug)]
pub(crate) struct Pressure {
    sources: [Source; 3],
}

impl Pressure {
    /// Of the group where it is told (version 2), else of the machine.
    pub(crate) fn new(root: &Path, cgroups: Option<&Cgroups>, group: &Path) -> Pressure {
        let sources = ["cpu", "memory", "io"].map(|resource| {
            let own = match cgroups {
                Some(cgroups @ Cgroups::V2(_)) => Some(cgroups.source("", group, &format!("{resource}.pressure"))),
                _ => None,
            };
            let own = own.and_then(|mut source| source.read().and_then(some_avg10).is_some().then_some(source));
            own.unwrap_or_else(|| Source::new(root, format!("proc/pressure/{resource}")))
        });
        Pressure { sources }
    }

    /// Shares of time, 0 to 1.
    pub(crate) fn read(&mut self) -> [Option<f64>; 3] {
        self.sources.each_mut().map(|source| source.read().and_then(some_avg10))
    }
}

fn some_avg10(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let percent: f64 = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::Tree;
    use super::*;

    #[test]
    fn the_groups_own_or_the_machines() {
        let psi = |avg: f64| format!("some avg10={avg:.2} avg60=0.00 avg300=0.00 total=1\nfull avg10=9.00 total=2\n");
        let tree = Tree::new(&[
            ("proc/pressure/cpu", &psi(50.0)),
            ("proc/pressure/io", &psi(25.0)),
            ("sys/fs/cgroup/cgroup.controllers", ""),
            ("sys/fs/cgroup/web/cpu.pressure", &psi(10.0)),
        ]);
        let cgroups = Cgroups::find(tree.root());
        let mut pressure = Pressure::new(tree.root(), cgroups.as_ref(), Path::new("web"));
        assert_eq!(pressure.read(), [Some(0.1), None, Some(0.25)]);
    }

    proptest! {
        #[test]
        fn any_text_does_no_harm(text in "(some )?(avg10=)?[0-9.e+naif-]{0,12}.{0,10}") {
            prop_assert!(some_avg10(&text).is_none_or(|share| (0.0..=1.0).contains(&share)));
        }
    }
}
