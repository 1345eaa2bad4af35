//! The processes of the run and their configurations.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use tidegate_testbed::{PAUSE, Process, ProcessError, ServerSpec, free_address, free_addresses};

use super::LEAD;
use crate::configure::file::{
    ApplicationFile, ControlFile, ControlLink, Dns, Health, PlannedApplication, Provider, Sentries, SentryFile,
    SentryProvider, Server,
};
use crate::scenario::{Application, Arm, Scenario};
use crate::service::ServiceError;
use crate::service::emulated;
use crate::service::processes::get;

/// How often sentries report and it is decided.
const PERIOD: &str = "1s";
/// The domain of applications' names.
const ZONE: &str = "experiment.test";
/// The file of all sentries.
const SENTRY_FILE: &str = "sentry.toml";
/// What has not ended so long after it was told to is killed.
const ENDS: Duration = Duration::from_secs(5);

/// A control plane, and the servers and sentries that it starts. Dropping it ends them all.
#[derive(Debug)]
pub(super) struct Site {
    scenario: Scenario,
    folder: PathBuf,
    admin: SocketAddr,
    dns: SocketAddr,
    /// Ports of every sentry, by application.
    ports: Vec<u16>,
    began: Instant,
    /// What the control plane said of itself last: who runs when it does not answer any more.
    seen: Value,
    has_ended: bool,
    control: Process,
}

/// A sentry that the control plane has started, and that speaks with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) ip: Ipv4Addr,
    pub(super) pid: u32,
}

/// A sentry whose servers are known.
#[derive(Debug)]
pub(super) struct SentryProcess {
    pub(super) process: Process,
    /// Where it listens, by application.
    pub(super) listen: Vec<SocketAddr>,
}

impl Site {
    /// Starts the control plane; waits until its first sentry and the first servers serve. `full`: what counts as a
    /// sentry whose processor is busy.
    pub(super) fn start(
        scenario: &Scenario,
        arm: &Arm,
        seed: u64,
        full: f64,
        program: &Path,
        folder: &Path,
    ) -> Result<Site, ServiceError> {
        prepare(scenario, seed, folder)?;
        let (listen, admin, dns) = (free_port()?, free_port()?, free_port()?);
        let at_sentry = || free_port().map(|address| address.port());
        let sentry_admin = at_sentry()?;
        let ports = scenario.all_applications().iter().map(|_| at_sentry()).collect::<Result<Vec<u16>, _>>()?;
        write_sentry(scenario, arm, listen, sentry_admin, &ports, folder)?;
        let file = control(scenario, arm, full, program, folder, (listen, admin, dns), ports[0])?;
        let path = write(folder, "control.toml", &toml::to_string(&file)?)?;
        // A store that an earlier run has left would be gone on with.
        let _ = fs::remove_file(folder.join("control.redb"));
        let mut command = Command::new(program);
        command.arg("control").arg("-c").arg(path).stdout(Stdio::null());
        let began = Instant::now();
        let control = Process::start("control", command, folder)?;
        let (scenario, folder) = (scenario.clone(), folder.to_owned());
        let (seen, has_ended) = (Value::Null, false);
        let mut site = Site { scenario, folder, admin, dns, ports, began, seen, has_ended, control };
        site.until("the first sentry and its servers do not serve", |site| {
            let state = site.state();
            let Some(first) = sentries(&state).first().map(|first| SocketAddr::from((first.ip, sentry_admin))) else {
                return false;
            };
            let serves = |(at, application): (usize, &Application)| {
                state["applications"][at]["serving"].as_u64() >= Some(u64::from(application.servers))
                    && servers_of(first, at) >= application.servers as usize
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

    /// Who answers for applications' names.
    pub(super) fn dns(&self) -> SocketAddr {
        self.dns
    }

    /// The names of applications, and the ports at which sentries serve them.
    pub(super) fn names(&self) -> Vec<(String, u16)> {
        let name = |application: &Application| format!("{}.{ZONE}.", application.name);
        self.scenario.all_applications().iter().map(name).zip(self.ports.iter().copied()).collect()
    }

    /// Ends all; what did not end well, in words.
    pub(super) fn stop(&mut self) -> Vec<String> {
        self.has_ended = true;
        self.state();
        let words = self.control.stop("the control plane").into_iter().collect();
        // What the control plane has started goes on without it, also when it ended by itself.
        end_all(&self.seen);
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

/// Sentries that speak, by the control plane's state, in the order of their posts.
pub(super) fn sentries(state: &Value) -> Vec<Standing> {
    let standing = |post: &Value| {
        let ip = post["sentry"].as_str()?.strip_prefix("sentry-")?.parse().ok()?;
        let serves = post["place"]["serving"].is_object() || post["place"]["draining"].is_object();
        serves.then_some(Standing { ip, pid: post["process"]["pid"].as_u64()? as u32 })
    };
    state["posts"].as_array().into_iter().flatten().filter_map(standing).collect()
}

/// How many servers an application has at a sentry, as it says.
fn servers_of(admin: SocketAddr, application: usize) -> usize {
    let state = get(admin, "/api/state").unwrap_or_default();
    state["applications"][application]["servers"].as_array().map_or(0, Vec::len)
}

/// The files that the processes need: the key, and what a server is.
pub(super) fn prepare(scenario: &Scenario, seed: u64, folder: &Path) -> Result<(), ServiceError> {
    fs::create_dir_all(folder).map_err(|error| ProcessError::File { path: folder.to_owned(), error })?;
    write(folder, "key", &format!("one experiment's secret {seed} {}\n", std::process::id()))?;
    let spec: ServerSpec = emulated::server(scenario, seed);
    write(folder, "server.json", &serde_json::to_string(&spec)?)?;
    Ok(())
}

/// Starts a sentry that is told its servers.
pub(super) fn start_sentry(
    scenario: &Scenario,
    arm: &Arm,
    servers: &[Server],
    program: &Path,
    folder: &Path,
) -> Result<SentryProcess, ServiceError> {
    let listen = scenario.all_applications().iter().map(|_| free_port()).collect::<Result<Vec<_>, _>>()?;
    let application = |(at, listen): (usize, &SocketAddr)| ApplicationFile {
        servers: Some(servers.to_vec()),
        ..application(scenario, arm, at, listen)
    };
    let file = SentryFile::new(free_port()?, listen.iter().enumerate().map(application).collect());
    let path = write(folder, "measured.toml", &toml::to_string(&file)?)?;
    let mut command = Command::new(program);
    command.arg("run").arg("-c").arg(path).stdout(Stdio::null());
    Ok(SentryProcess { process: Process::start("measured", command, folder)?, listen })
}

/// The file of all sentries that the control plane starts: each has its name and its address from the environment.
fn write_sentry(
    scenario: &Scenario,
    arm: &Arm,
    connect: SocketAddr,
    admin: u16,
    ports: &[u16],
    folder: &Path,
) -> Result<(), ServiceError> {
    let at = |port: u16| format!("${{TIDEGATE_ADDRESS}}:{port}");
    let applications = ports.iter().enumerate().map(|(number, port)| application(scenario, arm, number, at(*port)));
    let control = ControlLink { connect, key_file: "key".into(), name: String::from("${TIDEGATE_NAME}") };
    let file = SentryFile { control: Some(control), ..SentryFile::new(at(admin), applications.collect()) };
    write(folder, SENTRY_FILE, &toml::to_string(&file)?)?;
    Ok(())
}

fn application(scenario: &Scenario, arm: &Arm, at: usize, listen: impl ToString) -> ApplicationFile {
    // Whoever begins to serve shall soon be used.
    ApplicationFile { health: Some(Health { interval: "500ms" }), ..ApplicationFile::new(scenario, arm, at, listen) }
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
    (listen, admin, dns): (SocketAddr, SocketAddr, SocketAddr),
    port: u16,
) -> Result<ControlFile, ServiceError> {
    let setup_time = scenario.servers.setup_time.as_secs_f64();
    let mut command = server(program, folder);
    command.extend(["--setup-time".to_owned(), format!("{setup_time}s")]);
    let applications = 0..scenario.all_applications().len();
    let servers = scenario.servers.count;
    let first_port = free_ports(servers)?;
    let most = scenario.provision.map_or(1, |provision| provision.max_sentries);
    let sentry = [program.to_string_lossy(), "run".into(), "-c".into(), folder.join(SENTRY_FILE).to_string_lossy()]
        .map(std::borrow::Cow::into_owned);
    let provider = SentryProvider {
        kind: "local",
        command: sentry.to_vec(),
        addresses: (0..most as u8).map(|post| address(port, post)).collect(),
        port,
        log: folder.join("log"),
        leave_after: "3s",
    };
    let rule = scenario.provision;
    Ok(ControlFile {
        listen,
        admin,
        key_file: "key".into(),
        period: PERIOD,
        provider: Provider { kind: "local", command, first_port, servers, setup_time, drain_limit: "5s" },
        dns: Dns { listen: dns, zone: ZONE, ttl: "1s" },
        sentries: Sentries {
            high: rule.map(|rule| rule.sentry_high * full),
            low: rule.map(|rule| rule.sentry_low * full),
            hold: rule.map(|rule| rule.sentry_hold.as_secs_f64()),
            provider,
        },
        provision: (!arm.provision.is_empty()).then(|| arm.provision.clone()),
        application: applications.map(|at| PlannedApplication::new(scenario, at)).collect(),
    })
}

/// An address of this machine for the sentry at a post, of this run alone as the port is.
fn address(port: u16, post: u8) -> Ipv4Addr {
    let [high, low] = port.to_be_bytes();
    Ipv4Addr::new(127, high, low, 10 + post)
}

/// Ends the servers and sentries of a control plane's state: who sends first, whoever answers last.
fn end_all(state: &Value) {
    let pids = |of: &str| -> Vec<Pid> {
        let all = state[of].as_array().into_iter().flatten();
        all.filter_map(|one| Pid::from_raw(one["process"]["pid"].as_i64()? as i32)).collect()
    };
    for pids in [pids("posts"), pids("servers")] {
        tell(&pids, Signal::TERM);
        let give_up = Instant::now() + ENDS;
        while pids.iter().any(|pid| test_kill_process(*pid).is_ok()) && Instant::now() < give_up {
            std::thread::sleep(PAUSE);
        }
        tell(&pids, Signal::KILL);
    }
}

fn tell(pids: &[Pid], signal: Signal) {
    for pid in pids {
        // It may have ended already.
        let _ = kill_process(*pid, signal);
    }
}
