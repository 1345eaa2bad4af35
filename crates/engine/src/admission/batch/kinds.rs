//! Kinds: which costs are told apart.
//!
//! *Intuition.* Who weighs trunks on a spring balance that is a tenth out does not call the heavier of two equal trunks
//! a kind of its own.
//!
//! *Applied.* Costs fall into groups, four to a factor of two. The group of which most requests came of late stands for
//! those around it, as far as chance can have moved what was learned; of the rest again the largest; and so on. What
//! stands together is one kind: it has one cost, the mean, and who came first goes first in it.
//!
//! *Awkward cases.* Kinds that differ by less than chance become one. A group stays its kind's middle until another has
//! half as much again, or what is due would change hands for nothing.

use super::buckets::{BUCKETS, bucket_middle};

/// Deviations of what is learned that are chance.
const DEVIATIONS: f64 = 2.0;
/// The logarithm of what lies between two groups: a quarter of a factor of two.
const STEP: f64 = 0.173;
/// A kind is at most so many groups to each side of its middle.
const WIDEST: usize = 3;
/// How much more another group must have to become the middle of a kind.
const MORE: f64 = 1.5;

/// The kinds of a class.
#[derive(Clone, Debug)]
pub(super) struct Kinds {
    /// Requests that came of late, and the sum of their costs, per group.
    seen: [f64; BUCKETS],
    costs: [f64; BUCKETS],
    /// The middle of each group's kind.
    middle: [u8; BUCKETS],
}

impl Kinds {
    pub(super) fn new() -> Kinds {
        Kinds { seen: [0.0; BUCKETS], costs: [0.0; BUCKETS], middle: core::array::from_fn(|at| at as u8) }
    }

    /// A request of a group came, of this cost.
    pub(super) fn offer(&mut self, group: usize, cost: f64) {
        self.seen[group] += 1.0;
        self.costs[group] += cost;
    }

    /// What came of a group of late, and the sum of the costs.
    pub(super) fn seen(&self, group: usize) -> (f64, f64) {
        (self.seen[group], self.costs[group])
    }

    /// As it was elsewhere; kinds are found anew with the next [`Kinds::settle`].
    pub(super) fn recall(&mut self, group: usize, seen: f64, costs: f64) {
        (self.seen[group], self.costs[group]) = (seen, costs);
    }

    /// The group that stands for this one.
    pub(super) fn of(&self, group: usize) -> usize {
        usize::from(self.middle[group])
    }

    /// The mean cost of the kind of which this is the middle.
    pub(super) fn cost(&self, middle: usize) -> f64 {
        // Every arrival asks: no further than a kind can be wide.
        let near = middle.saturating_sub(WIDEST)..(middle + WIDEST + 1).min(BUCKETS);
        let of_kind = near.filter(|at| self.of(*at) == middle);
        let (seen, costs) =
            of_kind.fold((0.0, 0.0), |(seen, costs), at| (seen + self.seen[at], costs + self.costs[at]));
        if seen > 0.0 { costs / seen } else { bucket_middle(middle) }
    }

    /// Forgets in part, and finds the kinds anew; `chance`: the deviation of what is known of a cost, a part of it.
    pub(super) fn settle(&mut self, keep: f64, chance: f64) {
        self.seen.iter_mut().chain(&mut self.costs).for_each(|sum| *sum *= keep);
        let reach = (libm::round(DEVIATIONS * chance / STEP) as usize).min(WIDEST);
        let was = self.middle;
        let weight = |at: usize| self.seen[at] * if usize::from(was[at]) == at { MORE } else { 1.0 };
        let mut left = [true; BUCKETS];
        self.middle = core::array::from_fn(|at| at as u8);
        while let Some(middle) = (0..BUCKETS)
            .filter(|at| left[*at] && self.seen[*at] > 0.0)
            .max_by(|one, other| weight(*one).total_cmp(&weight(*other)))
        {
            let near = middle.saturating_sub(reach)..=(middle + reach).min(BUCKETS - 1);
            for (left, of) in left[near.clone()].iter_mut().zip(&mut self.middle[near]) {
                if core::mem::take(left) {
                    *of = middle as u8;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups 20 and 24 with 100 requests each, 22 with 10 between them.
    fn settled(chance: f64) -> Kinds {
        let mut kinds = Kinds::new();
        for (group, count) in [(20, 100), (22, 10), (24, 110)] {
            (0..count).for_each(|_| kinds.offer(group, bucket_middle(group)));
        }
        kinds.settle(1.0, chance);
        kinds
    }

    #[test]
    fn what_is_known_for_sure_is_told_apart() {
        let kinds = settled(0.0);
        assert_eq!([20, 22, 24].map(|group| kinds.of(group)), [20, 22, 24]);
        assert!((kinds.cost(22) / bucket_middle(22) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_chance_can_have_moved_is_one_kind_and_has_its_mean_cost() {
        // 2 * 0.16 are nearly two groups.
        let kinds = settled(0.16);
        assert_eq!([20, 22, 24].map(|group| kinds.of(group)), [20, 24, 24]);
        let mean = (10.0 * bucket_middle(22) + 110.0 * bucket_middle(24)) / 120.0;
        assert!((kinds.cost(24) / mean - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_middle_stays_until_another_has_half_as_much_again() {
        let mut kinds = settled(0.3);
        assert_eq!([22, 24].map(|group| kinds.of(group)), [24, 24]);
        (0..40).for_each(|_| kinds.offer(22, bucket_middle(22)));
        (0..80).for_each(|_| kinds.offer(23, bucket_middle(23)));
        kinds.settle(1.0, 0.3);
        assert_eq!(kinds.of(23), 24, "80 are fewer than 110");
        (0..100).for_each(|_| kinds.offer(23, bucket_middle(23)));
        kinds.settle(1.0, 0.3);
        assert_eq!(kinds.of(24), 23, "180 are more than 165");
    }
}
