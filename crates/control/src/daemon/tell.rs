//! Orders to sentries.

use std::time::Duration;

use tidegate_engine::Sla;
use tidegate_wire::control::{
    ApplicationOrders, Coming, FromControl, Orders, ServerOrder, Step as TargetStep, TargetOrder,
};

use super::{Daemon, name};
use crate::desk::Connection;

impl Daemon {
    /// Tells sentries what they do not know yet.
    pub(super) fn tell(&mut self) {
        if self.dry_run {
            return;
        }
        let names: Vec<String> = self.desk.sentries().map(|(name, _)| name.clone()).collect();
        for sentry in names {
            let Some(known) = self.desk.sentry_mut(&sentry) else { continue };
            let (Some(connection), at) = (known.connection, known.applications().to_vec()) else { continue };
            let applications: Vec<ApplicationOrders> = at.iter().map(|at| self.orders(*at, &sentry)).collect();
            let Some(known) = self.desk.sentry_mut(&sentry) else { continue };
            if known.told.as_ref().is_some_and(|(_, told)| same(told, &applications)) {
                continue;
            }
            self.revision += 1;
            known.told = Some(((self.store.term(), self.revision), applications.clone()));
            let orders = Orders { term: self.store.term(), revision: self.revision, applications };
            self.send(connection, FromControl::Orders(orders));
        }
    }

    pub(super) fn orders(&self, application: usize, sentry: &str) -> ApplicationOrders {
        let server = |server: usize| Some(ServerOrder { name: name(server), address: self.server_address(server)? });
        let coming = |(time, servers): (Duration, f64)| Coming { in_ms: time.as_millis() as u64, servers };
        ApplicationOrders {
            name: self.config.site.applications[application].name.clone(),
            servers: self.plane.servers_of(application, sentry).into_iter().filter_map(server).collect(),
            target: target(&self.plane.target(application)),
            coming: self.plane.coming(application).into_iter().map(coming).collect(),
        }
    }

    /// Where a server listens; `None` while it is nowhere.
    pub(super) fn server_address(&self, server: usize) -> Option<String> {
        self.config.provider.address(server).or_else(|| self.provider.address(server))
    }

    /// One that lags too far is cut off, and told everything when it comes back.
    pub(super) fn send(&mut self, connection: Connection, message: FromControl) {
        if self.links.get(&connection).is_some_and(|link| link.try_send(message).is_err()) {
            self.links.remove(&connection);
        }
    }
}

fn target(sla: &Sla) -> TargetOrder {
    let step = |step: &tidegate_engine::Step| TargetStep {
        below: step.below.is_finite().then_some(step.below),
        target_ms: step.target.as_secs_f64() * 1e3,
    };
    TargetOrder { statistic: sla.statistic().name().to_owned(), steps: sla.steps().iter().map(step).collect() }
}

/// What is coming is told once; that it comes nearer is no news.
fn same(told: &[ApplicationOrders], now: &[ApplicationOrders]) -> bool {
    let alike = |(told, now): (&ApplicationOrders, &ApplicationOrders)| {
        let amounts =
            |orders: &ApplicationOrders| orders.coming.iter().map(|coming| coming.servers).collect::<Vec<_>>();
        told.name == now.name
            && told.servers == now.servers
            && told.target == now.target
            && amounts(told) == amounts(now)
    };
    told.len() == now.len() && told.iter().zip(now).all(alike)
}
