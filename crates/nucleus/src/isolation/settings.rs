//! The table `[isolation]`: what was typed, and what it means.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use tidegate_engine::units::parse_duration;

use crate::config::{ConfigError, Service, bad};

use super::list::CoreList;

/// Where masks are kept for the next start.
const STATE_FOLDER: &str = "/run/tidegate";
const HOLD: Duration = Duration::from_secs(3);

/// What was typed under `[isolation]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GivenIsolation {
    /// The cores that are divided, such as `"0-3"`; default all that are online.
    pub cores: Option<String>,
    /// `"affinity"` (default) or `"cpuset"`.
    pub method: Option<Method>,
    /// The data service's processes.
    pub data: GivenSide,
    /// The application's processes; default those that listen where the server does.
    pub application: GivenSide,
    /// Without a command for so long, everything is put back; default 3 s, at least five reports.
    pub hold: Option<String>,
    /// The file that keeps what processes were allowed before.
    pub state_file: Option<PathBuf>,
}

/// Marks of processes; all that any of them names, and their children.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GivenSide {
    /// Their name, as `ps -o comm` shows it.
    pub process: Option<String>,
    /// A file that holds a process's number.
    pub pid_file: Option<PathBuf>,
    /// A TCP port at which they listen.
    pub port: Option<u16>,
    /// Their cgroup, below the mount point.
    pub cgroup: Option<PathBuf>,
}

/// The selection of a side's processes, checked.
pub type Side = GivenSide;

/// How cores are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// By the affinity of every thread.
    #[default]
    Affinity,
    /// By cpusets: groups of our own where version 1 is mounted, else the sides' own groups.
    Cpuset,
}

/// Checked settings of `[isolation]`.
#[derive(Clone, Debug)]
pub struct IsolationConfig {
    /// The cores that are divided: the application's software gets the last ones.
    pub cores: CoreList,
    /// Method by which cores are divided.
    pub method: Method,
    /// The data service's processes.
    pub data: Side,
    /// The application's processes.
    pub application: Side,
    /// Without a command for so long, everything is put back.
    pub hold: Duration,
    /// The file that keeps what processes were allowed before.
    pub state_file: PathBuf,
    /// Below which cgroups are looked for; not `/` in tests only.
    pub root: PathBuf,
}

impl GivenIsolation {
    /// Relative paths start from `folder`.
    pub(crate) fn move_to(&mut self, folder: &Path) {
        let files = [&mut self.data.pid_file, &mut self.application.pid_file, &mut self.state_file];
        files.into_iter().flatten().for_each(|file| *file = folder.join(&*file));
    }

    /// What it means for `server`, which listens at `service` and reports every `interval`.
    pub(crate) fn resolve(
        self,
        server: &str,
        service: Option<Service>,
        interval: Duration,
    ) -> Result<IsolationConfig, ConfigError> {
        let cores = match self.cores {
            Some(text) => text.parse().map_err(|problem| bad("isolation.cores", &text, problem))?,
            None => CoreList::online(),
        };
        if cores.len() < 2 {
            let problem = "there must be two cores at least to divide".to_owned();
            return Err(bad("isolation.cores", &cores.to_string(), problem));
        }
        let none = GivenSide::default();
        if self.data == none {
            return Err(ConfigError::Missing(
                "[isolation]: say which processes are the data service's, such as data = { process = \"memcached\" }",
            ));
        }
        let mut application = self.application;
        if application == none {
            application.port = service.map(Service::port);
        }
        if application == none {
            return Err(ConfigError::Missing(
                "[isolation]: say which processes are the application's, such as application = { port = 9000 }",
            ));
        }
        let hold = match &self.hold {
            Some(text) => parse_duration(text).map_err(|error| bad("isolation.hold", text, error.to_string()))?,
            None => HOLD,
        };
        let name: String = server.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        Ok(IsolationConfig {
            cores,
            method: self.method.unwrap_or_default(),
            data: self.data,
            application,
            hold: hold.max(5 * interval),
            state_file: self.state_file.unwrap_or_else(|| Path::new(STATE_FOLDER).join(format!("{name}.json"))),
            root: PathBuf::from("/"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(text: &str) -> Result<IsolationConfig, ConfigError> {
        let given: GivenIsolation = toml::from_str(text).expect("TOML");
        given.resolve("10.0.1.1:9000", Some(Service::Port(9000)), Duration::from_millis(100))
    }

    #[test]
    fn what_is_left_out_has_a_sensible_value() {
        let config = resolve("cores = \"0-3\"\ndata = { process = \"memcached\" }").expect("valid");
        assert_eq!((config.cores.len(), config.method, config.hold), (4, Method::Affinity, Duration::from_secs(3)));
        assert_eq!(config.application.port, Some(9000), "who listens where the server does");
        assert_eq!(config.state_file, Path::new("/run/tidegate/10-0-1-1-9000.json"));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("cores = \"0-3\"", "data service"),
            ("cores = \"0\"\ndata = { port = 1 }", "two cores"),
            ("cores = \"x\"\ndata = { port = 1 }", "no list of cores"),
            ("cores = \"0-1\"\ndata = { port = 1 }\nhold = \"soon\"", "isolation.hold"),
        ] {
            let error = resolve(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(toml::from_str::<GivenIsolation>("data = { name = \"x\" }").is_err());
        assert!(toml::from_str::<GivenIsolation>("method = \"magic\"").is_err());
    }
}
