//! The delays d_i (Cataclysm, section 3.4): how long less important classes wait before they are looked at, so that a
//! request is seldom refused because a less important one was let in just before it.
//!
//! The paper bounds, for each class `i`, the probability of that event by
//!
//! ```text
//! Pr(A_i) ~ p (1 - p) (1 - e^(-l_i d_i))
//!           sum_{j>i} (1 - e^(-l_j d_j)) prod_{h<j} e^(-l_h d_h) sum_{m>=1} (1 - F_j(m d_j / N))
//! ```
//!
//! with `p` the probability that the system is full, `l` arrival rates, `F_j` the distribution of class `j`'s service
//! times and `N` the requests the application can hold. For class 1, whose own delay is 0, the formula bounds nothing:
//! there the base interval stands in for it, so that class 2 too waits long enough to protect class 1. Each bound
//! depends on the later delays too, so they are computed in turn until nothing changes. Where nobody more important
//! comes, nobody waits for them.

use alloc::vec::Vec;
use core::time::Duration;

use super::Context;
use crate::facts::Facts;
use crate::learned::Kept;
use crate::request::ClassId;
use crate::time::Timestamp;

/// d_2 starts here, and delays grow in steps of this, seconds.
pub(super) const BASE: f64 = 0.010;
/// Of who does not wait, the bound is that of the shortest wait: with none its sum would have no end.
const SHORTEST: f64 = 1e-6;
/// A delay is at most this share of the target.
const CAP: f64 = 0.25;
/// Below this share of full instants there is no overload, and nobody waits.
const NEVER_FULL: f64 = 0.002;
/// The share of full instants forgets with this time constant, seconds.
const FULL_TAU: f64 = 5.0;

/// Measures p: the share of policing instants at which the system was full.
#[derive(Clone, Debug, Default)]
pub(super) struct FullShare {
    tests: f64,
    full: f64,
    faded: Timestamp,
    was_full: bool,
    began: bool,
}

impl FullShare {
    pub(super) fn record(&mut self, full: bool) {
        self.tests += 1.0;
        self.full += f64::from(u8::from(full));
        if full && !self.was_full {
            (self.was_full, self.began) = (true, true);
        }
    }

    /// Forgets with time. Seconds since it was last called.
    pub(super) fn fade(&mut self, now: Timestamp) -> f64 {
        let elapsed = now.seconds_since(self.faded);
        let keep = libm::exp(-elapsed / FULL_TAU);
        (self.tests, self.full, self.faded) = (self.tests * keep, self.full * keep, now);
        self.was_full &= self.get() >= NEVER_FULL;
        elapsed
    }

    pub(super) fn keep(&self, kept: &mut Kept) {
        kept.put("full", self.full);
        kept.put("tests", self.tests);
    }

    pub(super) fn recall(&mut self, now: Timestamp, kept: &Kept) {
        self.tests = kept.between("tests", (0.0, 1e12), 0.0);
        self.full = kept.between("full", (0.0, self.tests), 0.0);
        self.faded = now;
        self.was_full = self.get() >= NEVER_FULL;
    }

    pub(super) fn get(&self) -> f64 {
        if self.tests > 1e-3 { self.full / self.tests } else { 0.0 }
    }

    /// Whether the system filled for the first time since it was last never full. Answers once.
    pub(super) fn just_began(&mut self) -> bool {
        core::mem::take(&mut self.began)
    }
}

/// What the bound needs of a class.
struct Class {
    rate: f64,
    /// Service times (seconds) and their shares.
    costs: Vec<(f64, f64)>,
}

/// Sets the delays anew, and says so when they changed.
pub(super) fn recompute(cx: &mut Context<'_>, full: f64, epsilon: f64, delays: &mut [Duration]) {
    let classes: Vec<Class> = cx
        .classes
        .iter()
        .map(|class| Class { rate: class.excess.get(), costs: class.cost_spread.shares().collect() })
        .collect();
    let cap = (cx.target * CAP).min(most_by_throughput(cx));
    let mean = cx.costs.mean().unwrap_or(cx.target * CAP);
    let holds = (cx.load.processors * cx.target / mean).max(1.0);
    let (seconds, unmet) = match full < NEVER_FULL {
        true => (alloc::vec![0.0; classes.len()], None),
        false => solve(&classes, full, holds, epsilon, cap),
    };
    let moved = |(old, new): (&Duration, &f64)| (old.as_secs_f64() - new).abs() > 1e-4;
    if delays.iter().zip(&seconds).any(moved) {
        delays.iter_mut().zip(&seconds).for_each(|(delay, new)| *delay = Duration::from_secs_f64(*new));
        cx.say(Facts::new("delays-set").with("delays", seconds).with("unmet", unmet));
    }
}

/// The longest delay that leaves the servers enough to do: what a round lets in, up to the class's limit of
/// `(R - d) / f` seconds of work per processor, must last until the next round.
fn most_by_throughput(cx: &Context<'_>) -> f64 {
    0.4 * cx.target / (1.0 + cx.calibration.factor())
}

/// The smallest growing delays that keep every bound, and the first class whose bound the cap does not allow.
fn solve(classes: &[Class], p: f64, holds: f64, epsilon: f64, cap: f64) -> (Vec<f64>, Option<ClassId>) {
    let base = BASE.min(cap);
    let mut delays = alloc::vec![0.0_f64; classes.len()];
    let mut unmet = None;
    for _ in 0..8 {
        let before = delays.clone();
        unmet = None;
        for i in 0..classes.len().saturating_sub(1) {
            let mut next = delays[i + 1].max(delays[i]);
            while next < cap && probability(classes, &with(&delays, i + 1, next), p, holds, i) >= epsilon {
                next = (next + base).min(cap);
            }
            delays = with(&delays, i + 1, next);
            if unmet.is_none() && probability(classes, &delays, p, holds, i) >= epsilon {
                unmet = Some(ClassId(i as u8));
            }
        }
        if delays == before {
            break;
        }
    }
    (delays, unmet)
}

/// The delays with number `at` raised to `value`, and later ones at least that.
fn with(delays: &[f64], at: usize, value: f64) -> Vec<f64> {
    delays.iter().enumerate().map(|(i, &d)| if i < at { d } else { d.max(value) }).collect()
}

/// Pr(A_i).
fn probability(classes: &[Class], delays: &[f64], p: f64, holds: f64, i: usize) -> f64 {
    let delay = |j: usize| delays[j].max(SHORTEST);
    let arrives = |j: usize| 1.0 - libm::exp(-classes[j].rate * delay(j));
    let none_before = |j: usize| libm::exp(-(0..j).map(|h| classes[h].rate * delays[h]).sum::<f64>());
    let still_there = |j: usize| -> f64 {
        let step = delay(j) / holds;
        classes[j].costs.iter().map(|(cost, share)| share * libm::floor(cost / step)).sum()
    };
    let below: f64 = (i + 1..classes.len()).map(|j| arrives(j) * none_before(j) * still_there(j)).sum();
    // Class 1 is looked at on arrival; without this its bound would be empty, and class 2 would wait for nothing.
    let arrives_meanwhile = 1.0 - libm::exp(-classes[i].rate * delays[i].max(BASE));
    p * (1.0 - p) * arrives_meanwhile * below
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn class(rate: f64) -> Class {
        Class { rate, costs: vec![(0.016, 1.0)] }
    }

    #[test]
    fn the_sum_over_the_service_times_tail_is_its_closed_form() {
        // sum_{m>=1} (1 - F(m h)) for a constant service time c is the number of m with m h <= c.
        let classes = [class(10.0), class(10.0), class(10.0)];
        let delays = [0.0, 0.01, 0.02];
        let (p, holds) = (0.5, 10.0);
        let terms = (1..1000).filter(|&m| f64::from(m) * 0.02 / holds <= 0.016).count() as f64;
        let expected = 0.25 * (1.0 - libm::exp(-0.1)) * (1.0 - libm::exp(-0.2)) * libm::exp(-0.1) * terms;
        assert!((probability(&classes, &delays, p, holds, 1) - expected).abs() < 1e-12);
    }

    #[test]
    fn delays_grow_with_the_class_and_with_the_strictness() {
        let classes = [class(60.0), class(20.0), class(200.0), class(50.0)];
        let (loose, _) = solve(&classes, 0.5, 20.0, 0.5, 0.25);
        let (strict, unmet) = solve(&classes, 0.5, 20.0, 0.01, 0.25);
        assert_eq!(loose[0], 0.0);
        assert!(loose.windows(2).all(|w| w[0] <= w[1]), "{loose:?}");
        assert!(strict.iter().zip(&loose).all(|(s, l)| s >= l), "{strict:?} {loose:?}");
        assert_eq!(strict[3], 0.25, "the cap holds");
        assert_eq!(unmet, Some(ClassId(0)));
    }

    #[test]
    fn one_class_waits_for_nobody_and_the_last_for_all() {
        assert_eq!(solve(&[class(10.0)], 0.5, 10.0, 0.05, 0.25).0, vec![0.0]);
        let (two, _) = solve(&[class(10.0), class(10.0)], 0.5, 10.0, 0.01, 0.25);
        assert!(two[0] == 0.0 && two[1] > 0.0, "{two:?}");
        let (nobody, _) = solve(&[class(0.0), class(10.0), class(10.0)], 0.5, 10.0, 0.01, 0.25);
        assert!(nobody[1] == 0.0 && nobody[2] > 0.0, "who would wait for nobody does not: {nobody:?}");
    }

    #[test]
    fn full_share_forgets_and_tells_its_beginning_once() {
        let mut full = FullShare::default();
        full.record(false);
        assert!(!full.just_began());
        full.record(true);
        assert!(full.just_began());
        assert!(!full.just_began());
        assert_eq!(full.get(), 0.5);
        (0..10_000).for_each(|_| full.record(false));
        full.fade(Timestamp::from_millis(100));
        full.record(true);
        assert!(full.just_began(), "a new overload after a calm is a new beginning");
    }
}
