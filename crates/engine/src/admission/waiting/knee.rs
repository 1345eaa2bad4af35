//! How what a server does grows with what is in service there.
//!
//! *Intuition.* Four tills serve four customers as fast as they can, and a fifth only waits. Where everybody goes on to
//! one door, already the third meets others there now and then, and the tenth still brings something.
//!
//! *Applied.* `n` requests get done what `r(n)` would that nothing slows down:
//!
//! ```text
//! r(n) = min(n, k)                         k processors, which all share
//! r(n) = n / (1 + (n / k)^2)^(1/2)         processors, and then a disk, a lock, a link, another service
//! ```
//!
//! One at a server takes `n / r(n)` times what it takes alone. Where processors are all there is, more than `k` bring
//! nothing. Where the knee is soft, one per cent more brings `1 / (1 + (n / k)^2)` per cent more: as many are worth
//! their time as bring a fifth of that ([`WORTH`]).

/// From one processor on, each step so much more; the last is 3,900.
pub(super) const STEP: f64 = 1.12;
pub(super) const STEPS: usize = 74;
/// How soft: the power, and 0 for the sharp one.
const SOFT: [f64; 2] = [0.0, 2.0];
/// One per cent more in service brings this part of one per cent.
const WORTH: f64 = 0.2;
/// What is believed of a server that was never seen: so many processors, give or take a factor of five.
const FIRST_GUESS: f64 = 8.0;
const FIRST_SPREAD: f64 = 1.6;
/// And that a soft knee is so likely.
const FIRST_SOFT: f64 = 0.03;

/// How many knees are told apart.
pub(super) const KNEES: usize = STEPS * SOFT.len();

/// A number of processors, and how what is done bends there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Knee {
    ln_processors: f64,
    soft: f64,
}

impl Knee {
    pub(super) fn all() -> impl Iterator<Item = Knee> + Clone {
        let of = |soft: f64| (0..STEPS).map(move |k| Knee { ln_processors: k as f64 * libm::log(STEP), soft });
        SOFT.into_iter().flat_map(of)
    }

    /// The one of so many processors that they share.
    #[cfg(test)]
    pub(super) fn sharp(processors: f64) -> Knee {
        Knee { ln_processors: libm::log(processors), soft: 0.0 }
    }

    /// What is believed of it before anything was seen: a logarithm.
    pub(super) fn first(self) -> f64 {
        let away = (self.ln_processors - libm::log(FIRST_GUESS)) / FIRST_SPREAD;
        let soft = if self.soft > 0.0 { libm::log(FIRST_SOFT) } else { 0.0 };
        soft - 0.5 * away * away
    }

    /// How many are worth their time: a logarithm.
    pub(super) fn ln_worth(self) -> f64 {
        match self.soft > 0.0 {
            true => self.ln_processors + libm::log(1.0 / WORTH - 1.0) / self.soft,
            false => self.ln_processors,
        }
    }

    /// What one takes among so many, over what it takes alone: both logarithms.
    pub(super) fn ln_crowd(self, ln_in_service: f64) -> f64 {
        let over = ln_in_service - self.ln_processors;
        match self.soft > 0.0 {
            true => libm::log1p(libm::exp(self.soft * over)) / self.soft,
            false => over.max(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soft_knee_bends_around_its_processors_and_one_more_is_worth_less_and_less() {
        let knee = Knee { ln_processors: libm::log(8.0), soft: 2.0 };
        let done = |n: f64| n / libm::exp(knee.ln_crowd(libm::log(n)));
        assert!((done(0.01) / 0.01 - 1.0).abs() < 0.01 && done(8.0) < 5.7 && done(1e4) > 7.9, "{}", done(8.0));
        let worth = libm::exp(knee.ln_worth());
        let brings = (done(worth * 1.001) / done(worth) - 1.0) / 0.001;
        assert!((brings - WORTH).abs() < 0.001, "{brings}");
        assert_eq!(Knee::sharp(8.0).ln_crowd(libm::log(8.0)), 0.0);
    }
}
