//! Popularity of paths: how often each is requested.

use std::collections::HashMap;

use crate::distribution::harmonic;

/// Counts of paths, of a bounded number of them.
#[derive(Debug, Clone, Default)]
pub struct Popularity {
    counts: HashMap<Box<str>, u64>,
    /// Requests for paths that came when the table was full.
    others: u64,
}

/// Paths at most.
const MOST: usize = 200_000;

impl Popularity {
    /// A request for a path.
    pub fn add(&mut self, path: &str) {
        if let Some(count) = self.counts.get_mut(path) {
            *count += 1;
        } else if self.counts.len() < MOST {
            self.counts.insert(path.into(), 1);
        } else {
            self.others += 1;
        }
    }

    /// Number of different paths.
    pub fn paths(&self) -> usize {
        self.counts.len()
    }

    /// Requests for paths that found no place in the table.
    pub fn others(&self) -> u64 {
        self.others
    }

    /// The exponent of the Zipf law that makes the counts most likely; `None` of fewer than two paths.
    pub fn exponent(&self) -> Option<f64> {
        if self.counts.len() < 2 {
            return None;
        }
        let mut counts: Vec<u64> = self.counts.values().copied().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let total = counts.iter().sum::<u64>() as f64;
        let ranked = counts.iter().zip(1u64..).map(|(&count, rank)| count as f64 * (rank as f64).ln()).sum::<f64>();
        let paths = counts.len() as f64;
        let unlikelihood = |exponent: f64| exponent * ranked / total + harmonic(paths, exponent).ln();
        // The likelihood has one peak: golden sections close in on it.
        let golden = (5f64.sqrt() - 1.0) / 2.0;
        let (mut low, mut high) = (0.0, 8.0);
        for _ in 0..80 {
            let (a, b) = (high - golden * (high - low), low + golden * (high - low));
            if unlikelihood(a) < unlikelihood(b) {
                high = b;
            } else {
                low = a;
            }
        }
        Some((low + high) / 2.0)
    }
}
