//! Sends orders to sentries, and repeats those that are not in force.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_engine::Sla;
use tidegate_wire::control::{
    ApplicationOrders, Coming, FromControl, Orders, ServerOrder, Step as TargetStep, TargetOrder,
};

use super::ledger::Ledger;
use super::name;
use super::sentries::Sentries;
use crate::plane::Plane;

/// What is the same for all sentries of an application.
type Common = (TargetOrder, Vec<Coming>);

impl Sentries {
    /// Tells sentries what they do not know yet. `address` says where a server listens; `None` while it is nowhere.
    pub(super) fn tell(&mut self, ledger: &Ledger, address: &impl Fn(usize) -> Option<String>) {
        let plane = ledger.plane();
        let mut common: BTreeMap<usize, Common> = BTreeMap::new();
        let names: Vec<String> = self.desk.sentries().map(|(name, _)| name.clone()).collect();
        for sentry in names {
            let Some(known) = self.desk.sentry_mut(&sentry) else { continue };
            let (Some(connection), at) = (known.connection, known.applications().to_vec()) else { continue };
            let applications = at.into_iter().map(|at| {
                let (target, coming) = common.entry(at).or_insert_with(|| common_orders(plane, at)).clone();
                let server = |server: usize| Some(ServerOrder { name: name(server), address: address(server)? });
                let servers = plane.servers_of(at, &sentry).into_iter().filter_map(server).collect();
                ApplicationOrders { name: self.desk.application(at).to_owned(), servers, target, coming }
            });
            let applications: Vec<ApplicationOrders> = applications.collect();
            let Some(known) = self.desk.sentry_mut(&sentry) else { continue };
            if !known.is_behind() && known.told.as_ref().is_some_and(|(_, told)| same(told, &applications)) {
                continue;
            }
            self.revision += 1;
            known.tell((ledger.term(), self.revision), applications.clone());
            let orders = Orders { term: ledger.term(), revision: self.revision, applications };
            self.send(connection, FromControl::Orders(orders));
        }
    }
}

fn common_orders(plane: &Plane, application: usize) -> Common {
    let coming = |(time, servers): (Duration, f64)| Coming { in_ms: time.as_millis() as u64, servers };
    let coming = plane.coming(application).into_iter().map(coming).collect();
    (target(&plane.target(application)), coming)
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
