//! Configuration files of processes: a sentry's and a control plane's, as `tidegate check` reads them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::Serialize;
use toml::Table;

use crate::scenario::{self, Arm, Scenario};

/// A sentry's file.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SentryFile {
    pub(crate) sentry: Process,
    pub(crate) admin: Admin,
    pub(crate) reports: Option<Reports>,
    pub(crate) control: Option<ControlLink>,
    pub(crate) application: Vec<ApplicationFile>,
}

/// The process as a whole.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Process {
    pub(crate) workers: u32,
}

/// Its admin API.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Admin {
    pub(crate) listen: String,
}

/// Where nuclei report to.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Reports {
    pub(crate) listen: SocketAddr,
    pub(crate) key_file: PathBuf,
    pub(crate) when_silent: &'static str,
}

/// The control plane that it follows.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ControlLink {
    pub(crate) connect: SocketAddr,
    pub(crate) key_file: PathBuf,
    pub(crate) name: String,
}

/// One of its applications.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ApplicationFile {
    pub(crate) name: String,
    pub(crate) listen: String,
    /// `None`: from the control plane.
    pub(crate) servers: Option<Vec<Server>>,
    pub(crate) admission: Option<Table>,
    pub(crate) dispatch: Option<Table>,
    pub(crate) partition: Option<Table>,
    pub(crate) sla: SlaFile,
    pub(crate) class: Vec<Class>,
    pub(crate) request_type: Vec<RequestType>,
    pub(crate) health: Option<Health>,
    pub(crate) syn_policing: Option<SynPolicing>,
}

/// A server.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// Requests in flight there at most.
    pub(crate) max_connections: Option<u32>,
}

/// A class of requests.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Class {
    name: String,
    revenue: f64,
    min_rate: f64,
    r#match: Vec<PathPrefix>,
}

/// A request type.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RequestType {
    name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    r#match: Vec<PathPrefix>,
}

/// A rule.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PathPrefix {
    path_prefix: String,
}

/// How it is known which servers are up.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Health {
    pub(crate) interval: &'static str,
}

/// How new connections are turned away.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SynPolicing {
    pub(crate) required: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) class: Vec<SynClass>,
}

/// Clients with a part of their own.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SynClass {
    pub(crate) name: &'static str,
    pub(crate) network: String,
    pub(crate) share: f64,
}

/// The response-time target, as sentry and control plane have it: seconds, and requests per second.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SlaFile {
    statistic: String,
    steps: Vec<SlaStep>,
}

#[derive(Debug, Clone, Serialize)]
struct SlaStep {
    below: Option<f64>,
    target: f64,
}

/// A control plane's file.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ControlFile {
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) key_file: PathBuf,
    pub(crate) period: &'static str,
    pub(crate) provider: Provider,
    pub(crate) dns: Dns,
    pub(crate) sentries: Sentries,
    pub(crate) provision: Option<Table>,
    pub(crate) application: Vec<PlannedApplication>,
}

/// What starts servers.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Provider {
    pub(crate) kind: &'static str,
    pub(crate) command: Vec<String>,
    pub(crate) first_port: u16,
    pub(crate) servers: usize,
    /// Seconds.
    pub(crate) setup_time: f64,
    pub(crate) drain_limit: &'static str,
}

/// Who answers for applications' names.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Dns {
    pub(crate) listen: SocketAddr,
    pub(crate) zone: &'static str,
    pub(crate) ttl: &'static str,
}

/// When sentries are asked for and returned: shares of a processor, and seconds; and what starts them.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sentries {
    pub(crate) high: Option<f64>,
    pub(crate) low: Option<f64>,
    pub(crate) hold: Option<f64>,
    pub(crate) provider: SentryProvider,
}

/// What starts sentries.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SentryProvider {
    pub(crate) kind: &'static str,
    pub(crate) command: Vec<String>,
    pub(crate) addresses: Vec<Ipv4Addr>,
    pub(crate) port: u16,
    pub(crate) log: PathBuf,
    pub(crate) leave_after: &'static str,
}

/// An application as the control plane has it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PlannedApplication {
    name: String,
    sla: SlaFile,
    revenues: Vec<f64>,
    servers: u32,
    min_servers: u32,
    max_servers: u32,
    max_sentries: u32,
}

impl SentryFile {
    /// A sentry on one worker, and nothing else yet.
    pub(crate) fn new(admin: impl ToString, application: Vec<ApplicationFile>) -> SentryFile {
        SentryFile {
            sentry: Process { workers: 1 },
            admin: Admin { listen: admin.to_string() },
            reports: None,
            control: None,
            application,
        }
    }
}

impl ApplicationFile {
    /// The scenario's application number `at` with the policies of an arm.
    pub(crate) fn new(scenario: &Scenario, arm: &Arm, at: usize, listen: impl ToString) -> ApplicationFile {
        let own = || classes(scenario, at);
        let class = |class: &scenario::Class| Class {
            name: class.name.clone(),
            revenue: class.revenue,
            min_rate: if scenario.guarantees { class.min_rate.per_second() } else { 0.0 },
            r#match: vec![PathPrefix { path_prefix: format!("/{}/", class.name) }],
        };
        // A tag is an error where no policy has its resource.
        let has_tags = arm.admission.get("policy").and_then(toml::Value::as_str) == Some("resource");
        let rule = |class: &scenario::Class, request: &scenario::Request| PathPrefix {
            path_prefix: format!("/{}/{}/", class.name, request.name),
        };
        let request_type = |request: &scenario::Request| RequestType {
            name: request.name.clone(),
            tags: request.tags.iter().filter(|_| has_tags).cloned().collect(),
            r#match: own().map(|class| rule(class, request)).collect(),
        };
        let policy = |table: &Table| (!table.is_empty()).then(|| table.clone());
        ApplicationFile {
            name: scenario.all_applications()[at].name.clone(),
            listen: listen.to_string(),
            servers: None,
            admission: policy(&arm.admission),
            dispatch: policy(&arm.dispatch),
            partition: policy(&arm.partition),
            sla: SlaFile::new(&scenario.sla),
            class: own().map(class).collect(),
            request_type: scenario.requests.iter().map(request_type).collect(),
            health: None,
            syn_policing: None,
        }
    }
}

impl SlaFile {
    fn new(sla: &scenario::Sla) -> SlaFile {
        let one = sla.target.map(|target| SlaStep { below: None, target: target.as_secs_f64() });
        let step = |step: &scenario::Step| SlaStep {
            below: step.below.map(|below| below.per_second()),
            target: step.target.as_secs_f64(),
        };
        let steps = one.into_iter().chain(sla.steps.iter().map(step)).collect();
        SlaFile { statistic: sla.statistic.clone(), steps }
    }
}

impl PlannedApplication {
    /// The scenario's application number `at`.
    pub(crate) fn new(scenario: &Scenario, at: usize) -> PlannedApplication {
        let application = scenario.all_applications()[at].clone();
        PlannedApplication {
            name: application.name,
            sla: SlaFile::new(&scenario.sla),
            revenues: classes(scenario, at).map(|class| class.revenue).collect(),
            servers: application.servers,
            min_servers: application.min_servers,
            max_servers: application.max_servers.unwrap_or(scenario.servers.count as u32),
            max_sentries: scenario.provision.map_or(1, |provision| provision.max_sentries),
        }
    }
}

/// An address on this machine.
pub(crate) fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// The classes of an application.
fn classes(scenario: &Scenario, at: usize) -> impl Iterator<Item = &scenario::Class> {
    scenario.classes.iter().filter(move |class| scenario.application_of(&class.name) == at)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tidegate_sentry::Config;

    use super::*;
    use crate::built_in;

    #[test]
    fn a_sentry_reads_its_file_for_every_arm() {
        for scenario in built_in::all().unwrap().into_iter().filter(|scenario| scenario.tiers.is_empty()) {
            for arm in &scenario.arms {
                let application = |at| ApplicationFile {
                    servers: Some(vec![Server { address: local(9001), max_connections: Some(661) }]),
                    health: Some(Health { interval: "500ms" }),
                    ..ApplicationFile::new(&scenario, arm, at, local(8080 + at as u16))
                };
                let applications = (0..scenario.all_applications().len()).map(application).collect();
                let text = toml::to_string(&SentryFile::new(local(9900), applications)).unwrap();
                let config = Config::parse(&text, Path::new("sentry.toml"));
                let problem = config.err().map(|errors| errors.to_string());
                // Kinds and partitions of servers are the emulated service's to say.
                let says_more = !scenario.max_conn.is_empty() || !arm.partition.is_empty();
                assert!(says_more || problem.is_none(), "{} {}: {problem:?}\n{text}", scenario.id, arm.name);
            }
        }
    }

    #[test]
    fn clients_with_a_part_of_their_own_are_in_the_file() {
        let scenario = built_in::find("V1-flood").unwrap();
        let class = vec![SynClass { name: "premium", network: "10.77.1.0/24".to_owned(), share: 1.0 }];
        let application = ApplicationFile {
            servers: Some(vec![Server { address: local(9001), max_connections: None }]),
            syn_policing: Some(SynPolicing { required: true, class }),
            ..ApplicationFile::new(&scenario, &scenario.arms[0], 0, local(8080))
        };
        let text = toml::to_string(&SentryFile::new(local(9900), vec![application])).unwrap();
        let read = Config::parse(&text, Path::new("sentry.toml")).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let json = read.config.to_json().to_string();
        assert!(json.contains("10.77.1.0/24") && json.contains("premium"), "{json}");
    }
}
