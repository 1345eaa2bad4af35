//! Empirical distribution: draws from measured values.

use std::path::Path;

use rand::{Rng as RngCore, RngExt};

use super::config::DistributionError;
use crate::intern::Pool;

/// A table of measured values.
#[derive(Debug, PartialEq)]
pub struct Empirical {
    /// Growing; equal ones are joined when they have weights.
    values: Vec<f64>,
    /// Cumulated weight up to and with each value, the last 1; empty when all are equally likely.
    cumulated: Vec<f64>,
    mean: f64,
    variance: f64,
}

static TABLES: Pool<Empirical> = Pool::new();

/// Values at most in a table: what is read from a file must have some bound.
const MOST: usize = 10_000_000;

impl Empirical {
    /// The table of these values.
    pub(super) fn new(values: Vec<f64>, weights: Option<Vec<f64>>) -> Result<&'static Empirical, DistributionError> {
        let value_error = |key, value, must| DistributionError::Value { key, value, must };
        if values.is_empty() {
            return Err(DistributionError::Missing { key: "values", must: "at least one value, or a `file` of them" });
        }
        if let Some(&bad) = values.iter().find(|value| !(value.is_finite() && **value >= 0.0)) {
            return Err(value_error("values", bad, "finite numbers, 0 or more"));
        }
        let Some(weights) = weights else { return Ok(TABLES.keep(Empirical::even(values))) };
        if weights.len() != values.len() {
            return Err(value_error("weights", weights.len() as f64, "as many as there are values"));
        }
        if let Some(&bad) = weights.iter().find(|weight| !(weight.is_finite() && **weight >= 0.0)) {
            return Err(value_error("weights", bad, "finite numbers, 0 or more"));
        }
        let sum: f64 = weights.iter().sum();
        if !(sum.is_finite() && sum > 0.0) {
            return Err(value_error("weights", sum, "of a sum above 0"));
        }
        Ok(TABLES.keep(Empirical::uneven(values, &weights, sum)))
    }

    /// The values of a file: one number a line; empty lines and lines that begin with `#` are passed over.
    pub(super) fn read(file: &Path, number: impl Fn(&str) -> Option<f64>) -> Result<Vec<f64>, DistributionError> {
        let error =
            |line: usize, problem: String| DistributionError::File { file: file.display().to_string(), line, problem };
        let text = std::fs::read_to_string(file).map_err(|e| error(0, format!("cannot be read: {e}")))?;
        let mut values = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let value = number(line).filter(|value| value.is_finite() && *value >= 0.0);
            values.push(value.ok_or_else(|| error(at + 1, format!("{line:?} is not a number, 0 or more")))?);
            if values.len() > MOST {
                return Err(error(at + 1, format!("more than {MOST} values: take a sample of them")));
            }
        }
        Ok(values)
    }

    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    pub(super) fn variance(&self) -> f64 {
        self.variance
    }

    pub(super) fn sample<R: RngCore + ?Sized>(&self, rng: &mut R) -> f64 {
        if self.cumulated.is_empty() {
            return self.values[rng.random_range(0..self.values.len())];
        }
        let drawn: f64 = rng.random();
        let at = self.cumulated.partition_point(|cumulated| *cumulated <= drawn);
        self.values[at.min(self.values.len() - 1)]
    }

    pub(super) fn cdf(&self, x: f64) -> f64 {
        let below = self.values.partition_point(|value| *value <= x);
        match (below, self.cumulated.is_empty()) {
            (0, _) => 0.0,
            (_, true) => below as f64 / self.values.len() as f64,
            (_, false) => self.cumulated[below - 1],
        }
    }

    /// The values and, unless all are equally likely, their shares.
    pub(super) fn parts(&self) -> (Vec<f64>, Vec<f64>) {
        let mut before = 0.0;
        let share = |cumulated: &f64| *cumulated - std::mem::replace(&mut before, *cumulated);
        (self.values.clone(), self.cumulated.iter().map(share).collect())
    }

    fn even(mut values: Vec<f64>) -> Empirical {
        values.sort_by(f64::total_cmp);
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        Empirical { values, cumulated: Vec::new(), mean, variance }
    }

    fn uneven(values: Vec<f64>, weights: &[f64], sum: f64) -> Empirical {
        let mut pairs: Vec<(f64, f64)> =
            values.into_iter().zip(weights).map(|(value, weight)| (value, weight / sum)).collect();
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        pairs.retain(|pair| pair.1 > 0.0);
        let mean = pairs.iter().map(|(value, share)| value * share).sum::<f64>();
        let variance = pairs.iter().map(|(value, share)| (value - mean).powi(2) * share).sum::<f64>();
        let mut reached = 0.0;
        let mut cumulated: Vec<f64> = pairs.iter().map(|(_, share)| cumulate(&mut reached, *share)).collect();
        if let Some(last) = cumulated.last_mut() {
            *last = 1.0;
        }
        Empirical { values: pairs.into_iter().map(|(value, _)| value).collect(), cumulated, mean, variance }
    }
}

fn cumulate(reached: &mut f64, share: f64) -> f64 {
    *reached += share;
    *reached
}
