//! The configuration of a control plane: one TOML file.

pub(crate) mod kubernetes;
mod raw;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hickory_server::proto::rr::Name;
use thiserror::Error;
use tidegate_provision::{ProvisionError, Site};
use tidegate_wire::KeyError;
use tidegate_wire::control::ControlKey;

use raw::Raw;

pub use kubernetes::ClusterConfig;

/// Everything a control plane does.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where sentries connect to.
    pub listen: SocketAddr,
    /// What sentries and the control plane share.
    pub key: ControlKey,
    /// The file with its state; with a cluster only that of a dry run.
    pub store: PathBuf,
    /// Where several control planes have their state, and elect one that leads.
    pub kubernetes: Option<ClusterConfig>,
    /// Where its own state is shown, loopback only; `None` for nowhere.
    pub admin: Option<SocketAddr>,
    /// How often sentries report, and what follows is decided.
    pub period: Duration,
    /// A sentry that was not heard for so long is no sentry any more: its servers go to the others.
    pub forget_after: Duration,
    /// Answers to DNS queries for applications' names; `None` for none.
    pub dns: Option<Dns>,
    /// Who starts and stops servers.
    pub provider: Provider,
    /// The pool, the applications, and when who gets how many.
    pub site: Site,
}

/// Where the state is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a file.
    File(PathBuf),
    /// In ConfigMaps of a cluster.
    Kubernetes(ClusterConfig),
}

/// Answers to DNS queries.
#[derive(Clone, Debug, PartialEq)]
pub struct Dns {
    /// Where queries come to, by UDP and by TCP.
    pub listen: SocketAddr,
    /// The zone: applications are names in it.
    pub zone: Name,
    /// How long an answer may be kept, whole seconds.
    pub ttl: Duration,
    /// The names of the zone's servers, at least one.
    pub name_servers: Vec<Name>,
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
    /// Pods of Kubernetes deployments.
    Kubernetes(Kubernetes),
}

/// Pods of Kubernetes deployments.
#[derive(Clone, Debug, PartialEq)]
pub struct Kubernetes {
    /// How the API server is reached; `None`: as `kubectl` does it, or as a pod does.
    pub kubeconfig: Option<PathBuf>,
    /// Where the deployments are; `None`: where this one is at home.
    pub namespace: Option<String>,
    /// The most pods there may be in use, of all deployments.
    pub servers: u16,
    /// Each application's.
    pub deployments: Vec<Deployment>,
    /// How they are asked whether they serve, when Kubernetes says so.
    pub check: Check,
}

/// An application's pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployment {
    /// The deployment that is scaled.
    pub name: String,
    /// The service that selects its pods.
    pub service: String,
    /// The name or number of the port where they serve; `None`: the first.
    pub port: Option<String>,
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
        let raw = Raw::read(text).map_err(&wrong)?;
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
        let applications: Vec<String> = raw.application.iter().map(|application| application.name.clone()).collect();
        let (provider, pool) = raw.provider.resolve(&folder, &applications).map_err(&wrong)?;
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
        let dns = raw.dns.map(|dns| dns.resolve(&names)).transpose().map_err(&wrong)?;
        for (key, time) in [("period", raw.period), ("forget_after", raw.forget_after)] {
            if !(0.05..=86_400.0).contains(&time.0) {
                return Err(wrong(format!("{key} must be from 50ms to a day")));
            }
        }
        Ok(Config {
            listen: raw.listen,
            key: ControlKey::load(&from_here(&raw.key_file))?,
            store: from_here(&raw.store),
            kubernetes: raw
                .kubernetes
                .map(|cluster| cluster.resolve(&folder, raw.listen))
                .transpose()
                .map_err(&wrong)?,
            admin: raw.admin,
            period: raw.period.duration(),
            forget_after: raw.forget_after.duration(),
            dns,
            provider,
            site,
        })
    }
}

impl Config {
    /// Where the state is. A dry run has a file of its own.
    pub fn store_of(&self, dry_run: bool) -> Place {
        match &self.kubernetes {
            _ if dry_run => Place::File(self.store.with_extension("dry.redb")),
            Some(cluster) => Place::Kubernetes(cluster.clone()),
            None => Place::File(self.store.clone()),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::File(path) => path.display().fmt(f),
            Place::Kubernetes(cluster) => match &cluster.namespace {
                Some(namespace) => write!(f, "Kubernetes, {namespace}/{}", cluster.prefix),
                None => write!(f, "Kubernetes, {}", cluster.prefix),
            },
        }
    }
}

impl Provider {
    /// The size of the pool.
    pub fn servers(&self) -> u32 {
        match self {
            Provider::Static { servers, .. } => servers.len() as u32,
            Provider::Local(local) => u32::from(local.servers),
            Provider::Kubernetes(kubernetes) => u32::from(kubernetes.servers),
        }
    }

    /// Where a server of the pool listens, `host:port`; `None` where only the provider knows.
    pub fn address(&self, server: usize) -> Option<String> {
        match self {
            Provider::Static { servers, .. } => servers.get(server).cloned(),
            Provider::Local(local) => Some(format!("127.0.0.1:{}", local.port(server))),
            Provider::Kubernetes(_) => None,
        }
    }

    /// How servers are asked whether they serve.
    pub fn check(&self) -> &Check {
        match self {
            Provider::Static { check, .. } => check,
            Provider::Local(local) => &local.check,
            Provider::Kubernetes(kubernetes) => &kubernetes.check,
        }
    }
}

impl Local {
    /// The port of a server of the pool.
    pub fn port(&self, server: usize) -> u16 {
        self.first_port + server as u16
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A configuration with a key file beside it.
    pub(crate) fn parse(text: &str) -> Result<Config, ConfigError> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("key"), "the secret of the tests").expect("a file");
        Config::parse(text, &folder.path().join("control.toml"))
    }

    const LOCAL: &str = "key_file = \"key\"\n[provider]\nkind = \"local\"\ncommand = [\"server\", \"{port}\"]\nfirst_port = 9100\n\
                         servers = 8\nsetup_time = \"2s\"\n";

    #[test]
    fn a_short_file_is_complete() {
        let config = parse(&format!("{LOCAL}[[application]]\nname = \"shop\"\ntarget = \"500ms\"\n")).expect("valid");
        assert_eq!((config.site.servers, config.site.pool.setup_time), (8, Duration::from_secs(2)));
        assert_eq!(config.provider.address(3).as_deref(), Some("127.0.0.1:9103"));
        assert_eq!((config.site.applications[0].min_servers, config.period), (1, Duration::from_secs(1)));
    }

    #[test]
    fn the_state_is_in_a_file_and_a_dry_run_has_its_own() {
        let text = format!("{LOCAL}[[application]]\nname = \"shop\"\ntarget = \"500ms\"\n");
        let config = parse(&text).expect("valid");
        assert!(matches!(config.store_of(false), Place::File(path) if path.ends_with("control.redb")));
        assert!(matches!(config.store_of(true), Place::File(path) if path.ends_with("control.dry.redb")));
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

    #[test]
    fn who_still_names_etcd_is_told_what_to_use_instead() {
        let text = format!("{LOCAL}[[application]]\nname = \"shop\"\ntarget = \"1s\"\n");
        for etcd in ["[etcd]\nendpoints = [\"10.0.0.1:2379\"]\nname = \"one\"\n", "[etcd]\n"] {
            let error = parse(&format!("{text}{etcd}")).expect_err("is gone").to_string();
            assert!(error.contains("[etcd]") && error.contains("store = \"FILE\""), "{error}");
            assert!(error.contains("[kubernetes]"), "{error}");
        }
    }
}
