//! Tenants: what tells them apart, and what is said of single ones.

use tidegate_classify::{NamedTenant, TenantSource, TenantsBy, named_tenant};
use tidegate_config::{At, List};
use tidegate_engine::TenantSetup;

use super::super::raw::{RawTenant, RawTenants};
use super::{Resolver, span_of};

impl Resolver<'_, '_, '_> {
    /// What tells tenants apart, and the engine's setup of those with names, whose keys depend on `seed`.
    pub(super) fn tenants(
        &mut self,
        by: Option<At<RawTenants>>,
        list: Option<At<List<RawTenant>>>,
        seed: u64,
    ) -> (TenantsBy, Vec<TenantSetup>) {
        let source = by.map_or(TenantSource::Network, |by| self.tenant_source(by.value));
        let list = list.map(|list| list.value.0).unwrap_or_default();
        self.unique("tenant", list.iter().filter_map(|tenant| tenant.value.name.as_ref()));
        let values = list.iter().filter_map(|tenant| tenant.value.value.as_ref()).flat_map(|list| &list.value.0);
        self.once("value", "it can be one tenant's only", values.map(|value| (&*value.value, &value.span)));
        let both = list.into_iter().filter_map(|tenant| self.tenant(tenant, &source, seed));
        let (named, setups) = both.collect::<Vec<_>>().into_iter().unzip();
        (TenantsBy { source, named }, setups)
    }

    fn tenant_source(&mut self, raw: RawTenants) -> TenantSource {
        let given = [span_of(&raw.by), span_of(&raw.header), span_of(&raw.cookie)];
        let mut given = given.into_iter().flatten();
        if let (Some(_), Some(second)) = (given.next(), given.next()) {
            self.report.error(&second, "give one of by, header and cookie in tenants");
        }
        if let Some(header) = raw.header {
            let name = self.header_name(&header);
            return name.map_or(TenantSource::Network, |name| TenantSource::Header(name.as_str().to_owned()));
        }
        if let Some(cookie) = raw.cookie {
            return TenantSource::Cookie(cookie.value);
        }
        let Some(by) = raw.by else { return TenantSource::Network };
        match by.value.as_str() {
            "network" => TenantSource::Network,
            "certificate" => TenantSource::Certificate,
            "nobody" => TenantSource::Nobody,
            other => {
                let message = format!("by = \"{other}\": write \"network\", \"certificate\" or \"nobody\"");
                self.report.error(&by.span, message);
                TenantSource::Network
            }
        }
    }

    fn tenant(
        &mut self,
        At { value: raw, span }: At<RawTenant>,
        source: &TenantSource,
        seed: u64,
    ) -> Option<(NamedTenant, TenantSetup)> {
        let Some(At { value: name, .. }) = raw.name else {
            self.missing(&span, "this tenant has no name; add name = \"...\"");
            return None;
        };
        let by_values = !matches!(source, TenantSource::Network | TenantSource::Nobody);
        match &raw.value {
            Some(value) if !by_values => {
                let message = "tenants have values where a field names them; add tenants = { header = \"...\" }, or give \
                               this one a network";
                self.report.error(&value.span, message);
            }
            None if raw.network.is_none() => self.missing(&span, "who is this tenant? add network = \"10.0.0.0/8\""),
            _ => {}
        }
        if *source == TenantSource::Nobody {
            self.report.error(&span, "there are no tenants by = \"nobody\"; leave one of them out");
        }
        let values = raw.value.map(|list| list.value.0).unwrap_or_default();
        for empty in values.iter().filter(|value| value.value.trim() != value.value || value.value.is_empty()) {
            self.report.error(&empty.span, "this value is empty or begins or ends with a space; none is like that");
        }
        let setup = TenantSetup {
            min_rate: raw.min_rate.map_or(0.0, |rate| rate.value.0),
            max_rate: raw.max_rate.map(|rate| rate.value.0),
            weight: raw.weight.map_or(1.0, |weight| self.more_than_zero("weight", weight)),
            ..TenantSetup::new(name.clone(), named_tenant(seed, &name))
        };
        if let Err(error) = setup.check() {
            self.report.error(&span, error.to_string());
        }
        let named = NamedTenant {
            values: values.into_iter().map(|value| value.value).collect(),
            networks: self.networks(raw.network),
            name,
        };
        Some((named, setup))
    }
}
