//! The configuration of a control plane: one TOML file.

pub(crate) mod kubernetes;
mod raw;
mod sentries;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tidegate_config::{
    ConfigErrors, Found, Place as At,
    Step::{Index, Key},
};
use tidegate_provision::{ApplicationSetup, Posts, Site};
use tidegate_wire::control::ControlKeys;
use tidegate_wire::{KeyError, KeyFile};

use crate::plane::Unit;
use raw::Raw;

pub use crate::names::Dns;
pub use kubernetes::ClusterConfig;

/// Everything a control plane does.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where sentries connect to.
    pub listen: SocketAddr,
    /// What sentries and the control plane share.
    pub keys: ControlKeys,
    /// The file with them; it may change.
    pub key_file: KeyFile,
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
    /// Who starts and stops sentries; `None`: somebody else.
    pub sentries: Option<Provider>,
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
    /// Whether they are servers or sentries.
    pub unit: Unit,
    /// The program and its arguments; `{address}`, `{port}`, `{server}` and `{application}` are filled in.
    pub command: Vec<String>,
    /// Where each of them listens; so many there may be.
    pub addresses: Vec<SocketAddr>,
    /// Names of the applications.
    pub applications: Vec<String>,
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
    /// The file cannot be read, or is not what it should be.
    #[error(transparent)]
    File(#[from] ConfigErrors),
    /// There is no key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// What was found wrong with a file, part by part.
#[derive(Default)]
struct Findings(Vec<Found>);

impl Findings {
    fn add(&mut self, place: At, problem: impl Into<String>) {
        self.0.push(Found { place, problem: problem.into() });
    }

    /// What a part came to; `None` when something is wrong with it.
    fn take<T>(&mut self, place: At, part: Result<T, String>) -> Option<T> {
        part.map_err(|problem| self.add(place, problem)).ok()
    }
}

impl Config {
    /// Reads and checks a file. Paths in it are from its folder.
    ///
    /// # Errors
    /// Everything that is wrong, each with its line.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        Config::parse(&tidegate_config::load(path)?, path)
    }

    /// Checks a text as if it stood in the file `path`.
    ///
    /// # Errors
    /// Everything that is wrong, each with its line.
    pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        let source = path.display().to_string();
        let wrong = |found: Findings| ConfigErrors::of_checks(&source, text, found.0);
        let mut found = Findings::default();
        if names_etcd(text) {
            found.add(vec![Key("etcd")], NO_ETCD);
            return Err(wrong(found).into());
        }
        let raw: Raw = tidegate_config::parse(text, &source)?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let key_file = folder.join(&raw.key_file);
        match raw.resolve(&folder, &mut found).filter(|_| found.0.is_empty()) {
            Some(config) => {
                tidegate_wire::exposed(&key_file).iter().for_each(|message| tracing::warn!("{message}"));
                let file = KeyFile::new(&key_file);
                Ok(config(ControlKeys::load(&key_file)?, file))
            }
            None => Err(wrong(found).into()),
        }
    }
}

impl Raw {
    /// What it means, but for the key; `None` when it means nothing.
    fn resolve(
        self,
        folder: &Path,
        found: &mut Findings,
    ) -> Option<impl FnOnce(ControlKeys, KeyFile) -> Config + use<>> {
        if let Some(admin) = self.admin.filter(|admin| !admin.ip().is_loopback()) {
            let problem =
                format!("\"{admin}\" must be a loopback address, such as 127.0.0.1:9911: it has no authentication");
            found.add(vec![Key("admin")], problem);
        }
        for (key, time) in [("period", self.period), ("forget_after", self.forget_after)] {
            if !(0.05..=86_400.0).contains(&time.0) {
                found.add(vec![Key(key)], "must be from 50ms to a day");
            }
        }
        let names: Vec<String> = self.application.iter().map(|application| application.name.clone()).collect();
        twice(&names, found);
        let provider = found.take(vec![Key("provider")], self.provider.resolve(folder, &names));
        let (rule, sentries) = self.sentries.into_parts();
        let at = || vec![Key("sentries"), Key("provider")];
        let sentries = sentries.map(|one| found.take(at(), one.resolve(folder, &names)));
        let applications = self.application.into_iter().zip(&names).enumerate().map(|(at, (application, name))| {
            let resolved = application.resolve().map_err(|error| format!("application \"{name}\": {error}"));
            found.take(vec![Key("application"), Index(at)], resolved)
        });
        // All of them are looked at, whatever is wrong with the first.
        let applications: Option<Vec<_>> = applications.collect::<Vec<_>>().into_iter().collect();
        let dns = self.dns.map(|dns| found.take(vec![Key("dns")], dns.resolve(&names)));
        let listen = self.listen;
        let cluster = self.kubernetes.map(|one| found.take(vec![Key("kubernetes")], one.resolve(folder, listen)));
        let (provider, pool) = provider?;
        let (sentries, posts) = match sentries {
            Some(started) => started.map(|(provider, posts)| (Some(provider), posts))?,
            None => (None, Posts::default()),
        };
        // Where none are started, a second one is never asked for unless the file says so.
        let (servers, most) = (provider.servers(), posts.count.max(1));
        let applications: Vec<ApplicationSetup> = applications?.into_iter().map(|setup| setup(most)).collect();
        let site = Site { servers, pool, applications, policy: self.provision, sentries: rule, posts };
        if let Err(error) = site.check() {
            found.add(vec![], error.to_string());
        }
        let (admin, store) = (self.admin, folder.join(&self.store));
        let (period, forget_after) = (self.period.duration(), self.forget_after.duration());
        let (dns, kubernetes) = (dns.flatten(), cluster.flatten());
        Some(move |keys, key_file| Config {
            listen,
            keys,
            key_file,
            store,
            kubernetes,
            admin,
            period,
            forget_after,
            dns,
            provider,
            sentries,
            site,
        })
    }
}

/// Applications have names of their own, and there is one at least.
fn twice(names: &[String], found: &mut Findings) {
    if names.is_empty() {
        found.add(vec![], "there is nothing to look after; add [[application]] with a name and a target");
    }
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) {
            let problem = format!("application \"{name}\" is there twice; give each a name of its own");
            found.add(vec![Key("application"), Index(at), Key("name")], problem);
        }
    }
}

/// What a configuration for etcd is told.
const NO_ETCD: &str = "[etcd] is not supported any more; remove it: one control plane keeps its state in a file, store = \
                       \"FILE\", and several use [kubernetes], a Lease and ConfigMaps of a cluster (docs/kubernetes.md)";

fn names_etcd(text: &str) -> bool {
    toml::from_str::<toml::Table>(text).is_ok_and(|table| table.contains_key("etcd"))
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
            Provider::Local(local) => local.addresses.len() as u32,
            Provider::Kubernetes(kubernetes) => u32::from(kubernetes.servers),
        }
    }

    /// Where a server of the pool listens, `host:port`; `None` where only the provider knows.
    pub fn address(&self, server: usize) -> Option<String> {
        match self {
            Provider::Static { servers, .. } => servers.get(server).cloned(),
            Provider::Local(local) => local.addresses.get(server).map(ToString::to_string),
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
        assert!(unknown.contains("control.toml:10") && unknown.contains("\"target\""), "{unknown}");
        let two = message(&format!("{LOCAL}{app}tagret = \"1s\"\n[[application]]\nname = \"blog\"\nsevers = 1\n"));
        assert!(two.contains("\"target\"") && two.contains("\"servers\""), "{two}");
        let two = message(&format!("period = \"0s\"\nadmin = \"0.0.0.0:1\"\n{LOCAL}{app}target = \"1s\"\n"));
        assert!(two.contains("control.toml:1: ") && two.contains("control.toml:2: "), "{two}");
        assert!(message(&format!("{LOCAL}{app}")).contains("\"shop\": give a target"));
        assert!(message(LOCAL).contains("add [[application]]"));
        let below = message(&format!("{LOCAL}{app}target = \"100ms\"\nservice_time = \"200ms\"\n"));
        assert!(below.contains("target below service time"), "{below}");
        let many = message(&format!("{LOCAL}{app}target = \"1s\"\nmin_servers = 9\n"));
        assert!(many.contains("9 servers together, of 8"), "{many}");
        let open = message(&format!("admin = \"0.0.0.0:1\"\n{LOCAL}{app}target = \"1s\"\n"));
        assert!(open.contains("must be a loopback address"), "{open}");
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
