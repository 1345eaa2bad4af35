//! Means and variances of the distributions.

use super::{Distribution, Kind, harmonic, normal_cdf};

impl Distribution {
    /// Mean; infinite for a Pareto tail of index 1 or less.
    pub fn mean(&self) -> f64 {
        self.moment(1)
    }

    /// Variance; infinite for a Pareto tail of index 2 or less.
    pub fn variance(&self) -> f64 {
        let second = self.moment(2);
        if second.is_infinite() {
            return f64::INFINITY;
        }
        match self.0 {
            // The difference of moments would lose these to rounding.
            Kind::Uniform { min, max } => (max - min).powi(2) / 12.0,
            Kind::Lognormal { mean, cv, .. } => (mean * cv).powi(2),
            Kind::InverseGaussian { mean, shape, .. } => mean.powi(3) / shape,
            Kind::Bimodal { short, long, long_fraction } => {
                (long - short).powi(2) * long_fraction * (1.0 - long_fraction)
            }
            Kind::Empirical(table) => table.variance(),
            _ => (second - self.moment(1).powi(2)).max(0.0),
        }
    }

    /// The `n`-th moment about zero, n = 1 or 2.
    fn moment(&self, n: i32) -> f64 {
        let power = f64::from(n);
        match self.0 {
            Kind::Constant { value } => value.powi(n),
            Kind::Exponential { mean } => mean.powi(n) * power,
            // E[X] and E[X^2] of a uniform are the sums of products of its ends over n + 1.
            Kind::Uniform { min, max } if n == 1 => (min + max) / 2.0,
            Kind::Uniform { min, max } => (min * min + min * max + max * max) / 3.0,
            Kind::Lognormal { mean, cv, .. } => mean.powi(n) * if n == 1 { 1.0 } else { 1.0 + cv * cv },
            Kind::Pareto { shape, min, max } if max.is_infinite() => unbounded_pareto(shape, min, power),
            Kind::Pareto { shape, min, max } => bounded_pareto(shape, min, max, power),
            Kind::InverseGaussian { mean, shape, .. } if n == 2 => mean * mean + mean.powi(3) / shape,
            Kind::InverseGaussian { mean, .. } => mean,
            Kind::Zipf { count, exponent, unit, .. } => {
                unit.powi(n) * harmonic(count, exponent - power) / harmonic(count, exponent)
            }
            Kind::Bimodal { short, long, long_fraction } => {
                short.powi(n) * (1.0 - long_fraction) + long.powi(n) * long_fraction
            }
            Kind::LognormalPareto { mu, sigma, cut, shape } => {
                let z = (cut.ln() - mu) / sigma;
                let body = (power * mu + (power * sigma).powi(2) / 2.0).exp() * normal_cdf(z - power * sigma);
                body + (1.0 - normal_cdf(z)) * unbounded_pareto(shape, cut, power)
            }
            Kind::Empirical(table) if n == 1 => table.mean(),
            Kind::Empirical(table) => table.variance() + table.mean().powi(2),
        }
    }
}

/// `E[X^n]` of a Pareto of index `shape` from `min` up.
fn unbounded_pareto(shape: f64, min: f64, n: f64) -> f64 {
    if shape > n { shape * min.powf(n) / (shape - n) } else { f64::INFINITY }
}

/// `E[X^n]` of a Pareto of index `shape` cut off at `min` and `max`.
fn bounded_pareto(shape: f64, min: f64, max: f64, n: f64) -> f64 {
    let scale = shape * min.powf(shape) / (1.0 - (min / max).powf(shape));
    // The integral of x^(n-shape-1); near n = shape it turns into a logarithm.
    let power = n - shape;
    let integral = if power.abs() < 1e-9 { (max / min).ln() } else { (max.powf(power) - min.powf(power)) / power };
    scale * integral
}
