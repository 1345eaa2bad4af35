//! Orders to sentries.

use std::collections::BTreeMap;
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
        // The same for all sentries of an application.
        let mut common: BTreeMap<usize, (TargetOrder, Vec<Coming>)> = BTreeMap::new();
        let names: Vec<String> = self.desk.sentries().map(|(name, _)| name.clone()).collect();
        for sentry in names {
            let Some(known) = self.desk.sentry_mut(&sentry) else { continue };
            let (Some(connection), at) = (known.connection, known.applications().to_vec()) else { continue };
            let applications = at.iter().map(|at| {
                let known = common.entry(*at).or_insert_with(|| self.common_orders(*at));
                self.orders(*at, &sentry, known.clone())
            });
            let applications: Vec<ApplicationOrders> = applications.collect();
            let Some(known) = self.desk.sentry_mut(&sentry) else { continue };
            if !known.is_behind() && known.told.as_ref().is_some_and(|(_, told)| same(told, &applications)) {
                continue;
            }
            self.revision += 1;
            known.tell((self.store.term(), self.revision), applications.clone());
            let orders = Orders { term: self.store.term(), revision: self.revision, applications };
            self.send(connection, FromControl::Orders(orders));
        }
    }

    fn orders(&self, at: usize, sentry: &str, (target, coming): (TargetOrder, Vec<Coming>)) -> ApplicationOrders {
        let server = |server: usize| Some(ServerOrder { name: name(server), address: self.server_address(server)? });
        ApplicationOrders {
            name: self.config.site.applications[at].name.clone(),
            servers: self.plane.servers_of(at, sentry).into_iter().filter_map(server).collect(),
            target,
            coming,
        }
    }

    /// Where a server listens; `None` while it is nowhere.
    pub(super) fn server_address(&self, server: usize) -> Option<String> {
        self.config.provider.address(server).or_else(|| self.provider.address(server))
    }

    fn common_orders(&self, application: usize) -> (TargetOrder, Vec<Coming>) {
        let coming = |(time, servers): (Duration, f64)| Coming { in_ms: time.as_millis() as u64, servers };
        let coming = self.plane.coming(application).into_iter().map(coming).collect();
        (target(&self.plane.target(application)), coming)
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
