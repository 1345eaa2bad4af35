//! Distributions as a file writes them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Distribution, Empirical, Kind};
use crate::seconds::{Seconds, parse_duration};

/// A distribution as written in a file. `Q` is how its quantity is written: a plain number, or [`Seconds`], which also
/// reads durations such as `"20ms"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "distribution", rename_all = "kebab-case", deny_unknown_fields)]
pub enum DistributionConfig<Q> {
    /// Always `value`.
    Constant {
        /// The value.
        value: Q,
    },
    /// Exponential with this mean.
    Exponential {
        /// Mean.
        mean: Q,
    },
    /// Evenly between `min` and `max`.
    Uniform {
        /// Smallest.
        min: Q,
        /// Largest.
        max: Q,
    },
    /// Lognormal, by its mean and coefficient of variation, or by `mu` and `sigma`.
    Lognormal {
        /// Mean; with `cv`.
        #[serde(skip_serializing_if = "Option::is_none", default = "Option::default")]
        mean: Option<Q>,
        /// Standard deviation divided by the mean.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        cv: Option<f64>,
        /// Mean of the natural logarithm; with `sigma`.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        mu: Option<f64>,
        /// Standard deviation of the natural logarithm.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        sigma: Option<f64>,
    },
    /// Pareto: many small, few large, most of the sum in the large ones.
    Pareto {
        /// Tail index; the smaller, the heavier the tail. 1 to 2 in measured Web traffic.
        shape: f64,
        /// Smallest.
        min: Q,
        /// Largest; without it the tail has no end, and at an index of 1 or less no mean.
        #[serde(skip_serializing_if = "Option::is_none", default = "Option::default")]
        max: Option<Q>,
    },
    /// Inverse Gaussian: how many pages a session has, how long something takes to reach a mark.
    InverseGaussian {
        /// Mean.
        mean: Q,
        /// Shape, lambda: the variance is mean^3 / shape.
        shape: Q,
    },
    /// Zipf's law: rank 1 to `count`, the probability of rank r falling as r^-exponent.
    Zipf {
        /// Ranks.
        count: u64,
        /// How steeply popularity falls: 0 evenly, about 1 for Web pages.
        exponent: f64,
        /// The value of rank 1, rank r being r times as much; 1 when absent.
        #[serde(skip_serializing_if = "Option::is_none", default = "Option::default")]
        unit: Option<Q>,
    },
    /// `short`, and now and then `long`.
    Bimodal {
        /// The usual value.
        short: Q,
        /// The rare value.
        long: Q,
        /// How rare: the fraction, 0 to 1, that is long.
        long_fraction: f64,
    },
    /// Lognormal up to `cut`, Pareto beyond it.
    LognormalPareto {
        /// Mean of the body's natural logarithm.
        mu: f64,
        /// Standard deviation of the body's natural logarithm.
        sigma: f64,
        /// Where the tail begins.
        cut: Q,
        /// The tail's index.
        shape: f64,
    },
    /// Measured values, drawn again.
    Empirical {
        /// The values; or give `file`.
        #[serde(skip_serializing_if = "Vec::is_empty", default = "Vec::new")]
        values: Vec<Q>,
        /// How likely each is, in any unit; all equally when absent.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        weights: Vec<f64>,
        /// A file with one value a line; a relative path begins at the working directory.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        file: Option<PathBuf>,
    },
}

/// Parameters that make no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DistributionError {
    /// A value out of its range.
    #[error("`{key}` is {value}, but must be {must}")]
    Value {
        /// The key at fault, as written in configuration.
        key: &'static str,
        /// Its value; seconds where it is a duration.
        value: f64,
        /// What it must be instead.
        must: &'static str,
    },
    /// Something is not there.
    #[error("`{key}` is missing; give {must}")]
    Missing {
        /// Name of the setting.
        key: &'static str,
        /// What the value must be.
        must: &'static str,
    },
    /// A file of values cannot be read.
    #[error("{file}{}: {problem}", if *line == 0 { String::new() } else { format!(":{line}") })]
    File {
        /// Name of the file.
        file: String,
        /// The line at fault; 0 for the file as a whole.
        line: usize,
        /// The mistake in the file.
        problem: String,
    },
}

impl DistributionError {
    /// The key at fault; `file` when a file is.
    pub fn key(&self) -> &'static str {
        match self {
            DistributionError::Value { key, .. } | DistributionError::Missing { key, .. } => key,
            DistributionError::File { .. } => "file",
        }
    }
}

/// How a quantity is written.
pub trait Quantity: Copy {
    /// The quantity of this number of units.
    fn from_number(number: f64) -> Self;
    /// Its number of units.
    fn number(self) -> f64;
    /// Reads a line of a file.
    fn read(text: &str) -> Option<f64>;
}

impl Quantity for f64 {
    fn from_number(number: f64) -> f64 {
        number
    }

    fn number(self) -> f64 {
        self
    }

    fn read(text: &str) -> Option<f64> {
        text.parse().ok()
    }
}

impl Quantity for Seconds {
    fn from_number(number: f64) -> Seconds {
        Seconds(number)
    }

    fn number(self) -> f64 {
        self.0
    }

    fn read(text: &str) -> Option<f64> {
        text.parse().ok().or_else(|| parse_duration(text).ok().map(|duration| duration.as_secs_f64()))
    }
}

impl TryFrom<DistributionConfig<f64>> for Distribution {
    type Error = DistributionError;

    fn try_from(config: DistributionConfig<f64>) -> Result<Distribution, DistributionError> {
        config.resolve()
    }
}

impl From<Distribution> for DistributionConfig<f64> {
    fn from(distribution: Distribution) -> DistributionConfig<f64> {
        DistributionConfig::of(distribution)
    }
}

impl<Q: Quantity> DistributionConfig<Q> {
    /// What was written, checked.
    pub(crate) fn resolve(self) -> Result<Distribution, DistributionError> {
        match self {
            DistributionConfig::Constant { value } => Distribution::constant(value.number()),
            DistributionConfig::Exponential { mean } => Distribution::exponential(mean.number()),
            DistributionConfig::Uniform { min, max } => Distribution::uniform(min.number(), max.number()),
            DistributionConfig::Lognormal { mean, cv, mu, sigma } => match (mean, cv, mu, sigma) {
                (Some(mean), Some(cv), None, None) => Distribution::lognormal(mean.number(), cv),
                (None, None, Some(mu), Some(sigma)) => Distribution::lognormal_log(mu, sigma),
                _ => Err(DistributionError::Missing { key: "mean", must: "`mean` and `cv`, or `mu` and `sigma`" }),
            },
            DistributionConfig::Pareto { shape, min, max: Some(max) } => {
                Distribution::bounded_pareto(shape, min.number(), max.number())
            }
            DistributionConfig::Pareto { shape, min, max: None } => Distribution::pareto(shape, min.number()),
            DistributionConfig::InverseGaussian { mean, shape } => {
                Distribution::inverse_gaussian(mean.number(), shape.number())
            }
            DistributionConfig::Zipf { count, exponent, unit } => {
                Distribution::zipf_of(count as f64, exponent, unit.map_or(1.0, Q::number))
            }
            DistributionConfig::Bimodal { short, long, long_fraction } => {
                Distribution::bimodal(short.number(), long.number(), long_fraction)
            }
            DistributionConfig::LognormalPareto { mu, sigma, cut, shape } => {
                Distribution::lognormal_pareto(mu, sigma, cut.number(), shape)
            }
            DistributionConfig::Empirical { values, weights, file } => {
                let values = match file {
                    Some(file) if values.is_empty() => Empirical::read(&file, Q::read)?,
                    Some(_) => return Err(DistributionError::Missing { key: "file", must: "either it or `values`" }),
                    None => values.into_iter().map(Q::number).collect(),
                };
                let weights = (!weights.is_empty()).then_some(weights);
                Empirical::new(values, weights).map(|table| Distribution(Kind::Empirical(table)))
            }
        }
    }

    /// The form that resolves to `distribution`.
    pub(crate) fn of(distribution: Distribution) -> Self {
        let q = Q::from_number;
        match distribution.0 {
            Kind::Constant { value } => DistributionConfig::Constant { value: q(value) },
            Kind::Exponential { mean } => DistributionConfig::Exponential { mean: q(mean) },
            Kind::Uniform { min, max } => DistributionConfig::Uniform { min: q(min), max: q(max) },
            Kind::Lognormal { mean, cv, .. } => {
                DistributionConfig::Lognormal { mean: Some(q(mean)), cv: Some(cv), mu: None, sigma: None }
            }
            Kind::Pareto { shape, min, max } => {
                DistributionConfig::Pareto { shape, min: q(min), max: max.is_finite().then(|| q(max)) }
            }
            Kind::InverseGaussian { mean, shape, .. } => {
                DistributionConfig::InverseGaussian { mean: q(mean), shape: q(shape) }
            }
            Kind::Zipf { count, exponent, unit, .. } => {
                DistributionConfig::Zipf { count: count as u64, exponent, unit: (unit != 1.0).then(|| q(unit)) }
            }
            Kind::Bimodal { short, long, long_fraction } => {
                DistributionConfig::Bimodal { short: q(short), long: q(long), long_fraction }
            }
            Kind::LognormalPareto { mu, sigma, cut, shape } => {
                DistributionConfig::LognormalPareto { mu, sigma, cut: q(cut), shape }
            }
            Kind::Empirical(table) => {
                let (values, weights) = table.parts();
                DistributionConfig::Empirical { values: values.into_iter().map(q).collect(), weights, file: None }
            }
        }
    }
}

impl Distribution {
    /// The index of its Pareto tail, where it has one without end.
    pub(crate) fn tail_index(&self) -> Option<f64> {
        match self.0 {
            Kind::Pareto { shape, max: f64::INFINITY, .. } | Kind::LognormalPareto { shape, .. } => Some(shape),
            _ => None,
        }
    }
}

pub(super) fn positive(key: &'static str, value: f64) -> Result<f64, DistributionError> {
    check(key, value, value > 0.0, "a finite number above 0")
}

pub(super) fn not_negative(key: &'static str, value: f64) -> Result<f64, DistributionError> {
    check(key, value, value >= 0.0, "a finite number, 0 or more")
}

pub(super) fn check(key: &'static str, value: f64, good: bool, must: &'static str) -> Result<f64, DistributionError> {
    if good && value.is_finite() { Ok(value) } else { Err(DistributionError::Value { key, value, must }) }
}
