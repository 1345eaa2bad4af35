//! The table `[isolation]`: what was typed, and what it means.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_config::{At, Report, Time, section, suggestion};

use crate::config::{ConfigError, Service, bad, parsed};

use super::list::CoreList;

/// Where masks are kept for the next start.
const STATE_FOLDER: &str = "/run/tidegate";
const HOLD: Duration = Duration::from_secs(3);

section! {
    /// The table as it was typed.
    pub(crate) struct RawIsolation ("in [isolation]") {
        /// The data service's processes. Required.
        data: RawSide,
        /// The application's processes. Default: those that listen where the server does.
        application: RawSide,
        /// The cores that are divided: the application's software gets the last ones. Default: all that are online.
        cores: String,
        /// By the `"affinity"` of every thread, or by `"cpuset"`. Default: `"affinity"`.
        method: String,
        /// Without a command for so long, everything is put back; five reports at least. Default: `"3s"`.
        hold: Time,
        /// Keeps what processes were allowed before. Default: `/run/tidegate/SERVER.json`.
        state_file: String,
    }
}

section! {
    /// Marks of processes, as they were typed.
    pub(crate) struct RawSide ("in data or application of [isolation]") {
        /// Their name, as `ps -o comm` shows it. Default: any.
        process: String,
        /// A file that holds a process's number. Default: none.
        pid_file: String,
        /// A TCP port at which they listen. Default: none.
        port: u64,
        /// Their cgroup, below the mount point. Default: none.
        cgroup: String,
    }
}

/// What was typed under `[isolation]`.
#[derive(Clone, Debug, Default)]
pub struct GivenIsolation {
    /// The cores that are divided; default all that are online.
    pub cores: Option<CoreList>,
    /// How.
    pub method: Method,
    /// The data service's processes.
    pub data: Side,
    /// The application's processes; where nothing marks them, those that listen where the server does.
    pub application: Side,
    /// Without a command for so long, everything is put back; default 3 s, at least five reports.
    pub hold: Option<Duration>,
    /// The file that keeps what processes were allowed before.
    pub state_file: Option<PathBuf>,
}

/// Marks of processes; all that any of them names, and their children.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    /// Their name, as `ps -o comm` shows it.
    pub process: Option<String>,
    /// A file that holds a process's number.
    pub pid_file: Option<PathBuf>,
    /// A TCP port at which they listen.
    pub port: Option<u16>,
    /// Their cgroup, below the mount point.
    pub cgroup: Option<PathBuf>,
}

/// How cores are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// What was typed; what makes no sense is reported.
    pub(crate) fn read(raw: At<RawIsolation>, report: &mut Report<'_>) -> GivenIsolation {
        let At { value: raw, span } = raw;
        if raw.data.is_none() && !report.has_errors() {
            report.error(&span, NO_DATA);
        }
        let to_divide = |text: &String| text.parse::<CoreList>().and_then(CoreList::enough);
        GivenIsolation {
            cores: parsed("isolation.cores", raw.cores, to_divide, report),
            method: raw.method.map_or_else(Method::default, |name| Method::read(&name, report)),
            data: raw.data.map_or_else(Side::default, |side| Side::read(side.value, report)),
            application: raw.application.map_or_else(Side::default, |side| Side::read(side.value, report)),
            hold: raw.hold.map(|hold| hold.value.0),
            state_file: raw.state_file.map(|file| PathBuf::from(file.value)),
        }
    }

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
        let cores = self.cores.unwrap_or_else(CoreList::online);
        let cores = cores.clone().enough().map_err(|problem| bad("isolation.cores", &cores.to_string(), problem))?;
        if self.data == Side::default() {
            return Err(ConfigError::Missing(NO_DATA));
        }
        let mut application = self.application;
        if application == Side::default() {
            application.port = service.map(Service::port);
        }
        if application == Side::default() {
            return Err(ConfigError::Missing(
                "[isolation]: say which processes are the application's, such as application = { port = 9000 }",
            ));
        }
        let hold = self.hold.unwrap_or(HOLD);
        let name: String = server.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        Ok(IsolationConfig {
            cores,
            method: self.method,
            data: self.data,
            application,
            hold: hold.max(5 * interval),
            state_file: self.state_file.unwrap_or_else(|| Path::new(STATE_FOLDER).join(format!("{name}.json"))),
            root: PathBuf::from("/"),
        })
    }
}

impl Side {
    fn read(raw: RawSide, report: &mut Report<'_>) -> Side {
        let in_range = |port: &u64| {
            let port = u16::try_from(*port).ok().filter(|port| *port > 0);
            port.ok_or_else(|| "write one from 1 to 65535".to_owned())
        };
        Side {
            process: raw.process.map(|name| name.value),
            pid_file: raw.pid_file.map(|file| PathBuf::from(file.value)),
            port: parsed("port", raw.port, in_range, report),
            cgroup: raw.cgroup.map(|group| PathBuf::from(group.value)),
        }
    }
}

impl Method {
    fn read(name: &At<String>, report: &mut Report<'_>) -> Method {
        match name.value.as_str() {
            "affinity" => Method::Affinity,
            "cpuset" => Method::Cpuset,
            other => {
                let hint = suggestion(other, &["affinity", "cpuset"]);
                report.error(&name.span, format!("unknown method \"{other}\"{hint}"));
                Method::default()
            }
        }
    }
}

const NO_DATA: &str =
    "[isolation]: say which processes are the data service's, such as data = { process = \"memcached\" }";

#[cfg(test)]
mod tests {
    use tidegate_config::parse_document;

    use super::*;

    fn resolve(text: &str) -> Result<IsolationConfig, ConfigError> {
        let mut report = Report::new(text);
        let document = parse_document(text, &mut report).expect("TOML");
        let raw = RawIsolation::read_table(document.get_ref(), &mut report);
        let given = GivenIsolation::read(At { value: raw, span: 0..0 }, &mut report);
        if report.has_errors() {
            return Err(report.failure("nucleus.toml").into());
        }
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
            ("data = {}", "data service"),
            ("data = { name = \"x\" }", "unknown key \"name\""),
            ("data = { port = 1 }\nmethod = \"magic\"", "known here: affinity, cpuset"),
            ("cores = \"0-1\"\ndata = { port = 1 }\nhold = \"soon\"", "hold = \"soon\" is not a time"),
        ] {
            let error = resolve(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
