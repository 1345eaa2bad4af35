//! Sources of measurements: files below a root path, opened once and read repeatedly in place.

pub(crate) mod cgroup;
pub(crate) mod cpu;
pub(crate) mod disk;
pub(crate) mod memory;
pub(crate) mod net;
pub(crate) mod pressure;
#[cfg(test)]
pub(crate) mod testing;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Files are read in steps of this size, and no further than the second.
const STEP: usize = 4096;
const MOST: usize = 1 << 20;
/// A file that is not there is looked for again after this long.
const RETRY: Duration = Duration::from_secs(10);

/// A file of `/proc` or `/sys`: kept open, because opening it costs as much as reading it.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    file: Option<File>,
    missing: Option<Instant>,
    buffer: Vec<u8>,
}

impl Source {
    /// A file below `root`; `path` may begin with a slash.
    pub(crate) fn new(root: &Path, path: impl AsRef<Path>) -> Source {
        let path = path.as_ref();
        let path = root.join(path.strip_prefix("/").unwrap_or(path));
        Source { path, file: None, missing: None, buffer: Vec::new() }
    }

    /// What it says now; `None` when it is not there, or is no text.
    pub(crate) fn read(&mut self) -> Option<&str> {
        if self.file.is_none() {
            if self.missing.is_some_and(|since| since.elapsed() < RETRY) {
                return None;
            }
            self.file = File::open(&self.path).ok();
            self.missing = self.file.is_none().then(Instant::now);
        }
        let length = match read_all(self.file.as_ref()?, &mut self.buffer) {
            Ok(length) => length,
            Err(_) => {
                // A cgroup that was removed, say: perhaps there will be another of that name.
                (self.file, self.missing) = (None, Some(Instant::now()));
                return None;
            }
        };
        std::str::from_utf8(&self.buffer[..length]).ok()
    }
}

fn read_all(file: &File, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let mut length = 0;
    loop {
        if length == buffer.len() {
            if length >= MOST {
                return Ok(length);
            }
            buffer.resize(length + STEP, 0);
        }
        match file.read_at(&mut buffer[length..], length as u64)? {
            0 => return Ok(length),
            read => length += read,
        }
    }
}

/// The value after `key` in text of lines `key value`.
pub(crate) fn value_of<T: std::str::FromStr>(text: &str, key: &str) -> Option<T> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    lines.find_map(|mut words| (words.next()? == key).then(|| words.next()?.parse().ok())?)
}

/// The per-second change of a counter that only grows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Growth {
    last: Option<f64>,
}

impl Growth {
    /// The counter is `value` now, `seconds` after the last time. `None` the first time, and when it went back (its
    /// source began anew).
    pub(crate) fn rate(&mut self, value: Option<f64>, seconds: f64) -> Option<f64> {
        let last = std::mem::replace(&mut self.last, value);
        let grown = value? - last?;
        (grown >= 0.0 && seconds > 0.0).then(|| grown / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::Tree;

    #[test]
    fn a_source_reads_what_is_there_now() {
        let tree = Tree::new(&[("proc/x", "one")]);
        let mut source = Source::new(tree.root(), "/proc/x");
        assert_eq!(source.read(), Some("one"));
        tree.write("proc/x", &"a line\n".repeat(2000));
        assert_eq!(source.read().map(str::len), Some(14_000), "longer than the buffer");
        let mut missing = Source::new(tree.root(), "proc/none");
        assert_eq!(missing.read(), None);
        tree.write_bytes("proc/bad", &[0xff, 0xfe]);
        assert_eq!(Source::new(tree.root(), "proc/bad").read(), None);
        assert_eq!(Source::new(tree.root(), "proc").read(), None, "a folder");
    }

    #[test]
    fn growth_starts_at_the_second_value_and_forgives_restarts() {
        let mut growth = Growth::default();
        assert_eq!(growth.rate(Some(100.0), 1.0), None);
        assert_eq!(growth.rate(Some(150.0), 0.5), Some(100.0));
        assert_eq!(growth.rate(Some(10.0), 1.0), None);
        assert_eq!(growth.rate(Some(11.0), 1.0), Some(1.0));
        assert_eq!(growth.rate(None, 1.0), None);
        assert_eq!(growth.rate(Some(12.0), 1.0), None);
        assert_eq!(growth.rate(Some(12.0), 0.0), None);
    }
}
