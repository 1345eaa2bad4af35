//! The response-time target of a scenario.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_workload::{Rate, time};

use super::Scenario;

/// The response-time target: one `target`, or `steps` by arrival rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sla {
    /// What the target bounds: `mean`, `p90`, `p95` or `p99`.
    #[serde(default = "p95")]
    pub statistic: String,
    /// The target at every rate.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::optional")]
    pub target: Option<Duration>,
    /// Targets by growing arrival rate, in place of `target`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

/// One step of the target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// It holds while the arrival rate is below this; absent in the last step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<Rate>,
    /// The target there.
    #[serde(with = "time::text")]
    pub target: Duration,
}

impl Scenario {
    /// The target while `rate` requests per second are offered.
    pub fn target(&self, rate: f64) -> Duration {
        let step = self.sla.steps.iter().find(|step| step.below.is_none_or(|below| rate < below.per_second()));
        self.sla.target.or(step.map(|step| step.target)).unwrap_or(Duration::MAX)
    }
}

fn p95() -> String {
    "p95".to_owned()
}
