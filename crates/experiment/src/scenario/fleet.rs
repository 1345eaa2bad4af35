//! What a scenario says of several sentries before the same servers.

use serde::{Deserialize, Serialize};
use tidegate_config::Step::{Index, Key};

use super::check::Checker;
use super::{is_yes, yes};

/// Several sentries before the same servers, where there is one otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fleet {
    /// How many.
    pub sentries: u16,
    /// There is one, after all: for an arm to be compared with.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absent: bool,
    /// Whether they tell each other how they are doing.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub exchange: bool,
    /// What of each load comes to each sentry, by load: weights. What is missing comes to all alike.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub split: Vec<Vec<f64>>,
}

impl Fleet {
    /// What of a load comes to each sentry: weights.
    pub fn of_load(&self, load: usize) -> Vec<f64> {
        let even = || vec![1.0; self.sentries.into()];
        self.split.get(load).filter(|weights| !weights.is_empty()).map_or_else(even, |weights| {
            let mut weights = weights.clone();
            weights.resize(self.sentries.into(), 0.0);
            weights
        })
    }
}

impl Checker<'_> {
    pub(super) fn fleet(&mut self) {
        let s = self.scenario;
        let Some(fleet) = &s.fleet else { return };
        let place = |key| vec![Key("fleet"), Key(key)];
        self.demand((2..=1000).contains(&fleet.sentries), &place("sentries"), "must be 2 to 1000");
        let loads = s.loads.len();
        self.demand(fleet.split.len() <= loads, &place("split"), "has more rows than there are loads");
        for (at, weights) in fleet.split.iter().enumerate() {
            let place = vec![Key("fleet"), Key("split"), Index(at)];
            let fits = weights.len() <= usize::from(fleet.sentries);
            self.demand(fits, &place, "has more weights than there are sentries");
            let good = weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0);
            let some = weights.is_empty() || weights.iter().sum::<f64>() > 0.0;
            self.demand(good && some, &place, "must be weights, 0 or more, and not all 0");
        }
        let alone = s.provision.is_none() && s.applications.is_empty();
        self.demand(alone, &place("sentries"), "sentries that come and go are said in `provision`");
    }
}
