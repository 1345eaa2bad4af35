//! How long each test took when it ran last: the longest begin first, and people see how much time is left.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::binaries::Test;

/// A test of which nothing is known is begun before short ones: the long ones of a package are in its binary `it`.
const UNKNOWN_LIVE: Duration = Duration::from_secs(2);
const UNKNOWN: Duration = Duration::from_millis(50);

/// Seconds by a test's title.
#[derive(Debug, Default)]
pub struct Durations {
    file: PathBuf,
    seconds: BTreeMap<String, f64>,
}

impl Durations {
    /// What is known from earlier runs; nothing, where there is no such file.
    pub fn read(folder: &Path) -> Self {
        let file = folder.join("durations.json");
        let text = fs::read_to_string(&file).unwrap_or_default();
        Self { seconds: serde_json::from_str(&text).unwrap_or_default(), file }
    }

    /// Remembers, for the next run.
    pub fn note(&mut self, test: &Test, took: Duration) {
        self.seconds.insert(test.title(), took.as_secs_f64());
    }

    /// Writes down what is known.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self) -> Result<()> {
        let text = serde_json::to_string(&self.seconds)?;
        fs::write(&self.file, text).with_context(|| format!("cannot write {}", self.file.display()))
    }

    /// What a test will take.
    pub fn expected(&self, test: &Test) -> Duration {
        let unknown = if test.binary.target == "--test it" { UNKNOWN_LIVE } else { UNKNOWN };
        self.known(test).unwrap_or(unknown)
    }

    /// How much longer it takes with so many at a time: from what tests took when they ran last; where that is unknown,
    /// from how long those took that are done.
    pub fn left(
        &self,
        waiting: &VecDeque<&Test>,
        running: &[&Test],
        at_once: usize,
        since: Duration,
        done: usize,
    ) -> Duration {
        let mean = since.mul_f64(at_once as f64 / done.max(1) as f64);
        let of = |test: &&Test| self.known(test).unwrap_or(mean);
        let sum: Duration = waiting.iter().map(of).chain(running.iter().map(|test| of(test) / 2)).sum();
        let longest = waiting.iter().map(of).max().unwrap_or_default();
        longest.max(sum / at_once.max(1) as u32)
    }

    fn known(&self, test: &Test) -> Option<Duration> {
        self.seconds.get(&test.title()).map(|seconds| Duration::from_secs_f64(*seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::super::binaries::{Binary, Kind};
    use super::*;

    fn test(target: &str, name: &str) -> Test {
        let binary = Binary { package: "p".into(), target: target.into(), program: "/p".into(), folder: "/".into() };
        Test { binary, name: name.into(), kind: Kind::Correctness }
    }

    #[test]
    fn what_a_test_took_is_remembered() {
        let folder = std::env::temp_dir().join(format!("tidegate-durations-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (slow, live, unit) = (test("--lib", "slow"), test("--test it", "a"), test("--lib", "a"));
        let mut durations = Durations::read(&folder);
        assert!(durations.expected(&live) > durations.expected(&unit));
        durations.note(&slow, Duration::from_secs(40));
        durations.write().unwrap();
        let durations = Durations::read(&folder);
        assert_eq!(durations.expected(&slow), Duration::from_secs(40));
        let left = |waiting: &[&Test], done| {
            durations.left(&waiting.iter().copied().collect(), &[], 4, Duration::from_secs(10), done)
        };
        assert_eq!(left(&[&slow], 3), Duration::from_secs(40), "the longest alone");
        assert_eq!(left(&[&live; 8], 20), Duration::from_secs(4), "as those before: 40 s of work for 20");
        fs::remove_dir_all(folder).unwrap();
    }
}
