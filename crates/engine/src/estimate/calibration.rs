//! Calibration: the ratio of measured to expected cost, at the SLA's statistic.
//!
//! The admission test predicts a request's response time from its expected cost and from what is in service. An SLA
//! bounds a percentile. The gap between the two is measured here: for every answer, the ratio of what it received of
//! its server's processors to what it was expected to cost. The test then uses the ratio's own percentile. A service
//! whose answers vary little gets a factor near 1; one whose cost cannot be told from the URL gets a larger one, and so
//! fewer requests in flight. The same factor absorbs what the model gets wrong (a biased cost, too many processors).
//!
//! Not the ratio of response times to predictions made on arrival: that would also contain how the number in flight
//! changes afterwards, which the test bounds anyway. Counting it twice made the limit sink, the swings around it larger
//! in proportion, and so the limit sink further.

use super::histogram::{DecayedHistogram, KeptHistogram};
use crate::sla::Statistic;
use crate::time::Timestamp;

/// Ratios fade with this half-life, seconds.
const HALF_LIFE: f64 = 4.0;
/// Before anything is measured: the factor assumed, as strongly as this many samples.
const PRIOR: f64 = 1.5;
const PRIOR_WEIGHT: f64 = 20.0;
/// The factor's bounds. Below 1 only a little: a server that beats its prediction is left that as a reserve.
const LEAST: f64 = 0.9;
const MOST: f64 = 20.0;
/// So many times what was expected is no accident ...
pub(crate) const SEVERAL: f64 = 4.0;
/// ... nor so many spreads of costs at the SLA's statistic.
const SPREADS: f64 = 2.0;
/// How many times as often as the SLA permits on the whole a request may be late that is still worth its place.
pub const LIKELY: f64 = 3.0;

/// The share of requests that are called hardly any.
const HARDLY: f64 = 0.1;

/// The learned ratio of what requests take to what was expected.
#[derive(Debug)]
pub struct Calibration {
    statistic: Statistic,
    ratios: DecayedHistogram,
    factor: f64,
    likely: f64,
    median: f64,
    least: f64,
}

impl Calibration {
    /// A calibration without measurements.
    pub fn new(statistic: Statistic) -> Self {
        Calibration {
            statistic,
            ratios: DecayedHistogram::new(HALF_LIFE),
            factor: PRIOR,
            likely: PRIOR,
            median: 1.0,
            least: 0.0,
        }
    }

    /// Takes one answer: seconds received of the processors, and seconds expected.
    pub fn record(&mut self, now: Timestamp, received: f64, expected: f64) {
        if expected > 0.0 {
            self.ratios.record(now, received / expected);
        }
    }

    /// Brings [`Calibration::factor`] up to date.
    pub fn refresh(&mut self, now: Timestamp) {
        let weight = self.ratios.weight(now);
        let blend = |measured: Option<f64>| {
            let sum = measured.unwrap_or(PRIOR) * weight + PRIOR * PRIOR_WEIGHT;
            (sum / (weight + PRIOR_WEIGHT)).clamp(LEAST, MOST)
        };
        let bare = |measured: Option<f64>, prior: f64| {
            ((measured.unwrap_or(prior) * weight + prior * PRIOR_WEIGHT) / (weight + PRIOR_WEIGHT)).min(MOST)
        };
        let quantile = self.statistic.quantile();
        let own = quantile.unwrap_or(0.5);
        let shares = [0.5, HARDLY, own, 1.0 - LIKELY * (1.0 - own)];
        let [median, least, sure, likely] = self.ratios.quantiles(shares);
        (self.median, self.least) = (bare(median, 1.0), bare(least, 0.0));
        if quantile.is_none() {
            self.factor = blend(self.ratios.mean());
            self.likely = self.factor;
            return;
        }
        self.factor = blend(sure);
        self.likely = blend(likely).min(self.factor);
    }

    /// The ratios that there are to keep.
    pub(crate) fn keep(&self, now: Timestamp) -> KeptHistogram {
        self.ratios.keep(now)
    }

    /// Begins with ratios that were seen elsewhere.
    pub(crate) fn recall(&mut self, now: Timestamp, kept: &KeptHistogram) {
        self.ratios.recall(now, kept);
        self.refresh(now);
    }

    /// What an expected cost must be multiplied by to bound the SLA's statistic.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// The ratio from which on it is no accident that a request receives so much more than was expected.
    pub fn no_accident(&self) -> f64 {
        SEVERAL.max(SPREADS * self.factor)
    }

    /// The ratio that half the requests stay below.
    pub fn median(&self) -> f64 {
        self.median
    }

    /// The ratio that hardly a request stays below: one in ten. 0 while little is measured.
    pub fn least(&self) -> f64 {
        self.least
    }

    /// The same as [`Calibration::factor`] for a request that may be late [`LIKELY`] times as often as the SLA permits
    /// on the whole, and at most that; where the SLA bounds the mean, it is the factor.
    pub fn likely(&self) -> f64 {
        self.likely
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn the_factor_is_the_ratios_percentile() {
        let mut calibration = Calibration::new(Statistic::P95);
        let mut rng = Rng::new(5);
        for i in 0..5000 {
            let ratio = -libm::log(1.0 - rng.next_f64());
            calibration.record(Timestamp::from_millis(i), 0.1 * ratio, 0.1);
        }
        calibration.refresh(Timestamp::from_millis(5000));
        let exact = -libm::log(0.05);
        assert!((calibration.factor() / exact - 1.0).abs() < 0.15, "{} for {exact}", calibration.factor());
        let likely = -libm::log(0.15);
        assert!((calibration.likely() / likely - 1.0).abs() < 0.15, "{} for {likely}", calibration.likely());
    }

    #[test]
    fn starts_careful_and_stays_within_bounds() {
        let mut calibration = Calibration::new(Statistic::Mean);
        calibration.refresh(Timestamp::ZERO);
        assert_eq!(calibration.factor(), PRIOR);
        (0..10_000).for_each(|_| calibration.record(Timestamp::ZERO, 1e6, 1e-3));
        calibration.refresh(Timestamp::ZERO);
        assert_eq!(calibration.factor(), MOST);
        calibration.record(Timestamp::ZERO, 1.0, 0.0);
    }
}
