//! What samples of cost have in common: how much dearer than expected they are, and how much they differ by chance.

use super::rate::Average;

/// Samples over which the general dearness is averaged: many, because its noise would let all costs wander.
const NORM_MEMORY: f64 = 512.0;
/// How strongly the ratio of expected to seen is held where it has been over the last `ANCHOR_MEMORY` samples. Without
/// it all costs sink by some millionths with every sample, because an average is biased by its own noise: behind 200
/// busy servers that is a factor of fifty in a minute.
const ANCHOR: f64 = 0.05;
const ANCHOR_MEMORY: f64 = 1e7;
/// A sample counts as no more than so many times what was expected when it is asked how much they differ.
const LARGEST: f64 = 8.0;

/// What recent samples of one kind were, and what was expected of them.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Norm {
    seen: Average,
    expected: Average,
    /// The logarithm of their ratio, over a long time.
    anchor: Average,
    /// The last factor.
    last: f64,
}

impl Default for Norm {
    fn default() -> Norm {
        Norm { seen: Average::default(), expected: Average::default(), anchor: Average::default(), last: 1.0 }
    }
}

impl Norm {
    /// What a sample must be multiplied by, of which so much was expected, both in seconds.
    pub(super) fn factor(&mut self, seconds: f64, expected: f64, weight: f64) -> f64 {
        self.seen.update(seconds, weight, NORM_MEMORY);
        self.expected.update(expected, weight, NORM_MEMORY);
        if let (Some(seen), Some(expected)) = (self.seen.get(), self.expected.get())
            && seen > 0.0
        {
            self.last = self.anchored(libm::log((expected / seen).clamp(1e-3, 1e3)));
        }
        self.last
    }

    /// The last factor.
    pub(super) fn last(&self) -> f64 {
        self.last
    }

    /// The factor whose logarithm is `ratio`, pulled to where that has been all along.
    fn anchored(&mut self, ratio: f64) -> f64 {
        self.anchor.update(ratio, 1.0, ANCHOR_MEMORY);
        let long = self.anchor.get().unwrap_or(ratio);
        libm::exp(ratio + ANCHOR * (long - ratio))
    }
}

/// How much samples of a URL differ, and on how many of them what is known of it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Chance {
    /// Mean square of the relative deviation of a sample from what was expected.
    spread: Average,
    /// What is left of it in what is known.
    left: Average,
}

impl Chance {
    /// A sample of a URL that had so many before; `ratio`: to what was expected of it, where it is well known.
    /// The average leans on others as if they were `lean` samples.
    pub(super) fn record(&mut self, ratio: Option<f64>, samples: f64, lean: f64) {
        if let Some(ratio) = ratio {
            let away = ratio.min(LARGEST) - 1.0;
            self.spread.update(away * away, 1.0, NORM_MEMORY);
        }
        let weight = samples + lean;
        self.left.update(samples / (weight * weight), 1.0, NORM_MEMORY);
    }

    /// The standard deviation of what is known, a part of it.
    pub(super) fn get(&self) -> f64 {
        libm::sqrt(self.spread.get().unwrap_or(0.0) * self.left.get().unwrap_or(0.0))
    }
}
