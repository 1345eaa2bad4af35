//! What a nucleus is told: on the command line, or in a file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use tidegate_engine::units::parse_duration;
use tidegate_wire::{Key, KeyError, MAX_NAME};

use crate::isolation::{GivenIsolation, IsolationConfig};

/// Bounds of the interval.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(60);

/// What was typed. Whatever the file leaves out may be on the command line, which goes first.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Given {
    /// The server, as the sentry names it: `host:port`, its name, or `application/name`.
    pub server: Option<String>,
    /// The sentries' addresses for reports, `host:port`.
    pub to: Vec<String>,
    /// The file with the shared secret.
    pub key_file: Option<PathBuf>,
    /// Time between reports, such as `"100ms"`.
    pub interval: Option<String>,
    /// The port, or `address:port`, at which the server listens; of `server` where that has one. `"none"`: do not look.
    pub service: Option<String>,
    /// A status page of the server: Apache's `?auto`, nginx's `stub_status`, or JSON.
    pub status: Option<String>,
    /// The server's own cgroup, below the mount point; default the root one that is to be seen.
    pub cgroup: Option<PathBuf>,
    /// The server's effective processors, where its operator knows them.
    pub processors: Option<f64>,
    /// Measure processor time per connection: for servers with a process per connection.
    pub connections: Option<bool>,
    /// How a data server's cores are divided; in a file only.
    pub isolation: Option<GivenIsolation>,
}

/// What it means.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server's name in reports.
    pub server: String,
    /// Where reports go, `host:port`.
    pub to: Vec<String>,
    /// The shared key; there is one whenever `to` is not empty.
    pub key: Option<Key>,
    /// Time between reports.
    pub interval: Duration,
    /// Where the server listens; `None`: its listeners are not watched.
    pub service: Option<Service>,
    /// `host:port` and path of a status page.
    pub status: Option<(String, String)>,
    /// The server's own cgroup, below the mount point.
    pub cgroup: PathBuf,
    /// The server's effective processors.
    pub processors: Option<f64>,
    /// Whether processor time per connection is measured.
    pub connections: bool,
    /// How a data server's cores are divided; `None`: not by this nucleus.
    pub isolation: Option<IsolationConfig>,
    /// Below which `/proc` and `/sys` are looked for; not `/` in tests only.
    pub root: PathBuf,
}

/// Where a server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// At this port, at any address.
    Port(u16),
    /// At this address, or at all addresses of its port.
    Address(SocketAddr),
}

/// Why a nucleus does not know what to do.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path} cannot be read: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file makes no sense.
    #[error("{path}: {problem}")]
    File {
        /// The file.
        path: PathBuf,
        /// What, and where.
        problem: String,
    },
    /// A value makes no sense.
    #[error("{key} = \"{value}\": {problem}")]
    Value {
        /// The key, or option.
        key: &'static str,
        /// What was given.
        value: String,
        /// What is wrong and what to write.
        problem: String,
    },
    /// Something is missing.
    #[error("{0}")]
    Missing(&'static str),
    /// The key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl Given {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or makes no sense.
    pub fn load(path: &Path) -> Result<Given, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let mut given: Given = toml::from_str(&text)
            .map_err(|error| ConfigError::File { path: path.to_owned(), problem: error.to_string() })?;
        // A relative path in a file starts from the file's folder.
        if let (Some(key), Some(folder)) = (&mut given.key_file, path.parent()) {
            *key = folder.join(&*key);
        }
        if let (Some(isolation), Some(folder)) = (&mut given.isolation, path.parent()) {
            isolation.move_to(folder);
        }
        Ok(given)
    }

    /// What is missing here comes from `file`.
    pub fn or(self, file: Given) -> Given {
        Given {
            server: self.server.or(file.server),
            to: if self.to.is_empty() { file.to } else { self.to },
            key_file: self.key_file.or(file.key_file),
            interval: self.interval.or(file.interval),
            service: self.service.or(file.service),
            status: self.status.or(file.status),
            cgroup: self.cgroup.or(file.cgroup),
            processors: self.processors.or(file.processors),
            connections: self.connections.or(file.connections),
            isolation: self.isolation.or(file.isolation),
        }
    }

    /// What it means. With `sends`, there must be somebody to send to, and a key.
    ///
    /// # Errors
    /// When a value makes no sense, or something is missing.
    pub fn resolve(self, sends: bool) -> Result<Config, ConfigError> {
        let server = self.server.unwrap_or_else(|| "localhost".to_owned());
        if server.is_empty() || server.len() > MAX_NAME {
            return Err(bad("server", &server, format!("a name has 1 to {MAX_NAME} bytes")));
        }
        if sends && self.to.is_empty() {
            return Err(ConfigError::Missing("nobody to report to: give --to HOST:PORT, a sentry's [reports] listen"));
        }
        for to in &self.to {
            check_address("to", to)?;
        }
        let key = match &self.key_file {
            Some(path) => Some(Key::load(path)?),
            None if sends => {
                return Err(ConfigError::Missing("no key: give --key-file FILE, the same secret as the sentry's"));
            }
            None => None,
        };
        let interval = self.interval.as_deref().map_or(Ok(Duration::from_millis(100)), interval)?;
        let service = match self.service.as_deref() {
            Some("none") => None,
            Some(text) => {
                let problem = || bad("service", text, "write a port, address:port, or none".to_owned());
                Some(Service::parse(text).ok_or_else(problem)?)
            }
            None => Service::parse(&server),
        };
        let status = self.status.as_deref().map(status_url).transpose()?;
        let processors = match self.processors {
            Some(given) if !(given.is_finite() && given > 0.0) => {
                return Err(bad("processors", &given.to_string(), "it must be more than 0".to_owned()));
            }
            processors => processors,
        };
        let connections = self.connections.unwrap_or(false);
        if connections && service.is_none() {
            return Err(ConfigError::Missing("to measure connections, give --service PORT: where the server listens"));
        }
        let isolation = self.isolation.map(|given| given.resolve(&server, service, interval)).transpose()?;
        Ok(Config {
            server,
            to: self.to,
            key,
            interval,
            service,
            status,
            cgroup: self.cgroup.unwrap_or_default(),
            processors,
            connections,
            isolation,
            root: PathBuf::from("/"),
        })
    }
}

impl Service {
    fn parse(text: &str) -> Option<Service> {
        if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
            return (port > 0).then_some(Service::Port(port));
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return (address.port() > 0).then_some(Service::Address(address));
        }
        // A name with a port: which of the machine's addresses it means is not known here.
        let port = text.rsplit_once(':')?.1.parse::<u16>().ok()?;
        (port > 0).then_some(Service::Port(port))
    }

    /// Its port.
    pub fn port(self) -> u16 {
        match self {
            Service::Port(port) => port,
            Service::Address(address) => address.port(),
        }
    }

    /// Whether a socket that is bound to `local` serves it.
    pub fn is_served_by(self, local: SocketAddr) -> bool {
        let same = |address: SocketAddr| {
            let ip = local.ip().to_canonical();
            ip.is_unspecified() || ip == address.ip().to_canonical()
        };
        local.port() == self.port() && !matches!(self, Service::Address(address) if !same(address))
    }
}

pub(crate) fn bad(key: &'static str, value: &str, problem: String) -> ConfigError {
    ConfigError::Value { key, value: value.to_owned(), problem }
}

fn check_address(key: &'static str, text: &str) -> Result<(), ConfigError> {
    let port =
        text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).and_then(|(_, port)| port.parse::<u16>().ok());
    match port {
        Some(1..) => Ok(()),
        _ => Err(bad(key, text, "write host:port".to_owned())),
    }
}

fn interval(text: &str) -> Result<Duration, ConfigError> {
    let interval = parse_duration(text).map_err(|problem| bad("interval", text, problem.to_string()))?;
    match (SHORTEST..=LONGEST).contains(&interval) {
        true => Ok(interval),
        false => Err(bad("interval", text, "it must lie between 10ms and 60s".to_owned())),
    }
}

/// `http://host:port/path`.
fn status_url(text: &str) -> Result<(String, String), ConfigError> {
    let problem = || bad("status", text, "write http://host:port/path".to_owned());
    let rest = text.strip_prefix("http://").ok_or_else(problem)?;
    let (host, path) = rest.split_once('/').map_or((rest, "/".to_owned()), |(host, path)| (host, format!("/{path}")));
    let host = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
    check_address("status", &host).map_err(|_| problem())?;
    match path.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok((host, path)),
        false => Err(problem()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(text: &str) -> Result<Config, ConfigError> {
        toml::from_str::<Given>(text).expect("TOML").resolve(false)
    }

    #[test]
    fn a_server_with_a_port_names_its_listener() {
        let service = |text: &str| resolve(text).expect("valid").service;
        assert_eq!(service("server = \"web-1\""), None);
        assert_eq!(service("server = \"web-1:8080\""), Some(Service::Port(8080)));
        let address: SocketAddr = "10.0.0.1:80".parse().expect("an address");
        assert_eq!(service("server = \"10.0.0.1:80\""), Some(Service::Address(address)));
        assert_eq!(service("server = \"10.0.0.1:80\"\nservice = \"81\""), Some(Service::Port(81)));
        assert_eq!(service("server = \"10.0.0.1:80\"\nservice = \"none\""), None);
    }

    #[test]
    fn a_listener_serves_its_own_address_or_all() {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let service = Service::Address(at("10.0.0.1:80"));
        assert!(service.is_served_by(at("0.0.0.0:80")) && service.is_served_by(at("[::]:80")));
        assert!(service.is_served_by(at("[::ffff:10.0.0.1]:80")));
        assert!(!service.is_served_by(at("10.0.0.2:80")) && !service.is_served_by(at("0.0.0.0:81")));
        assert!(Service::Port(80).is_served_by(at("10.0.0.2:80")));
    }

    #[test]
    fn mistakes_are_named_with_what_to_write() {
        for (text, expected) in [
            ("interval = \"1ms\"", "between 10ms and 60s"),
            ("interval = \"soon\"", "interval"),
            ("to = [\"nowhere\"]", "write host:port"),
            ("service = \"web\"", "write a port"),
            ("status = \"https://x/\"", "http://host:port/path"),
            ("processors = -1.0", "more than 0"),
            ("connections = true", "--service"),
            ("server = \"\"", "1 to 128"),
        ] {
            let error = resolve(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let error = Given::default().resolve(true).expect_err("nobody to send to").to_string();
        assert!(error.contains("--to"), "{error}");
        assert!(toml::from_str::<Given>("sever = 1").is_err());
    }

    #[test]
    fn the_command_line_goes_before_the_file() {
        let file: Given = toml::from_str("server = \"a\"\nto = [\"h:1\"]\ninterval = \"1s\"").expect("TOML");
        let line = Given { server: Some("b".into()), ..Given::default() };
        let config = line.or(file).resolve(false).expect("valid");
        assert_eq!((config.server.as_str(), config.interval), ("b", Duration::from_secs(1)));
        assert_eq!(config.to, ["h:1"]);
        assert_eq!(
            status_url("http://127.0.0.1/server-status?auto").expect("valid"),
            ("127.0.0.1:80".to_owned(), "/server-status?auto".to_owned())
        );
    }
}
