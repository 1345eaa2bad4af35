//! Cumulative distribution functions and densities of the distributions.

use std::f64::consts::TAU;

use super::numeric::ln_normal_cdf;
use super::{Distribution, Kind, harmonic, normal_cdf};

impl Distribution {
    /// Cumulative distribution function, `P(X <= x)`.
    pub fn cdf(&self, x: f64) -> f64 {
        match self.0 {
            Kind::Constant { value } => step(x, value),
            Kind::Exponential { mean } => -(-x.max(0.0) / mean).exp_m1(),
            Kind::Uniform { min, max } if min == max => step(x, min),
            Kind::Uniform { min, max } => ((x - min) / (max - min)).clamp(0.0, 1.0),
            Kind::Lognormal { mean, cv, .. } => {
                let (mu, sigma) = logarithmic(mean, cv);
                lognormal_cdf(x, mu, sigma)
            }
            Kind::Pareto { min, .. } if x <= min => 0.0,
            Kind::Pareto { max, .. } if x >= max => 1.0,
            Kind::Pareto { shape, min, max } => (1.0 - (min / x).powf(shape)) / (1.0 - (min / max).powf(shape)),
            Kind::InverseGaussian { mean, shape, .. } => inverse_gaussian_cdf(x, mean, shape),
            Kind::Zipf { count, exponent, unit, .. } => {
                // A value is a rank times the unit: the product must find its rank again.
                let rank = (x / unit * (1.0 + 1e-12)).floor().clamp(0.0, count);
                harmonic(rank, exponent) / harmonic(count, exponent)
            }
            Kind::Bimodal { short, long, long_fraction } => {
                (1.0 - long_fraction) * step(x, short) + long_fraction * step(x, long)
            }
            Kind::LognormalPareto { mu, sigma, cut, .. } if x <= cut => lognormal_cdf(x, mu, sigma),
            Kind::LognormalPareto { mu, sigma, cut, shape } => {
                1.0 - (1.0 - lognormal_cdf(cut, mu, sigma)) * (cut / x).powf(shape)
            }
            Kind::Empirical(table) => table.cdf(x),
        }
    }

    /// Logarithm of the density at `x`, minus infinity where it is 0; `None` for a distribution that has no density.
    pub fn ln_density(&self, x: f64) -> Option<f64> {
        let inside = |inside: bool, density: f64| Some(if inside { density } else { f64::NEG_INFINITY });
        match self.0 {
            Kind::Exponential { mean } => inside(x >= 0.0, -mean.ln() - x / mean),
            Kind::Uniform { min, max } if min < max => inside(min <= x && x <= max, -(max - min).ln()),
            Kind::Lognormal { mean, cv, .. } => {
                let (mu, sigma) = logarithmic(mean, cv);
                inside(x > 0.0, ln_lognormal_density(x, mu, sigma))
            }
            Kind::Pareto { shape, min, max } => {
                let kept = -(min / max).powf(shape);
                let density = shape.ln() + shape * min.ln() - (shape + 1.0) * x.ln() - kept.ln_1p();
                inside(min <= x && x <= max, density)
            }
            Kind::InverseGaussian { mean, shape, .. } => {
                let distance = shape * (x - mean).powi(2) / (2.0 * mean * mean * x);
                inside(x > 0.0, 0.5 * (shape / (TAU * x.powi(3))).ln() - distance)
            }
            Kind::LognormalPareto { mu, sigma, cut, .. } if x <= cut => {
                inside(x > 0.0, ln_lognormal_density(x, mu, sigma))
            }
            Kind::LognormalPareto { mu, sigma, cut, shape } => {
                let tail = (1.0 - lognormal_cdf(cut, mu, sigma)).ln();
                Some(tail + shape.ln() + shape * cut.ln() - (shape + 1.0) * x.ln())
            }
            _ => None,
        }
    }
}

/// Mean and standard deviation of the logarithm of a lognormal with this mean and coefficient of variation.
fn logarithmic(mean: f64, cv: f64) -> (f64, f64) {
    let variance = (cv * cv).ln_1p();
    (mean.ln() - variance / 2.0, variance.sqrt())
}

fn step(x: f64, at: f64) -> f64 {
    if x >= at { 1.0 } else { 0.0 }
}

fn lognormal_cdf(x: f64, mu: f64, sigma: f64) -> f64 {
    if x <= 0.0 { 0.0 } else { normal_cdf((x.ln() - mu) / sigma) }
}

fn ln_lognormal_density(x: f64, mu: f64, sigma: f64) -> f64 {
    let z = (x.ln() - mu) / sigma;
    -z * z / 2.0 - x.ln() - sigma.ln() - 0.5 * TAU.ln()
}

fn inverse_gaussian_cdf(x: f64, mean: f64, shape: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let root = (shape / x).sqrt();
    // Of the second term one factor is huge and the other tiny: only their logarithms can be multiplied.
    let second = (2.0 * shape / mean + ln_normal_cdf(-root * (x / mean + 1.0))).exp();
    (normal_cdf(root * (x / mean - 1.0)) + second).min(1.0)
}
