//! The settings of a response-time controller.

use serde::{Deserialize, Serialize};

use crate::setup::{SetupError, SetupPlace};
use crate::units::{Seconds, per_second};

/// Settings of one [`super::Controller`]. The defaults are those of Welsh and Culler (2003), figure 4; the names behind
/// the units are theirs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Parameters {
    /// The controller runs after so many completions of a class (n_req), 1 to 100,000.
    pub samples: u32,
    /// It also runs when this time went by since the last run.
    pub timeout: Seconds,
    /// How much of the old estimate a run keeps (alpha), 0 to less than 1.
    pub smoothing: f64,
    /// Which percentile of the response times the target bounds, more than 0 and at most 1.
    pub percentile: f64,
    /// The rate is raised when the relative error `(percentile - target) / target` is below this (err_i), -1 to 0.
    pub raise_below: f64,
    /// The rate is lowered when the relative error is above this (err_d), at least `raise_below`.
    pub lower_above: f64,
    /// Step of a raise per unit of relative error, requests per second (adj_i).
    pub raise_by: f64,
    /// What lowering divides the rate by (adj_d), more than 1.
    pub lower_by: f64,
    /// Subtracted from a raise's error (c_i): the step is `raise_by * (raise_offset - error)`.
    pub raise_offset: f64,
    /// Whether the rate is raised even when less than half of it is asked for. In the paper it is: then what the rate
    /// has risen to in quiet times is what a spike finds, and `max_rate` must be set to what the service can do.
    pub raise_unused: bool,
    /// Whether the estimate is forgotten after ten runs in a row without a sample, and the rate starts anew after ten
    /// without a request. In the paper neither is: an overload is remembered until requests of that type come again.
    pub forgets: bool,
    /// Whether the largest rate, the rate at the start and the reaction follow from what the service was seen to do,
    /// where the paper has numbers set by hand: the rate is at most twice the highest rate of answers so far, comes
    /// down at once below what is answered when that is late, and rises in steps in proportion to what was answered.
    /// `max_rate` and `initial_rate` are bounds then, and `raise_unused` says nothing.
    pub derived: bool,
    /// How many requests the bucket lets through at once, 1 or more.
    pub depth: f64,
    /// The rate at the start, requests per second.
    #[serde(with = "per_second")]
    pub initial_rate: f64,
    /// Least rate, requests per second, more than 0.
    #[serde(with = "per_second")]
    pub min_rate: f64,
    /// Largest rate, requests per second.
    #[serde(with = "per_second")]
    pub max_rate: f64,
    /// What a class over its target divides the rates of less important classes by (adj_lo_d), more than 1.
    pub lower_others_by: f64,
    /// A class over its target whose less important classes are all at the least rate already waits so many runs before
    /// its own rate is lowered (lag_hi).
    pub lag: u32,
    /// Lower the rate of a class over its target at every run, as the public implementation does, and not only when
    /// less important classes have nothing left to give, as the paper has it.
    pub lower_own_always: bool,
    /// Answer more cheaply before refusing. `None`: quality stays 1.
    pub quality: Option<QualityParameters>,
}

/// How quality follows the response time (Welsh and Culler, sections 3.4 and 4.6).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct QualityParameters {
    /// Least quality, 0.01 to 1.
    pub min: f64,
    /// What a run over the target divides the quality by, more than 1.
    pub lower_by: f64,
    /// What a run under the target adds to it, more than 0.
    pub raise_by: f64,
    /// It is raised when the relative error is below this, -1 to 0.
    pub raise_below: f64,
    /// At the least quality and still over the target, admission control switches on. Without it nobody is refused.
    pub then_police: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            samples: 100,
            timeout: Seconds(1.0),
            smoothing: 0.7,
            percentile: 0.9,
            raise_below: -0.5,
            lower_above: 0.0,
            raise_by: 2.0,
            lower_by: 1.2,
            raise_offset: -0.1,
            raise_unused: true,
            forgets: true,
            derived: false,
            depth: 1.0,
            initial_rate: 100.0,
            min_rate: 0.05,
            max_rate: 5000.0,
            lower_others_by: 10.0,
            lag: 20,
            lower_own_always: false,
            quality: None,
        }
    }
}

impl Default for QualityParameters {
    fn default() -> Self {
        QualityParameters { min: 0.1, lower_by: 1.2, raise_by: 0.02, raise_below: 0.0, then_police: true }
    }
}

impl Parameters {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`SetupError::Wrong`] with the first key that is out of range.
    pub fn check(&self) -> Result<(), SetupError> {
        wrong_unless((1..=100_000).contains(&self.samples), "samples", "must lie between 1 and 100000")?;
        let timeout = self.timeout.0;
        wrong_unless((0.001..=3600.0).contains(&timeout), "timeout", "must lie between 1ms and 1h")?;
        wrong_unless((0.0..1.0).contains(&self.smoothing), "smoothing", "must be at least 0 and less than 1")?;
        let percentile = self.percentile;
        wrong_unless(percentile > 0.0 && percentile <= 1.0, "percentile", "must be more than 0 and at most 1")?;
        wrong_unless((-1.0..=0.0).contains(&self.raise_below), "raise_below", "must lie between -1 and 0")?;
        let dead_band = self.lower_above.is_finite() && self.lower_above >= self.raise_below;
        wrong_unless(dead_band, "lower_above", "must be at least `raise_below`")?;
        let raise = self.raise_by.is_finite() && self.raise_by > 0.0;
        wrong_unless(raise, "raise_by", "must be more than 0")?;
        wrong_unless(is_divisor(self.lower_by), "lower_by", "must be more than 1")?;
        // Else a raise would lower.
        let offset = self.raise_offset.is_finite() && self.raise_offset >= self.raise_below;
        wrong_unless(offset, "raise_offset", "must be at least `raise_below`, so that a raise raises")?;
        wrong_unless((1.0..=1e6).contains(&self.depth), "depth", "must lie between 1 and 1000000")?;
        let (min, max) = (self.min_rate, self.max_rate);
        wrong_unless((1e-6..=1e9).contains(&min), "min_rate", "must be more than 0")?;
        wrong_unless((min..=1e9).contains(&max), "max_rate", "must be at least `min_rate`")?;
        let initial = (min..=max).contains(&self.initial_rate);
        wrong_unless(initial, "initial_rate", "must lie between `min_rate` and `max_rate`")?;
        wrong_unless(is_divisor(self.lower_others_by), "lower_others_by", "must be more than 1")?;
        self.quality.as_ref().map_or(Ok(()), QualityParameters::check)
    }
}

impl QualityParameters {
    fn check(&self) -> Result<(), SetupError> {
        // Dividing never leads to 0.
        wrong_unless((0.01..=1.0).contains(&self.min), "quality.min", "must lie between 0.01 and 1")?;
        wrong_unless(is_divisor(self.lower_by), "quality.lower_by", "must be more than 1")?;
        let raise = self.raise_by > 0.0 && self.raise_by <= 1.0;
        wrong_unless(raise, "quality.raise_by", "must be more than 0 and at most 1")?;
        wrong_unless((-1.0..=0.0).contains(&self.raise_below), "quality.raise_below", "must lie between -1 and 0")
    }
}

fn is_divisor(number: f64) -> bool {
    number.is_finite() && number > 1.0
}

pub(super) fn wrong_unless(holds: bool, key: &'static str, problem: &'static str) -> Result<(), SetupError> {
    if holds { Ok(()) } else { Err(SetupError::wrong(SetupPlace::ResponseTime, format_args!("{key} {problem}"))) }
}
