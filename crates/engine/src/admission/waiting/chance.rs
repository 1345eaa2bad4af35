//! How likely a request is answered within a time: what requests take at their server over what was expected of them.

use alloc::format;

use crate::estimate::{DecayedHistogram, KeptHistogram};
use crate::learned::Kept;
use crate::time::Timestamp;

/// Times fade with this half-life, seconds.
const HALF_LIFE: f64 = 10.0;
/// So many before they are believed.
const FEW: f64 = 20.0;
/// The shares whose quantiles are kept.
const SHARES: [f64; 10] = [0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.87, 0.92, 0.96, 0.99];
/// Until enough is known: exponential times, with this mean.
const FIRST_MEAN: f64 = 0.67;

/// The distribution of times at the server over what was expected.
#[derive(Debug)]
pub(super) struct Chances {
    seen: DecayedHistogram,
    quantiles: [f64; SHARES.len()],
    /// The quantile that the SLA asks for.
    sure: (f64, f64),
}

impl Chances {
    /// `sure`: the share of answers that the SLA wants in time; `None` where it bounds their mean.
    pub(super) fn new(sure: Option<f64>) -> Chances {
        let first = |share: f64| -FIRST_MEAN * libm::log(1.0 - share);
        // Of exponential times, so many are below their mean.
        let sure = sure.unwrap_or(0.632).clamp(0.01, 0.999);
        let (seen, quantiles) = (DecayedHistogram::new(HALF_LIFE), SHARES.map(first));
        Chances { seen, quantiles, sure: (sure, first(sure)) }
    }

    /// A request took so many times what was expected; it counts as `weight` of them.
    pub(super) fn record(&mut self, now: Timestamp, stretch: f64, weight: f64) {
        self.seen.record_weighted(now, stretch, weight);
    }

    pub(super) fn put_away(&self, now: Timestamp, kept: &mut Kept) {
        for (at, count) in self.seen.keep(now).buckets() {
            kept.put(&format!("chance_{at}"), count);
        }
    }

    pub(super) fn take_up(&mut self, now: Timestamp, kept: &Kept) {
        let counts = (0..DecayedHistogram::buckets()).filter_map(|at| Some((at, kept.get(&format!("chance_{at}"))?)));
        self.seen.recall(now, &KeptHistogram::of_buckets(counts));
        self.refresh(now);
    }

    /// Ten times a second: brings the quantiles up to date.
    pub(super) fn refresh(&mut self, now: Timestamp) {
        if self.seen.weight(now) < FEW {
            return;
        }
        let (mut below, mut at) = (0.0, 0);
        let mut sure = None;
        for (value, share) in self.seen.shares() {
            below += share;
            while at < SHARES.len() && below >= SHARES[at] {
                self.quantiles[at] = value;
                at += 1;
            }
            if below >= self.sure.0 && sure.is_none() {
                sure = Some(value);
            }
        }
        self.sure.1 = sure.unwrap_or(self.sure.1);
    }

    /// What a request takes over what is expected, as surely as the SLA asks.
    pub(super) fn sure(&self) -> f64 {
        self.sure.1
    }

    /// How likely a request takes at most so many times what is expected.
    pub(super) fn of(&self, stretch: f64) -> f64 {
        let (mut value, mut share) = (0.0, 0.0);
        for (&next, &is) in self.quantiles.iter().zip(&SHARES) {
            if stretch < next {
                return share + (is - share) * ((stretch - value) / (next - value)).max(0.0);
            }
            (value, share) = (next, is);
        }
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_follow_what_was_seen() {
        let mut chances = Chances::new(Some(0.95));
        let first = chances.sure();
        assert!((1.9..2.1).contains(&first), "{first}");
        (0..1000).for_each(|i| chances.record(Timestamp::ZERO, f64::from(i) / 500.0, 1.0));
        chances.refresh(Timestamp::ZERO);
        assert!((chances.sure() - 1.9).abs() < 0.1);
        for share in [0.1, 0.3, 0.55, 0.9] {
            assert!((chances.of(2.0 * share) - share).abs() < 0.04, "{share}: {}", chances.of(2.0 * share));
        }
        assert_eq!((chances.of(-1.0), chances.of(9.0)), (0.0, 0.99));
    }
}
