//! How sure a mean over seeds is: Student's confidence interval.
//!
//! One run that holds a bound may have been lucky. Runs with other seeds are independent measurements of the same, so
//! their mean lies, nineteen times of twenty, no further from the truth than Student's t times its standard error.

use super::Check;
use crate::scenario::Expect;

/// Student's t for 95 % on both sides, from one degree of freedom on.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The interval in which the mean lies with 95 % confidence; `None` of fewer than two values.
fn interval(values: &[f64]) -> Option<[f64; 2]> {
    let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom as f64;
    // Beyond the table it is that of the normal distribution, and a little more.
    let t = T.get(freedom - 1).copied().unwrap_or(1.96 + 2.4 / freedom as f64);
    let half = t * (variance / count).sqrt();
    Some([mean - half, mean + half])
}

/// From so many simulated runs on the mean is judged rather than each of them. The interval of fewer is so wide (of
/// three, two and a half standard deviations on each side) that it says more about their number than about the policy.
const SEEDS: usize = 10;

/// Judges what is expected of all seeds together. `runs` has the checks of each seed, in the order of `expects`; of one
/// seed, and where something was not measured, they stay as they are.
pub(crate) fn judge<'e>(expects: impl Iterator<Item = &'e Expect>, runs: &mut [Vec<Check>], simulated: bool) {
    let many = simulated && runs.len() >= SEEDS;
    for (at, expect) in expects.enumerate() {
        let values: Option<Vec<f64>> = runs.iter().map(|checks| checks.get(at)?.measured).collect();
        let Some(interval) = values.as_deref().and_then(interval) else { continue };
        for check in runs.iter_mut().filter_map(|checks| checks.get_mut(at)) {
            if expect.over_seeds.unwrap_or(many) {
                check.pass = interval.iter().all(|&end| expect.allows(end));
            }
            check.interval = Some(interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_textbook() {
        // Mean 5, standard deviation 2.138, standard error 0.756, t of 7 degrees of freedom 2.365.
        let [low, high] = interval(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).expect("eight values");
        assert!((low - 3.212).abs() < 1e-3 && (high - 6.788).abs() < 1e-3, "{low} {high}");
        assert_eq!(interval(&[1.0; 50]), Some([1.0, 1.0]));
        assert_eq!((interval(&[]), interval(&[1.0])), (None, None));
    }
}
