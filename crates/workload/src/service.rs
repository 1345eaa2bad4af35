//! Work of a request: distributions of the inherent service time, in seconds of one core.

use rand::Rng as RngCore;
use serde::{Deserialize, Serialize};

use crate::distribution::{Distribution, DistributionConfig, DistributionError};
use crate::seconds::Seconds;

/// A distribution of service times, known to make sense and to have a mean.
///
/// Deserialised from [`ServiceTimeConfig`], for example in TOML
/// `{ distribution = "lognormal", mean = "16ms", cv = 2.0 }`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ServiceTimeConfig", into = "ServiceTimeConfig")]
pub struct ServiceTime(Distribution);

/// A service time as written in a scenario. Durations are `"20ms"` or a number of seconds.
pub type ServiceTimeConfig = DistributionConfig<Seconds>;

/// A parameter that makes no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("service time: {0}")]
pub struct ServiceTimeError(#[from] DistributionError);

impl ServiceTimeError {
    /// The key at fault, as written in configuration.
    pub fn key(&self) -> &'static str {
        self.0.key()
    }
}

impl ServiceTime {
    /// Always `value` seconds.
    ///
    /// # Errors
    /// When `value` is negative or not finite. Zero is allowed: a request that is no work.
    pub fn constant(value: f64) -> Result<Self, ServiceTimeError> {
        Distribution::constant(value)?.try_into()
    }

    /// Exponential with this mean, seconds.
    ///
    /// # Errors
    /// When `mean` is not a finite number above 0.
    pub fn exponential(mean: f64) -> Result<Self, ServiceTimeError> {
        Distribution::exponential(mean)?.try_into()
    }

    /// Evenly between `min` and `max` seconds.
    ///
    /// # Errors
    /// When `min` is negative or `max` is below it.
    pub fn uniform(min: f64, max: f64) -> Result<Self, ServiceTimeError> {
        Distribution::uniform(min, max)?.try_into()
    }

    /// Lognormal with this mean (seconds) and coefficient of variation.
    ///
    /// # Errors
    /// When `mean` or `cv` is not a finite number above 0.
    pub fn lognormal(mean: f64, cv: f64) -> Result<Self, ServiceTimeError> {
        Distribution::lognormal(mean, cv)?.try_into()
    }

    /// Pareto with tail index `shape`, cut off at `min` and `max` seconds.
    ///
    /// # Errors
    /// When `shape` or `min` is not a finite number above 0, or `max` is not above `min`.
    pub fn pareto(shape: f64, min: f64, max: f64) -> Result<Self, ServiceTimeError> {
        Distribution::bounded_pareto(shape, min, max)?.try_into()
    }

    /// `short` seconds, and with probability `long_fraction` `long` seconds.
    ///
    /// # Errors
    /// When a time is negative, `long` is below `short`, or the fraction is outside 0 to 1.
    pub fn bimodal(short: f64, long: f64, long_fraction: f64) -> Result<Self, ServiceTimeError> {
        Distribution::bimodal(short, long, long_fraction)?.try_into()
    }

    /// Mean, seconds; always finite.
    pub fn mean(&self) -> f64 {
        self.0.mean()
    }

    /// Variance, seconds squared; infinite for a Pareto tail of index 2 or less.
    pub fn variance(&self) -> f64 {
        self.0.variance()
    }

    /// One service time, seconds.
    pub fn sample<R: RngCore + ?Sized>(&self, rng: &mut R) -> f64 {
        self.0.sample(rng)
    }

    /// The same law with every time multiplied by `factor`.
    ///
    /// # Panics
    /// When `factor` is not a finite number above 0.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> ServiceTime {
        assert!(factor.is_finite() && factor > 0.0, "a factor of {factor}");
        let scaled = self.0.scaled(factor).ok().and_then(|law| law.try_into().ok());
        scaled.expect("a law of times stays one when it is stretched")
    }

    /// The distribution, in seconds.
    pub fn distribution(&self) -> Distribution {
        self.0
    }
}

impl TryFrom<Distribution> for ServiceTime {
    type Error = ServiceTimeError;

    /// # Errors
    /// When it has no finite mean: no number of servers could do such work.
    fn try_from(distribution: Distribution) -> Result<ServiceTime, ServiceTimeError> {
        if distribution.mean().is_finite() {
            return Ok(ServiceTime(distribution));
        }
        let must = "above 1 (without `max` there is no finite mean else)";
        let value = distribution.tail_index().unwrap_or(f64::INFINITY);
        Err(DistributionError::Value { key: "shape", value, must }.into())
    }
}

impl TryFrom<ServiceTimeConfig> for ServiceTime {
    type Error = ServiceTimeError;

    fn try_from(config: ServiceTimeConfig) -> Result<ServiceTime, ServiceTimeError> {
        config.resolve()?.try_into()
    }
}

impl From<ServiceTime> for ServiceTimeConfig {
    fn from(time: ServiceTime) -> ServiceTimeConfig {
        ServiceTimeConfig::of(time.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng;
    use proptest::prelude::*;

    fn any_service_time() -> impl Strategy<Value = ServiceTime> {
        let time = 0.001f64..0.5;
        prop_oneof![
            time.clone().prop_map(|v| ServiceTime::constant(v).unwrap()),
            time.clone().prop_map(|m| ServiceTime::exponential(m).unwrap()),
            (time.clone(), 0.0f64..1.0).prop_map(|(a, b)| ServiceTime::uniform(a, a + b).unwrap()),
            (time.clone(), 0.1f64..2.0).prop_map(|(m, cv)| ServiceTime::lognormal(m, cv).unwrap()),
            (1.0f64..3.0, time.clone(), 2.0f64..50.0).prop_map(|(a, l, k)| ServiceTime::pareto(a, l, l * k).unwrap()),
            (time.clone(), time, 0.0f64..1.0).prop_map(|(a, b, p)| ServiceTime::bimodal(a, a + b, p).unwrap()),
        ]
    }

    proptest! {
        #[test]
        fn samples_have_the_stated_mean(time in any_service_time(), seed: u64) {
            let n = 20_000;
            let mut rng = rng(seed, 0);
            let samples: Vec<f64> = (0..n).map(|_| time.sample(&mut rng)).collect();
            prop_assert!(samples.iter().all(|s| s.is_finite() && *s >= 0.0));
            let mean = samples.iter().sum::<f64>() / f64::from(n);
            let allowed = 6.0 * (time.variance() / f64::from(n)).sqrt() + 1e-9;
            prop_assert!((mean - time.mean()).abs() < allowed, "{mean} for {}", time.mean());
        }

        #[test]
        fn equal_seeds_give_equal_samples(time in any_service_time(), seed: u64) {
            let draw = || { let mut rng = rng(seed, 4); (0..20).map(|_| time.sample(&mut rng)).collect::<Vec<_>>() };
            prop_assert_eq!(draw(), draw());
        }

        #[test]
        fn written_and_read_back(time in any_service_time()) {
            let text = serde_json::to_string(&time).unwrap();
            let read = serde_json::from_str::<ServiceTime>(&text).unwrap();
            // JSON may lose the last digit of a number.
            prop_assert_eq!(read.distribution().name(), time.distribution().name());
            prop_assert!((read.mean() / time.mean() - 1.0).abs() < 1e-9);
            prop_assert!((read.variance() - time.variance()).abs() < 1e-9);
        }
    }

    #[test]
    fn variances_match_samples() {
        for time in [
            ServiceTime::exponential(0.2).unwrap(),
            ServiceTime::uniform(0.1, 0.7).unwrap(),
            ServiceTime::lognormal(0.1, 0.5).unwrap(),
            ServiceTime::pareto(2.0, 0.1, 0.8).unwrap(),
            ServiceTime::bimodal(0.1, 1.0, 0.2).unwrap(),
        ] {
            let mut rng = rng(1, 0);
            let samples: Vec<f64> = (0..200_000).map(|_| time.sample(&mut rng)).collect();
            let mean = samples.iter().sum::<f64>() / samples.len() as f64;
            let variance = samples.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / samples.len() as f64;
            assert!((variance / time.variance() - 1.0).abs() < 0.05, "{time:?}: {variance} for {}", time.variance());
        }
    }

    #[test]
    fn errors_name_the_key() {
        assert_eq!(ServiceTime::exponential(0.0).unwrap_err().key(), "mean");
        assert_eq!(ServiceTime::uniform(0.2, 0.1).unwrap_err().key(), "max");
        assert_eq!(ServiceTime::lognormal(0.1, f64::NAN).unwrap_err().key(), "cv");
        assert_eq!(ServiceTime::pareto(1.5, 0.1, 0.1).unwrap_err().key(), "max");
        assert_eq!(ServiceTime::bimodal(0.1, 0.2, 1.5).unwrap_err().key(), "long_fraction");
        let error = ServiceTime::constant(-1.0).unwrap_err();
        assert_eq!(error.to_string(), "service time: `value` is -1, but must be a finite number, 0 or more");
    }

    #[test]
    fn read_from_configuration() {
        let time: ServiceTime = serde_json::from_str(r#"{"distribution":"exponential","mean":"16ms"}"#).unwrap();
        assert_eq!(time.mean(), 0.016);
        let unknown = r#"{"distribution":"exponential","mean":"16ms","cv":1}"#;
        assert!(serde_json::from_str::<ServiceTime>(unknown).unwrap_err().to_string().contains("cv"));
        let bad = r#"{"distribution":"exponential","mean":0}"#;
        assert!(serde_json::from_str::<ServiceTime>(bad).unwrap_err().to_string().contains("`mean` is 0"));
        let endless = r#"{"distribution":"pareto","shape":1,"min":"1ms"}"#;
        let said = serde_json::from_str::<ServiceTime>(endless).unwrap_err().to_string();
        assert!(said.contains("`shape` is 1, but must be above 1"), "{said}");
    }
}
