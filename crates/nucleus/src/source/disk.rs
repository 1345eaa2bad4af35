//! Disks: how busy the busiest is, and how much all of them move.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{Growth, Source};

/// Whole disks only: partitions are not in `/sys/block`.
#[derive(Debug)]
pub(crate) struct Disks {
    stats: Source,
    block: PathBuf,
    busy: HashMap<String, Growth>,
    is_disk: HashMap<String, bool>,
    read: Growth,
    written: Growth,
}

/// What disks did since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct DiskUse {
    /// Share of time in which the busiest was busy, 0 to 1.
    pub(crate) busy: Option<f64>,
    /// Bytes per second.
    pub(crate) read: Option<f64>,
    pub(crate) written: Option<f64>,
}

/// `/proc/diskstats` counts in these, whatever the disk's own are, bytes.
const SECTOR: f64 = 512.0;

impl Disks {
    pub(crate) fn new(root: &Path) -> Disks {
        Disks {
            stats: Source::new(root, "proc/diskstats"),
            block: root.join("sys/block"),
            busy: HashMap::new(),
            is_disk: HashMap::new(),
            read: Growth::default(),
            written: Growth::default(),
        }
    }

    /// What they did since the last call.
    pub(crate) fn used(&mut self, seconds: f64) -> DiskUse {
        let Some(text) = self.stats.read() else { return DiskUse::default() };
        let (mut busiest, mut read, mut written): (Option<f64>, _, _) = (None, 0.0, 0.0);
        for line in text.lines() {
            let Some((name, counts)) = parse(line) else { continue };
            let is_disk = match self.is_disk.get(name) {
                Some(known) => *known,
                None => {
                    // Memory that looks like a disk waits for nothing.
                    let virtual_disk = ["loop", "ram", "zram"].iter().any(|prefix| name.starts_with(prefix));
                    let found = !virtual_disk && self.block.join(name).exists();
                    *self.is_disk.entry(name.to_owned()).or_insert(found)
                }
            };
            if !is_disk {
                continue;
            }
            read += counts.read * SECTOR;
            written += counts.written * SECTOR;
            let growth = match self.busy.get_mut(name) {
                Some(growth) => growth,
                None => self.busy.entry(name.to_owned()).or_default(),
            };
            if let Some(busy) = growth.rate(Some(counts.busy_ms / 1000.0), seconds) {
                busiest = Some(busiest.unwrap_or(0.0).max(busy.min(1.0)));
            }
        }
        DiskUse {
            busy: busiest,
            read: self.read.rate(Some(read), seconds),
            written: self.written.rate(Some(written), seconds),
        }
    }
}

struct Counts {
    read: f64,
    written: f64,
    busy_ms: f64,
}

fn parse(line: &str) -> Option<(&str, Counts)> {
    let mut words = line.split_ascii_whitespace().skip(2);
    let name = words.next()?;
    let mut number = |skip: usize| words.nth(skip)?.parse::<u64>().ok().map(|number| number as f64);
    // reads, merged, sectors, ms; writes, merged, sectors, ms; in flight, ms busy.
    let (read, written, busy_ms) = (number(2)?, number(3)?, number(2)?);
    // A name is a file name of `/sys/block`.
    (!name.contains(['/', '.'])).then_some((name, Counts { read, written, busy_ms }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::Tree;
    use super::*;

    fn stats(read: u32, written: u32, busy: u32) -> String {
        format!(
            "  8 0 sda 10 0 {read} 7 20 0 {written} 9 0 {busy} 16\n  8 1 sda1 10 0 99999999 7 20 0 9 9 0 9 16\n\
             7 0 loop0 1 1 77777 1 1 1 1 1 1 1 1\n"
        )
    }

    #[test]
    fn whole_disks_since_the_last_call() {
        let tree = Tree::new(&[
            ("proc/diskstats", &stats(100, 200, 5000)),
            ("sys/block/sda/size", "1"),
            ("sys/block/loop0/size", "1"),
        ]);
        let mut disks = Disks::new(tree.root());
        assert_eq!(disks.used(0.1), DiskUse::default());
        tree.write("proc/diskstats", &stats(300, 200, 5050));
        let used = disks.used(0.1);
        assert!((used.busy.expect("busy") - 0.5).abs() < 1e-9);
        assert_eq!((used.read, used.written), (Some(1_024_000.0), Some(0.0)));
    }

    #[test]
    fn no_disks_and_garbage() {
        assert_eq!(Disks::new(Tree::new(&[]).root()).used(1.0), DiskUse::default());
        let tree = Tree::new(&[("proc/diskstats", "8 0 ../../etc 1 1 1 1 1 1 1 1 1 1 1\nx\n\n8 0 sda 1\n")]);
        let mut disks = Disks::new(tree.root());
        disks.used(1.0);
        assert_eq!(disks.used(1.0).busy, None);
    }

    proptest! {
        #[test]
        fn any_line_does_no_harm(line in "[ a-z0-9./-]{0,80}") {
            prop_assert!(parse(&line).is_none_or(|(name, _)| !name.contains('/')));
        }
    }
}
