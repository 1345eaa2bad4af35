//! How many servers an application needs, for those who scale it: an autoscaler, or somebody who looks.
//!
//! *Intuition.* Who scales by how busy servers are sees nothing in an overload: all are busy, whether twice or ten
//! times as much comes as they can do. The sentry knows what comes and what it costs.
//!
//! *Applied.* What is offered, whether admitted or not, at the cost that was learned, by the model with which the
//! control plane's policy `follow` counts ([`FollowConfig::servers_for`]): so many that one more would hardly let in
//! more. No trend, no forecast, no waiting: those are for whoever scales.

use tidegate_engine::{Role, ServerSnapshot, Sla, Snapshot, Status};
use tidegate_provision::{FollowConfig, Replica};

use crate::app::App;

/// Servers that what is offered needs to be answered within `sla`, with nearly nothing refused. `None` while too little
/// is known, and where an idle server takes longer than the target.
pub(crate) fn servers_needed(now: &Snapshot, sla: &Sla) -> Option<u32> {
    needed(now, sla, now.offered_rate?)
}

/// What scales an application, when this sentry is asked for all that stand before the same servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Need {
    /// Servers that what is offered to all needs; `None`: as in [`servers_needed`].
    pub(crate) servers: Option<u32>,
    /// Whether there is anything to do.
    pub(crate) is_active: bool,
}

impl Need {
    /// Of an application now.
    pub(crate) fn of(app: &App) -> Need {
        let (now, elsewhere) =
            app.engine(|core, now| (core.controller.snapshot(now), core.controller.offered_to_peers()));
        Need::with(&now, &app.live().config.setup.sla, elsewhere)
    }

    /// `elsewhere`: requests per second that other sentries have.
    fn with(now: &Snapshot, sla: &Sla, elsewhere: f64) -> Need {
        let offered = now.offered_rate.unwrap_or(0.0) + elsewhere;
        let known = now.offered_rate.is_some() || elsewhere > 0.0;
        // The mean is known after a while, and somebody who comes first is there now.
        let lately: f64 = now.classes.iter().map(|class| class.offered_rate).sum();
        let is_active = offered.max(lately + elsewhere) >= IDLE;
        Need { servers: needed(now, sla, offered).filter(|_| known), is_active }
    }
}

/// Fewer requests per second are what is left of a mean that was larger: nobody comes.
const IDLE: f64 = 1.0 / 60.0;

fn needed(now: &Snapshot, sla: &Sla, offered: f64) -> Option<u32> {
    let (service, arrivals) = (now.cost_variation, now.arrival_variation);
    let replica = Replica::measured(now.mean_cost?, service, arrivals, processors(now)?);
    FollowConfig::default().servers_for(&replica, offered, sla.statistic(), sla.target(0.0))
}

/// Effective processors of a server that serves, on average, once they are given or learned.
pub(crate) fn processors(now: &Snapshot) -> Option<f64> {
    let known = |server: &ServerSnapshot| !server.learned || server.confidence > 0.0;
    let (mut count, mut sum) = (0, 0.0);
    for server in now.servers.iter().filter(|server| serves(server)) {
        if !known(server) {
            return None;
        }
        (count, sum) = (count + 1, sum + server.processors);
    }
    (sum > 0.0).then(|| sum / f64::from(count))
}

/// Whether it takes requests of the application.
pub(crate) fn serves(server: &ServerSnapshot) -> bool {
    server.role == Role::Application && server.status == Status::Up
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use tidegate_engine::{Controller, NoEvents, ServerSetup, Setup, Statistic, Timestamp};

    /// Two servers of two processors, of which one is down, and 400 requests of 10 ms a second.
    fn snapshot() -> Snapshot {
        let servers = ["a", "b"].map(|name| ServerSetup { cores: Some(2.0), ..ServerSetup::new(name) });
        let controller = Controller::new(Setup::simple("shop", sla(500), servers), 1, 1, Box::new(NoEvents)).unwrap();
        let mut shown = controller.snapshot(Timestamp::ZERO);
        shown.servers[1].status = Status::Down;
        Snapshot { offered_rate: Some(400.0), mean_cost: Some(0.01), ..shown }
    }

    fn sla(target: u64) -> Sla {
        Sla::constant(Statistic::P95, Duration::from_millis(target)).unwrap()
    }

    #[test]
    fn four_processors_of_work_need_a_few_more_than_two_servers_of_two() {
        let now = snapshot();
        assert_eq!(processors(&now), Some(2.0));
        let needed = servers_needed(&now, &sla(500)).unwrap();
        assert!((3..=4).contains(&needed), "{needed}");
        let ten = Snapshot { offered_rate: Some(4000.0), ..now };
        assert!((22..=24).contains(&servers_needed(&ten, &sla(500)).unwrap()), "a tenth more than the work at most");
    }

    /// Whoever of several is asked says what all need together.
    #[test]
    fn what_others_are_offered_counts() {
        let now = snapshot();
        let alone = Need::with(&now, &sla(500), 0.0);
        assert_eq!(alone, Need { servers: servers_needed(&now, &sla(500)), is_active: true });
        let (half, quiet) = (
            Snapshot { offered_rate: Some(200.0), ..now.clone() },
            Snapshot { offered_rate: Some(0.0), ..now.clone() },
        );
        assert_eq!(Need::with(&half, &sla(500), 200.0), alone);
        assert_eq!(Need::with(&quiet, &sla(500), 400.0), alone);
        assert_eq!(Need::with(&quiet, &sla(500), 0.0), Need { servers: Some(0), is_active: false });
        let mut first = Snapshot { offered_rate: None, ..now.clone() };
        first.classes[0].offered_rate = 1.0;
        assert_eq!(Need::with(&first, &sla(500), 0.0), Need { servers: None, is_active: true });
        // A server must be started before anything is known of it.
        let mut none_serves = now;
        none_serves.servers[0].status = Status::Draining;
        assert_eq!(Need::with(&none_serves, &sla(500), 0.0), Need { servers: None, is_active: true });
    }

    #[test]
    fn nothing_is_said_before_it_is_known_or_where_no_number_would_do() {
        let now = snapshot();
        assert_eq!(servers_needed(&now, &sla(5)), None, "an idle server takes longer");
        assert_eq!(servers_needed(&Snapshot { mean_cost: None, ..now.clone() }, &sla(500)), None);
        assert_eq!(servers_needed(&Snapshot { offered_rate: None, ..now.clone() }, &sla(500)), None);
        let mut none_serves = now;
        none_serves.servers[0].status = Status::Draining;
        assert_eq!(servers_needed(&none_serves, &sla(500)), None);
    }

    #[test]
    fn who_is_offered_nothing_needs_nothing() {
        assert_eq!(servers_needed(&Snapshot { offered_rate: Some(0.0), ..snapshot() }, &sla(500)), Some(0));
    }
}
