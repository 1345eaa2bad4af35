//! The processes of the run and their configurations.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tidegate_testbed::{PAUSE, Process, ProcessError, ServerSpec, free_address, free_addresses};

use super::LEAD;
use crate::configure::file::{
    ApplicationFile, ControlFile, ControlLink, Health, PlannedApplication, Provider, SentryFile, SentryRule, Server,
};
use crate::scenario::{Application, Arm, Scenario};
use crate::service::ServiceError;
use crate::service::emulated;
use crate::service::processes::get;

/// How often sentries report and it is decided.
const PERIOD: &str = "1s";

/// A control plane, the servers that it starts, and sentries. Dropping it ends them all.
#[derive(Debug)]
pub(super) struct Site {
    scenario: Scenario,
    arm: Arm,
    program: PathBuf,
    folder: PathBuf,
    control_at: SocketAddr,
    admin: SocketAddr,
    began: Instant,
    /// What the control plane said of itself last: who runs when it does not answer any more.
    seen: Value,
    has_ended: bool,
    // The order matters: who sends goes first, whoever answers last.
    pub(super) sentries: Vec<SentryProcess>,
    control: Process,
}

/// A sentry.
#[derive(Debug)]
pub(super) struct SentryProcess {
    pub(super) process: Process,
    /// Where it listens, by application.
    pub(super) listen: Vec<SocketAddr>,
    admin: SocketAddr,
}

impl Site {
    /// Starts the control plane and one sentry; waits until the first servers serve. `full`: what counts as a sentry
    /// whose processor is busy.
    pub(super) fn start(
        scenario: &Scenario,
        arm: &Arm,
        seed: u64,
        full: f64,
        program: &Path,
        folder: &Path,
    ) -> Result<Site, ServiceError> {
        prepare(scenario, seed, folder)?;
        let (control_at, admin) = (free_port()?, free_port()?);
        let first_port = free_ports(scenario.servers.count)?;
        let text = toml::to_string(&control(scenario, arm, full, program, folder, (control_at, admin), first_port))?;
        let path = write(folder, "control.toml", &text)?;
        // A store that an earlier run has left would be gone on with.
        let _ = fs::remove_file(folder.join("control.redb"));
        let mut command = Command::new(program);
        command.arg("control").arg("-c").arg(path).stdout(Stdio::null());
        let began = Instant::now();
        let control = Process::start("control", command, folder)?;
        let (program, folder) = (program.to_owned(), folder.to_owned());
        let (scenario, arm) = (scenario.clone(), arm.clone());
        let sentries = Vec::new();
        let (seen, has_ended) = (Value::Null, false);
        let mut site =
            Site { scenario, arm, program, folder, control_at, admin, began, seen, has_ended, sentries, control };
        site.add_sentry()?;
        site.until("the first servers do not serve", |site| {
            let state = site.state();
            let serves = |(at, application): (usize, &Application)| {
                state["applications"][at]["serving"].as_u64() >= Some(u64::from(application.servers))
                    && site.sentries[0].servers(at) >= application.servers as usize
            };
            site.scenario.all_applications().iter().enumerate().all(serves)
        })?;
        Ok(site)
    }

    /// When the control plane began.
    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// What the control plane says of itself; null when it does not answer.
    pub(super) fn state(&mut self) -> Value {
        let state = get(self.admin, "/api/state");
        state.inspect(|state| self.seen.clone_from(state)).unwrap_or_default()
    }

    /// Starts one more sentry, and waits until it answers.
    pub(super) fn add_sentry(&mut self) -> Result<(), ServiceError> {
        let name = format!("sentry-{}", self.sentries.len() + 1);
        let control = ControlLink { connect: self.control_at, key_file: "key".into(), name: name.clone() };
        let sentry = start_sentry(&self.scenario, &self.arm, &name, Some(control), None, &self.program, &self.folder)?;
        self.sentries.push(sentry);
        self.until("a sentry does not answer", |site| {
            site.sentries.last().is_some_and(|sentry| get(sentry.admin, "/api/state").is_some())
        })
    }

    /// Ends all; what did not end well, in words.
    pub(super) fn stop(&mut self) -> Vec<String> {
        self.has_ended = true;
        self.state();
        let mut words: Vec<String> = Vec::new();
        words.extend(self.sentries.iter_mut().filter_map(|sentry| sentry.process.stop("a sentry")));
        words.extend(self.control.stop("the control plane"));
        // What the control plane has started goes on without it, also when it ended by itself.
        stop_servers(&self.seen);
        words
    }

    fn until(&mut self, what: &'static str, mut condition: impl FnMut(&mut Site) -> bool) -> Result<(), ServiceError> {
        let give_up = Instant::now() + LEAD;
        while !condition(self) {
            if Instant::now() >= give_up {
                return Err(ServiceError::Late {
                    what,
                    within: LEAD.as_secs(),
                    folder: self.folder.display().to_string(),
                });
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if !self.has_ended {
            self.stop();
        }
    }
}

impl SentryProcess {
    /// How many servers an application has there, as it says.
    fn servers(&self, application: usize) -> usize {
        let state = get(self.admin, "/api/state").unwrap_or_default();
        state["applications"][application]["servers"].as_array().map_or(0, Vec::len)
    }
}

/// The files that the processes need: the key, and what a server is.
pub(super) fn prepare(scenario: &Scenario, seed: u64, folder: &Path) -> Result<(), ServiceError> {
    fs::create_dir_all(folder).map_err(|error| ProcessError::File { path: folder.to_owned(), error })?;
    write(folder, "key", &format!("one experiment's secret {seed} {}\n", std::process::id()))?;
    let spec: ServerSpec = emulated::server(scenario, seed);
    write(folder, "server.json", &serde_json::to_string(&spec)?)?;
    Ok(())
}

/// Starts a sentry, which has its servers from a control plane or is told them.
pub(super) fn start_sentry(
    scenario: &Scenario,
    arm: &Arm,
    name: &str,
    control: Option<ControlLink>,
    servers: Option<Vec<Server>>,
    program: &Path,
    folder: &Path,
) -> Result<SentryProcess, ServiceError> {
    let admin = free_port()?;
    let listen = scenario.all_applications().iter().map(|_| free_port()).collect::<Result<Vec<_>, _>>()?;
    let application = |(at, listen): (usize, &SocketAddr)| ApplicationFile {
        servers: servers.clone(),
        // Whoever begins to serve shall soon be used.
        health: Some(Health { interval: "500ms" }),
        ..ApplicationFile::new(scenario, arm, at, *listen)
    };
    let applications = listen.iter().enumerate().map(application).collect();
    let file = SentryFile { control, ..SentryFile::new(admin, applications) };
    let path = write(folder, &format!("{name}.toml"), &toml::to_string(&file)?)?;
    let mut command = Command::new(program);
    command.arg("run").arg("-c").arg(path).stdout(Stdio::null());
    Ok(SentryProcess { process: Process::start(name, command, folder)?, listen, admin })
}

/// How a server is started; `{port}` is its place.
pub(super) fn server(program: &Path, folder: &Path) -> Vec<String> {
    let spec = folder.join("server.json");
    let words = ["emulate", "--spec", &spec.to_string_lossy(), "--listen", "127.0.0.1:{port}", "--seed", "{port}"];
    std::iter::once(program.to_string_lossy().into_owned()).chain(words.map(str::to_owned)).collect()
}

/// An address nobody listens at.
pub(super) fn free_port() -> Result<SocketAddr, ServiceError> {
    free_address().map_err(|_| ServiceError::Ports(1))
}

/// The first of so many in a row.
fn free_ports(count: usize) -> Result<u16, ServiceError> {
    let free = u16::try_from(count).ok().and_then(|count| free_addresses(count).ok());
    free.map(|first| first.port()).ok_or(ServiceError::Ports(count))
}

fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf, ProcessError> {
    let path = folder.join(name);
    match fs::write(&path, text) {
        Ok(()) => Ok(path),
        Err(error) => Err(ProcessError::File { path, error }),
    }
}

fn control(
    scenario: &Scenario,
    arm: &Arm,
    full: f64,
    program: &Path,
    folder: &Path,
    (listen, admin): (SocketAddr, SocketAddr),
    first_port: u16,
) -> ControlFile {
    let setup_time = scenario.servers.setup_time.as_secs_f64();
    let mut command = server(program, folder);
    command.extend(["--setup-time".to_owned(), format!("{setup_time}s")]);
    let applications = 0..scenario.all_applications().len();
    let servers = scenario.servers.count;
    ControlFile {
        listen,
        admin,
        key_file: "key".into(),
        period: PERIOD,
        provider: Provider { kind: "local", command, first_port, servers, setup_time, drain_limit: "5s" },
        sentries: scenario.provision.map(|provision| SentryRule {
            high: provision.sentry_high * full,
            low: provision.sentry_low * full,
            hold: provision.sentry_hold.as_secs_f64(),
        }),
        provision: (!arm.provision.is_empty()).then(|| arm.provision.clone()),
        application: applications.map(|at| PlannedApplication::new(scenario, at)).collect(),
    }
}

/// Servers by the state of the control plane that started them.
fn stop_servers(state: &Value) {
    let servers = state["servers"].as_array().into_iter().flatten();
    let pids = servers.filter_map(|server| server["process"]["pid"].as_i64());
    for pid in pids.filter_map(|pid| Pid::from_raw(pid as i32)) {
        // It may have ended already.
        let _ = kill_process(pid, Signal::TERM);
    }
}
