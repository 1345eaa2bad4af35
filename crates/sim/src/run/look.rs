//! Looks at what the controller shows of itself while it runs.

use std::time::Duration;

use tidegate_engine::{PartitionConfig, Timestamp};

use super::{Flying, Run};

impl Run<'_> {
    /// Once a second, before anything happens then.
    pub(super) fn look_at_controllers(&mut self, now: Timestamp) {
        let divides = self.world.setup.partition != PartitionConfig::default();
        let shown = self.sentries.first().controller.snapshot(now).policy.own;
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
            let has_place = |flying: &Flying| flying.ticket.is_some() && !flying.waiting && !flying.pooled;
            let flying = self.requests.iter().filter(|(_, flying)| has_place(flying));
            flying.for_each(|(_, flying)| sums[usize::from(flying.subject.course)] += 1);
            self.report.in_flight.resize(second.as_secs() as usize + 1, sums);
            // Of the seconds that are over.
            let most = self.park.take_most(self.world.servers.len());
            self.report.at_work.resize(second.as_secs() as usize, most);
        }
        if divides {
            // The controller ticks ten times a second, so that there is a look in every second.
            let sizes = self.sentries.first().controller.partition_sizes();
            self.report.partitions.resize(second.as_secs() as usize + 1, sizes.to_vec());
        }
    }

    /// The last second has no look after it.
    pub(super) fn count_last_second(&mut self) {
        if self.world.count_in_flight {
            let most = self.park.take_most(self.world.servers.len());
            let seconds = self.end.since(Timestamp::ZERO).as_secs_f64().ceil() as usize;
            self.report.at_work.resize(seconds, most);
        }
    }
}
