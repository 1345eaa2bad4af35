//! Settings of a live run in network namespaces.

use serde::{Deserialize, Serialize};
use tidegate_workload::Rate;

use crate::scenario::Scenario;

/// A service in network namespaces of its own: Apache with files and CGI scripts, bounded in processor or link, before
/// it a sentry whose kernel turns new connections away. What the file says of servers is a model of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Namespaces {
    /// The arms without a sentry: clients go to Apache itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alone: Vec<String>,
    /// The request types that are CGI scripts; the others are files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scripts: Vec<String>,
    /// Apache gets so much of its processors that this rate of the first load's mix fills them; all when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saturated: Option<Rate>,
    /// The rate of the link to the clients, as `tc` has it, such as `100mbit`; not bounded when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// New connections per second from elsewhere, beside the load; each side has its part of what is let in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flood: Option<Rate>,
    /// Whether it is measured what turning a connection away costs, beside a refusal.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refusal_cost: bool,
}

impl Namespaces {
    /// What is wrong, in words.
    pub(super) fn problems(&self, scenario: &Scenario) -> Vec<&'static str> {
        let knows_arm = |name: &String| scenario.arms.iter().any(|arm| arm.name == *name);
        let knows_type = |name: &String| scenario.request_index(name).is_some();
        let is_rate = |rate: Option<Rate>| rate.is_none_or(|rate| rate.per_second() > 0.0);
        let is_link = |link: &String| {
            let number = ["kbit", "mbit", "gbit"].into_iter().find_map(|unit| link.strip_suffix(unit));
            number.and_then(|number| number.parse::<u32>().ok()).is_some_and(|number| number > 0)
        };
        let demands = [
            (self.alone.iter().all(knows_arm), "its `alone` must be names of arms"),
            (self.scripts.iter().all(knows_type), "its `scripts` must be names of request types"),
            (is_rate(self.saturated) && is_rate(self.flood), "its `saturated` and `flood` must be more than 0"),
            (self.link.as_ref().is_none_or(is_link), "its `link` must be a rate such as \"100mbit\""),
            (!scenario.loads.is_empty(), "needs a `load`"),
        ];
        demands.into_iter().filter(|(holds, _)| !holds).map(|(_, problem)| problem).collect()
    }
}
