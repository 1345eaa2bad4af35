//! Arrival processes: the instants at which requests come, given a rate over time.
//!
//! Every process here is a sequence of gaps with mean 1, laid along the *expected count* of a [`Profile`] rather than
//! along time, and carried back to time through the inverse of that count. For a Poisson process this change of time is
//! exact (no thinning, no step error at a ramp), and a renewal process needs nothing but other gaps. Only a modulated
//! process looks at the time itself: its states last seconds, not arrivals.

use std::fmt;
use std::iter::FusedIterator;
use std::time::Duration;

use rand::RngExt;
use rand_distr::{Distribution as _, Exp1};
use serde::{Deserialize, Serialize};

use crate::profile::{Piece, Profile};
use crate::{Distribution, Rng, rng};

mod config;
mod mmpp;

pub use config::ProcessError;
pub use mmpp::{Mmpp, MmppState};

use mmpp::Modulation;

/// How arrivals are spread around the offered rate. A profile says how many come on average, a process how evenly.
///
/// In configuration `"poisson"`, `"constant"`, or a table:
///
/// ```toml
/// arrivals = { process = "renewal", gaps = { distribution = "lognormal", mean = 1, cv = 3 } }
/// ```
///
/// ```toml
/// arrivals = { process = "mmpp", states = [{ rate = 1, sojourn = "20s" }, { rate = 8, sojourn = "2s" }] }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "config::Written", into = "config::Written")]
#[non_exhaustive]
pub enum ArrivalProcess {
    /// Evenly spaced. Where in its first gap a stream starts is random, so that several streams do not march in step.
    Constant,
    /// Independent of each other: exponential gaps. What many users who know nothing of each other make.
    #[default]
    Poisson,
    /// Independent gaps of any distribution with a mean: only its shape counts, the profile gives the rate.
    Renewal(Distribution),
    /// Poisson whose rate a chain of states multiplies: bursts.
    Mmpp(&'static Mmpp),
}

impl ArrivalProcess {
    /// Every process without parameters, for help texts and tests.
    pub const ALL: [ArrivalProcess; 2] = [ArrivalProcess::Constant, ArrivalProcess::Poisson];

    /// Independent gaps, of the shape of `gaps`.
    ///
    /// # Errors
    /// When `gaps` has no finite mean above 0.
    pub fn renewal(gaps: Distribution) -> Result<ArrivalProcess, ProcessError> {
        let mean = gaps.mean();
        if mean.is_finite() && mean > 0.0 { Ok(ArrivalProcess::Renewal(gaps)) } else { Err(ProcessError::Gaps(mean)) }
    }

    /// A Poisson process whose rate is multiplied by a chain of states. Their rates count relative to each other: in
    /// the long run the profile's rate is met.
    ///
    /// # Errors
    /// When states or transitions make no sense.
    pub fn mmpp(states: Vec<MmppState>, transitions: Option<Vec<Vec<f64>>>) -> Result<ArrivalProcess, ProcessError> {
        Mmpp::new(states, transitions).map(ArrivalProcess::Mmpp)
    }

    /// The name used in configuration.
    pub fn name(self) -> &'static str {
        match self {
            ArrivalProcess::Constant => "constant",
            ArrivalProcess::Poisson => "poisson",
            ArrivalProcess::Renewal(_) => "renewal",
            ArrivalProcess::Mmpp(_) => "mmpp",
        }
    }

    /// The instants of arrival under `profile`. Equal seed and stream give equal instants.
    pub fn arrivals(self, profile: &Profile, seed: u64, stream: u64) -> Arrivals {
        let mut rng = rng(seed, stream);
        let (mut phase, mut modulation, mut mean_gap) = (0.0, None, 1.0);
        match self {
            ArrivalProcess::Constant => phase = rng.random::<f64>() - 1.0,
            ArrivalProcess::Poisson => {}
            ArrivalProcess::Renewal(gaps) => mean_gap = gaps.mean(),
            ArrivalProcess::Mmpp(chain) => modulation = Some(Modulation::start(chain, &mut rng)),
        }
        let mut pieces: Vec<Piece> = profile.pieces().collect();
        pieces.reverse();
        Arrivals { process: self, mean_gap, modulation, rng, remaining: pieces, count: phase }
    }
}

impl fmt::Display for ArrivalProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The instants of arrival, since the start and never decreasing. Ends when the profile does.
#[derive(Debug, Clone)]
pub struct Arrivals {
    process: ArrivalProcess,
    /// What gaps are divided by, so that their mean is 1.
    mean_gap: f64,
    modulation: Option<Modulation>,
    rng: Rng,
    /// The pieces not yet over, the next one last.
    remaining: Vec<Piece>,
    /// Expected arrivals from the start of the current piece to the last arrival.
    count: f64,
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let gap = self.gap();
        match &mut self.modulation {
            None => self.count += gap,
            Some(modulation) => modulation.go_on(gap, &mut self.count, &mut self.remaining, &mut self.rng),
        }
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

impl Arrivals {
    /// The next gap, in expected arrivals; its mean is 1.
    fn gap(&mut self) -> f64 {
        match self.process {
            ArrivalProcess::Constant => 1.0,
            ArrivalProcess::Poisson | ArrivalProcess::Mmpp(_) => Exp1.sample(&mut self.rng),
            ArrivalProcess::Renewal(gaps) => gaps.sample(&mut self.rng) / self.mean_gap,
        }
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

    fn counts(process: ArrivalProcess, seed: u64, windows: usize, seconds: f64) -> Vec<f64> {
        let end = windows as f64 * seconds;
        let mut counts = vec![0.0; windows];
        for t in process.arrivals(&profile(&format!("0s:50/s, {end}s:end")), seed, 0) {
            counts[((t.as_secs_f64() / seconds) as usize).min(windows - 1)] += 1.0;
        }
        counts
    }

    /// Mean, and variance over mean (index of dispersion).
    fn dispersion(counts: &[f64]) -> (f64, f64) {
        let n = counts.len() as f64;
        let mean = counts.iter().sum::<f64>() / n;
        (mean, counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / n / mean)
    }

    #[test]
    fn the_dispersion_of_a_renewal_process_is_that_of_its_gaps() {
        // Of counts over a long time it tends to the squared coefficient of variation of a gap.
        for (gaps, cv) in [
            (Distribution::lognormal(7.0, 2.0).unwrap(), 2.0),
            (Distribution::uniform(0.5, 1.5).unwrap(), (1.0f64 / 12.0).sqrt()),
            (Distribution::exponential(0.1).unwrap(), 1.0),
        ] {
            let (mean, index) = dispersion(&counts(ArrivalProcess::renewal(gaps).unwrap(), 3, 4000, 20.0));
            assert!((mean / 1000.0 - 1.0).abs() < 0.01, "{gaps:?}: {mean} in 20 s of 50/s");
            assert!((index / (cv * cv) - 1.0).abs() < 0.1, "{gaps:?}: {index} for {}", cv * cv);
        }
    }

    #[test]
    fn bursts_have_the_dispersion_that_theory_gives() {
        let seconds = |s: f64| Duration::from_secs_f64(s);
        let state = |rate, sojourn| MmppState { rate, sojourn: seconds(sojourn) };
        let process = ArrivalProcess::mmpp(vec![state(1.0, 0.4), state(5.0, 0.1)], None).unwrap();
        let (mean, index) = dispersion(&counts(process, 7, 6000, 20.0));
        assert!((mean / 1000.0 - 1.0).abs() < 0.01, "{mean} in 20 s of 50/s");
        // Fischer and Meier-Hellstern, The MMPP cookbook (1993): the limit of the index of dispersion of two states.
        let factor = 50.0 / (0.8 * 1.0 + 0.2 * 5.0);
        let (a, b, r, s) = (factor, 5.0 * factor, 1.0 / 0.4, 1.0 / 0.1);
        let theory = 1.0 + 2.0 * (a - b) * (a - b) * r * s / ((r + s) * (r + s) * (a * s + b * r));
        assert!((index / theory - 1.0).abs() < 0.08, "{index} for {theory}");
    }

    #[test]
    fn bursts_survive_a_silence_and_follow_a_step() {
        let state = |rate, sojourn| MmppState { rate, sojourn: Duration::from_millis(sojourn) };
        let process = ArrivalProcess::mmpp(vec![state(0.0, 1), state(3.0, 2), state(1.0, 3)], None).unwrap();
        let profile = profile("0s:100/s, 10s:0/s, 1000000s:400/s, 1000010s:end");
        let times: Vec<f64> = process.arrivals(&profile, 2, 0).map(|t| t.as_secs_f64()).collect();
        assert!(times.is_sorted() && times.iter().all(|t| *t < 10.0 || *t >= 1e6));
        let late = times.iter().filter(|t| **t >= 1e6).count();
        assert!(
            (3600..4400).contains(&late) && (800..1200).contains(&(times.len() - late)),
            "{late} of {}",
            times.len()
        );
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
                    _ => 6.0 * expected.sqrt() + 8.0,
                };
                prop_assert!((times.len() as f64 - expected).abs() <= allowed, "{process}: {} for {expected}", times.len());
            }
            prop_assert_eq!(&profile.to_string().parse::<Profile>().unwrap(), &profile);
        }
    }
}
