//! A sample of bounded size from a stream of any length.

use rand::RngExt;

use crate::{Rng, rng};

/// Moments of everything, and a uniform sample of it (Vitter's algorithm R).
#[derive(Debug, Clone)]
pub struct Sample {
    kept: Vec<f64>,
    seen: u64,
    zeros: u64,
    mean: f64,
    /// Sum of squared distances from the mean.
    spread: f64,
    min: f64,
    max: f64,
    rng: Rng,
}

/// Values kept: enough for a distance of 0.005 to be seen.
const MOST: usize = 100_000;

impl Sample {
    /// Nothing yet; `stream` separates the random choices of several samples.
    pub fn new(stream: u64) -> Sample {
        let (min, max) = (f64::INFINITY, f64::NEG_INFINITY);
        Sample { kept: Vec::new(), seen: 0, zeros: 0, mean: 0.0, spread: 0.0, min, max, rng: rng(0, stream) }
    }

    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.seen += 1;
        self.zeros += u64::from(value <= 0.0);
        let before = value - self.mean;
        self.mean += before / self.seen as f64;
        self.spread += before * (value - self.mean);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        if self.kept.len() < MOST {
            self.kept.push(value);
        } else {
            let place = self.rng.random_range(0..self.seen) as usize;
            if let Some(kept) = self.kept.get_mut(place) {
                *kept = value;
            }
        }
    }

    /// Number of values in the sample.
    pub fn count(&self) -> u64 {
        self.seen
    }

    /// How many of them are 0.
    pub fn zeros(&self) -> u64 {
        self.zeros
    }

    /// Mean of all; 0 of nothing.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Standard deviation over mean, of all; 0 when the mean is.
    pub fn cv(&self) -> f64 {
        if self.mean <= 0.0 { 0.0 } else { (self.spread / self.seen as f64).sqrt() / self.mean }
    }

    /// Smallest and largest of all; `None` of nothing.
    pub fn range(&self) -> Option<(f64, f64)> {
        (self.seen > 0).then_some((self.min, self.max))
    }

    /// The sample in ascending order.
    pub fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.kept.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}
