//! Arrival rates over time: mean, peaks, and burstiness.

use std::time::Duration;

use crate::trace::{Bin, Bins, Instant};
use crate::{Profile, Rate};

/// Counts of requests on several scales of time, in bounded memory.
#[derive(Debug, Clone)]
pub struct Rates {
    scales: Vec<Counting>,
    steps: Steps,
}

/// Arrival rates of a trace.
#[derive(Debug, Clone)]
pub struct RateFit {
    /// From the finest scale to the coarsest.
    pub scales: Vec<Scale>,
    /// The rate over time, in few steps.
    pub profile: Option<Profile>,
}

/// Counts in stretches of one length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Length of an interval.
    pub stretch: Duration,
    /// Number of intervals.
    pub stretches: u64,
    /// Mean rate, per second.
    pub mean: f64,
    /// Highest rate, per second.
    pub peak: f64,
    /// Variance of the counts over their mean: 1 for Poisson, more when it comes in bursts or the rate changes.
    pub dispersion: f64,
}

impl Rates {
    /// Scales from `finest` up by tens.
    pub fn new(finest: Duration) -> Rates {
        let scales = (0..4).map(|power| Counting::new(finest.saturating_mul(10u32.pow(power)))).collect();
        Rates { scales, steps: Steps::new(finest) }
    }

    /// So many requests at an instant that is not before the last one.
    pub fn add(&mut self, at: Instant, requests: f64) {
        self.scales.iter_mut().for_each(|scale| scale.add(at, requests));
        self.steps.add(at, requests);
    }

    /// What was found. A scale of fewer than ten stretches says little and is left out, but for the finest.
    pub fn finish(mut self) -> RateFit {
        let scales = self.scales.iter_mut().enumerate().filter_map(|(at, scale)| {
            let found = scale.finish()?;
            (at == 0 || found.stretches >= 10).then_some(found)
        });
        RateFit { scales: scales.collect(), profile: self.steps.profile() }
    }
}

#[derive(Debug, Clone)]
struct Counting {
    stretch: Duration,
    bins: Bins,
    stretches: u64,
    sum: f64,
    squares: f64,
    peak: f64,
}

impl Counting {
    fn new(stretch: Duration) -> Counting {
        Counting { stretch, bins: Bins::new(stretch), stretches: 0, sum: 0.0, squares: 0.0, peak: 0.0 }
    }

    fn add(&mut self, at: Instant, requests: f64) {
        let closed = self.bins.add(at, requests, 0.0);
        self.count(closed);
    }

    fn count(&mut self, closed: Option<Bin>) {
        let Some(bin) = closed else { return };
        self.stretches += 1 + bin.empty_before;
        self.sum += bin.requests;
        self.squares += bin.requests * bin.requests;
        self.peak = self.peak.max(bin.requests);
    }

    fn finish(&mut self) -> Option<Scale> {
        let last = self.bins.close();
        self.count(last);
        let n = self.stretches as f64;
        let mean = self.sum / n;
        let variance = (self.squares / n - mean * mean).max(0.0);
        let per_second = |count: f64| count / self.stretch.as_secs_f64();
        (mean > 0.0).then(|| Scale {
            stretch: self.stretch,
            stretches: self.stretches,
            mean: per_second(mean),
            peak: per_second(self.peak),
            dispersion: variance / mean,
        })
    }
}

/// The rate over time in at most so many steps: when there are more, pairs of them become one.
#[derive(Debug, Clone)]
struct Steps {
    width: i64,
    origin: Option<Instant>,
    counts: Vec<f64>,
}

const MOST_STEPS: usize = 48;

impl Steps {
    fn new(finest: Duration) -> Steps {
        let width = i64::try_from(finest.as_nanos()).unwrap_or(i64::MAX / 2).max(1);
        Steps { width, origin: None, counts: Vec::new() }
    }

    fn add(&mut self, at: Instant, requests: f64) {
        let origin = *self.origin.get_or_insert(at);
        let place = |width: i64| (at.as_nanos().saturating_sub(origin.as_nanos()).max(0) / width) as usize;
        while place(self.width) >= MOST_STEPS {
            self.counts = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.width = self.width.saturating_mul(2);
        }
        let place = place(self.width);
        if self.counts.len() <= place {
            self.counts.resize(place + 1, 0.0);
        }
        self.counts[place] += requests;
    }

    fn profile(&self) -> Option<Profile> {
        let width = Duration::from_nanos(self.width.unsigned_abs());
        let mut builder = Profile::builder();
        for (at, count) in self.counts.iter().enumerate() {
            // Three digits more than a count has are noise.
            let rate = (count / width.as_secs_f64() * 1000.0).round() / 1000.0;
            builder = builder.step(width.saturating_mul(at as u32), Rate::new(rate)?);
        }
        builder.end(width.saturating_mul(self.counts.len() as u32)).build().ok()
    }
}
