//! What a nucleus is told: on the command line, or in a file.

mod file;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use tidegate_config::ConfigErrors;
use tidegate_config::units::parse_duration;
use tidegate_wire::{KeyError, KeyFile, Keys, MAX_NAME};

use crate::isolation::{GivenIsolation, IsolationConfig};

pub(crate) use file::parsed;

/// Bounds of the interval.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(60);

const INTERVAL: Duration = Duration::from_millis(100);

/// What was typed. Whatever the file leaves out may be on the command line, which goes first.
#[derive(Clone, Debug, Default)]
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
    /// The keys, its own or shared ones; there is one whenever `to` is not empty.
    pub keys: Option<Keys>,
    /// Where they stand, if in a file: it may change.
    pub key_file: Option<KeyFile>,
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
    /// The file cannot be read, or makes no sense.
    #[error(transparent)]
    File(#[from] ConfigErrors),
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
        check_name(&server).map_err(|problem| bad("server", &server, problem))?;
        if sends && self.to.is_empty() {
            return Err(ConfigError::Missing("nobody to report to: give --to HOST:PORT, a sentry's [reports] listen"));
        }
        for to in &self.to {
            check_address(to).map_err(|problem| bad("to", to, problem))?;
        }
        let key_file = self.key_file.as_deref().map(KeyFile::new);
        let keys = match &self.key_file {
            Some(path) => {
                tidegate_wire::exposed(path).iter().for_each(|message| tracing::warn!("{message}"));
                Some(Keys::load_of(&server, path)?)
            }
            None if sends => {
                return Err(ConfigError::Missing(
                    "no key: give --key-file FILE, with the sentry's secret or this server's own key",
                ));
            }
            None => None,
        };
        let interval = match &self.interval {
            Some(text) => parse_duration(text).and_then(in_bounds).map_err(|problem| bad("interval", text, problem))?,
            None => INTERVAL,
        };
        let service = match &self.service {
            Some(text) => parse_service(text).map_err(|problem| bad("service", text, problem))?,
            None => Service::parse(&server),
        };
        let status = match &self.status {
            Some(text) => Some(status_url(text).map_err(|problem| bad("status", text, problem))?),
            None => None,
        };
        if let Some(given) = self.processors {
            check_processors(given).map_err(|problem| bad("processors", &given.to_string(), problem))?;
        }
        let connections = self.connections.unwrap_or(false);
        if connections && service.is_none() {
            return Err(ConfigError::Missing("to measure connections, give --service PORT: where the server listens"));
        }
        let isolation = self.isolation.map(|given| given.resolve(&server, service, interval)).transpose()?;
        Ok(Config {
            server,
            to: self.to,
            keys,
            key_file,
            interval,
            service,
            status,
            cgroup: self.cgroup.unwrap_or_default(),
            processors: self.processors,
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

fn check_name(text: &str) -> Result<(), String> {
    let fits = (1..=MAX_NAME).contains(&text.len());
    if fits { Ok(()) } else { Err(format!("a name has 1 to {MAX_NAME} bytes")) }
}

fn check_address(text: &str) -> Result<(), String> {
    let port =
        text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).and_then(|(_, port)| port.parse::<u16>().ok());
    if matches!(port, Some(1..)) { Ok(()) } else { Err("write host:port".to_owned()) }
}

fn check_processors(given: f64) -> Result<(), String> {
    if given.is_finite() && given > 0.0 { Ok(()) } else { Err("it must be more than 0".to_owned()) }
}

fn in_bounds(interval: Duration) -> Result<Duration, String> {
    let fits = (SHORTEST..=LONGEST).contains(&interval);
    if fits { Ok(interval) } else { Err("it must lie between 10ms and 60s".to_owned()) }
}

fn parse_service(text: &str) -> Result<Option<Service>, String> {
    let problem = || "write a port, address:port, or none".to_owned();
    if text == "none" { Ok(None) } else { Service::parse(text).map(Some).ok_or_else(problem) }
}

/// `http://host:port/path`.
fn status_url(text: &str) -> Result<(String, String), String> {
    let problem = || "write http://host:port/path".to_owned();
    let rest = text.strip_prefix("http://").ok_or_else(problem)?;
    let (host, path) = rest.split_once('/').map_or((rest, "/".to_owned()), |(host, path)| (host, format!("/{path}")));
    let host = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
    check_address(&host).map_err(|_| problem())?;
    if path.bytes().all(|byte| byte.is_ascii_graphic()) { Ok((host, path)) } else { Err(problem()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(text: &str) -> Result<Config, ConfigError> {
        Given::parse(text, "nucleus.toml")?.resolve(false)
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
    }

    #[test]
    fn the_command_line_is_judged_too() {
        let wrong = |given: Given| given.resolve(false).expect_err("wrong").to_string();
        let text = |text: &str| Some(text.to_owned());
        for (given, expected) in [
            (Given { interval: text("1ms"), ..Given::default() }, "interval = \"1ms\": it must lie"),
            (Given { to: vec!["nowhere".into()], ..Given::default() }, "to = \"nowhere\": write host:port"),
            (Given { service: text("web"), ..Given::default() }, "service = \"web\": write a port"),
            (Given { status: text("https://x/"), ..Given::default() }, "status = \"https://x/\": write http://"),
            (Given { processors: Some(-1.0), ..Given::default() }, "processors = \"-1\": it must be more than 0"),
            (Given { server: text(""), ..Given::default() }, "server = \"\": a name has 1 to 128 bytes"),
        ] {
            let error = wrong(given);
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn the_command_line_goes_before_the_file() {
        let text = "server = \"a\"\nto = [\"h:1\"]\ninterval = \"1s\"";
        let file = Given::parse(text, "nucleus.toml").expect("valid");
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
