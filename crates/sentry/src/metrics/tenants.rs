//! Tenants: those with names, and how much the heaviest take.

use std::fmt;

use tidegate_engine::NamedTenantSnapshot;

use super::family::Families;
use super::{Seen, per_class};

/// The ranks of the heaviest tenants. Which tenants these are is no label: clients would make series.
const RANKS: [&str; 10] = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"];

pub(super) fn write(out: &mut Families<'_>, all: &[Seen]) -> fmt::Result {
    type Value = fn(&NamedTenantSnapshot) -> u64;
    let counters: [(&str, &str, Value); 4] = [
        ("tidegate_tenant_offered", "Requests that arrived.", |tenant| tenant.offered),
        ("tidegate_tenant_admitted", "Requests sent to a server.", |tenant| tenant.admitted),
        ("tidegate_tenant_rejected", "Requests refused.", |tenant| tenant.refused),
        ("tidegate_tenant_limited", "Requests refused beyond the tenant's own limit.", |tenant| tenant.limited),
    ];
    for (name, help, value) in counters {
        let tenants = all.iter().flat_map(|seen| {
            let tenants = seen.snapshot.named_tenants.iter();
            tenants.map(move |tenant| (seen.labels().and("tenant", &tenant.name), value(tenant)))
        });
        out.counter(name, help, tenants)?;
    }
    let ranked = all.iter().flat_map(|seen| {
        let ranked = RANKS.into_iter().zip(&seen.snapshot.tenants);
        ranked.map(|(rank, tenant)| (seen.labels().and("rank", rank), tenant.share))
    });
    let help = "Share of the work that arrived in the last half minute or so, of the tenants that offer most.";
    out.gauge("tidegate_tenant_share_by_rank", help, None, ranked)?;
    let levels = per_class(all).filter_map(|(labels, class)| Some((labels, class.tenant_share?)));
    let help = "A tenant's fair share, requests of mean cost per second, while some tenant is above it.";
    out.gauge("tidegate_class_tenant_share", help, None, levels)
}
