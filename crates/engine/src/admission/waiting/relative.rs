//! What a request costs over the mean, as far as that is known.
//!
//! *Intuition.* Who has tasted four apples from each of two trees does not say that one bears the sweeter ones because
//! its four were a little sweeter; who has found all of one tree's sour says so.
//!
//! *Applied.* A URL's learned cost is an average over some dozens of requests, so it moves by chance: by an eighth of
//! itself where costs are exponential. All requests of the URL share that error for as long as the average remembers
//! it; taken for work, it looks as if servers had become slower or faster all at once. So the logarithm `x` of cost
//! over mean counts by the share of its variance that is not chance (Stein's estimator),
//!
//! ```text
//! cost = exp(b x)        b = max(0, 1 - C^2 / V)
//! ```
//!
//! with the variance `V` of `x` over requests, and the deviation `C` that costs have by chance
//! ([`Costs::chance`](crate::estimate::Costs::chance)). `V` is half the mean square of what `x` of one request is from
//! that of the one before: whatever moves the costs of all moves both. One URL alone: `b` is 0, and every request costs
//! 1. Cheap and dear ones that are well known: `b` is 1.
//!
//! *Source.* W. James and C. Stein, *Estimation with quadratic loss* (1961); J. von Neumann et al., *The mean square
//! successive difference* (1941).

use crate::estimate::{Average, Costs};
use crate::learned::Kept;

/// So many requests say how much costs differ: many times as many as a URL's cost is an average of.
const MEMORY: f64 = 1000.0;

/// How much of what is known of costs is more than chance.
#[derive(Debug, Default)]
pub(super) struct Relative {
    /// Logarithm of the cost over the mean, of the last request that ended.
    last: Option<f64>,
    variance: Average,
    /// See `b` above.
    belief: f64,
}

impl Relative {
    /// A request ended whose kind costs so many seconds. What that is from now on by the cost of the mean request.
    pub(super) fn record(&mut self, costs: &Costs, cost: f64) -> f64 {
        let Some(ln) = ln_over_mean(costs, cost) else { return 1.0 };
        let away = ln - self.last.replace(ln).unwrap_or(ln);
        self.variance.update(away * away / 2.0, 1.0, MEMORY);
        let (chance, variance) = (costs.chance(), self.variance.get().unwrap_or(0.0));
        self.belief = if variance > 0.0 { (1.0 - chance * chance / variance).max(0.0) } else { 0.0 };
        libm::exp(self.belief * ln)
    }

    /// A cost in seconds by that of the mean request.
    pub(super) fn of(&self, costs: &Costs, cost: f64) -> f64 {
        ln_over_mean(costs, cost).map_or(1.0, |ln| libm::exp(self.belief * ln))
    }

    pub(super) fn put_away(&self, kept: &mut Kept) {
        if let Some(variance) = self.variance.get() {
            kept.put("cost_variance", variance);
            kept.put("cost_weight", self.variance.weight());
            kept.put("cost_belief", self.belief);
        }
    }

    pub(super) fn take_up(&mut self, kept: &Kept) {
        *self = Relative::default();
        if let Some(variance) = kept.get("cost_variance").filter(|variance| *variance >= 0.0) {
            self.variance.update(variance, kept.between("cost_weight", (0.0, MEMORY), 0.0), MEMORY);
            self.belief = kept.between("cost_belief", (0.0, 1.0), 0.0);
        }
    }
}

/// `None`: too little is known. At the start what is learned of all costs moves together.
fn ln_over_mean(costs: &Costs, cost: f64) -> Option<f64> {
    let mean = costs.mean().filter(|mean| *mean > 0.0 && cost > 0.0 && costs.is_settled())?;
    Some(libm::log(cost / mean))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::request::{Request, UrlKey};
    use crate::rng::Rng;

    /// Exponential requests of these URLs' costs, in turn by chance; the least and the most that each was taken to cost
    /// over the mean, of the second half, and the same without asking what is chance.
    fn learn(means: &[f64]) -> [Vec<(f64, f64)>; 2] {
        let (mut costs, mut relative, mut rng) = (Costs::new(64, 1, 1, 0.1), Relative::default(), Rng::new(3));
        let mut seen = [(); 2].map(|()| alloc::vec![(f64::INFINITY, 0.0_f64); means.len()]);
        for at in 0..6000 {
            let url = (rng.next_f64() * means.len() as f64) as usize;
            let request = Request { url: UrlKey((url as u64 + 1) << 32), ..Request::default() };
            costs.record(&request, -means[url] * libm::log(1.0 - rng.next_f64()));
            let cost = costs.estimate(&request);
            relative.record(&costs, cost);
            if at >= 3000 {
                let values = [relative.of(&costs, cost), cost / costs.mean().expect("some are known")];
                for (seen, value) in seen.iter_mut().zip(values) {
                    seen[url] = (seen[url].0.min(value), seen[url].1.max(value));
                }
            }
        }
        seen
    }

    #[test]
    fn what_is_chance_is_no_difference() {
        let [here, raw] = learn(&[0.04]);
        assert!(here[0].0 > 0.999 && here[0].1 < 1.001, "{here:?}");
        assert!(raw[0].1 / raw[0].0 > 1.3, "as if servers became as much slower: {raw:?}");
        let [here, raw] = learn(&[0.04; 4]);
        let span = |seen: &[(f64, f64)]| seen.iter().map(|(least, most)| libm::log(most / least)).fold(0.0, f64::max);
        assert!(span(&here) < 0.5 * span(&raw), "{here:?} {raw:?}");
    }

    #[test]
    fn dear_ones_are_known_to_be() {
        let [here, raw] = learn(&[0.01, 0.05]);
        for (here, raw) in here.iter().zip(&raw) {
            assert!((here.0 / raw.0 - 1.0).abs() < 0.1 && (here.1 / raw.1 - 1.0).abs() < 0.1, "{here:?} {raw:?}");
        }
    }
}
