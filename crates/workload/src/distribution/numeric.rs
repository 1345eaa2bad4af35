//! The functions that no standard library has.

/// `P(Z <= z)` of a standard normal.
pub(crate) fn normal_cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

/// `ln P(Z <= z)`, also far in the lower tail, where the probability itself is 0 in floating point.
pub(crate) fn ln_normal_cdf(z: f64) -> f64 {
    if z > -30.0 {
        return normal_cdf(z).ln();
    }
    // Abramowitz and Stegun 26.2.12; at -30 the next term is below 1e-5.
    let square = z * z;
    -square / 2.0 - (-z).ln() - 0.5 * std::f64::consts::TAU.ln() + (1.0 - 1.0 / square + 3.0 / (square * square)).ln()
}

/// `1^-s + 2^-s + ... + n^-s`, also for n in the millions: the first terms exactly, the rest by Euler and Maclaurin.
pub(crate) fn harmonic(n: f64, s: f64) -> f64 {
    const EXACT: f64 = 64.0;
    let sum = |to: f64| (1..=to as u64).map(|rank| (rank as f64).powf(-s)).sum::<f64>();
    if n <= EXACT {
        return sum(n);
    }
    let integral =
        if (s - 1.0).abs() < 1e-12 { (n / EXACT).ln() } else { (n.powf(1.0 - s) - EXACT.powf(1.0 - s)) / (1.0 - s) };
    let ends = (n.powf(-s) - EXACT.powf(-s)) / 2.0;
    let slopes = s * (EXACT.powf(-s - 1.0) - n.powf(-s - 1.0)) / 12.0;
    sum(EXACT) + integral + ends + slopes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal() {
        assert!((normal_cdf(1.96) - 0.975_002_1).abs() < 1e-6);
        assert!((ln_normal_cdf(-29.99) / ln_normal_cdf(-30.01) - 1.0).abs() < 2e-3);
        assert!((ln_normal_cdf(-3.0) - 0.001_349_898f64.ln()).abs() < 1e-6);
    }

    #[test]
    fn harmonic_sums() {
        for (n, s) in [(10.0, 1.0), (1000.0, 1.0), (5000.0, 0.8), (5000.0, 2.0), (70_000.0, 0.0), (3000.0, -1.0)] {
            let exact: f64 = (1..=n as u64).map(|rank| (rank as f64).powf(-s)).sum();
            assert!((harmonic(n, s) / exact - 1.0).abs() < 1e-9, "n {n} s {s}: {} for {exact}", harmonic(n, s));
        }
    }
}
