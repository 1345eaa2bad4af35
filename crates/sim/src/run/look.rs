//! Looks at what the controller shows of itself while it runs.

use std::time::Duration;

use tidegate_engine::{PartitionConfig, Timestamp};

use super::Run;

impl Run<'_> {
    /// Once a second, before anything happens then.
    pub(super) fn look_at_controllers(&mut self, now: Timestamp) {
        let divides = self.world.setup.partition != PartitionConfig::default();
        let shown = self.sentry.controller.snapshot(now).policy.own;
        let listens = self.world.setup.demands().signals;
        let counts = self.world.count_in_flight;
        if (shown.is_empty() && !divides && !counts && !listens) || now >= self.end {
            self.report.look = Timestamp::MAX;
            return;
        }
        let second = Duration::from_secs(now.since(Timestamp::ZERO).as_secs());
        self.report.look = Timestamp::ZERO + second + Duration::from_secs(1);
        if !shown.is_empty() {
            self.report.shown.push((second, shown));
        }
        if counts {
            let mut sums = vec![0; self.report.courses.len()];
            let flying = self.requests.iter().filter(|(_, flying)| flying.ticket.is_some() && !flying.waiting);
            flying.for_each(|(_, flying)| sums[usize::from(flying.subject.course)] += 1);
            self.report.in_flight.resize(second.as_secs() as usize + 1, sums);
        }
        if divides {
            // The controller ticks ten times a second, so that there is a look in every second.
            let sizes = self.sentry.controller.partition_sizes();
            self.report.partitions.resize(second.as_secs() as usize + 1, sizes.to_vec());
        }
    }
}
