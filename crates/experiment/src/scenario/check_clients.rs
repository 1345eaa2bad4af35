//! What the types of a scenario cannot say about how clients behave.

use tidegate_config::Step::{Index, Key};
use tidegate_workload::MOST_TENANTS;

use super::check::Checker;

impl Checker<'_> {
    /// Patience and tenants of the loads.
    pub(super) fn clients(&mut self) {
        let s = self.scenario;
        for (at, load) in s.loads.iter().enumerate() {
            let place = |key| [Key("load"), Index(at), Key(key)];
            let good = load.patience.is_none_or(|patience| !patience.is_zero());
            self.demand(good, &place("patience"), "must be more than 0: they would leave before they came");
            let good = load.tenants.is_none_or(|tenants| tenants.makes_sense());
            let must = format!("needs a `count` of 1 to {MOST_TENANTS} and a `zipf` of 0 to 10");
            self.demand(good, &place("tenants"), &must);
        }
    }
}
