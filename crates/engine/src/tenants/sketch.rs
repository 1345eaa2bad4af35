//! Rates of any number of keys, in a sketch of fixed size: never too low, seldom too high.
//!
//! A count-min sketch with conservative update, over two windows of [`WINDOW`] seconds: the present one, and of the one
//! before the part that is not yet longer ago than that. Each window hashes with a secret of its own: who shares all of
//! its cells with a heavy key by chance does so for one window, and nobody can choose a key that does.

use alloc::boxed::Box;
use core::time::Duration;

use crate::rng::{Rng, splitmix64};
use crate::time::Timestamp;

/// Cells of a key in a window.
const ROWS: usize = 4;
/// Cells of a row; a power of two.
const COLUMNS: usize = 2048;
/// Length of a window, seconds: a key's few requests are told from a steady stream of them.
pub(super) const WINDOW: f64 = 10.0;

/// Two windows: 64 KiB.
#[derive(Debug)]
pub(super) struct Sketch {
    present: Window,
    before: Window,
    /// When the present window began.
    began: Timestamp,
}

#[derive(Debug)]
struct Window {
    salt: u64,
    cells: Box<[f32]>,
}

impl Sketch {
    pub(super) fn new(rng: &mut Rng) -> Sketch {
        Sketch { present: Window::new(rng), before: Window::new(rng), began: Timestamp::ZERO }
    }

    /// Adds `amount` to a key; its rate per second before that. O(1), allocates nothing.
    pub(super) fn add(&mut self, now: Timestamp, key: u64, amount: f64) -> f64 {
        let fresh = self.present.add(key, amount as f32);
        self.rate_with(now, key, fresh)
    }

    /// A key's rate per second.
    pub(super) fn rate(&self, now: Timestamp, key: u64) -> f64 {
        self.rate_with(now, key, self.present.get(key))
    }

    fn rate_with(&self, now: Timestamp, key: u64, fresh: f32) -> f64 {
        let gone = (now.seconds_since(self.began) / WINDOW).clamp(0.0, 1.0);
        (f64::from(fresh) + f64::from(self.before.get(key)) * (1.0 - gone)) / WINDOW
    }

    /// Begins another window when the present one is over.
    pub(super) fn turn(&mut self, now: Timestamp, rng: &mut Rng) {
        let length = Duration::from_secs_f64(WINDOW);
        if now.since(self.began) < length {
            return;
        }
        core::mem::swap(&mut self.present, &mut self.before);
        self.present.clear(rng);
        if now.since(self.began) >= 2 * length {
            self.before.clear(rng);
        }
        self.began = now;
    }
}

impl Window {
    fn new(rng: &mut Rng) -> Window {
        Window { salt: rng.next_u64(), cells: alloc::vec![0.0; ROWS * COLUMNS].into_boxed_slice() }
    }

    fn clear(&mut self, rng: &mut Rng) {
        self.salt = rng.next_u64();
        self.cells.fill(0.0);
    }

    fn get(&self, key: u64) -> f32 {
        self.places(key).into_iter().map(|at| self.cells[at]).fold(f32::INFINITY, f32::min)
    }

    /// Only cells that would be too low grow. What was there before.
    fn add(&mut self, key: u64, amount: f32) -> f32 {
        let before = self.get(key);
        for at in self.places(key) {
            self.cells[at] = self.cells[at].max(before + amount);
        }
        before
    }

    /// One cell of each row.
    fn places(&self, key: u64) -> [usize; ROWS] {
        let mut mixed = key ^ self.salt;
        let bits = splitmix64(&mut mixed);
        core::array::from_fn(|row| row * COLUMNS + (bits >> (16 * row)) as usize % COLUMNS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::{prop, prop_assert, proptest};

    proptest! {
        /// Whatever is added: no key's rate is lower than it is, and with few keys hardly any is higher.
        #[test]
        fn a_rate_is_never_too_low(seed in 0u64..u64::MAX, adds in prop::collection::vec((0u64..500, 0.001f64..1.0), 1..2000)) {
            let mut sketch = Sketch::new(&mut Rng::new(seed));
            let mut exact: BTreeMap<u64, f64> = BTreeMap::new();
            for &(key, amount) in &adds {
                sketch.add(Timestamp::ZERO, key, amount);
                *exact.entry(key).or_default() += amount / WINDOW;
            }
            let total: f64 = exact.values().sum();
            let mut too_high = 0;
            for (&key, &rate) in &exact {
                let estimate = sketch.add(Timestamp::ZERO, key, 0.0);
                prop_assert!(estimate >= rate * (1.0 - 1e-4), "{key}: {estimate} < {rate}");
                too_high += usize::from(estimate > rate + total * 0.01);
            }
            prop_assert!(too_high <= exact.len() / 50, "{too_high} of {}", exact.len());
        }
    }

    #[test]
    fn a_window_is_forgotten_while_the_next_passes() {
        let mut rng = Rng::new(1);
        let mut sketch = Sketch::new(&mut rng);
        sketch.add(Timestamp::ZERO, 7, 100.0);
        let mut rates = [0u64, 10_000, 15_000, 20_000].map(|ms| {
            let now = Timestamp::from_millis(ms);
            sketch.turn(now, &mut rng);
            sketch.add(now, 7, 0.0)
        });
        rates.iter_mut().for_each(|rate| *rate = libm::round(*rate * 100.0) / 100.0);
        assert_eq!(rates, [10.0, 10.0, 5.0, 0.0]);
    }

    #[test]
    fn who_shares_cells_with_a_heavy_key_does_so_for_one_window() {
        // As many heavy keys as columns: some light ones meet one in each of their cells.
        let mut rng = Rng::new(3);
        let mut sketch = Sketch::new(&mut rng);
        let met = |sketch: &mut Sketch, now| -> alloc::vec::Vec<u64> {
            for heavy in 0..COLUMNS as u64 {
                sketch.add(now, heavy, 100.0);
            }
            (1_000_000..1_002_000).filter(|&light| sketch.present.get(light) > 0.0).collect()
        };
        let first = met(&mut sketch, Timestamp::ZERO);
        let later = Timestamp::from_millis(10_000);
        sketch.turn(later, &mut rng);
        let second = met(&mut sketch, later);
        assert!(!first.is_empty() && !second.is_empty());
        let both = first.iter().filter(|key| second.contains(key)).count();
        assert!(both * 2 < first.len(), "{both} of {}", first.len());
    }
}
