//! What a sentry saw since its last report: differences of its counters.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{ServerSnapshot, Snapshot, Status};
use tidegate_wire::control::{ApplicationSeen, Report, ServerSeen};

use crate::app::App;
use crate::need::{self, serves};

/// One application, watched.
pub(super) struct Watch {
    app: Arc<App>,
    before: Snapshot,
}

impl Watch {
    pub(super) fn new(app: &Arc<App>) -> Watch {
        Watch { app: app.clone(), before: app.snapshot() }
    }

    /// What happened in the last `time`.
    fn look(&mut self, time: Duration) -> ApplicationSeen {
        let now = self.app.snapshot();
        let seen = difference(&self.before, &now, time.as_secs_f64().max(1e-3));
        self.before = now;
        seen
    }
}

/// A report of the last `time`. Which orders are in force is for the caller to add.
pub(super) fn report(watches: &mut [Watch], time: Duration, cpu: f64) -> Report {
    let applications = watches.iter_mut().map(|watch| watch.look(time)).collect();
    Report { seconds: time.as_secs_f64(), cpu, applied: (0, 0), applications }
}

fn difference(before: &Snapshot, now: &Snapshot, seconds: f64) -> ApplicationSeen {
    // A reload may have changed the classes; they are followed by name.
    let earlier = |name: &str| before.classes.iter().find(|class| class.name == name);
    let since = |name: &str, now: u64, of: fn(&tidegate_engine::ClassSnapshot) -> u64| {
        now.saturating_sub(earlier(name).map_or(0, of))
    };
    let offered = now.classes.iter().map(|class| since(&class.name, class.offered, |class| class.offered)).collect();
    let refused =
        now.classes.iter().map(|class| since(&class.name, class.rejected_total(), |c| c.rejected_total())).sum();
    let completed: u64 =
        now.classes.iter().map(|class| since(&class.name, class.completed, |class| class.completed)).sum();
    let processors: f64 = now.servers.iter().filter(|server| serves(server)).map(|server| server.processors).sum();
    let work = completed as f64 * now.mean_cost.unwrap_or(0.0) / seconds;
    ApplicationSeen {
        name: now.application.clone(),
        offered,
        refused,
        busy: if processors > 0.0 { (work / processors).min(1.0) } else { 0.0 },
        mean_service: now.mean_cost,
        service_variation: now.cost_variation,
        arrival_variation: now.arrival_variation,
        processors: need::processors(now),
        servers: now.servers.iter().filter(|server| server.status != Status::Removed).map(server).collect(),
    }
}

fn server(server: &ServerSnapshot) -> ServerSeen {
    let status = match server.status {
        Status::Up => "up",
        Status::Down => "down",
        Status::Draining | Status::Removed => "draining",
    };
    ServerSeen { name: server.name.clone(), status: status.to_owned(), in_flight: server.in_flight }
}
