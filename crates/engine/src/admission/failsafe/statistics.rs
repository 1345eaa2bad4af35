//! Moving means, medians and correlations of the last values, as the source has them.

use alloc::vec::Vec;

/// The first values make a plain mean, and correlations of fewer say nothing.
pub(super) const WARM_UP: usize = 10;
/// Values that vary by less, as a part of their mean, are taken for constant.
const LEAST_VARIATION: f64 = 0.01;

/// A mean: plain over the first values, exponential afterwards.
#[derive(Debug)]
pub(super) struct Mean {
    /// How much of a new value is taken.
    gain: f64,
    value: f64,
    count: usize,
}

impl Mean {
    /// One that remembers about `age` values.
    pub(super) fn new(age: u32) -> Mean {
        Mean { gain: 2.0 / (f64::from(age) + 1.0), value: 0.0, count: 0 }
    }

    pub(super) fn add(&mut self, value: f64) -> f64 {
        self.count = (self.count + 1).min(WARM_UP + 1);
        let gain = if self.count <= WARM_UP { 1.0 / self.count as f64 } else { self.gain };
        self.value += (value - self.value) * gain;
        self.value
    }

    pub(super) fn value(&self) -> f64 {
        self.value
    }

    /// Begins with what was known elsewhere.
    pub(super) fn set(&mut self, value: f64) {
        (self.value, self.count) = (value, WARM_UP);
    }
}

/// The median of the last five values; the first four pass as they are.
#[derive(Debug, Default)]
pub(super) struct Median {
    values: [f64; 5],
    count: usize,
}

impl Median {
    pub(super) fn add(&mut self, value: f64) -> f64 {
        self.values[self.count % 5] = value;
        self.count += 1;
        if self.count < 5 {
            return value;
        }
        let mut sorted = self.values;
        sorted.sort_by(f64::total_cmp);
        sorted[2]
    }
}

/// How two quantities went together over the last values.
#[derive(Debug)]
pub(super) struct Correlation {
    pairs: Vec<(f64, f64)>,
    capacity: usize,
    next: usize,
}

impl Correlation {
    pub(super) fn new(capacity: usize) -> Correlation {
        Correlation { pairs: Vec::with_capacity(capacity), capacity, next: 0 }
    }

    /// With this pair: Pearson's coefficient, and the variation of the second quantity as a part of its mean. Both are
    /// 0 while there are too few, the coefficient also where either hardly varies.
    pub(super) fn add(&mut self, x: f64, y: f64) -> (f64, f64) {
        if self.pairs.len() < self.capacity {
            self.pairs.push((x, y));
        } else {
            self.pairs[self.next] = (x, y);
        }
        self.next = (self.next + 1) % self.capacity;
        let count = self.pairs.len() as f64;
        if self.pairs.len() < WARM_UP {
            return (0.0, 0.0);
        }
        let mean = |of: fn(&(f64, f64)) -> f64| self.pairs.iter().map(of).sum::<f64>() / count;
        let (mean_x, mean_y) = (mean(|pair| pair.0), mean(|pair| pair.1));
        let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
        for (x, y) in &self.pairs {
            let (dx, dy) = (x - mean_x, y - mean_y);
            (xx, xy, yy) = (xx + dx * dx, xy + dx * dy, yy + dy * dy);
        }
        let variation = |sum: f64, mean: f64| libm::sqrt(sum / count) / mean;
        let (of_x, of_y) = (variation(xx, mean_x), variation(yy, mean_y));
        // Also where a mean is 0.
        let varies = of_x >= LEAST_VARIATION && of_y >= LEAST_VARIATION && xx > 0.0 && yy > 0.0;
        let of_y = if of_y.is_finite() { of_y } else { 0.0 };
        (if varies { xy / libm::sqrt(xx * yy) } else { 0.0 }, of_y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_plain_in_the_beginning_and_forgets_then() {
        let mut mean = Mean::new(10);
        for value in 1..=10 {
            mean.add(f64::from(value));
        }
        assert!((mean.value() - 5.5).abs() < 1e-9);
        assert!((mean.add(16.5) - 7.5).abs() < 1e-9, "two elevenths of the difference");
    }

    #[test]
    fn a_median_drops_what_stands_out() {
        let mut median = Median::default();
        let medians = [1.0, 9.0, 1.0, 2.0, 1.0, 30.0, 2.0].map(|value| median.add(value));
        assert_eq!(medians, [1.0, 9.0, 1.0, 2.0, 1.0, 2.0, 2.0]);
    }

    #[test]
    fn quantities_that_go_together_are_told_from_those_that_do_not() {
        let mut up = Correlation::new(20);
        let mut down = Correlation::new(20);
        let mut flat = Correlation::new(20);
        let mut last = [(0.0, 0.0); 3];
        for at in 0..50 {
            let x = 10.0 + f64::from(at % 7);
            last = [up.add(x, 2.0 * x), down.add(x, 100.0 - x), flat.add(x, 5.0)];
            assert_eq!(at < 9, last[0] == (0.0, 0.0), "{at}");
        }
        assert!((last[0].0 - 1.0).abs() < 1e-9 && last[0].1 > 0.1, "{last:?}");
        assert!((last[1].0 + 1.0).abs() < 1e-9, "{last:?}");
        assert_eq!(last[2], (0.0, 0.0));
    }
}
