//! Distributions of what varies from request to request: sizes, service times, gaps, popularity.
//!
//! Each knows its mean, its variance and its distribution function, so that a sample can be held against what it was
//! drawn from, and a trace against what it is said to follow. Parameters are those of the literature: S. M. Ross,
//! *Simulation*, for the usual ones; P. Barford and M. Crovella, *Generating representative Web workloads* (1998), for
//! the lognormal body with a Pareto tail.

use rand::{Rng as RngCore, RngExt};
use rand_distr::{Distribution as _, Exp1, InverseGaussian, LogNormal, Zipf};
use serde::{Deserialize, Serialize};

mod config;
mod density;
mod empirical;
mod moments;
mod numeric;

pub use config::{DistributionConfig, DistributionError};
pub use empirical::Empirical;
pub(crate) use numeric::{harmonic, normal_cdf};

use config::{check, not_negative, positive};

/// A distribution over the numbers that are not negative, known to make sense.
///
/// Deserialised from [`DistributionConfig`], for example in TOML
/// `{ distribution = "pareto", shape = 1.4, min = 1 }`. Copies are cheap: measured values are kept once for the life of
/// the program.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "DistributionConfig<f64>", into = "DistributionConfig<f64>")]
pub struct Distribution(Kind);

/// The parameters, checked.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Constant {
        value: f64,
    },
    Exponential {
        mean: f64,
    },
    Uniform {
        min: f64,
        max: f64,
    },
    Lognormal {
        mean: f64,
        cv: f64,
        law: LogNormal<f64>,
    },
    /// `max` is infinite for one without an upper end.
    Pareto {
        shape: f64,
        min: f64,
        max: f64,
    },
    InverseGaussian {
        mean: f64,
        shape: f64,
        law: InverseGaussian<f64>,
    },
    Zipf {
        count: f64,
        exponent: f64,
        unit: f64,
        law: Zipf<f64>,
    },
    Bimodal {
        short: f64,
        long: f64,
        long_fraction: f64,
    },
    LognormalPareto {
        mu: f64,
        sigma: f64,
        cut: f64,
        shape: f64,
    },
    Empirical(&'static Empirical),
}

impl Distribution {
    /// Always `value`.
    ///
    /// # Errors
    /// When `value` is negative or not finite.
    pub fn constant(value: f64) -> Result<Self, DistributionError> {
        Ok(Distribution(Kind::Constant { value: not_negative("value", value)? }))
    }

    /// Exponential with this mean.
    ///
    /// # Errors
    /// When `mean` is not a finite number above 0.
    pub fn exponential(mean: f64) -> Result<Self, DistributionError> {
        Ok(Distribution(Kind::Exponential { mean: positive("mean", mean)? }))
    }

    /// Evenly between `min` and `max`.
    ///
    /// # Errors
    /// When `min` is negative or `max` is below it.
    pub fn uniform(min: f64, max: f64) -> Result<Self, DistributionError> {
        let min = not_negative("min", min)?;
        Ok(Distribution(Kind::Uniform { min, max: check("max", max, max >= min, "finite and not below `min`")? }))
    }

    /// Lognormal with this mean and coefficient of variation (standard deviation over mean).
    ///
    /// # Errors
    /// When `mean` or `cv` is not a finite number above 0, or `cv` is too large for a finite variance.
    pub fn lognormal(mean: f64, cv: f64) -> Result<Self, DistributionError> {
        let (mean, cv) = (positive("mean", mean)?, positive("cv", cv)?);
        let error = DistributionError::Value { key: "cv", value: cv, must: "small enough for a finite variance" };
        let law = LogNormal::from_mean_cv(mean, cv).map_err(|_| error)?;
        Ok(Distribution(Kind::Lognormal { mean, cv, law }))
    }

    /// Lognormal by mean and standard deviation of the logarithm, as the literature has it.
    ///
    /// # Errors
    /// When `mu` is not finite, `sigma` is not a finite number above 0, or the variance would not be finite.
    pub fn lognormal_log(mu: f64, sigma: f64) -> Result<Self, DistributionError> {
        let (mu, sigma) = (check("mu", mu, true, "finite")?, positive("sigma", sigma)?);
        let variance = sigma * sigma;
        let finite = (2.0 * mu + 2.0 * variance).exp().is_finite();
        check("sigma", sigma, finite, "small enough for a finite variance")?;
        Distribution::lognormal((mu + variance / 2.0).exp(), variance.exp_m1().sqrt())
    }

    /// Pareto of tail index `shape` from `min` up, without an upper end: `P(X > x) = (min / x)^shape`.
    ///
    /// # Errors
    /// When `shape` or `min` is not a finite number above 0.
    pub fn pareto(shape: f64, min: f64) -> Result<Self, DistributionError> {
        let (shape, min) = (positive("shape", shape)?, positive("min", min)?);
        Ok(Distribution(Kind::Pareto { shape, min, max: f64::INFINITY }))
    }

    /// Pareto of tail index `shape`, cut off at `min` and `max` (what lies outside is drawn again).
    ///
    /// # Errors
    /// When `shape` or `min` is not a finite number above 0, or `max` is not above `min`.
    pub fn bounded_pareto(shape: f64, min: f64, max: f64) -> Result<Self, DistributionError> {
        let (shape, min) = (positive("shape", shape)?, positive("min", min)?);
        let max = check("max", max, max > min, "a finite number above `min`")?;
        Ok(Distribution(Kind::Pareto { shape, min, max }))
    }

    /// Inverse Gaussian of this mean and shape (lambda): the variance is `mean^3 / shape`.
    ///
    /// # Errors
    /// When `mean` or `shape` is not a finite number above 0.
    pub fn inverse_gaussian(mean: f64, shape: f64) -> Result<Self, DistributionError> {
        let (mean, shape) = (positive("mean", mean)?, positive("shape", shape)?);
        let error = DistributionError::Value { key: "shape", value: shape, must: "a finite number above 0" };
        let law = InverseGaussian::new(mean, shape).map_err(|_| error)?;
        Ok(Distribution(Kind::InverseGaussian { mean, shape, law }))
    }

    /// Zipf's law: rank 1 to `count`, rank r with a probability that falls as `r^-exponent`. The value is the rank.
    ///
    /// # Errors
    /// When `count` is 0 or above 2^53, or `exponent` is negative or not finite.
    pub fn zipf(count: u64, exponent: f64) -> Result<Self, DistributionError> {
        Distribution::zipf_of(count as f64, exponent, 1.0)
    }

    /// One of the `values`, all equally likely: what was measured, drawn again.
    ///
    /// # Errors
    /// When there are none, or one is negative or not finite.
    pub fn empirical(values: Vec<f64>) -> Result<Self, DistributionError> {
        Ok(Distribution(Kind::Empirical(Empirical::new(values, None)?)))
    }

    /// One of the `values`, each as likely as its weight says.
    ///
    /// # Errors
    /// When there are none, one is negative or not finite, or the weights are not one for each with a positive sum.
    pub fn weighted(values: Vec<f64>, weights: Vec<f64>) -> Result<Self, DistributionError> {
        Ok(Distribution(Kind::Empirical(Empirical::new(values, Some(weights))?)))
    }

    /// `short`, and with probability `long_fraction` `long`.
    ///
    /// # Errors
    /// When a value is negative, `long` is below `short`, or the fraction is outside 0 to 1.
    pub fn bimodal(short: f64, long: f64, long_fraction: f64) -> Result<Self, DistributionError> {
        let short = not_negative("short", short)?;
        let long = check("long", long, long >= short, "finite and not below `short`")?;
        let inside = (0.0..=1.0).contains(&long_fraction);
        let long_fraction = check("long_fraction", long_fraction, inside, "from 0 to 1")?;
        Ok(Distribution(Kind::Bimodal { short, long, long_fraction }))
    }

    /// Lognormal up to `cut`; what would lie above it is Pareto of tail index `shape` from `cut` up. The size of Web
    /// pages in the SURGE model.
    ///
    /// # Errors
    /// When a parameter but `mu` is not a finite number above 0, or `mu` is not finite.
    pub fn lognormal_pareto(mu: f64, sigma: f64, cut: f64, shape: f64) -> Result<Self, DistributionError> {
        let mu = check("mu", mu, true, "finite")?;
        let (sigma, cut) = (positive("sigma", sigma)?, positive("cut", cut)?);
        Ok(Distribution(Kind::LognormalPareto { mu, sigma, cut, shape: positive("shape", shape)? }))
    }

    /// Draws a value from the distribution.
    pub fn sample<R: RngCore + ?Sized>(&self, rng: &mut R) -> f64 {
        match self.0 {
            Kind::Constant { value } => value,
            Kind::Exponential { mean } => {
                let unit: f64 = Exp1.sample(rng);
                mean * unit
            }
            Kind::Uniform { min, max } => min + (max - min) * rng.random::<f64>(),
            Kind::Lognormal { law, .. } => law.sample(rng),
            Kind::Pareto { shape, min, max } => {
                let kept = 1.0 - (min / max).powf(shape);
                // The bound keeps what rounding or a very heavy tail makes infinite a number.
                (min * (1.0 - rng.random::<f64>() * kept).powf(-1.0 / shape)).min(max).min(f64::MAX)
            }
            Kind::InverseGaussian { law, .. } => law.sample(rng),
            Kind::Zipf { law, unit, .. } => law.sample(rng) * unit,
            Kind::Bimodal { short, long, long_fraction } => {
                if rng.random::<f64>() < long_fraction {
                    long
                } else {
                    short
                }
            }
            Kind::LognormalPareto { mu, sigma, cut, shape } => {
                let body = LogNormal::new(mu, sigma).map_or(cut, |law| law.sample(rng));
                if body <= cut {
                    return body;
                }
                (cut * (1.0 - rng.random::<f64>()).powf(-1.0 / shape)).min(f64::MAX)
            }
            Kind::Empirical(table) => table.sample(rng),
        }
    }

    /// The same in other units: every value times `factor`.
    ///
    /// # Errors
    /// When `factor` is not a finite number above 0, or a parameter would leave its range.
    pub fn scaled(&self, factor: f64) -> Result<Self, DistributionError> {
        let factor = positive("factor", factor)?;
        match self.0 {
            Kind::Constant { value } => Distribution::constant(value * factor),
            Kind::Exponential { mean } => Distribution::exponential(mean * factor),
            Kind::Uniform { min, max } => Distribution::uniform(min * factor, max * factor),
            Kind::Lognormal { mean, cv, .. } => Distribution::lognormal(mean * factor, cv),
            Kind::Pareto { shape, min, max } if max.is_infinite() => Distribution::pareto(shape, min * factor),
            Kind::Pareto { shape, min, max } => Distribution::bounded_pareto(shape, min * factor, max * factor),
            Kind::InverseGaussian { mean, shape, .. } => Distribution::inverse_gaussian(mean * factor, shape * factor),
            Kind::Zipf { count, exponent, unit, .. } => Distribution::zipf_of(count, exponent, unit * factor),
            Kind::Bimodal { short, long, long_fraction } => {
                Distribution::bimodal(short * factor, long * factor, long_fraction)
            }
            Kind::LognormalPareto { mu, sigma, cut, shape } => {
                Distribution::lognormal_pareto(mu + factor.ln(), sigma, cut * factor, shape)
            }
            Kind::Empirical(table) => {
                let (values, weights) = table.parts();
                let values = values.into_iter().map(|value| value * factor).collect();
                let weights = (!weights.is_empty()).then_some(weights);
                Ok(Distribution(Kind::Empirical(Empirical::new(values, weights)?)))
            }
        }
    }

    /// The name used in configuration.
    pub fn name(&self) -> &'static str {
        match self.0 {
            Kind::Constant { .. } => "constant",
            Kind::Exponential { .. } => "exponential",
            Kind::Uniform { .. } => "uniform",
            Kind::Lognormal { .. } => "lognormal",
            Kind::Pareto { .. } => "pareto",
            Kind::InverseGaussian { .. } => "inverse-gaussian",
            Kind::Zipf { .. } => "zipf",
            Kind::Bimodal { .. } => "bimodal",
            Kind::LognormalPareto { .. } => "lognormal-pareto",
            Kind::Empirical(_) => "empirical",
        }
    }

    fn zipf_of(count: f64, exponent: f64, unit: f64) -> Result<Self, DistributionError> {
        let fits = (1.0..=(1u64 << 53) as f64).contains(&count) && count.fract() == 0.0;
        let count = check("count", count, fits, "a whole number from 1 to 2^53")?;
        let exponent = not_negative("exponent", exponent)?;
        let error = DistributionError::Value { key: "exponent", value: exponent, must: "a finite number, 0 or more" };
        let law = Zipf::new(count, exponent).map_err(|_| error)?;
        Ok(Distribution(Kind::Zipf { count, exponent, unit: positive("unit", unit)?, law }))
    }
}

#[cfg(test)]
mod tests;
