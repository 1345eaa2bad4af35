//! Looks at what the controller shows of itself while it runs.

use std::time::Duration;

use tidegate_engine::{PartitionConfig, Timestamp};

use super::Run;

impl Run<'_> {
    /// Once a second, before anything happens then.
    pub(super) fn look_at_controllers(&mut self, now: Timestamp) {
        let divides = self.world.setup.partition != PartitionConfig::default();
        let controllers = self.controller.snapshot(now).policy.controllers;
        if (controllers.is_empty() && !divides) || now >= self.end {
            self.look = Timestamp::MAX;
            return;
        }
        let second = Duration::from_secs(now.since(Timestamp::ZERO).as_secs());
        self.look = Timestamp::ZERO + second + Duration::from_secs(1);
        if !controllers.is_empty() {
            self.report.controls.push((second, controllers));
        }
        if divides {
            // The controller ticks ten times a second, so that there is a look in every second.
            let sizes = self.controller.partition_sizes();
            self.report.partitions.resize(second.as_secs() as usize + 1, sizes.to_vec());
        }
    }
}
