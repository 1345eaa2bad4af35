//! Tenants: whose requests they are, when a few send most of them.
//!
//! *Intuition.* The k-th largest of many customers sends about 1 / k of what the largest does: Zipf's law. With an
//! exponent of 0 all send the same.

use serde::{Deserialize, Serialize};

use crate::{Rng, uniform};

/// The most tenants of one load: their weights are kept, eight bytes each.
pub const MOST_TENANTS: u32 = 1_000_000;

/// The tenants that send a load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenants {
    /// How many: 1 to [`MOST_TENANTS`].
    pub count: u32,
    /// Exponent of Zipf's law: the k-th sends in proportion to `k^-zipf`. 0: all alike.
    #[serde(default)]
    pub zipf: f64,
}

/// Tenants, ready to be drawn from.
#[derive(Debug, Clone)]
pub struct TenantDraw {
    /// Weights summed up.
    sums: Vec<f64>,
}

impl Tenants {
    /// Whether there is anybody, not too many, and the exponent is a number of 0 or more.
    pub fn makes_sense(&self) -> bool {
        (1..=MOST_TENANTS).contains(&self.count) && self.zipf.is_finite() && (0.0..=10.0).contains(&self.zipf)
    }

    /// Ready to be drawn from.
    pub fn draw(&self) -> TenantDraw {
        let mut sum = 0.0;
        let sums = (1..=self.count.clamp(1, MOST_TENANTS)).map(|rank| {
            sum += f64::from(rank).powf(-self.zipf);
            sum
        });
        TenantDraw { sums: sums.collect() }
    }
}

impl TenantDraw {
    /// A tenant by rank: 1 sends most.
    pub fn sample(&self, rng: &mut Rng) -> u32 {
        let at = uniform(rng) * self.sums.last().copied().unwrap_or(0.0);
        (self.sums.partition_point(|sum| *sum <= at).min(self.sums.len() - 1)) as u32 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng;

    fn counts(tenants: Tenants, draws: u32) -> Vec<u32> {
        let (draw, mut rng) = (tenants.draw(), rng(7, 0));
        let mut counts = vec![0; tenants.count as usize];
        (0..draws).for_each(|_| counts[draw.sample(&mut rng) as usize - 1] += 1);
        counts
    }

    #[test]
    fn the_second_sends_half_of_what_the_first_does() {
        let counts = counts(Tenants { count: 100, zipf: 1.0 }, 100_000);
        // The harmonic number of 100 is 5.187: the first has 19,278 of these draws, with a deviation of 125.
        assert!((18_650..19_900).contains(&counts[0]), "{}", counts[0]);
        assert!((9_200..10_080).contains(&counts[1]), "{}", counts[1]);
        assert!(counts.iter().all(|&count| count > 0));
    }

    #[test]
    fn without_an_exponent_all_are_alike() {
        let counts = counts(Tenants { count: 4, zipf: 0.0 }, 40_000);
        assert!(counts.iter().all(|count| (9_550..10_450).contains(count)), "{counts:?}");
    }

    #[test]
    fn what_makes_no_sense() {
        let good = Tenants { count: 99, zipf: 1.0 };
        assert!(good.makes_sense());
        for count in [0, MOST_TENANTS + 1] {
            assert!(!Tenants { count, ..good }.makes_sense());
        }
        for zipf in [f64::NAN, f64::INFINITY, -0.1, 11.0] {
            assert!(!Tenants { zipf, ..good }.makes_sense());
        }
        assert_eq!(counts(Tenants { count: 1, zipf: 1.0 }, 5), [5]);
    }
}
