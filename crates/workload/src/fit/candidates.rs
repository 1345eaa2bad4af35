//! Each known distribution with the parameters that fit best.

use crate::{Distribution, DistributionError};

/// A distribution that was fitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// The fitted distribution.
    pub distribution: Distribution,
    /// How its parameters were found.
    pub method: &'static str,
    /// The Kolmogorov-Smirnov distance: how far the shares below a value are apart at most.
    pub distance: f64,
    /// Logarithm of the likelihood of the sample; `None` for a distribution without a density.
    pub ln_likelihood: Option<f64>,
    /// Akaike's criterion, the smaller the better.
    pub aic: Option<f64>,
}

const ML: &str = "maximum likelihood";

/// The known distributions fitted to a growing sample of positive values, the best first: those with a density by
/// Akaike's criterion. What cannot be fitted (too few values, all alike) is left out.
pub fn fits(sorted: &[f64]) -> Vec<Fit> {
    let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return Vec::new() };
    if min <= 0.0 || !max.is_finite() {
        return Vec::new();
    }
    if min == max {
        return Distribution::constant(min).map(|constant| fit(constant, ML, 1, sorted)).into_iter().collect();
    }
    let n = sorted.len() as f64;
    let mean = sorted.iter().sum::<f64>() / n;
    let logs = sorted.iter().map(|x| x.ln()).sum::<f64>() / n;
    let log_spread = (sorted.iter().map(|x| (x.ln() - logs).powi(2)).sum::<f64>() / n).sqrt();
    let excess = sorted.iter().map(|x| 1.0 / x - 1.0 / mean).sum::<f64>() / n;
    let mut found = Vec::new();
    let mut add = |made: Result<Distribution, DistributionError>, method, parameters| {
        found.extend(made.map(|distribution| fit(distribution, method, parameters, sorted)));
    };
    add(Distribution::exponential(mean), ML, 1);
    add(Distribution::uniform(min, max), ML, 2);
    add(Distribution::lognormal_log(logs, log_spread), ML, 2);
    add(Distribution::inverse_gaussian(mean, 1.0 / excess), ML, 2);
    add(Distribution::pareto(1.0 / (logs - min.ln()), min), ML, 2);
    if let Some(shape) = bounded_index(min, max, logs - min.ln()) {
        add(Distribution::bounded_pareto(shape, min, max), ML, 3);
    }
    found.extend(body_and_tail(sorted));
    found.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    found
}

/// How far the shares of a growing sample and of a distribution below a value are apart at most.
pub fn kolmogorov_smirnov(distribution: &Distribution, sorted: &[f64]) -> f64 {
    let n = sorted.len() as f64;
    let (mut below, mut worst) = (0.0, 0.0f64);
    for group in sorted.chunk_by(|a, b| a == b) {
        let just_below = group[0] - group[0].abs().max(f64::MIN_POSITIVE) * 1e-9;
        worst = worst.max((below / n - distribution.cdf(just_below)).abs());
        below += group.len() as f64;
        worst = worst.max((below / n - distribution.cdf(group[0])).abs());
    }
    worst
}

fn fit(distribution: Distribution, method: &'static str, parameters: u32, sorted: &[f64]) -> Fit {
    let ln_likelihood: Option<f64> = sorted.iter().map(|x| distribution.ln_density(*x)).sum();
    let distance = kolmogorov_smirnov(&distribution, sorted);
    let aic = ln_likelihood.map(|likelihood| 2.0 * f64::from(parameters) - 2.0 * likelihood);
    Fit { distribution, method, distance, ln_likelihood, aic }
}

fn rank(fit: &Fit) -> f64 {
    fit.aic.filter(|aic| !aic.is_nan()).unwrap_or(f64::INFINITY)
}

/// The tail index of a Pareto from `min` to `max` whose logarithms have that mean distance from `min`'s; `None` when
/// only a rising density would have.
fn bounded_index(min: f64, max: f64, mean_distance: f64) -> Option<f64> {
    let range = (max / min).ln();
    if mean_distance >= range / 2.0 || mean_distance <= 0.0 {
        return None;
    }
    // The mean distance for an index falls from half the range, at 0, towards 1 / index.
    let distance = |index: f64| 1.0 / index - range / (index * range).exp_m1();
    let (mut low, mut high) = (1e-9, 1.0 / mean_distance + 1.0);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if distance(middle) > mean_distance {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some((low + high) / 2.0)
}

/// The lognormal body with a Pareto tail that is nearest, among cuts at several quantiles.
fn body_and_tail(sorted: &[f64]) -> Option<Fit> {
    const CUTS: [f64; 5] = [0.70, 0.80, 0.90, 0.95, 0.98];
    const METHOD: &str = "probability plot and Hill";
    let made = CUTS.iter().filter_map(|&share| {
        let at = (share * sorted.len() as f64) as usize;
        let (body, tail) = sorted.split_at_checked(at).filter(|(body, tail)| body.len() > 20 && tail.len() > 20)?;
        let cut = *body.last()?;
        let (mu, sigma) = probability_plot(body, sorted.len())?;
        let hill = tail.iter().map(|x| (x / cut).ln()).sum::<f64>() / tail.len() as f64;
        let made = Distribution::lognormal_pareto(mu, sigma, cut, 1.0 / hill).ok()?;
        Some(fit(made, METHOD, 4, sorted))
    });
    made.min_by(|a, b| a.distance.total_cmp(&b.distance))
}

/// The line through the logarithms of the smallest of `count` values over the normal scores of their ranks.
fn probability_plot(smallest: &[f64], count: usize) -> Option<(f64, f64)> {
    // A thousand points say what a hundred thousand say.
    let step = (smallest.len() / 1000).max(1);
    let point = |at: usize| (normal_quantile((at as f64 + 0.5) / count as f64), smallest[at].ln());
    let points: Vec<(f64, f64)> = (0..smallest.len()).step_by(step).map(point).collect();
    let n = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / n, y + point.1 / n));
    let slope = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>()
        / points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>();
    (slope > 0.0).then_some((y - slope * x, slope))
}

/// The inverse of the standard normal distribution function, by bisection.
fn normal_quantile(share: f64) -> f64 {
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..70 {
        let middle = (low + high) / 2.0;
        if crate::distribution::normal_cdf(middle) < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}
