//! The limit: a Vegas of a high quantile, held back by what goes together with the requests in flight.

use super::Config;
use super::statistics::{Correlation, Mean, Median};
use crate::estimate::DecayedHistogram;
use crate::time::Timestamp;

/// Quantiles that the smoothed one remembers.
const SMOOTHED: u32 = 5;

/// A limit on requests in flight.
#[derive(Debug)]
pub(super) struct Limiter {
    pub(super) limit: f64,
    window: Window,
    median: Median,
    /// The quantile of late, and that of always, seconds.
    pub(super) recent: Mean,
    pub(super) baseline: Mean,
    /// Of the requests in flight: with the throughput, and with the response time.
    throughput: Correlation,
    response: Correlation,
    /// When the window may end.
    ends: Timestamp,
}

/// Response times since the limit was last moved.
#[derive(Debug)]
struct Window {
    times: DecayedHistogram,
    count: u32,
    /// The shortest, seconds.
    least: f64,
    most_in_flight: usize,
}

/// What a window says.
#[derive(Clone, Copy, Debug)]
struct Signs {
    /// How many requests seem to queue.
    queue: f64,
    /// Whether the limit was reached.
    full: bool,
    /// Correlation of throughput with what is in flight, and its variation.
    throughput: (f64, f64),
    /// Correlation of response times with what is in flight.
    response: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Increase,
    Decrease,
    Hold,
}

impl Limiter {
    pub(super) fn new(config: &Config) -> Limiter {
        let window =
            Window { times: DecayedHistogram::new(f64::INFINITY), count: 0, least: f64::INFINITY, most_in_flight: 0 };
        Limiter {
            limit: config.initial_limit.into(),
            window,
            median: Median::default(),
            recent: Mean::new(SMOOTHED),
            baseline: Mean::new(config.baseline_age),
            throughput: Correlation::new(config.correlation_window as usize),
            response: Correlation::new(config.correlation_window as usize),
            ends: Timestamp::ZERO,
        }
    }

    /// A request ended after so many seconds, started with so many in flight; `full`: no more were let in.
    pub(super) fn learn(&mut self, config: &Config, now: Timestamp, seconds: f64, in_flight: usize, full: bool) {
        self.window.times.record(now, seconds);
        self.window.count += 1;
        self.window.least = self.window.least.min(seconds);
        self.window.most_in_flight = self.window.most_in_flight.max(in_flight);
        if now <= self.ends || self.window.count < config.min_samples {
            return;
        }
        let quantile = self.window.times.quantile(config.quantile).unwrap_or(seconds).max(1e-6);
        let filtered = self.median.add(quantile);
        let recent = self.recent.add(filtered);
        self.update(config, recent, self.window.most_in_flight.max(1), full);
        let least = (2.0 * self.window.least).max(config.min_window.0).min(config.max_window.0);
        self.ends = Timestamp::from_secs_f64(now.as_secs_f64() + least);
        self.window.times.clear();
        (self.window.count, self.window.least, self.window.most_in_flight) = (0, f64::INFINITY, 0);
    }

    fn update(&mut self, config: &Config, recent: f64, in_flight: usize, full: bool) {
        let baseline = self.baseline.add(recent);
        let in_flight = in_flight as f64;
        let signs = Signs {
            queue: libm::ceil(self.limit * (1.0 - baseline / recent)),
            full,
            throughput: self.throughput.add(in_flight, in_flight / recent),
            response: self.response.add(in_flight, recent).0,
        };
        let step = log10(self.limit);
        let before = self.limit;
        let mut next = match signs.change(step) {
            Change::Increase => before + step,
            Change::Decrease => before - step,
            Change::Hold => before,
        };
        let most = in_flight * config.max_limit_factor;
        if next > most {
            // Not at once: what is in flight varies.
            next = if before > most { before - step } else { most };
        }
        self.limit = next.clamp(config.min_limit.into(), config.max_limit.into());
    }
}

impl Signs {
    /// What is to become of a limit whose step this is.
    fn change(self, step: f64) -> Change {
        let (correlation, variation) = self.throughput;
        let slows = self.response > 0.5 && (correlation < 0.3 || variation < 0.2);
        if self.queue > 6.0 * step || self.full && (correlation < 0.0 || slows) {
            Change::Decrease
        } else if self.queue < 3.0 * step {
            Change::Increase
        } else {
            Change::Hold
        }
    }
}

/// At least 1.
fn log10(limit: f64) -> f64 {
    libm::floor(libm::log10(libm::floor(limit).max(1.0))).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Signs = Signs { queue: 0.0, full: true, throughput: (1.0, 0.5), response: 0.0 };

    #[test]
    fn a_long_queue_shrinks_it_and_a_short_one_lets_it_grow() {
        let change = |queue| Signs { queue, ..CALM }.change(1.0);
        assert_eq!([2.0, 3.0, 6.0, 7.0].map(change), [Change::Increase, Change::Hold, Change::Hold, Change::Decrease]);
        assert_eq!(Signs { queue: 7.0, ..CALM }.change(2.0), Change::Hold, "from a limit of a hundred on");
    }

    #[test]
    fn when_full_it_shrinks_where_more_in_flight_brings_only_longer_times() {
        let slower = Signs { response: 0.6, ..CALM };
        assert_eq!(Signs { throughput: (-0.1, 0.5), ..CALM }.change(1.0), Change::Decrease);
        assert_eq!(Signs { throughput: (0.2, 0.5), ..slower }.change(1.0), Change::Decrease);
        assert_eq!(Signs { throughput: (0.9, 0.1), ..slower }.change(1.0), Change::Decrease);
        assert_eq!(slower.change(1.0), Change::Increase, "it brings throughput, too");
        assert_eq!(Signs { full: false, throughput: (-1.0, 0.0), ..slower }.change(1.0), Change::Increase);
    }

    /// Windows of a second with 60 answers each.
    fn windows(limiter: &mut Limiter, from: u64, count: u64, seconds: f64, in_flight: usize) {
        let config = Config::default();
        for at in (from * 60..(from + count) * 60).map(|at| Timestamp::from_millis(at * 17)) {
            limiter.learn(&config, at, seconds, in_flight, false);
        }
    }

    #[test]
    fn stays_below_five_times_what_is_in_flight_and_its_bounds() {
        let mut limiter = Limiter::new(&Config::default());
        windows(&mut limiter, 0, 40, 0.1, 8);
        assert_eq!(limiter.limit, 40.0);
        windows(&mut limiter, 40, 5, 0.1, 2);
        assert!((34.0..37.0).contains(&limiter.limit), "one less a window: {}", limiter.limit);
        windows(&mut limiter, 45, 250, 0.1, 150);
        assert_eq!(limiter.limit, 200.0);
    }

    #[test]
    fn shrinks_when_the_quantile_rises_above_its_baseline() {
        let mut limiter = Limiter::new(&Config::default());
        windows(&mut limiter, 0, 30, 0.1, 30);
        let before = limiter.limit;
        windows(&mut limiter, 30, 8, 0.5, 30);
        assert!(limiter.limit < before, "{} of {before}", limiter.limit);
        windows(&mut limiter, 38, 60, 0.5, 40);
        assert!(limiter.limit > before, "in the end it is the baseline: {}", limiter.limit);
    }
}
