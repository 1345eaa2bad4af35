//! The service level agreement: a response-time target that may relax as the arrival rate grows
//! (Cataclysm, section 2 and figure 1).

use alloc::vec::Vec;
use core::time::Duration;
use thiserror::Error;

/// Which statistic of the response time of admitted requests the target bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// Mean of the response times.
    Mean,
    /// 90th percentile of the response times.
    P90,
    /// 95th percentile of the response times.
    #[default]
    P95,
    /// 99th percentile of the response times.
    P99,
}

impl Statistic {
    /// Every statistic, in a fixed order.
    pub const ALL: [Statistic; 4] = [Statistic::Mean, Statistic::P90, Statistic::P95, Statistic::P99];

    /// The one of this name; `None` where there is none.
    pub fn of(name: &str) -> Option<Statistic> {
        Statistic::ALL.into_iter().find(|statistic| statistic.name() == name)
    }

    /// The quantile, 0 to 1; `None` for the mean.
    pub const fn quantile(self) -> Option<f64> {
        match self {
            Statistic::Mean => None,
            Statistic::P90 => Some(0.90),
            Statistic::P95 => Some(0.95),
            Statistic::P99 => Some(0.99),
        }
    }

    /// Its name in configuration and output.
    pub const fn name(self) -> &'static str {
        match self {
            Statistic::Mean => "mean",
            Statistic::P90 => "p90",
            Statistic::P95 => "p95",
            Statistic::P99 => "p99",
        }
    }
}

/// Which time of a request the target bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bounds {
    /// From its arrival to the last byte of its answer; of a stream, to the first.
    #[default]
    Response,
    /// From its arrival to the first byte of its answer.
    FirstByte,
}

impl Bounds {
    /// Both, in a fixed order.
    pub const ALL: [Bounds; 2] = [Bounds::Response, Bounds::FirstByte];

    /// Its name in configuration and output.
    pub const fn name(self) -> &'static str {
        match self {
            Bounds::Response => "response",
            Bounds::FirstByte => "first-byte",
        }
    }
}

/// One step of the target function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The step holds while the application's arrival rate is below this, requests per second.
    pub below: f64,
    /// The target, more than zero.
    pub target: Duration,
}

/// A target as a step function of the application's arrival rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Sla {
    statistic: Statistic,
    bounds: Bounds,
    steps: Vec<Step>,
}

impl Sla {
    /// One target at every rate.
    ///
    /// # Errors
    /// When `target` is zero.
    pub fn constant(statistic: Statistic, target: Duration) -> Result<Self, SlaError> {
        Sla::new(statistic, alloc::vec![Step { below: f64::INFINITY, target }])
    }

    /// Steps with growing rates; the last must be unbounded (`below` infinite).
    ///
    /// # Errors
    /// When there is no step, a target is zero or shorter than the one before, the rates do not grow, or the last
    /// step is bounded.
    pub fn new(statistic: Statistic, steps: Vec<Step>) -> Result<Self, SlaError> {
        let last = steps.last().ok_or(SlaError::NoSteps)?;
        if last.below != f64::INFINITY {
            return Err(SlaError::LastStepBounded);
        }
        if let Some(at) = steps.iter().position(|s| s.target.is_zero()) {
            return Err(SlaError::ZeroTarget { step: at + 1 });
        }
        if let Some(at) = steps.windows(2).position(|w| !(w[0].below > 0.0 && w[0].below < w[1].below)) {
            return Err(SlaError::RatesNotGrowing { step: at + 2 });
        }
        if let Some(at) = steps.windows(2).position(|w| w[1].target < w[0].target) {
            return Err(SlaError::TargetTightens { step: at + 2 });
        }
        Ok(Sla { statistic, bounds: Bounds::default(), steps })
    }

    /// The same targets for another time of requests.
    pub fn bounding(self, bounds: Bounds) -> Self {
        Sla { bounds, ..self }
    }

    /// Which time of a request they bound.
    pub const fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// The target at an arrival rate of `rate` requests per second.
    pub fn target(&self, rate: f64) -> Duration {
        let step = self.steps.iter().find(|s| rate < s.below);
        step.or(self.steps.last()).map_or(Duration::MAX, |s| s.target)
    }

    /// What the target bounds.
    pub const fn statistic(&self) -> Statistic {
        self.statistic
    }

    /// The steps, by growing rate.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

/// Why an SLA makes no sense. Steps are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SlaError {
    /// No step at all.
    #[error("the SLA has no steps; give at least one with a target")]
    NoSteps,
    /// The last step ends at some rate, so nothing holds above it.
    #[error("the last SLA step is bounded; leave `below` out so that it holds at every higher rate")]
    LastStepBounded,
    /// A target of nothing.
    #[error("SLA step {step}: the target is zero; give a time such as \"500ms\"")]
    ZeroTarget {
        /// Number of the step, from 1.
        step: usize,
    },
    /// A step's rate is not above the one before.
    #[error("SLA step {step}: its `below` is not above the step before; order the steps by growing rate")]
    RatesNotGrowing {
        /// Number of the step, from 1.
        step: usize,
    },
    /// The target gets shorter as the load grows.
    #[error("SLA step {step}: its target is shorter than at lower rates; targets may only relax as the rate grows")]
    TargetTightens {
        /// Number of the step, from 1.
        step: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn step(below: f64, seconds: u64) -> Step {
        Step { below, target: Duration::from_secs(seconds) }
    }

    #[test]
    fn the_papers_table_holds() {
        let sla =
            Sla::new(Statistic::P95, vec![step(1000.0, 1), step(10_000.0, 2), step(f64::INFINITY, 3)]).expect("valid");
        for (rate, seconds) in [(0.0, 1), (999.0, 1), (1000.0, 2), (9_999.0, 2), (10_000.0, 3), (1e9, 3)] {
            assert_eq!(sla.target(rate), Duration::from_secs(seconds), "at {rate}/s");
        }
    }

    #[test]
    fn statistics_are_found_by_their_names() {
        for statistic in Statistic::ALL {
            assert_eq!(Statistic::of(statistic.name()), Some(statistic));
        }
        assert_eq!((Statistic::of("p50"), Statistic::of("P95")), (None, None));
    }

    #[test]
    fn nonsense_is_named() {
        let of = |steps| Sla::new(Statistic::P95, steps);
        assert_eq!(of(vec![]), Err(SlaError::NoSteps));
        assert_eq!(of(vec![step(10.0, 1)]), Err(SlaError::LastStepBounded));
        assert_eq!(of(vec![step(f64::INFINITY, 0)]), Err(SlaError::ZeroTarget { step: 1 }));
        assert_eq!(
            of(vec![step(10.0, 1), step(10.0, 2), step(f64::INFINITY, 3)]),
            Err(SlaError::RatesNotGrowing { step: 2 })
        );
        assert_eq!(of(vec![step(f64::NAN, 1), step(f64::INFINITY, 3)]), Err(SlaError::RatesNotGrowing { step: 2 }));
        assert_eq!(of(vec![step(10.0, 2), step(f64::INFINITY, 1)]), Err(SlaError::TargetTightens { step: 2 }));
    }
}
