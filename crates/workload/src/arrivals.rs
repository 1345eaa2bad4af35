//! Arrival processes: the instants at which requests come, given a rate over time.
//!
//! Every process here is a sequence of gaps with mean 1, laid along the *expected count* of a [`Profile`] rather than
//! along time, and carried back to time through the inverse of that count. For a Poisson process this change of time is
//! exact (no thinning, no step error at a ramp), and a renewal process needs nothing but other gaps.

use std::fmt;
use std::iter::FusedIterator;
use std::str::FromStr;
use std::time::Duration;

use rand::RngExt;
use rand_distr::{Distribution, Exp1};
use serde::{Deserialize, Serialize};

use crate::profile::{Piece, Profile};
use crate::{Rng, rng};

/// How arrivals are spread around the offered rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ArrivalProcess {
    /// Evenly spaced. Where in its first gap a stream starts is random, so that several streams do not march in step.
    Constant,
    /// Independent of each other: exponential gaps. What many users who know nothing of each other make.
    #[default]
    Poisson,
}

impl ArrivalProcess {
    /// Every process, for help texts and tests.
    pub const ALL: [ArrivalProcess; 2] = [ArrivalProcess::Constant, ArrivalProcess::Poisson];

    /// The name used in configuration.
    pub fn name(self) -> &'static str {
        match self {
            ArrivalProcess::Constant => "constant",
            ArrivalProcess::Poisson => "poisson",
        }
    }

    /// The instants of arrival under `profile`. Equal seed and stream give equal instants.
    pub fn arrivals(self, profile: &Profile, seed: u64, stream: u64) -> Arrivals {
        let mut rng = rng(seed, stream);
        let phase = match self {
            ArrivalProcess::Constant => rng.random::<f64>() - 1.0,
            ArrivalProcess::Poisson => 0.0,
        };
        let mut pieces: Vec<Piece> = profile.pieces().collect();
        pieces.reverse();
        Arrivals { process: self, rng, remaining: pieces, count: phase }
    }

    /// The next gap, in expected arrivals; its mean is 1.
    fn gap(self, rng: &mut Rng) -> f64 {
        match self {
            ArrivalProcess::Constant => 1.0,
            ArrivalProcess::Poisson => Exp1.sample(rng),
        }
    }
}

impl fmt::Display for ArrivalProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no arrival process has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown arrival process {0:?}: use \"poisson\" or \"constant\"")]
pub struct UnknownProcess(pub String);

impl FromStr for ArrivalProcess {
    type Err = UnknownProcess;

    fn from_str(text: &str) -> Result<Self, UnknownProcess> {
        Self::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| UnknownProcess(text.to_owned()))
    }
}

/// The instants of arrival, since the start and never decreasing. Ends when the profile does.
#[derive(Debug, Clone)]
pub struct Arrivals {
    process: ArrivalProcess,
    rng: Rng,
    /// The pieces not yet over, the next one last.
    remaining: Vec<Piece>,
    /// Expected arrivals from the start of the current piece to the last arrival.
    count: f64,
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.count += self.process.gap(&mut self.rng);
        while let Some(piece) = self.remaining.last() {
            let area = piece.area();
            if self.count < area {
                return Duration::try_from_secs_f64(piece.instant_of(self.count)).ok();
            }
            self.count -= area;
            self.remaining.pop();
        }
        None
    }
}

impl FusedIterator for Arrivals {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rate;
    use proptest::prelude::*;

    fn profile(text: &str) -> Profile {
        text.parse().unwrap()
    }

    #[test]
    fn constant_is_even() {
        let times: Vec<f64> =
            ArrivalProcess::Constant.arrivals(&profile("0s:50/s, 10s:end"), 1, 0).map(|t| t.as_secs_f64()).collect();
        assert_eq!(times.len(), 500);
        assert!(times.windows(2).all(|w| (w[1] - w[0] - 0.02).abs() < 1e-6));
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let times: Vec<f64> =
            ArrivalProcess::Poisson.arrivals(&profile("100/s"), 3, 0).take(100_000).map(|t| t.as_secs_f64()).collect();
        let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) * 100.0).collect();
        let n = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / n;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / n;
        assert!((mean - 1.0).abs() < 4.0 / n.sqrt(), "mean {mean}");
        // The variance of a sample variance of exponentials is 8/n.
        assert!((variance - 1.0).abs() < 4.0 * (8.0 / n).sqrt(), "variance {variance}");
        let beyond = gaps.iter().filter(|&&g| g > 3.0).count() as f64 / n;
        assert!((beyond - (-3.0f64).exp()).abs() < 0.003, "P(gap > 3) {beyond}");
    }

    #[test]
    fn poisson_follows_a_ramp() {
        let ramp = profile("0s..100s:0/s->200/s, 100s:end");
        let mut counts = [0u32; 10];
        for t in ArrivalProcess::Poisson.arrivals(&ramp, 9, 0) {
            counts[(t.as_secs_f64() / 10.0) as usize] += 1;
        }
        for (i, &count) in counts.iter().enumerate() {
            let expected = 10.0 * (20.0 * i as f64 + 10.0);
            assert!((f64::from(count) - expected).abs() < 4.5 * expected.sqrt(), "{i}: {count} for {expected}");
        }
    }

    #[test]
    fn nothing_arrives_at_rate_zero() {
        assert_eq!(ArrivalProcess::Poisson.arrivals(&profile("0/s"), 1, 0).next(), None);
        let mut late = ArrivalProcess::Constant.arrivals(&profile("0s:0/s, 5s:10/s, 6s:0/s"), 1, 0);
        assert!(late.next().unwrap() >= Duration::from_secs(5));
        assert_eq!(late.by_ref().count(), 9);
        assert_eq!(late.next(), None);
    }

    #[test]
    fn streams_of_one_seed_differ() {
        let take = |seed, stream| {
            ArrivalProcess::Poisson.arrivals(&profile("100/s"), seed, stream).take(5).collect::<Vec<_>>()
        };
        assert_eq!(take(7, 0), take(7, 0));
        assert_ne!(take(7, 0), take(7, 1));
        assert_ne!(take(7, 0), take(8, 0));
    }

    proptest! {
        #[test]
        fn arrivals_match_the_profile(seed: u64, steps in prop::collection::vec((1u32..20, 0u32..200, 0u32..200), 1..6)) {
            let mut builder = Profile::builder();
            let mut at = 0;
            for (length, from, to) in steps {
                let rate = |n: u32| Rate::new(f64::from(n)).unwrap();
                let (start, stop) = (Duration::from_secs(at), Duration::from_secs(at + u64::from(length)));
                builder = builder.ramp(start, stop, rate(from), rate(to));
                at += u64::from(length);
            }
            let profile = builder.end(Duration::from_secs(at)).build().unwrap();
            let expected = profile.expected_until(Duration::from_secs(at));
            for process in ArrivalProcess::ALL {
                let times: Vec<_> = process.arrivals(&profile, seed, 0).collect();
                prop_assert!(times.is_sorted());
                prop_assert!(times.last().is_none_or(|t| *t <= Duration::from_secs(at)));
                let allowed = match process {
                    ArrivalProcess::Constant => 1.0,
                    // Six deviations: a false alarm in about a billion cases, and a little for small counts.
                    ArrivalProcess::Poisson => 6.0 * expected.sqrt() + 8.0,
                };
                prop_assert!((times.len() as f64 - expected).abs() <= allowed, "{process}: {} for {expected}", times.len());
            }
            prop_assert_eq!(&profile.to_string().parse::<Profile>().unwrap(), &profile);
        }
    }
}
