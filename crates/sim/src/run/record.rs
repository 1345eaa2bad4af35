//! What is written down of a run.

use std::time::Duration;

use tidegate_engine::{Snapshot, Timestamp};

use crate::park::Usage;
use crate::report::{EventLog, Report, ReportBuilder};
use crate::world::World;

/// The report, while it is written.
pub(super) struct Record {
    pub(super) report: ReportBuilder,
    log: EventLog,
    /// When to look again at what the policy shows; never, when it shows nothing.
    pub(super) look: Timestamp,
    /// What servers and the sentry's processors did while requests arrived.
    pub(super) usage: Option<(Vec<Usage>, Option<f64>)>,
    pub(super) happenings: u64,
}

impl Record {
    pub(super) fn new(world: &World, log: EventLog) -> Record {
        let courses = world.streams.len() + world.users.len() + 2 * world.sessions.len();
        Record {
            report: ReportBuilder::new(&world.setup, world.by_answer, courses, world.patience),
            log,
            look: Timestamp::ZERO,
            usage: None,
            happenings: 0,
        }
    }

    pub(super) fn finish(
        mut self,
        servers: Vec<Usage>,
        sentry_cpu: Option<f64>,
        duration: Duration,
        snapshot: Snapshot,
    ) -> Report {
        let (events, events_left_out) = self.log.take();
        Report {
            classes: self.report.classes(),
            courses: self.report.courses,
            types: self.report.types,
            shown: self.report.shown,
            in_flight: self.report.in_flight,
            partitions: self.report.partitions,
            clients: self.report.clients,
            servers,
            sentry_cpu,
            duration,
            events,
            events_left_out,
            happenings: self.happenings,
            snapshot,
        }
    }
}
