//! The space of jumps that hold the target: a sweep over loads before a jump and loads added by it.

use serde::{Deserialize, Serialize};
use tidegate_config::Step::Key;
use tidegate_workload::Rate;

use super::Span;
use super::check::Checker;

/// What is made of a sweep over two keys: for each load before the jump and each jump, whether the target is held.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Space {
    /// The sweep's key for the load before the jump; its values are named by percents of the peak.
    pub before: String,
    /// The sweep's key for what the jump adds; its values are rates.
    pub added: String,
    /// The rate that is 100 %.
    pub peak: Rate,
    /// The spans over which the target must be held, a figure for each.
    pub over: Vec<Span>,
    /// The arm whose space must lie within the other's.
    pub inner: String,
    /// The arm whose space must contain the other's, and whose largest jumps must follow the model.
    pub outer: String,
    /// How far the largest jumps may lie from the model, as a share of the peak.
    pub tolerance: f64,
}

impl Checker<'_> {
    pub(super) fn space(&mut self) {
        let s = self.scenario;
        let Some(space) = &s.space else { return };
        let place = |key| vec![Key("space"), Key(key)];
        let arms: Vec<&str> = s.arms.iter().map(|arm| arm.name.as_str()).collect();
        self.known(place("inner"), "arm", &space.inner, &arms);
        self.known(place("outer"), "arm", &space.outer, &arms);
        let keys: Vec<&str> = s.sweep.keys().map(String::as_str).collect();
        self.known(place("before"), "key in [sweep]", &space.before, &keys);
        self.known(place("added"), "key in [sweep]", &space.added, &keys);
        self.demand(keys.len() == 2, &place("added"), "goes with `before`: [sweep] must have these two keys only");
        self.demand(!space.over.is_empty(), &place("over"), "needs a span at least, such as [\"20s..80s\"]");
        let within = space.over.iter().all(|span| span.to <= s.duration);
        self.demand(within, &place("over"), "ends after the scenario's `duration`");
        self.demand(space.peak.per_second() > 0.0, &place("peak"), "must be more than 0");
        self.demand((0.0..=1.0).contains(&space.tolerance), &place("tolerance"), "must be 0 to 1");
    }
}
