//! What is typed, and what it means.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use tidegate_engine::units::{PerSecond, Seconds};
use tidegate_engine::{Sla, SlaError, Statistic, Step};
use tidegate_provision::{ApplicationSetup, Pool, ProvisionConfig, Replica};

use super::kubernetes::{self, RawCluster, RawDeployment};
use super::sentries::RawSentries;
use super::{Check, Kubernetes, Local, Provider};
use crate::names::{self, Dns};
use crate::plane::Unit;

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    #[serde(default = "listen")]
    pub(super) listen: SocketAddr,
    pub(super) key_file: PathBuf,
    #[serde(default = "store")]
    pub(super) store: PathBuf,
    pub(super) kubernetes: Option<RawCluster>,
    pub(super) admin: Option<SocketAddr>,
    #[serde(default = "period")]
    pub(super) period: Seconds,
    #[serde(default = "forget_after")]
    pub(super) forget_after: Seconds,
    pub(super) dns: Option<RawDns>,
    pub(super) provider: RawProvider,
    #[serde(default)]
    pub(super) provision: ProvisionConfig,
    #[serde(default)]
    pub(super) sentries: RawSentries,
    #[serde(default)]
    pub(super) application: Vec<RawApplication>,
}

fn listen() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 9910))
}

fn store() -> PathBuf {
    PathBuf::from("control.redb")
}

fn period() -> Seconds {
    Seconds(1.0)
}

fn forget_after() -> Seconds {
    Seconds(60.0)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDns {
    listen: SocketAddr,
    zone: String,
    #[serde(default = "ttl")]
    ttl: Seconds,
    #[serde(default)]
    name_servers: Vec<String>,
}

fn ttl() -> Seconds {
    Seconds(5.0)
}

impl RawDns {
    pub(super) fn resolve(self, applications: &[String]) -> Result<Dns, String> {
        names::resolve(self.listen, &self.zone, self.ttl.0, &self.name_servers, applications)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Static,
    Local,
    Kubernetes,
}

/// All kinds in one, so that a wrong key is told with its line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProvider {
    kind: Kind,
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    command: Vec<String>,
    first_port: Option<u16>,
    servers: Option<u16>,
    stop_grace: Option<Seconds>,
    log: Option<PathBuf>,
    kubeconfig: Option<PathBuf>,
    namespace: Option<String>,
    #[serde(default)]
    deployments: BTreeMap<String, RawDeployment>,
    check: Option<String>,
    hung_after: Option<Seconds>,
    setup_time: Option<Seconds>,
    warm_up: Option<Seconds>,
    warm_up_speed: Option<f64>,
    drain_limit: Option<Seconds>,
}

impl RawProvider {
    pub(super) fn resolve(self, folder: &Path, applications: &[String]) -> Result<(Provider, Pool), String> {
        let normal = Pool::default();
        let or = |given: Option<Seconds>, normal: Duration| given.map_or(normal, Seconds::duration);
        let pool = Pool {
            setup_time: or(self.setup_time, normal.setup_time),
            warm_up: or(self.warm_up, normal.warm_up),
            warm_up_speed: self.warm_up_speed.unwrap_or(normal.warm_up_speed),
            drain_limit: or(self.drain_limit, normal.drain_limit),
        };
        if self.check.as_ref().is_some_and(|path| !path.starts_with('/')) {
            return Err(String::from("check in [provider] must be a path such as \"/health\""));
        }
        let check = Check { path: self.check, hung_after: or(self.hung_after, Duration::from_secs(30)) };
        let provider = match self.kind {
            Kind::Static if self.addresses.is_empty() => {
                return Err(String::from("[provider] kind = \"static\" needs addresses = [\"host:port\", ...]"));
            }
            Kind::Static => {
                if let Some(bad) =
                    self.addresses.iter().find(|a| a.rsplit_once(':').is_none_or(|(_, p)| p.parse::<u16>().is_err()))
                {
                    return Err(format!("[provider] addresses: \"{bad}\" is no host:port"));
                }
                Provider::Static { servers: self.addresses, check }
            }
            Kind::Kubernetes => {
                let kubeconfig = self.kubeconfig.map(|path| folder.join(path));
                let (servers, deployments) = (self.servers, kubernetes::resolve(self.deployments, applications, "")?);
                let servers = servers.filter(|servers| *servers > 0).ok_or(kubernetes::NO_SERVERS)?;
                kubernetes::is_there()?;
                Provider::Kubernetes(Kubernetes { kubeconfig, namespace: self.namespace, servers, deployments, check })
            }
            Kind::Local => {
                let (Some(first_port), Some(servers)) = (self.first_port, self.servers) else {
                    return Err(String::from(
                        "[provider] kind = \"local\" needs first_port and servers, the size of the pool",
                    ));
                };
                if self.command.is_empty() {
                    return Err(String::from(
                        "[provider] kind = \"local\" needs command = [\"program\", \"{port}\", ...]",
                    ));
                }
                if first_port == 0 || servers == 0 || u32::from(first_port) + u32::from(servers) > 65_536 {
                    return Err(String::from("[provider] first_port + servers must be ports, from 1 to 65535"));
                }
                let port = |at: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, first_port + at));
                Provider::Local(Local {
                    unit: Unit::Server,
                    command: self.command,
                    addresses: (0..servers).map(port).collect(),
                    applications: applications.to_vec(),
                    check,
                    stop_grace: or(self.stop_grace, Duration::from_secs(10)),
                    log: self.log.map(|log| folder.join(log)),
                })
            }
        };
        Ok((provider, pool))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawApplication {
    pub(super) name: String,
    target: Option<Seconds>,
    sla: Option<RawSla>,
    #[serde(default = "revenues")]
    revenues: Vec<f64>,
    #[serde(default = "one")]
    min_servers: u32,
    max_servers: Option<u32>,
    servers: Option<u32>,
    max_sentries: Option<u32>,
    service_time: Option<Seconds>,
    #[serde(default = "unit")]
    service_variation: f64,
    #[serde(default = "unit")]
    processors: f64,
}

fn revenues() -> Vec<f64> {
    vec![1.0]
}

fn one() -> u32 {
    1
}

fn unit() -> f64 {
    1.0
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSla {
    #[serde(default)]
    statistic: Statistic,
    steps: Vec<RawStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    below: Option<PerSecond>,
    target: Seconds,
}

impl RawApplication {
    /// The application, given the most sentries that one has where the file says nothing.
    pub(super) fn resolve(self) -> Result<impl FnOnce(u32) -> ApplicationSetup, String> {
        let sla = match (self.target, self.sla) {
            (Some(target), None) => Sla::constant(Statistic::P95, target.duration()),
            (None, Some(sla)) => sla.resolve(),
            _ => return Err(String::from("give a target such as \"1s\", or an sla, and not both")),
        };
        let sla = sla.map_err(|error| error.to_string())?;
        let replica = self.service_time.map(|mean| Replica::new(mean.0, self.service_variation, self.processors));
        if let Some(replica) = &replica {
            let bound = replica.mean_bound(sla.statistic(), sla.target(0.0));
            replica.capacity(bound).map_err(|error| error.to_string())?;
        }
        Ok(move |most_sentries| ApplicationSetup {
            name: self.name,
            sla,
            revenues: self.revenues,
            min_servers: self.min_servers,
            max_servers: self.max_servers.unwrap_or(u32::from(u16::MAX)),
            servers: self.servers.unwrap_or(self.min_servers),
            max_sentries: self.max_sentries.unwrap_or(most_sentries),
            replica,
        })
    }
}

impl RawSla {
    fn resolve(self) -> Result<Sla, SlaError> {
        let step = |step: &RawStep| Step {
            below: step.below.map_or(f64::INFINITY, |below| below.0),
            target: step.target.duration(),
        };
        Sla::new(self.statistic, self.steps.iter().map(step).collect())
    }
}
