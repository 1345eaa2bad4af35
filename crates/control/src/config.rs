//! The configuration of a control plane: one TOML file.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use tidegate_engine::provision::{ApplicationSetup, Pool, ProvisionConfig, ProvisionError, Replica, SentryRule, Site};
use tidegate_engine::units::{PerSecond, Seconds};
use tidegate_engine::{Sla, SlaError, Statistic, Step};
use tidegate_wire::KeyError;
use tidegate_wire::control::ControlKey;

/// Everything a control plane does.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where sentries connect to.
    pub listen: SocketAddr,
    /// What sentries and the control plane share.
    pub key: ControlKey,
    /// The file with its state.
    pub store: PathBuf,
    /// Where its own state is shown, loopback only; `None` for nowhere.
    pub admin: Option<SocketAddr>,
    /// How often sentries report, and what follows is decided.
    pub period: Duration,
    /// A sentry that was not heard for so long is no sentry any more: its servers go to the others.
    pub forget_after: Duration,
    /// Who starts and stops servers.
    pub provider: Provider,
    /// The pool, the applications, and when who gets how many.
    pub site: Site,
}

/// Who starts and stops servers.
#[derive(Clone, Debug, PartialEq)]
pub enum Provider {
    /// Nobody: these run always; they are put to use and taken out of it.
    Static {
        /// Their addresses, `host:port`.
        servers: Vec<String>,
        /// How they are asked whether they serve.
        check: Check,
    },
    /// Processes on this machine.
    Local(Local),
}

/// Processes on this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Local {
    /// The program and its arguments; `{port}`, `{server}` and `{application}` are filled in.
    pub command: Vec<String>,
    /// Server number n listens on this port + n.
    pub first_port: u16,
    /// The most there may be.
    pub servers: u16,
    /// How they are asked whether they serve.
    pub check: Check,
    /// A process that was told to end is killed after so long.
    pub stop_grace: Duration,
    /// The folder that gets what they print; `None` for nowhere.
    pub log: Option<PathBuf>,
}

/// How a server is asked whether it serves.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The path that must answer below 400; `None`: that a connection opens.
    pub path: Option<String>,
    /// A server that runs and does not answer for so long is replaced.
    pub hung_after: Duration,
}

/// What is wrong with a configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: cannot be read: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not what it should be.
    #[error("{path}: {problem}")]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What, with its line.
        problem: String,
    },
    /// There is no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The site makes no sense.
    #[error("{path}: {source}")]
    Site {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ProvisionError,
    },
}

impl Config {
    /// Reads and checks a file. Paths in it are from its folder.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Config::parse(&text, path)
    }

    /// Checks a text as if it stood in the file `path`.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        let wrong = |problem: String| ConfigError::Wrong { path: path.to_owned(), problem };
        let raw: Raw = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let from_here = |given: &Path| folder.join(given);
        if let Some(admin) = raw.admin.filter(|admin| !admin.ip().is_loopback()) {
            return Err(wrong(format!(
                "admin = \"{admin}\" is not of this machine; anybody there may look: give 127.0.0.1"
            )));
        }
        if raw.application.is_empty() {
            return Err(wrong(String::from(
                "there is nothing to look after; add [[application]] with a name and a target",
            )));
        }
        let (provider, pool) = raw.provider.resolve(&folder).map_err(&wrong)?;
        let applications = raw.application.into_iter().map(|application| {
            let name = application.name.clone();
            application.resolve().map_err(|error| wrong(format!("application \"{name}\": {error}")))
        });
        let site = Site {
            servers: provider.servers(),
            pool,
            applications: applications.collect::<Result<_, _>>()?,
            policy: raw.provision,
            sentries: raw.sentries,
        };
        site.check().map_err(|source| ConfigError::Site { path: path.to_owned(), source })?;
        let mut names: Vec<&str> = site.applications.iter().map(|application| application.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(wrong(format!("application \"{}\" is there twice; give each a name of its own", twice[0])));
        }
        for (key, time) in [("period", raw.period), ("forget_after", raw.forget_after)] {
            if !(0.05..=86_400.0).contains(&time.0) {
                return Err(wrong(format!("{key} must be from 50ms to a day")));
            }
        }
        Ok(Config {
            listen: raw.listen,
            key: ControlKey::load(&from_here(&raw.key_file))?,
            store: from_here(&raw.store),
            admin: raw.admin,
            period: raw.period.duration(),
            forget_after: raw.forget_after.duration(),
            provider,
            site,
        })
    }
}

impl Provider {
    /// The size of the pool.
    pub fn servers(&self) -> u32 {
        match self {
            Provider::Static { servers, .. } => servers.len() as u32,
            Provider::Local(local) => u32::from(local.servers),
        }
    }

    /// Where a server of the pool listens, `host:port`.
    pub fn address(&self, server: usize) -> String {
        match self {
            Provider::Static { servers, .. } => servers[server].clone(),
            Provider::Local(local) => format!("127.0.0.1:{}", local.port(server)),
        }
    }

    /// How servers are asked whether they serve.
    pub fn check(&self) -> &Check {
        match self {
            Provider::Static { check, .. } => check,
            Provider::Local(local) => &local.check,
        }
    }
}

impl Local {
    /// The port of a server of the pool.
    pub fn port(&self, server: usize) -> u16 {
        self.first_port + server as u16
    }
}

/// What is typed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default = "listen")]
    listen: SocketAddr,
    key_file: PathBuf,
    #[serde(default = "store")]
    store: PathBuf,
    admin: Option<SocketAddr>,
    #[serde(default = "period")]
    period: Seconds,
    #[serde(default = "forget_after")]
    forget_after: Seconds,
    provider: RawProvider,
    #[serde(default)]
    provision: ProvisionConfig,
    #[serde(default)]
    sentries: SentryRule,
    #[serde(default)]
    application: Vec<RawApplication>,
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
#[serde(rename_all = "lowercase")]
enum Kind {
    Static,
    Local,
}

/// Both kinds in one, so that a wrong key is told with its line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProvider {
    kind: Kind,
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    command: Vec<String>,
    first_port: Option<u16>,
    servers: Option<u16>,
    stop_grace: Option<Seconds>,
    log: Option<PathBuf>,
    check: Option<String>,
    hung_after: Option<Seconds>,
    setup_time: Option<Seconds>,
    warm_up: Option<Seconds>,
    warm_up_speed: Option<f64>,
    drain_limit: Option<Seconds>,
}

impl RawProvider {
    fn resolve(self, folder: &Path) -> Result<(Provider, Pool), String> {
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
                Provider::Local(Local {
                    command: self.command,
                    first_port,
                    servers,
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
struct RawApplication {
    name: String,
    target: Option<Seconds>,
    sla: Option<RawSla>,
    #[serde(default = "revenues")]
    revenues: Vec<f64>,
    #[serde(default = "one")]
    min_servers: u32,
    max_servers: Option<u32>,
    servers: Option<u32>,
    #[serde(default = "one")]
    max_sentries: u32,
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
    fn resolve(self) -> Result<ApplicationSetup, String> {
        let sla = match (self.target, self.sla) {
            (Some(target), None) => Sla::constant(Statistic::P95, target.duration()),
            (None, Some(sla)) => sla.resolve(),
            _ => return Err(String::from("give a target such as \"1s\", or an sla, and not both")),
        };
        let sla = sla.map_err(|error| error.to_string())?;
        let replica = self.service_time.map(|mean| Replica::new(mean.0, self.service_variation, self.processors));
        if let Some(replica) = &replica {
            let bound = tidegate_engine::provision::mean_bound(sla.statistic(), sla.target(0.0));
            replica.capacity(bound).map_err(|error| error.to_string())?;
        }
        Ok(ApplicationSetup {
            name: self.name,
            sla,
            revenues: self.revenues,
            min_servers: self.min_servers,
            max_servers: self.max_servers.unwrap_or(u32::from(u16::MAX)),
            servers: self.servers.unwrap_or(self.min_servers),
            max_sentries: self.max_sentries,
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A configuration with a key file beside it.
    pub(crate) fn parse(text: &str) -> Result<Config, ConfigError> {
        let folder = std::env::temp_dir().join(format!("tidegate-control-config-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("key"), "the secret of the tests").expect("a file");
        Config::parse(text, &folder.join("control.toml"))
    }

    const LOCAL: &str = "key_file = \"key\"\n[provider]\nkind = \"local\"\ncommand = [\"server\", \"{port}\"]\nfirst_port = 9100\n\
                         servers = 8\nsetup_time = \"2s\"\n";

    #[test]
    fn a_short_file_is_complete() {
        let config = parse(&format!("{LOCAL}[[application]]\nname = \"shop\"\ntarget = \"500ms\"\n")).expect("valid");
        assert_eq!((config.site.servers, config.site.pool.setup_time), (8, Duration::from_secs(2)));
        assert_eq!(config.provider.address(3), "127.0.0.1:9103");
        assert_eq!((config.site.applications[0].min_servers, config.period), (1, Duration::from_secs(1)));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let message = |text: &str| parse(text).expect_err("wrong").to_string();
        let app = "[[application]]\nname = \"shop\"\n";
        let unknown = message(&format!("{LOCAL}{app}tagret = \"1s\"\n"));
        assert!(unknown.contains("line 10") && unknown.contains("`target`"), "{unknown}");
        assert!(message(&format!("{LOCAL}{app}")).contains("\"shop\": give a target"));
        assert!(message(LOCAL).contains("add [[application]]"));
        let below = message(&format!("{LOCAL}{app}target = \"100ms\"\nservice_time = \"200ms\"\n"));
        assert!(below.contains("target below service time"), "{below}");
        let many = message(&format!("{LOCAL}{app}target = \"1s\"\nmin_servers = 9\n"));
        assert!(many.contains("9 servers together, of 8"), "{many}");
        let open = message(&format!("admin = \"0.0.0.0:1\"\n{LOCAL}{app}target = \"1s\"\n"));
        assert!(open.contains("not of this machine"), "{open}");
        let twice = message(&format!("{LOCAL}{app}target = \"1s\"\n{app}target = \"1s\"\n"));
        assert!(twice.contains("is there twice"), "{twice}");
    }
}
