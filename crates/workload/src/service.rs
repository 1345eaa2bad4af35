//! How much work a request is: distributions of the inherent service time, in seconds of one core.

use rand::{Rng as RngCore, RngExt};
use rand_distr::{Distribution, Exp1, LogNormal};
use serde::{Deserialize, Serialize};

use crate::seconds::Seconds;

/// A distribution of service times, known to make sense.
///
/// Deserialised from [`ServiceTimeConfig`], for example in TOML
/// `{ distribution = "lognormal", mean = "16ms", cv = 2.0 }`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ServiceTimeConfig", into = "ServiceTimeConfig")]
pub struct ServiceTime(Kind);

/// The parameters, in seconds unless they have none, checked.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Constant { value: f64 },
    Exponential { mean: f64 },
    Uniform { min: f64, max: f64 },
    Lognormal { mean: f64, cv: f64, law: LogNormal<f64> },
    Pareto { shape: f64, min: f64, max: f64 },
    Bimodal { short: f64, long: f64, long_fraction: f64 },
}

/// A service time as written in a scenario. Durations are `"20ms"` or a number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "distribution", rename_all = "lowercase", deny_unknown_fields)]
pub enum ServiceTimeConfig {
    /// Always `value`.
    Constant {
        /// The time of every request.
        value: Seconds,
    },
    /// Exponential with this mean.
    Exponential {
        /// Mean.
        mean: Seconds,
    },
    /// Evenly between `min` and `max`.
    Uniform {
        /// Smallest.
        min: Seconds,
        /// Largest.
        max: Seconds,
    },
    /// Lognormal, by its mean and coefficient of variation.
    Lognormal {
        /// Mean.
        mean: Seconds,
        /// Standard deviation divided by the mean.
        cv: f64,
    },
    /// Pareto cut off at both ends: many small, few large, most of the work in the large ones.
    Pareto {
        /// Tail index; the smaller, the heavier the tail. 1 to 2 in measured Web traffic.
        shape: f64,
        /// Smallest.
        min: Seconds,
        /// Largest.
        max: Seconds,
    },
    /// `short`, and now and then `long`.
    Bimodal {
        /// The usual time.
        short: Seconds,
        /// The rare time.
        long: Seconds,
        /// How rare: the fraction, 0 to 1, that is long.
        long_fraction: f64,
    },
}

/// A parameter that makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("service time: `{key}` is {value}, but must be {must}")]
pub struct ServiceTimeError {
    /// The key at fault, as written in configuration.
    pub key: &'static str,
    /// Its value; seconds where it is a duration.
    pub value: f64,
    /// What it must be instead.
    pub must: &'static str,
}

impl ServiceTime {
    /// Always `value` seconds.
    ///
    /// # Errors
    /// When `value` is negative or not finite. Zero is allowed: a request that is no work.
    pub fn constant(value: f64) -> Result<Self, ServiceTimeError> {
        ServiceTimeConfig::Constant { value: Seconds(value) }.try_into()
    }

    /// Exponential with this mean, seconds.
    ///
    /// # Errors
    /// When `mean` is not a finite number above 0.
    pub fn exponential(mean: f64) -> Result<Self, ServiceTimeError> {
        ServiceTimeConfig::Exponential { mean: Seconds(mean) }.try_into()
    }

    /// Evenly between `min` and `max` seconds.
    ///
    /// # Errors
    /// When `min` is negative or `max` is below it.
    pub fn uniform(min: f64, max: f64) -> Result<Self, ServiceTimeError> {
        ServiceTimeConfig::Uniform { min: Seconds(min), max: Seconds(max) }.try_into()
    }

    /// Lognormal with this mean (seconds) and coefficient of variation.
    ///
    /// # Errors
    /// When `mean` or `cv` is not a finite number above 0.
    pub fn lognormal(mean: f64, cv: f64) -> Result<Self, ServiceTimeError> {
        ServiceTimeConfig::Lognormal { mean: Seconds(mean), cv }.try_into()
    }

    /// Pareto with tail index `shape`, cut off at `min` and `max` seconds.
    ///
    /// # Errors
    /// When `shape` or `min` is not a finite number above 0, or `max` is not above `min`.
    pub fn pareto(shape: f64, min: f64, max: f64) -> Result<Self, ServiceTimeError> {
        ServiceTimeConfig::Pareto { shape, min: Seconds(min), max: Seconds(max) }.try_into()
    }

    /// `short` seconds, and with probability `long_fraction` `long` seconds.
    ///
    /// # Errors
    /// When a time is negative, `long` is below `short`, or the fraction is outside 0 to 1.
    pub fn bimodal(short: f64, long: f64, long_fraction: f64) -> Result<Self, ServiceTimeError> {
        ServiceTimeConfig::Bimodal { short: Seconds(short), long: Seconds(long), long_fraction }.try_into()
    }

    /// Mean, seconds.
    pub fn mean(&self) -> f64 {
        self.moment(1)
    }

    /// Variance, seconds squared.
    pub fn variance(&self) -> f64 {
        (self.moment(2) - self.moment(1).powi(2)).max(0.0)
    }

    /// One service time, seconds.
    pub fn sample<R: RngCore + ?Sized>(&self, rng: &mut R) -> f64 {
        match self.0 {
            Kind::Constant { value } => value,
            Kind::Exponential { mean } => {
                let unit: f64 = Exp1.sample(rng);
                mean * unit
            }
            Kind::Uniform { min, max } => min + (max - min) * rng.random::<f64>(),
            Kind::Lognormal { law, .. } => law.sample(rng),
            Kind::Pareto { shape, min, max } => {
                let kept = 1.0 - (min / max).powf(shape);
                (min * (1.0 - rng.random::<f64>() * kept).powf(-1.0 / shape)).min(max)
            }
            Kind::Bimodal { short, long, long_fraction } => {
                if rng.random::<f64>() < long_fraction {
                    long
                } else {
                    short
                }
            }
        }
    }

    /// The `n`-th moment about zero, n = 1 or 2.
    fn moment(&self, n: i32) -> f64 {
        match self.0 {
            Kind::Constant { value } => value.powi(n),
            Kind::Exponential { mean } => mean.powi(n) * f64::from(n),
            // E[X] and E[X^2] of a uniform are the sums of products of its ends over n + 1.
            Kind::Uniform { min, max } if n == 1 => (min + max) / 2.0,
            Kind::Uniform { min, max } => (min * min + min * max + max * max) / 3.0,
            Kind::Lognormal { mean, cv, .. } => mean.powi(n) * if n == 1 { 1.0 } else { 1.0 + cv * cv },
            Kind::Pareto { shape, min, max } => pareto_moment(shape, min, max, f64::from(n)),
            Kind::Bimodal { short, long, long_fraction } => {
                short.powi(n) * (1.0 - long_fraction) + long.powi(n) * long_fraction
            }
        }
    }
}

/// `E[X^n]` of a Pareto of index `shape` cut off at `min` and `max`.
fn pareto_moment(shape: f64, min: f64, max: f64, n: f64) -> f64 {
    let scale = shape * min.powf(shape) / (1.0 - (min / max).powf(shape));
    // The integral of x^(n-shape-1); near n = shape it turns into a logarithm.
    let power = n - shape;
    let integral = if power.abs() < 1e-9 { (max / min).ln() } else { (max.powf(power) - min.powf(power)) / power };
    scale * integral
}

impl TryFrom<ServiceTimeConfig> for ServiceTime {
    type Error = ServiceTimeError;

    fn try_from(config: ServiceTimeConfig) -> Result<ServiceTime, ServiceTimeError> {
        Ok(ServiceTime(match config {
            ServiceTimeConfig::Constant { value } => Kind::Constant { value: not_negative("value", value.0)? },
            ServiceTimeConfig::Exponential { mean } => Kind::Exponential { mean: positive("mean", mean.0)? },
            ServiceTimeConfig::Uniform { min, max } => {
                let min = not_negative("min", min.0)?;
                Kind::Uniform { min, max: at_least("max", max.0, min, "finite and not below `min`")? }
            }
            ServiceTimeConfig::Lognormal { mean, cv } => lognormal(positive("mean", mean.0)?, positive("cv", cv)?)?,
            ServiceTimeConfig::Pareto { shape, min, max } => {
                let min = positive("min", min.0)?;
                let max = check("max", max.0, max.0 > min, "a finite number above `min`")?;
                Kind::Pareto { shape: positive("shape", shape)?, min, max }
            }
            ServiceTimeConfig::Bimodal { short, long, long_fraction } => {
                let short = not_negative("short", short.0)?;
                let long = at_least("long", long.0, short, "finite and not below `short`")?;
                let inside = (0.0..=1.0).contains(&long_fraction);
                let long_fraction = check("long_fraction", long_fraction, inside, "from 0 to 1")?;
                Kind::Bimodal { short, long, long_fraction }
            }
        }))
    }
}

fn lognormal(mean: f64, cv: f64) -> Result<Kind, ServiceTimeError> {
    let error = ServiceTimeError { key: "cv", value: cv, must: "small enough for a finite variance" };
    let law = LogNormal::from_mean_cv(mean, cv).map_err(|_| error)?;
    Ok(Kind::Lognormal { mean, cv, law })
}

fn positive(key: &'static str, value: f64) -> Result<f64, ServiceTimeError> {
    check(key, value, value > 0.0, "a finite number above 0")
}

fn not_negative(key: &'static str, value: f64) -> Result<f64, ServiceTimeError> {
    check(key, value, value >= 0.0, "a finite number, 0 or more")
}

fn at_least(key: &'static str, value: f64, least: f64, must: &'static str) -> Result<f64, ServiceTimeError> {
    check(key, value, value >= least, must)
}

fn check(key: &'static str, value: f64, good: bool, must: &'static str) -> Result<f64, ServiceTimeError> {
    if good && value.is_finite() { Ok(value) } else { Err(ServiceTimeError { key, value, must }) }
}

impl From<ServiceTime> for ServiceTimeConfig {
    fn from(time: ServiceTime) -> ServiceTimeConfig {
        match time.0 {
            Kind::Constant { value } => ServiceTimeConfig::Constant { value: Seconds(value) },
            Kind::Exponential { mean } => ServiceTimeConfig::Exponential { mean: Seconds(mean) },
            Kind::Uniform { min, max } => ServiceTimeConfig::Uniform { min: Seconds(min), max: Seconds(max) },
            Kind::Lognormal { mean, cv, .. } => ServiceTimeConfig::Lognormal { mean: Seconds(mean), cv },
            Kind::Pareto { shape, min, max } => {
                ServiceTimeConfig::Pareto { shape, min: Seconds(min), max: Seconds(max) }
            }
            Kind::Bimodal { short, long, long_fraction } => {
                ServiceTimeConfig::Bimodal { short: Seconds(short), long: Seconds(long), long_fraction }
            }
        }
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
            prop_assert_eq!(std::mem::discriminant(&read.0), std::mem::discriminant(&time.0));
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
        assert_eq!(ServiceTime::exponential(0.0).unwrap_err().key, "mean");
        assert_eq!(ServiceTime::uniform(0.2, 0.1).unwrap_err().key, "max");
        assert_eq!(ServiceTime::lognormal(0.1, f64::NAN).unwrap_err().key, "cv");
        assert_eq!(ServiceTime::pareto(1.5, 0.1, 0.1).unwrap_err().key, "max");
        assert_eq!(ServiceTime::bimodal(0.1, 0.2, 1.5).unwrap_err().key, "long_fraction");
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
    }
}
