//! The controller's snapshot.

use alloc::string::String;
use alloc::vec::Vec;

use super::core_state::Core;
use crate::admission::{AdmissionPolicy, PolicyState};
use crate::decision::Reason;
use crate::estimate::Habit;
use crate::fleet::Status;
use crate::flight::ClassStats;
use crate::max_conn::{Group, MaxConn};
use crate::policer::ClassCounts;
use crate::request::ClassId;
use crate::sla::Bounds;
use crate::snapshot::{ClassSnapshot, HeldSnapshot, PartitionSnapshot, ServerSnapshot, Snapshot};
use crate::time::Timestamp;

pub(super) fn snapshot(core: &Core, admission: &dyn AdmissionPolicy, now: Timestamp) -> Snapshot {
    let name = core.setup.admission.name();
    let mut policy = PolicyState { policy: name, active: name, ..PolicyState::default() };
    admission.describe(&mut policy);
    policy.own.name_servers(&|id| core.fleet.servers.get(id.index()).map(|server| server.name.clone()));
    Snapshot {
        application: core.setup.name.clone(),
        statistic: core.setup.sla.statistic().name(),
        bounds: core.setup.sla.bounds().name(),
        target: core.estimates.target,
        shadow: core.setup.shadow,
        in_flight: core.traffic.flying(),
        ghosts: core.traffic.stats.iter().map(|stats| stats.ghosts).sum(),
        hanging: core.traffic.hanging(),
        streams: core.traffic.stats.iter().map(|stats| stats.streams).sum(),
        tunnels: core.traffic.stats.iter().map(|stats| stats.tunnels).sum(),
        waiting: core.traffic.waiting.len(),
        offered_rate: core.estimates.lasting_offered(),
        processors: core.fleet.sums.processors,
        mean_cost: core.estimates.costs.mean(),
        cost_variation: core.estimates.costs.variation(),
        arrival_variation: core.estimates.arrivals.variation(),
        calibration: core.estimates.calibration.factor(),
        urls: core.estimates.costs.urls(),
        alpha: core.estimates.alpha.get(),
        policy,
        dispatch: core.setup.dispatch.name(),
        dispatching: core.fleet.dispatch.describe(),
        partition: core.setup.partition.name(),
        partitions: partitions(core),
        classes: (0..core.estimates.classes.len()).map(|index| class(core, ClassId(index as u8))).collect(),
        tenants: core.tenants.heaviest(),
        named_tenants: core.tenants.named(),
        servers: servers(core, now),
        stale_tickets: core.traffic.stale_tickets,
    }
}

fn class(core: &Core, id: ClassId) -> ClassSnapshot {
    let index = id.index();
    let stats = &core.traffic.stats[index];
    let table = core.policer.counts(id);
    let [p50, p95, p99] = stats.responses.quantiles([0.50, 0.95, 0.99]);
    let bounded = match core.setup.sla.bounds() {
        Bounds::Response => &stats.responses,
        Bounds::FirstByte => &stats.first_bytes,
    };
    ClassSnapshot {
        name: core.setup.classes[index].name.clone(),
        offered: stats.carried.offered + table.offered,
        retries: stats.carried.retries + table.retries,
        admitted: stats.admitted,
        guaranteed: stats.carried.guaranteed + table.guaranteed,
        rejected: rejected(stats, table),
        completed: stats.completed,
        in_target: stats.in_target,
        failed: stats.failed,
        runaways: stats.runaways,
        refused_below: stats.refused_below,
        cancelled: stats.cancelled,
        in_flight: stats.in_flight,
        ghosts: stats.ghosts,
        streams: stats.streams,
        tunnels: stats.tunnels,
        waiting: u64::from(core.traffic.waiting.class_len(id)),
        offered_rate: core.estimates.classes[index].offered.get(),
        mean_cost: core.estimates.costs.class_mean(index),
        tenant_share: core.tenants.share(id),
        p50,
        p95,
        p99,
        first_byte_p95: stats.first_bytes.quantile(0.95),
        patience: Some(core.estimates.classes[index].patience.end()).filter(|end| end.is_finite()),
        statistic: match core.setup.sla.statistic().quantile() {
            Some(q) => bounded.quantile(q),
            None => bounded.mean(),
        },
    }
}

fn rejected(stats: &ClassStats, table: ClassCounts) -> Vec<(&'static str, u64)> {
    let by_table = stats.carried.refused + table.refused;
    let count = |reason: Reason| match reason {
        Reason::Threshold => stats.refused[reason.index()] + by_table,
        _ => stats.refused[reason.index()],
    };
    Reason::ALL.iter().map(|&reason| (reason.name(), count(reason))).filter(|(_, count)| *count > 0).collect()
}

fn partitions(core: &Core) -> Vec<PartitionSnapshot> {
    let classes = core.setup.classes.len();
    let partition = |(at, group): (usize, &Group)| {
        let of: Vec<usize> =
            (0..classes).filter(|&class| core.fleet.partitions.of(ClassId(class as u8)) == at).collect();
        let held = |(kind, limit): (usize, &MaxConn)| HeldSnapshot {
            kind: limit.name.clone(),
            in_flight: group.by_kind[kind],
            elsewhere: group.others[kind],
            within_target: group.weight * limit.within_target,
            most: group.weight * limit.most,
            thresholds: of.iter().map(|&class| group.weight * limit.mark(class, classes)).collect(),
        };
        PartitionSnapshot {
            classes: of.iter().map(|&class| core.setup.classes[class].name.clone()).collect(),
            servers: core.fleet.partitions.sizes()[at],
            weight: group.weight,
            held: core.fleet.partitions.limits().iter().enumerate().map(held).collect(),
        }
    };
    core.fleet.partitions.groups().iter().enumerate().map(partition).collect()
}

fn servers(core: &Core, now: Timestamp) -> Vec<ServerSnapshot> {
    let shown = core.fleet.servers.iter().filter(|server| server.status != Status::Removed);
    let server = |server: &crate::fleet::ServerState| ServerSnapshot {
        name: String::from(&*server.name),
        role: server.role,
        status: server.status,
        in_flight: server.in_flight,
        streams: server.streams,
        tunnels: server.tunnels,
        when_abandoned: server.abandoned.habit().name(),
        stops_after: match server.abandoned.habit() {
            Habit::Stops { after } => Some(after),
            Habit::Unknown | Habit::WorksOn => None,
        },
        weight: server.weight,
        partition: server.partition.map(|group| group + 1),
        processors: server.capacity.processors(),
        learned: !server.capacity.is_given(),
        confidence: server.capacity.confidence(),
        queueing_delay: server.reported.queueing_delay(),
        elsewhere: server.reported.is_present().then(|| server.reported.difference(server.capacity.is_given())),
        can_lend: server.can_lend,
        measures_costs: server.reported.measures_costs(now),
    };
    shown.map(server).collect()
}
