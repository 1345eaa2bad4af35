//! From a scenario to the configuration of what runs it: the engine's setup, the sentry's application, and in `file.rs`
//! the files of processes.
//!
//! Class and request type are in the path, `/CLASS/TYPE/NUMBER`; requests of sessions keep their class in a cookie.

pub(crate) mod file;

use std::borrow::Cow;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tidegate_classify::{
    ClassifierSetup, PathMatch, Rule, TenantSource, TenantsBy, TypeRules, ValueMatch, ValuePattern,
};
use tidegate_engine::{
    AdmissionConfig, ClassSetup, DispatchConfig, MaxConn, PartitionConfig, Role, ServerSetup, Setup, SetupError, Sla,
    SlaError, Statistic, Step, Tags,
};
use tidegate_sentry::config::{self, Application, Config, RequestKind};

use crate::scenario::{self, Arm, Lasts, LastsAs, Scenario};

/// The cookie that names the class of a session's requests.
pub(crate) const CLASS_COOKIE: &str = "class";
/// Before the paths of sessions; no class is called so.
pub(crate) const SESSION_PREFIX: &str = "/~/";

/// How long the sentry may take to close its connections.
const DRAIN: Duration = Duration::from_secs(1);

/// Why an arm of a scenario cannot be run: the policy is the engine's to understand.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ArmError {
    /// A policy's table has no `policy`, an unknown name, or a key or value that the policy does not know.
    #[error("arm \"{arm}\": {family}: {problem}")]
    Policy {
        /// The arm.
        arm: String,
        /// `admission`, `dispatch` or `partition`.
        family: &'static str,
        /// What is wrong and what is known.
        problem: String,
    },
    /// The target makes no sense to the engine.
    #[error("sla: {0}")]
    Sla(#[from] SlaError),
    /// Applications, servers and provisioning do not fit.
    #[error("arm \"{arm}\": {source}")]
    Site {
        /// The arm.
        arm: String,
        /// What is wrong.
        source: tidegate_provision::ProvisionError,
    },
    /// What the arm sets makes no sense with the values of a sweep or of the live form.
    #[error("arm \"{arm}\": set: {problem}")]
    Set {
        /// The arm.
        arm: String,
        /// What is wrong.
        problem: String,
    },
    /// The setup makes no sense to the engine.
    #[error("arm \"{arm}\": {source}")]
    Setup {
        /// The arm.
        arm: String,
        /// What is wrong.
        source: SetupError,
    },
}

/// What the engine needs to know of an arm. Request type `i + 1` is the scenario's request type `i`.
///
/// # Errors
/// When the engine does not take its policies.
pub fn setup(scenario: &Scenario, arm: &Arm) -> Result<Setup, ArmError> {
    let cores = (!scenario.servers.learned).then_some(f64::from(scenario.servers.cores));
    let server = |at| ServerSetup { cores, ..ServerSetup::new(format!("server-{at}")) };
    let mut setup = Setup::simple(&scenario.id, sla(&scenario.sla)?, (0..scenario.servers.count).map(server));
    for tier in scenario.tiers.iter().filter(|tier| tier.lends.is_some()) {
        let server = |at| {
            let cores = Some(f64::from(tier.cores));
            ServerSetup { role: Role::Data, cores, ..ServerSetup::new(format!("{}-{at}", tier.name)) }
        };
        setup.servers.extend((0..tier.count).map(server));
    }
    setup.classes = scenario.classes.iter().map(|of| class(of, scenario.guarantees)).collect();
    setup.request_types.extend(scenario.requests.iter().map(|request| request.name.clone()));
    setup.tags = tags(scenario);
    setup.admission = policy(arm, "admission", &arm.admission, AdmissionConfig::NAMES)?;
    setup.dispatch = policy(arm, "dispatch", &arm.dispatch, DispatchConfig::NAMES)?;
    setup.partition = policy(arm, "partition", &arm.partition, PartitionConfig::NAMES)?;
    setup.cancel = arm.cancel;
    setup.max_conn = scenario.max_conn.iter().map(max_conn).collect();
    setup.check().map_err(|source| ArmError::Setup { arm: arm.name.clone(), source })?;
    Ok(setup)
}

/// What the engine needs to know of a tier that has a sentry in this arm. Its request types are those of [`setup`].
///
/// # Errors
/// When the engine does not take its policies.
pub fn service(scenario: &Scenario, arm: &Arm, tier: &scenario::Tier) -> Result<Option<Setup>, ArmError> {
    let Some(sentry) = tier.sentry.filter(|_| arm.cooperation.has_sentries()) else { return Ok(None) };
    let cores = (!scenario.servers.learned).then_some(f64::from(tier.cores));
    let server = |at| ServerSetup { cores, ..ServerSetup::new(format!("{}-{at}", tier.name)) };
    let target = scenario::Sla { target: Some(sentry.target), steps: Vec::new(), ..scenario.sla.clone() };
    let mut setup = Setup::simple(&tier.name, sla(&target)?, (0..tier.count).map(server));
    // Guarantees are the first service's: further down, as many calls as it makes of them would be guaranteed.
    setup.classes = scenario.classes.iter().map(|of| class(of, false)).collect();
    setup.request_types.extend(scenario.requests.iter().map(|request| request.name.clone()));
    setup.admission = policy(arm, "admission", &arm.admission, AdmissionConfig::NAMES)?;
    setup.check().map_err(|source| ArmError::Setup { arm: arm.name.clone(), source })?;
    Ok(Some(setup))
}

/// The scenario as it is in an arm.
///
/// # Errors
/// When what the arm sets makes no sense.
pub(crate) fn in_arm<'s>(scenario: &'s Scenario, arm: &Arm) -> Result<Cow<'s, Scenario>, ArmError> {
    let problem =
        |error: tidegate_config::ConfigErrors| ArmError::Set { arm: arm.name.clone(), problem: error.to_string() };
    scenario.for_arm(arm).map_err(problem)
}

/// Names of the resource tags of request types, each once: bit `i` is the `i`-th.
pub fn tags(scenario: &Scenario) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for tag in scenario.requests.iter().flat_map(|request| &request.tags) {
        if !names.contains(tag) {
            names.push(tag.clone());
        }
    }
    names
}

/// The tags of a request type.
pub fn tags_of(scenario: &Scenario, request: usize) -> Tags {
    let bit = |tag: &String| tags(scenario).iter().position(|name| name == tag).map_or(0, |at| 1 << at);
    Tags(scenario.requests[request].tags.iter().map(bit).fold(0, |tags, bit| tags | bit))
}

fn max_conn(kind: &scenario::MaxConn) -> MaxConn {
    MaxConn {
        name: kind.name.clone(),
        request_types: kind.requests.clone(),
        within_target: kind.within_target,
        most: kind.most,
    }
}

fn class(class: &scenario::Class, is_guaranteed: bool) -> ClassSetup {
    let min_rate = if is_guaranteed { class.min_rate.per_second() } else { 0.0 };
    // As much at once as a sentry allows where its file does not say: what a tenth of a second brings.
    let burst = (min_rate / 10.0).ceil().max(1.0);
    ClassSetup { revenue: class.revenue, min_rate, burst, ..ClassSetup::new(&class.name) }
}

fn sla(sla: &scenario::Sla) -> Result<Sla, SlaError> {
    let statistic = Statistic::of(&sla.statistic).unwrap_or_default();
    if let Some(target) = sla.target {
        return Sla::constant(statistic, target);
    }
    let step = |step: &scenario::Step| Step {
        below: step.below.map_or(f64::INFINITY, |below| below.per_second()),
        target: step.target,
    };
    Sla::new(statistic, sla.steps.iter().map(step).collect())
}

/// Reads a policy's table as the engine does; an empty one is the default policy.
pub(crate) fn policy<T: Default + serde::de::DeserializeOwned>(
    arm: &Arm,
    family: &'static str,
    table: &toml::Table,
    names: &[&str],
) -> Result<T, ArmError> {
    if table.is_empty() {
        return Ok(T::default());
    }
    let error = |problem: String| ArmError::Policy { arm: arm.name.clone(), family, problem };
    if !table.contains_key("policy") {
        return Err(error(format!("does not say which policy; add policy = one of {}", names.join(", "))));
    }
    T::deserialize(toml::Value::Table(table.clone())).map_err(|e| error(e.message().trim().to_owned()))
}

/// The application of the sentry: `servers` are the addresses of the setup's, in its order.
pub(crate) fn application(scenario: &Scenario, setup: tidegate_engine::Setup, servers: &[SocketAddr]) -> Application {
    let of_cookie =
        |name: &str| ValueMatch { name: CLASS_COOKIE.to_owned(), value: ValuePattern::Exact(name.to_owned()) };
    let classes = scenario.classes.iter().map(|class| {
        let cookie = Rule { cookies: vec![of_cookie(&class.name)], ..rule(SESSION_PREFIX.to_owned()) };
        vec![rule(format!("/{}/", class.name)), cookie]
    });
    let request_types = (0..scenario.requests.len()).map(|request| {
        let by_class = (0..scenario.classes.len()).map(|class| rule(prefix(scenario, class, request)));
        let rules = by_class.chain([rule(session_prefix(scenario, request))]).collect();
        TypeRules { rules, tags: tags_of(scenario, request) }
    });
    let classifier = ClassifierSetup {
        classes: classes.collect(),
        request_types: request_types.collect(),
        tenants: TenantsBy { source: tenants(scenario), named: Vec::new() },
        ..ClassifierSetup::default()
    };
    let server = |(setup, address): (&tidegate_engine::ServerSetup, &SocketAddr)| config::Server {
        name: setup.name.clone(),
        address: format!("{}{address}", scenario.spoken().scheme()),
    };
    Application {
        name: scenario.id.clone(),
        listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()],
        routing: config::Routing::default(),
        tls: None,
        server_tls: None,
        servers: setup.servers.iter().zip(servers).map(server).collect(),
        server_files: Vec::new(),
        server_proxy: config::ProxyOut::Off,
        setup,
        classifier,
        kinds: kinds(scenario),
        class_kinds: Vec::new(),
        tags: tags(scenario),
        timeouts: config::Timeouts::default(),
        limits: config::Limits::default(),
        health: config::Health::default(),
        mirror: None,
        retry: config::Retry::default(),
        pool: config::Pool::default(),
        forwarded: config::Forwarded::default(),
        syn: config::SynPolicing::default(),
        rejection: config::RejectionPages {
            details: true,
            status: 503,
            pages: vec![None; scenario.classes.len()],
            decision_on_admitted: false,
        },
        exempt: Vec::new(),
        paths: tidegate_classify::Paths::default(),
        refused_below: Vec::new(),
        half_close: false,
    }
}

/// Every client is at the same address, so requests say whose they are, where it matters.
fn tenants(scenario: &Scenario) -> TenantSource {
    match scenario.loads.iter().any(|load| load.tenants.is_some()) {
        true if scenario.tells_tenants => TenantSource::Header(tidegate_loadgen::TENANT.as_str().to_owned()),
        _ => TenantSource::Nobody,
    }
}

/// What the sentry is told of each request type. The first is the type of what no rule matches.
fn kinds(scenario: &Scenario) -> Vec<RequestKind> {
    let kind = |request: &scenario::Request| match request.lasts {
        Some(Lasts { kind: LastsAs::Poll, told: true, .. }) => RequestKind::Poll,
        // Of a stream its content type tells.
        _ => RequestKind::Ordinary,
    };
    std::iter::once(RequestKind::Ordinary).chain(scenario.requests.iter().map(kind)).collect()
}

/// A sentry with nothing but this application, on one worker.
pub(crate) fn process(
    application: Application,
    reports: Option<config::Reports>,
    peers: Option<config::Peers>,
) -> Config {
    Config {
        sentry: config::SentryConfig { workers: 1, drain: DRAIN, resolvers: Vec::new() },
        admin: config::Admin::default(),
        reports,
        peers,
        ends: None,
        traces: None,
        control: None,
        access_log: config::AccessLog::Off,
        upgrade: config::Upgrade::default(),
        applications: vec![application],
        source: None,
    }
}

/// Every class with every request type.
pub(crate) fn pairs(scenario: &Scenario) -> impl Iterator<Item = (usize, usize)> {
    let requests = scenario.requests.len();
    (0..scenario.classes.len()).flat_map(move |class| (0..requests).map(move |request| (class, request)))
}

/// The beginning of the paths of a class and a request type.
pub(crate) fn prefix(scenario: &Scenario, class: usize, request: usize) -> String {
    format!("/{}/{}/", scenario.classes[class].name, scenario.requests[request].name)
}

fn rule(prefix: String) -> Rule {
    Rule { path: Some(PathMatch::Prefix(prefix)), ..Rule::default() }
}

/// The beginning of the paths of a session's requests of a type.
pub(crate) fn session_prefix(scenario: &Scenario, request: usize) -> String {
    format!("{SESSION_PREFIX}{}/", scenario.requests[request].name)
}

#[cfg(test)]
mod tests {
    use tidegate_loadgen::Protocol;

    use super::*;
    use crate::built_in;
    use crate::scenario::Spoken;

    #[test]
    fn guarantees_can_be_withheld_from_an_arm() {
        let scenario = built_in::find("C1-guarantee").unwrap();
        let of = |name: &str| {
            let arm = scenario.arms.iter().find(|arm| arm.name == name).unwrap();
            let classes = setup(&in_arm(&scenario, arm).unwrap(), arm).unwrap().classes;
            classes.iter().map(|class| (class.min_rate, class.burst)).collect::<Vec<_>>()
        };
        assert_eq!(of("waiting"), [(0.0, 1.0), (15.0, 2.0), (20.0, 2.0)]);
        assert_eq!(of("waiting-without"), [(0.0, 1.0); 3]);
    }

    #[test]
    fn servers_are_asked_in_the_protocol_of_the_load() {
        let scenario = built_in::find("O1").unwrap();
        let said = |protocol| {
            let scenario = scenario.speaking(Spoken { protocol, server_protocol: None }).unwrap();
            let setup = setup(&scenario, &scenario.arms[0]).unwrap();
            let addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 1)); 2];
            let application = application(&scenario, setup, &addresses);
            (application.kinds[1], application.servers[0].address.clone())
        };
        assert_eq!(said(Protocol::H2), (RequestKind::Ordinary, "127.0.0.1:1".to_owned()));
        assert_eq!(said(Protocol::Grpc), (RequestKind::Ordinary, "h2c://127.0.0.1:1".to_owned()));
    }
}
