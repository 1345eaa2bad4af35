//! A configuration as TOML: complete, with every default, and itself a valid configuration of the same meaning.

mod acme;
mod front;
mod health;
mod mirror;
mod routing;
mod upgrade;

use std::time::Duration;

use tidegate_classify::due::DeadlineBy;
use tidegate_classify::{AffinityBy, NamedTenant, Network, PathMatch, Rule, TenantSource, ValueMatch, ValuePattern};
use tidegate_engine::units::format_duration;
use tidegate_engine::{Bounds, ClassSetup, Sla, Tags, TenantSetup, WhenAllDown};
use toml::{Table, Value};

use super::{
    AccessLog, Application, Config, Forwarded, Limits, RejectionPages, RequestKind, SynClass, SynPolicing, Timeouts,
};

impl Config {
    /// The configuration as TOML. Contains the admin token, if there is one.
    pub fn to_toml(&self) -> String {
        text(&self.table(self.admin.token.clone()))
    }

    /// The same with the admin token masked.
    pub fn to_masked_toml(&self) -> String {
        text(&self.table(self.masked_token()))
    }

    /// The configuration as JSON, with the admin token masked: what the admin API shows.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self.table(self.masked_token())).unwrap_or_default()
    }

    fn masked_token(&self) -> Option<String> {
        self.admin.token.as_ref().map(|_| "(hidden)".to_owned())
    }

    fn table(&self, token: Option<String>) -> Table {
        let mut out = Table::new();
        let log = match &self.access_log {
            AccessLog::Off => "off".to_owned(),
            AccessLog::Stdout => "stdout".to_owned(),
            AccessLog::File(path) => path.display().to_string(),
        };
        put(&mut out, "access_log", log);
        put_some(&mut out, "ends", self.ends.map(|address| address.to_string()));
        let mut sentry = Table::new();
        put(&mut sentry, "workers", whole(self.sentry.workers));
        put(&mut sentry, "drain", time(self.sentry.drain));
        put_list(&mut sentry, "resolvers", texts(&self.sentry.resolvers));
        put(&mut out, "sentry", sentry);
        put(&mut out, "upgrade", upgrade::upgrade(&self.upgrade));
        if let Some(listen) = self.admin.listen {
            let mut admin = Table::new();
            put(&mut admin, "listen", listen.to_string());
            put_some(&mut admin, "token", token);
            if self.admin.scaler {
                put(&mut admin, "scaler", true);
            }
            put(&mut out, "admin", admin);
        }
        if let Some(reports) = &self.reports {
            let mut table = Table::new();
            put(&mut table, "listen", reports.listen.to_string());
            put(&mut table, "key_file", reports.key_file.display().to_string());
            put_some(&mut table, "silent_after", reports.silent_after.map(time));
            put(&mut table, "when_silent", reports.when_silent.name());
            put(&mut out, "reports", table);
        }
        if let Some(peers) = &self.peers {
            let mut table = Table::new();
            put(&mut table, "listen", peers.listen.to_string());
            put_list(&mut table, "sentries", texts(&peers.sentries));
            put(&mut table, "key_file", peers.key_file.display().to_string());
            put(&mut out, "peers", table);
        }
        if let Some(traces) = &self.traces {
            let mut table = Table::new();
            put(&mut table, "endpoint", traces.endpoint.clone());
            put(&mut table, "share", traces.share);
            put(&mut table, "service", traces.service.clone());
            put(&mut out, "traces", table);
        }
        if let Some(control) = &self.control {
            let mut table = Table::new();
            put(&mut table, "connect", control.connect.clone());
            put(&mut table, "key_file", control.key_file.display().to_string());
            put(&mut table, "name", control.name.clone());
            let addresses: Vec<String> = control.addresses.iter().map(ToString::to_string).collect();
            if !addresses.is_empty() {
                put(&mut table, "addresses", addresses);
            }
            put(&mut out, "control", table);
        }
        put(&mut out, "application", self.applications.iter().map(application).collect::<Vec<_>>());
        out
    }
}

fn text(table: &Table) -> String {
    toml::to_string_pretty(table).unwrap_or_else(|error| format!("# cannot be written as TOML: {error}\n"))
}

fn application(app: &Application) -> Value {
    let setup = &app.setup;
    let mut out = Table::new();
    put(&mut out, "name", app.name.clone());
    put(&mut out, "listen", front::listeners(app));
    routing::routing(&mut out, app);
    put_some(&mut out, "tls", app.tls.as_ref().map(front::tls));
    put_some(&mut out, "server_tls", app.server_tls.as_ref().map(front::server_tls));
    put(&mut out, "server_proxy", app.server_proxy.name());
    put(&mut out, "shadow", setup.shadow);
    put(
        &mut out,
        "when_all_down",
        match setup.when_all_down {
            WhenAllDown::Try => "try",
            WhenAllDown::Refuse => "refuse",
        },
    );
    put_some(&mut out, "default_cost", setup.default_cost.map(time));
    put(&mut out, "servers", servers(app));
    put(&mut out, "sla", sla(&setup.sla));
    put_some(&mut out, "admission", Value::try_from(&setup.admission).ok());
    put_some(&mut out, "dispatch", Value::try_from(&setup.dispatch).ok());
    put_some(&mut out, "partition", Value::try_from(&setup.partition).ok());
    put_some(&mut out, "affinity", affinity(app));
    put_some(&mut out, "tenants", tenants(app));
    put_some(&mut out, "deadline", deadline(app));
    put(&mut out, "cancel", setup.cancel.name());
    put_list(&mut out, "max_conn", setup.max_conn.iter().filter_map(|kind| Value::try_from(kind).ok()).collect());
    if !app.exempt.is_empty() {
        put(&mut out, "exempt", rules(&app.exempt));
    }
    put(&mut out, "paths", app.paths.name());
    put_list(&mut out, "refused_below", app.refused_below.iter().map(|status| i64::from(*status).into()).collect());
    put(&mut out, "half_close", app.half_close);
    put(&mut out, "timeouts", timeouts(&app.timeouts));
    put(&mut out, "limits", limits(&app.limits));
    put(&mut out, "health", health::health(&app.health));
    put_some(&mut out, "mirror", app.mirror.as_ref().map(mirror::mirror));
    let mut retry = Table::new();
    put(&mut retry, "attempts", i64::from(app.retry.attempts));
    put(&mut retry, "budget", app.retry.budget);
    put(&mut out, "retry", retry);
    let mut pool = Table::new();
    put(&mut pool, "idle_per_server", whole(app.pool.idle_per_server));
    put(&mut out, "pool", pool);
    put(&mut out, "forwarded", forwarded(&app.forwarded));
    put_some(&mut out, "syn_policing", syn_policing(app));
    put(&mut out, "rejection", rejection(&app.rejection));
    put(&mut out, "class", classes(app));
    if setup.request_types.len() > 1 {
        put(&mut out, "request_type", request_types(app));
    }
    put_list(&mut out, "tenant", named_tenants(app));
    out.into()
}

/// Nothing where nothing was said.
fn syn_policing(app: &Application) -> Option<Table> {
    let syn = &app.syn;
    if *syn == SynPolicing::default() {
        return None;
    }
    let class = |class: &SynClass| {
        let mut out = Table::new();
        put(&mut out, "name", class.name.clone());
        put(&mut out, "network", texts(&class.network));
        put(&mut out, "share", class.share);
        Value::from(out)
    };
    let mut out = Table::new();
    put(&mut out, "with", syn.with.name());
    put(&mut out, "required", syn.required);
    put(&mut out, "rest_share", syn.rest_share);
    put(&mut out, "exempt", texts(&syn.exempt));
    put_list(&mut out, "class", syn.classes.iter().map(class).collect());
    Some(out)
}

fn affinity(app: &Application) -> Option<Table> {
    let (affinity, by) = app.setup.affinity.as_ref().zip(app.classifier.affinity.as_ref())?;
    let mut out = Table::new();
    match by {
        AffinityBy::Cookie(name) => put(&mut out, "cookie", name.clone()),
        AffinityBy::Header(name) => put(&mut out, "header", name.clone()),
    }
    put(&mut out, "idle", time(affinity.idle.duration()));
    put(&mut out, "keys", i64::from(affinity.keys));
    Some(out)
}

/// Nothing where nothing was said.
fn tenants(app: &Application) -> Option<Table> {
    let mut out = Table::new();
    match &app.classifier.tenants.source {
        TenantSource::Network => return None,
        TenantSource::Header(name) => put(&mut out, "header", name.clone()),
        TenantSource::Cookie(name) => put(&mut out, "cookie", name.clone()),
        TenantSource::Certificate => put(&mut out, "by", "certificate"),
        TenantSource::Nobody => put(&mut out, "by", "nobody"),
    }
    Some(out)
}

fn named_tenants(app: &Application) -> Vec<Value> {
    let both = app.classifier.tenants.named.iter().zip(&app.setup.tenants);
    let tenant = |(named, setup): (&NamedTenant, &TenantSetup)| {
        let mut out = Table::new();
        put(&mut out, "name", named.name.clone());
        put_list(&mut out, "value", named.values.iter().cloned().map(Value::from).collect());
        put_list(&mut out, "network", named.networks.iter().map(|network| network.to_string().into()).collect());
        put(&mut out, "min_rate", rate(setup.min_rate));
        put_some(&mut out, "max_rate", setup.max_rate.map(rate));
        put(&mut out, "weight", setup.weight);
        Value::from(out)
    };
    both.map(tenant).collect()
}

/// Nothing where nothing was said.
fn deadline(app: &Application) -> Option<Table> {
    let by = &app.classifier.deadline;
    if *by == DeadlineBy::default() {
        return None;
    }
    let mut out = Table::new();
    put(&mut out, "well_known", by.well_known);
    if let Some(own) = &by.own {
        put(&mut out, "header", own.header.clone());
        put(&mut out, "unit", format_duration(own.unit).trim_start_matches('1'));
    }
    Some(out)
}

fn servers(app: &Application) -> Vec<Value> {
    let both = app.servers.iter().zip(&app.setup.servers);
    let server = |(server, setup): (&super::Server, &tidegate_engine::ServerSetup)| {
        let mut out = Table::new();
        put(&mut out, "name", server.name.clone());
        put(&mut out, "address", server.address.clone());
        if setup.role == tidegate_engine::Role::Data {
            put(&mut out, "role", "data");
        }
        put_some(&mut out, "cores", setup.cores);
        put(&mut out, "weight", setup.weight);
        put_some(&mut out, "max_connections", setup.max_connections.map(i64::from));
        Value::from(out)
    };
    both.map(server).chain(app.server_files.iter().map(front::server_file)).collect()
}

fn sla(sla: &Sla) -> Table {
    let step = |step: &tidegate_engine::Step| {
        let mut out = Table::new();
        put_some(&mut out, "below", step.below.is_finite().then(|| rate(step.below)));
        put(&mut out, "target", time(step.target));
        Value::from(out)
    };
    let mut out = Table::new();
    put(&mut out, "statistic", sla.statistic().name());
    if sla.bounds() != Bounds::Response {
        put(&mut out, "of", sla.bounds().name());
    }
    put(&mut out, "steps", sla.steps().iter().map(step).collect::<Vec<_>>());
    out
}

fn classes(app: &Application) -> Vec<Value> {
    let class = |(at, (setup, matching)): (usize, (&ClassSetup, &Vec<Rule>))| {
        let page = app.rejection.pages.get(at).and_then(Option::as_ref);
        let mut out = Table::new();
        put(&mut out, "name", setup.name.clone());
        put(&mut out, "revenue", setup.revenue);
        put(&mut out, "min_rate", rate(setup.min_rate));
        put(&mut out, "burst", setup.burst);
        put_some(&mut out, "page", page.map(|page| page.path.display().to_string()));
        put_kind(&mut out, app.class_kinds.get(at).copied().unwrap_or_default());
        if !matching.is_empty() {
            put(&mut out, "match", rules(matching));
        }
        Value::from(out)
    };
    app.setup.classes.iter().zip(&app.classifier.classes).enumerate().map(class).collect()
}

fn request_types(app: &Application) -> Vec<Value> {
    let kinds = app.kinds.iter().copied().chain(std::iter::repeat(RequestKind::Ordinary)).skip(1);
    let named = app.setup.request_types.iter().skip(1).zip(&app.classifier.request_types).zip(kinds);
    let request_type = |((name, given), kind): ((&String, &tidegate_classify::TypeRules), RequestKind)| {
        let mut out = Table::new();
        put(&mut out, "name", name.clone());
        put(&mut out, "match", rules(&given.rules));
        put(&mut out, "tags", tags(given.tags, &app.tags));
        put_kind(&mut out, kind);
        Value::from(out)
    };
    named.map(request_type).collect()
}

fn put_kind(out: &mut Table, kind: RequestKind) {
    if kind != RequestKind::Ordinary {
        put(out, "kind", kind.name());
    }
}

fn tags(set: Tags, names: &[String]) -> Vec<Value> {
    let named = names.iter().enumerate().filter(|(number, _)| set.contains(*number as u8));
    named.map(|(_, name)| Value::from(name.clone())).collect()
}

fn rules(rules: &[Rule]) -> Vec<Value> {
    rules.iter().map(rule).collect()
}

fn rule(rule: &Rule) -> Value {
    let mut out = Table::new();
    put_list(&mut out, "method", texts(&rule.methods));
    put_list(&mut out, "host", texts(&rule.hosts));
    match &rule.path {
        Some(PathMatch::Exact(path)) => put(&mut out, "path", path.clone()),
        Some(PathMatch::Prefix(prefix)) => put(&mut out, "path_prefix", prefix.clone()),
        Some(PathMatch::Glob(glob)) => put(&mut out, "path_glob", glob.clone()),
        None => {}
    }
    put_list(&mut out, "header", rule.headers.iter().map(value_match).collect());
    put_list(&mut out, "cookie", rule.cookies.iter().map(value_match).collect());
    put_list(&mut out, "network", networks(&rule.networks));
    put_list(&mut out, "certificate", texts(&rule.certificates));
    put_some(&mut out, "dynamic", rule.dynamic);
    out.into()
}

fn value_match(wanted: &ValueMatch) -> Value {
    let mut out = Table::new();
    put(&mut out, "name", wanted.name.clone());
    match &wanted.value {
        ValuePattern::Present => {}
        ValuePattern::Exact(text) => put(&mut out, "value", text.clone()),
        ValuePattern::Prefix(text) => put(&mut out, "prefix", text.clone()),
        ValuePattern::Contains(text) => put(&mut out, "contains", text.clone()),
    }
    out.into()
}

fn timeouts(given: &Timeouts) -> Table {
    let mut out = Table::new();
    put(&mut out, "header", time(given.header));
    put(&mut out, "handshake", time(given.handshake));
    put(&mut out, "body_idle", time(given.body_idle));
    put(&mut out, "connect", time(given.connect));
    put(&mut out, "first_byte", time(given.first_byte));
    put_some(&mut out, "request", given.request.map(time));
    put(&mut out, "client_idle", time(given.client_idle));
    put(&mut out, "server_idle", time(given.server_idle));
    out
}

fn limits(given: &Limits) -> Table {
    let mut out = Table::new();
    put(&mut out, "header_bytes", whole(given.header_bytes));
    put(&mut out, "headers", whole(given.headers));
    put_some(&mut out, "body_bytes", given.body_bytes.map(|bytes| bytes.to_string()));
    put(&mut out, "connections", whole(given.connections));
    put(&mut out, "handshakes", whole(given.handshakes));
    put(&mut out, "waiting", whole(given.waiting));
    put_some(&mut out, "held_bytes", given.held_bytes.map(|bytes| bytes.to_string()));
    put(&mut out, "ahead", given.ahead.to_string());
    put(&mut out, "body_rate", given.body_rate.to_string());
    put(&mut out, "open", whole(given.open));
    put(&mut out, "open_bytes", given.open_bytes.to_string());
    put(&mut out, "streams", whole(given.streams));
    out
}

fn forwarded(given: &Forwarded) -> Table {
    let mut out = Table::new();
    put(&mut out, "x_forwarded", given.x_forwarded);
    put(&mut out, "forwarded", given.forwarded);
    put(&mut out, "request_id", given.request_id);
    put(&mut out, "trust", networks(&given.trust));
    put(&mut out, "identity", texts(&given.identity));
    put(&mut out, "upgrade", texts(&given.upgrade));
    out
}

/// Pages are shown with their classes.
fn rejection(given: &RejectionPages) -> Table {
    let mut out = Table::new();
    put(&mut out, "status", i64::from(given.status));
    put(&mut out, "details", given.details);
    put(&mut out, "decision_on_admitted", given.decision_on_admitted);
    out
}

fn put(table: &mut Table, key: &str, value: impl Into<Value>) {
    table.insert(key.to_owned(), value.into());
}

fn put_some(table: &mut Table, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        put(table, key, value);
    }
}

fn put_list(table: &mut Table, key: &str, list: Vec<Value>) {
    if !list.is_empty() {
        put(table, key, list);
    }
}

fn texts(items: &[impl ToString]) -> Vec<Value> {
    items.iter().map(|item| Value::from(item.to_string())).collect()
}

fn networks(list: &[Network]) -> Vec<Value> {
    texts(list)
}

fn time(duration: Duration) -> String {
    format_duration(duration)
}

fn rate(per_second: f64) -> String {
    format!("{per_second}/s")
}

fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
