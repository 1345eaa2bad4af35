//! The short form of a scenario.

use super::{Scenario, Short};

impl Scenario {
    /// The short form: instants of load, users, faults and expectations multiplied by `time_scale`; rates, service
    /// times, targets and policies as they are. Expectations that need more time than that are left out, and those of
    /// which no whole second remains. Without a `[short]` table, the scenario itself.
    ///
    /// # Panics
    /// Never, for a scenario that was read: its `time_scale` was checked.
    pub fn shortened(&self) -> Scenario {
        let Some(Short { time_scale, arms }) = &self.short else { return self.clone() };
        let mut short = self.clone();
        short.duration = self.duration.mul_f64(*time_scale);
        for load in &mut short.loads {
            load.rate = load.rate.scale_time(*time_scale);
        }
        for users in &mut short.users {
            users.from = users.from.mul_f64(*time_scale);
            users.until = users.until.map(|until| until.mul_f64(*time_scale));
        }
        short.faults.iter_mut().for_each(|fault| fault.at = fault.at.mul_f64(*time_scale));
        short.arms.retain(|arm| arms.is_empty() || arms.contains(&arm.name));
        let kept = |name: &String| short.arms.iter().any(|arm| arm.name == *name);
        short.expects.retain(|expect| expect.short && (expect.arms.is_empty() || expect.arms.iter().any(kept)));
        short.expects.retain_mut(|expect| {
            expect.arms.retain(kept);
            // Results are kept by second: one that lies across the edge belongs to neither side.
            let over = expect.over.scale(*time_scale).whole_seconds();
            over.map(|over| expect.over = over).is_some()
        });
        short.short = None;
        short
    }
}
