//! How uneven arrivals are, from counts.
//!
//! *Intuition.* Of a Poisson stream the numbers that arrive in two seconds differ by about the square root of what
//! arrives in both. More than that is bursts, less is a clock.
//!
//! *Applied.* Of each two windows in a row the square of the difference over the sum: its mean is 1 for Poisson
//! arrivals whatever their rate, and for others the square of the coefficient of variation of the time between two of
//! them, as far as a window holds several (Allan's variance of the counts). Nothing is done per request.
//!
//! *Awkward cases.* A rate that rises or falls moves both windows of a pair nearly alike. A step counts in one pair,
//! and as no more than a bound, so that a flash crowd does not pass for a habit. Few arrivals in a window look like
//! Poisson's, whatever they are.

use super::rate::Average;

/// Length of a window, seconds: about as long as targets are, so that bursts count that a queue would feel.
const WINDOW: f64 = 1.0;
/// Pairs of windows that are remembered.
const MEMORY: f64 = 300.0;
/// So many make a figure.
const ENOUGH: f64 = 30.0;
/// A pair counts as no more.
const LARGEST: f64 = 16.0;

/// The unevenness of a stream of arrivals.
#[derive(Clone, Debug, Default)]
pub struct Unevenness {
    count: f64,
    seconds: f64,
    /// The rate in the window before.
    before: Option<f64>,
    squares: Average,
}

impl Unevenness {
    /// Takes `count` arrivals of the last `seconds`.
    pub fn update(&mut self, count: f64, seconds: f64) {
        self.count += count;
        self.seconds += seconds;
        if self.seconds < WINDOW {
            return;
        }
        let rate = self.count / self.seconds;
        if let Some(before) = self.before.replace(rate)
            && before + rate > 0.0
        {
            let square = (rate - before) * (rate - before) / (before + rate) * self.seconds;
            self.squares.update(square.min(LARGEST), 1.0, MEMORY);
        }
        (self.count, self.seconds) = (0.0, 0.0);
    }

    /// Coefficient of variation of the time between arrivals: 1 for Poisson's; `None` until it is known.
    pub fn variation(&self) -> Option<f64> {
        let square = self.squares.get().filter(|_| self.squares.weight() >= ENOUGH)?;
        Some(libm::sqrt(square))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// The variation found for counts of a tenth of a second each.
    fn of(mut count: impl FnMut(usize) -> f64) -> f64 {
        let mut unevenness = Unevenness::default();
        (0..6000).for_each(|tick| unevenness.update(count(tick), 0.1));
        unevenness.variation().expect("ten minutes are enough")
    }

    /// A count of a Poisson stream of `mean`, by the exponential times between its arrivals.
    fn poisson(rng: &mut Rng, mean: f64) -> f64 {
        let (mut count, mut at) = (0.0, -libm::log(1.0 - rng.next_f64()));
        while at < mean {
            count += 1.0;
            at -= libm::log(1.0 - rng.next_f64());
        }
        count
    }

    #[test]
    fn a_clock_has_none_and_poisson_has_one() {
        assert!(of(|_| 5.0) < 1e-9);
        let mut rng = Rng::new(7);
        for mean in [0.5, 5.0, 50.0] {
            let found = of(|_| poisson(&mut rng, mean));
            assert!((found - 1.0).abs() < 0.12, "{mean}: {found}");
        }
    }

    #[test]
    fn arrivals_in_fours_are_twice_as_uneven() {
        let mut rng = Rng::new(8);
        let found = of(|_| 4.0 * poisson(&mut rng, 5.0));
        assert!((found - 2.0).abs() < 0.25, "{found}");
    }

    #[test]
    fn a_slope_is_no_burst_and_a_step_hardly_any() {
        assert!(of(|tick| tick as f64 / 100.0) < 0.1);
        assert!(of(|tick| if tick < 3000 { 5.0 } else { 50.0 }) < 0.3);
    }

    #[test]
    fn little_is_nothing() {
        let mut unevenness = Unevenness::default();
        (0..100).for_each(|_| unevenness.update(3.0, 0.1));
        assert_eq!(unevenness.variation(), None);
        (0..6000).for_each(|_| unevenness.update(0.0, 0.1));
        assert_eq!(unevenness.variation(), None, "nothing came");
    }
}
