//! Lists of cores, as the kernel writes them: `0-3,8`.

use std::fmt;
use std::str::FromStr;

use rustix::thread::CpuSet;

/// Cores, in rising order, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreList(Vec<usize>);

impl CoreList {
    /// Cores that are online.
    pub(super) fn online() -> CoreList {
        let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        text.parse().unwrap_or_else(|_| {
            let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            CoreList((0..count).collect())
        })
    }

    /// Number of cores in the list.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As long as there is something to divide.
    pub(super) fn enough(self) -> Result<CoreList, String> {
        if self.len() < 2 { Err("there must be two cores at least to divide".to_owned()) } else { Ok(self) }
    }

    /// Those from place `from` up to, without, `to`.
    pub(super) fn range(&self, from: usize, to: usize) -> CoreList {
        CoreList(self.0[from..to].to_vec())
    }

    /// As system calls have it.
    pub(super) fn mask(&self) -> CpuSet {
        let mut mask = CpuSet::new();
        self.0.iter().for_each(|core| mask.set(*core));
        mask
    }

    /// From what a system call gave.
    pub(super) fn of(mask: &CpuSet) -> CoreList {
        CoreList((0..CpuSet::MAX_CPU).filter(|core| mask.is_set(*core)).collect())
    }
}

impl FromStr for CoreList {
    type Err = String;

    fn from_str(text: &str) -> Result<CoreList, String> {
        let wrong = || format!("\"{}\" is no list of cores; write one such as 0-3,8", text.trim());
        let mut cores = Vec::new();
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<usize>().ok().filter(|core| *core < CpuSet::MAX_CPU);
            let (first, last) = number(first).zip(number(last)).ok_or_else(wrong)?;
            if first > last {
                return Err(wrong());
            }
            cores.extend(first..=last);
        }
        cores.sort_unstable();
        cores.dedup();
        Ok(CoreList(cores))
    }
}

impl fmt::Display for CoreList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, run) in self.0.chunk_by(|a, b| a + 1 == *b).enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match run {
                [one] => write!(f, "{comma}{one}")?,
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for (text, written, count) in [("0-3,8\n", "0-3,8", 5), ("5", "5", 1), ("3,1,2,2", "1-3", 3)] {
            let list: CoreList = text.parse().expect(text);
            assert_eq!((list.to_string().as_str(), list.len()), (written, count));
        }
        for text in ["", "a", "3-1", "-1", "0-", "0-9999999", "1;2"] {
            assert!(text.parse::<CoreList>().is_err(), "{text:?}");
        }
        assert!(!CoreList::online().is_empty());
    }

    proptest! {
        #[test]
        fn masks_come_back(cores in prop::collection::btree_set(0usize..1024, 1..40)) {
            let list = CoreList(cores.into_iter().collect());
            prop_assert_eq!(&CoreList::of(&list.mask()), &list);
            prop_assert_eq!(list.to_string().parse::<CoreList>().expect("its own text"), list);
        }
    }
}
