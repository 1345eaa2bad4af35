//! Looks at what the controller shows of itself while it runs.

use std::time::Duration;

use tidegate_engine::Timestamp;

use super::Run;

impl Run<'_> {
    /// Once a second, before anything happens then.
    pub(super) fn look_at_controllers(&mut self, now: Timestamp) {
        let controllers = self.controller.snapshot(now).policy.controllers;
        if controllers.is_empty() || now >= self.end {
            self.look = Timestamp::MAX;
            return;
        }
        let second = Duration::from_secs(now.since(Timestamp::ZERO).as_secs());
        self.look = Timestamp::ZERO + second + Duration::from_secs(1);
        self.report.controls.push((second, controllers));
    }
}
