//! The fair share of one class: the level to which its tenants' rates are cut so that they add up to what it gets.
//!
//! Work `w` that arrives from a tenant of rate `r` is within the level `a` for the part `min(1, a / r)`. So the sum of
//! that over all arrivals is what the tenants would get at that level, and nothing has to be known of any one of them.
//! It is kept by octaves of `r` (`w`, and `w / r`), fading; the level at which it is what was admitted is found by
//! going down the octaves.

/// Octaves of rates, from 2^-24 on.
const OCTAVES: usize = 40;
const LEAST_EXPONENT: i64 = -24;
/// What arrived and was admitted fades with this time constant, seconds.
const TAU: f64 = 2.0;
/// With less than this part of the work refused there is enough for all.
const SHORT: f64 = 0.01;
/// Tenants whose work is less than this part of what the class gets do not count among the lightest, or the heaviest:
/// it is chance that they look so.
const FEW: f64 = 0.02;

/// One class.
#[derive(Clone, Debug)]
pub(super) struct Level {
    /// Per octave: work, and work by its tenant's rate.
    offered: [(f64, f64); OCTAVES],
    admitted: f64,
    /// In force; `None`: there is enough, or nobody to protect.
    level: Option<f64>,
}

impl Default for Level {
    fn default() -> Self {
        Level { offered: [(0.0, 0.0); OCTAVES], admitted: 0.0, level: None }
    }
}

impl Level {
    /// Work arrives from a tenant of this rate.
    pub(super) fn offer(&mut self, rate: f64, work: f64) {
        let (sum, by_rate) = &mut self.offered[octave(rate)];
        *sum += work;
        *by_rate += work / rate.max(f64::MIN_POSITIVE);
    }

    /// Some of it is let in.
    pub(super) fn admit(&mut self, work: f64) {
        self.admitted += work;
    }

    /// Works the level out, and lets what was counted fade.
    /// `is_alone`: there is but one tenant to speak of.
    pub(super) fn settle(&mut self, elapsed: f64, is_alone: bool) {
        self.level = if is_alone { None } else { self.work_out(self.admitted) };
        let keep = libm::exp(-elapsed / TAU);
        for (work, by_rate) in &mut self.offered {
            (*work, *by_rate) = (*work * keep, *by_rate * keep);
        }
        self.admitted *= keep;
    }

    pub(super) fn is_above(&self, rate: f64) -> bool {
        self.level.is_some_and(|level| rate > level)
    }

    /// The level; without one, infinite.
    pub(super) fn get(&self) -> f64 {
        self.level.unwrap_or(f64::INFINITY)
    }

    pub(super) fn in_force(&self) -> Option<f64> {
        self.level
    }

    /// The level while this share of all work is let in, and the work that arrives per second.
    pub(super) fn at_share(&self, share: f64) -> Option<(f64, f64)> {
        let offered = self.work();
        self.work_out(offered * share).map(|level| (level, offered / TAU))
    }

    fn work(&self) -> f64 {
        self.offered.iter().map(|(work, _)| work).sum()
    }

    fn work_out(&self, admitted: f64) -> Option<f64> {
        let offered = self.work();
        if offered <= 0.0 || admitted >= offered * (1.0 - SHORT) {
            return None;
        }
        // From the top: the octaves above the level are cut, those below are not.
        let (mut below, mut cut) = (offered, 0.0);
        for at in (0..OCTAVES).rev() {
            let (work, by_rate) = self.offered[at];
            (below, cut) = (below - work, cut + by_rate);
            // below + level x cut = admitted; it holds when the level lies in this octave or above.
            let level = (admitted - below) / cut;
            if cut > 0.0 && level >= lower_end(at) {
                return (!self.are_equals(admitted)).then_some(level);
            }
        }
        None
    }

    /// Whether all tenants offer about the same: within two octaves next to each other.
    fn are_equals(&self, admitted: f64) -> bool {
        let least = self.first_of_many(0..OCTAVES, admitted);
        let most = self.first_of_many((0..OCTAVES).rev(), admitted);
        least.zip(most).is_none_or(|(least, most)| most.saturating_sub(least) <= 1)
    }

    /// The octave at which those so far are more than a few.
    fn first_of_many(&self, mut octaves: impl Iterator<Item = usize>, admitted: f64) -> Option<usize> {
        let mut sum = 0.0;
        octaves.find(|&at| {
            sum += self.offered[at].0;
            sum > FEW * admitted
        })
    }
}

fn octave(rate: f64) -> usize {
    let exponent = (rate.max(0.0).to_bits() >> 52) as i64 - 1023;
    (exponent - LEAST_EXPONENT).clamp(0, OCTAVES as i64 - 1) as usize
}

/// The least rate of an octave.
fn lower_end(octave: usize) -> f64 {
    if octave == 0 { 0.0 } else { f64::from_bits(((octave as i64 + LEAST_EXPONENT + 1023) as u64) << 52) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::{prop, prop_assert, proptest};

    /// The level of tenants that offer so much per second, of which the class gets `admitted`.
    fn level(rates: &[f64], admitted: f64) -> Option<f64> {
        let mut level = Level::default();
        rates.iter().for_each(|&rate| level.offer(rate, rate));
        level.admit(admitted);
        level.settle(0.1, false);
        level.in_force()
    }

    proptest! {
        /// Cut to the level, the rates add up to what was admitted: within the octave in which the level lies, whose
        /// tenants are all taken for cut.
        #[test]
        fn the_level_gives_away_what_there_is(
            rates in prop::collection::vec(0.001f64..4.0, 2..60), part in 0.05f64..0.95,
        ) {
            let admitted = rates.iter().sum::<f64>() * part;
            if let Some(level) = level(&rates, admitted) {
                let given: f64 = rates.iter().map(|&rate| rate.min(level)).sum();
                prop_assert!(given <= admitted * (1.0 + 1e-9), "{given} of {admitted} at {level}");
                prop_assert!(given >= admitted * 0.5, "{given} of {admitted} at {level}");
            }
        }
    }

    #[test]
    fn the_light_are_within_and_the_heavy_above() {
        let mut rates: Vec<f64> = alloc::vec![0.005; 99];
        rates.push(3.0);
        let level = level(&rates, 1.0).expect("there is not enough");
        assert!((level - 0.505).abs() < 1e-6, "{level}");
    }

    #[test]
    fn with_enough_for_all_or_with_equals_there_is_no_level() {
        assert_eq!(level(&[0.1, 0.2, 0.4], 0.7), None);
        assert_eq!(level(&[1.0; 20], 7.0), None);
        assert_eq!(level(&[3.0], 1.0), None);
        assert_eq!(level(&[], 0.0), None);
    }
}
