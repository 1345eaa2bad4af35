//! Levels of priority: classes, and a hundred levels within each. The higher, the more important.

use alloc::vec::Vec;

use crate::request::ClassId;
use crate::rng::Rng;

/// Levels within a class.
const WITHIN: usize = 100;

/// The levels of requests that came of late while the limit was reached.
#[derive(Debug)]
pub(super) struct Levels {
    classes: usize,
    /// The last of them, and how many there are of each.
    recent: Vec<u16>,
    counts: Vec<u32>,
    next: usize,
    capacity: usize,
}

impl Levels {
    pub(super) fn new(classes: usize, capacity: usize) -> Levels {
        let counts = alloc::vec![0; classes * WITHIN];
        Levels { classes, recent: Vec::with_capacity(capacity), counts, next: 0, capacity }
    }

    pub(super) fn classes(&self) -> usize {
        self.classes
    }

    /// A level of this class.
    pub(super) fn draw(&self, class: ClassId, rng: &mut Rng) -> usize {
        (self.classes - 1 - class.index()) * WITHIN + rng.below(WITHIN)
    }

    pub(super) fn record(&mut self, level: usize) {
        self.counts[level] += 1;
        if self.recent.len() < self.capacity {
            self.recent.push(level as u16);
        } else {
            let gone = core::mem::replace(&mut self.recent[self.next], level as u16);
            self.counts[usize::from(gone)] -= 1;
        }
        self.next = (self.next + 1) % self.capacity;
    }

    /// The least level that this share of them is not above; 0 if there are none.
    pub(super) fn at(&self, share: f64) -> usize {
        let wanted = libm::ceil(self.recent.len() as f64 * share).max(1.0);
        let mut sum = 0.0;
        let reaches = |count: &u32| {
            sum += f64::from(*count);
            sum >= wanted
        };
        self.counts.iter().position(reaches).unwrap_or(0)
    }

    /// A threshold as the class at which it stands, and the share of it that passes.
    pub(super) fn stands_at(&self, threshold: usize) -> (u8, f64) {
        let class = self.classes - 1 - threshold / WITHIN;
        (class as u8, 1.0 - (threshold % WITHIN) as f64 / WITHIN as f64)
    }

    /// The threshold of which that was said.
    pub(super) fn threshold(&self, class: usize, share: f64) -> usize {
        let below = libm::round((1.0 - share.clamp(0.0, 1.0)) * WITHIN as f64) as usize;
        (self.classes - 1 - class) * WITHIN + below.min(WITHIN - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_is_where_the_share_of_the_recent_ones_ends() {
        let mut levels = Levels::new(3, 10);
        assert_eq!(levels.at(0.5), 0);
        (0..10).for_each(|at| levels.record(at * 20));
        assert_eq!([0.0, 0.1, 0.11, 0.5, 1.0].map(|share| levels.at(share)), [0, 0, 20, 80, 180]);
        (0..10).for_each(|_| levels.record(250));
        assert_eq!(levels.at(0.1), 250, "the others are forgotten");
    }

    #[test]
    fn a_threshold_is_said_by_class_and_share() {
        let levels = Levels::new(3, 10);
        assert_eq!(levels.stands_at(0), (2, 1.0));
        assert_eq!(levels.stands_at(225), (0, 0.75));
        for threshold in [0, 1, 99, 100, 250, 299] {
            let (class, share) = levels.stands_at(threshold);
            assert_eq!(levels.threshold(class.into(), share), threshold);
        }
        let mut rng = Rng::new(1);
        assert!((0..100).all(|_| levels.draw(ClassId(0), &mut rng) >= 200));
    }
}
