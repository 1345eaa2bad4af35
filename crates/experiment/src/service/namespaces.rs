//! The live arm of a scenario in network namespaces: Apache as Debian builds it, with CGI scripts and files, before it
//! a sentry whose kernel turns new connections away, and clients elsewhere.
//!
//! *What is real.* Apache, its nucleus, the sentry, each a process; the kernel's policing of connections; the link,
//! where it is bounded. *What is bounded.* Apache is in a control group on the first processors, and gets so much of
//! them that the scenario's `saturated` fills it: so the sentry and the load, which share the other processors, are
//! never what is short. *What differs.* The clients are in namespaces of their own: those with the premium prefix, and
//! everybody else. Needs root.
//!
//! *Arms.* An arm that is `alone` has no sentry: its clients go to Apache itself.

mod cost;
mod flood;
mod group;
mod load;
mod site;
mod spaces;
mod watch;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tidegate_loadgen::{LoadRun, Progress};
use tidegate_testbed::{PAUSE, Process, ProcessError};
use tokio::sync::watch::Receiver;

use super::apache::Apache;
use super::processes::get;
use super::{Beyond, Ending, Lab, Running, Service, ServiceError};
use crate::configure;
use crate::configure::file::{ApplicationFile, Reports, SentryFile, Server, SynClass, SynPolicing, local};
use crate::outcome::Outcome;
use crate::scenario::{Arm, Namespaces, On, Scenario};
use group::Group;
use spaces::{PREMIUM, Space, Spaces};
use watch::Watch;

/// What Apache holds: its processes, and the connections that may wait to be accepted (its ListenBacklog).
const HELD: u32 = 150 + 511;
const SENTRY_PORT: u16 = 8080;
const SERVICE_PORT: u16 = 8000;
const ADMIN_PORT: u16 = 9900;
const REPORTS_PORT: u16 = 9901;
/// A sentry says how it is within this.
const START: Duration = Duration::from_secs(15);
/// How long what Apache needs for a request is weighed, and of the rate that fills it.
const WEIGHED_FOR: Duration = Duration::from_secs(4);
const WEIGHED_AT: f64 = 0.8;

/// Why there are no namespaces, or not what is needed in them.
#[derive(Debug, thiserror::Error)]
pub enum NamespacesError {
    /// The user may not make them.
    #[error("network namespaces need root")]
    NoRoot,
    /// A program is not there.
    #[error("{program} is missing; install the Debian package {package}")]
    Missing {
        /// Which.
        program: String,
        /// Who has it.
        package: &'static str,
    },
    /// The system refuses something.
    #[error("{what}: {error}")]
    System {
        /// What.
        what: String,
        /// What it says.
        error: io::Error,
    },
    /// A program fails.
    #[error("{command}: {said}")]
    Command {
        /// With its arguments.
        command: String,
        /// What it says.
        said: String,
    },
    /// Control groups lack something.
    #[error("control groups here cannot {0}")]
    Group(&'static str),
}

/// Apache behind a sentry whose kernel turns connections away.
#[derive(Debug)]
pub(super) struct InNamespaces;

impl Service for InNamespaces {
    fn cannot_do(&self, scenario: &Scenario) -> Vec<String> {
        let mut beyond = Beyond::default();
        // What the file says of a server is a model of what is real here.
        beyond.add(scenario.servers.count > 1, "servers.count");
        beyond.add_tiers(scenario);
        beyond.add_emulated(scenario);
        beyond.add(scenario.loads.iter().any(|load| load.retry.is_some()), "load.retry");
        beyond.add(scenario.loads.iter().any(|load| load.patience.is_some()), "load.patience");
        beyond.add(!scenario.users.is_empty(), "users");
        beyond.add(scenario.requests.iter().any(|request| request.degrades_to < 1.0), "request.degrades_to");
        beyond.add(!scenario.sessions.is_empty(), "sessions");
        beyond.add_models(scenario);
        beyond.add_told(scenario);
        beyond.0
    }

    fn start(&self, scenario: &Scenario, arm: &Arm, seed: u64, lab: &Lab) -> Result<Box<dyn Running>, ServiceError> {
        let On::Namespaces(own) = scenario.on() else { return Err(ServiceError::OtherService) };
        // What the engine would say to it is said before anything is started.
        configure::setup(scenario, arm)?;
        let laboratory = Laboratory::new(scenario, &own, lab)?;
        let refusal_cost = own.refusal_cost.then(|| cost::of_turning_away(&laboratory, scenario)).transpose()?;
        let premium = SynClass { name: "premium", network: PREMIUM.to_owned(), share: 1.0 };
        let syn = own.flood.map(|_| SynPolicing { required: true, class: vec![premium] });
        let guarded = match own.alone.contains(&arm.name) {
            true => None,
            false => Some(laboratory.guard(scenario, arm, syn)?),
        };
        let port = if guarded.is_some() { SENTRY_PORT } else { SERVICE_PORT };
        let space = if own.flood.is_some() { Space::Premium } else { Space::Others };
        let plan = load::plan(scenario, SocketAddr::from((space.server(), port)), seed, own.link.is_none())?;
        let flood = own.flood.map(|rate| {
            // The first connections find the kernel's rates in force.
            thread::sleep(Duration::from_secs(2));
            laboratory.flood(port, rate.per_second(), scenario.duration)
        });
        let watch = guarded.as_ref().map(|_| Watch::start(&laboratory.spaces, local(ADMIN_PORT))).transpose()?;
        let load = laboratory.load_from(space, || Ok::<_, ServiceError>(LoadRun::start(plan)?))?;
        let flood = flood.transpose()?;
        Ok(Box::new(Run { load, flood, watch, guarded, laboratory, refusal_cost, scenario: scenario.clone() }))
    }
}

#[derive(Debug)]
struct Run {
    load: LoadRun,
    flood: Option<JoinHandle<Result<io::Result<f64>, NamespacesError>>>,
    watch: Option<Watch>,
    // The order matters: who sends goes first, whoever answers last.
    guarded: Option<Guarded>,
    laboratory: Laboratory,
    refusal_cost: Option<f64>,
    scenario: Scenario,
}

impl Running for Run {
    fn progress(&self) -> Receiver<Progress> {
        self.load.progress()
    }

    fn wait(self: Box<Self>) -> Ending {
        Box::pin(async move {
            let report = self.load.wait().await?;
            let mut warnings = report.warnings.clone();
            let flooded = self.flood.map(|flood| matches!(flood.join(), Ok(Ok(Ok(_)))));
            if flooded == Some(false) {
                warnings.push("the flood ended before its time".to_owned());
            }
            let seen = self.watch.map(Watch::finish).unwrap_or_default();
            drop(self.guarded);
            Ok(Outcome {
                streams: load::streams(&self.scenario, &report),
                types: load::types(&self.scenario, &report),
                controls: seen.controls,
                connections: seen.connections,
                refusal_cost: self.refusal_cost,
                warnings,
                notes: vec![(0.0, self.laboratory.facts())],
                ..Outcome::default()
            })
        })
    }
}

/// Apache in its namespace. The order matters: what is made last goes first.
#[derive(Debug)]
struct Laboratory {
    apache: Apache,
    group: Group,
    spaces: Spaces,
    program: PathBuf,
    folder: PathBuf,
    /// Processors that Apache has, and what a request of the mix takes of them, seconds; `None`: it was not bounded.
    bound: Option<(f64, f64)>,
}

/// A sentry and the nucleus beside Apache.
#[derive(Debug)]
struct Guarded {
    sentry: Process,
    _nucleus: Process,
}

impl Laboratory {
    fn new(scenario: &Scenario, own: &Namespaces, lab: &Lab) -> Result<Laboratory, ServiceError> {
        let (program, folder) = (lab.tidegate.clone(), lab.folder.clone());
        std::fs::create_dir_all(&folder).map_err(|error| ProcessError::File { path: folder.clone(), error })?;
        let spaces = Spaces::new()?;
        let group = Group::new(scenario.servers.cores)?;
        let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, SERVICE_PORT));
        let apache = spaces.within(Space::Server, || site::start(scenario, own, listen).map_err(ServiceError::from))?;
        group.take(apache.id())?;
        if let Some(link) = &own.link {
            spaces.bound(Space::Others, link)?;
        }
        let mut lab = Laboratory { apache, group, spaces, program, folder, bound: None };
        if let Some(rate) = own.saturated {
            // What a request costs depends on how busy Apache is, so it is weighed again where it matters.
            for _ in 0..3 {
                let cost = lab.weigh(scenario, WEIGHED_AT * rate.per_second(), own.link.is_none())?;
                lab.bound = Some((rate.per_second() * cost, cost));
                lab.group.bound(lab.processors().filter(|&share| share < f64::from(scenario.servers.cores)))?;
            }
        }
        Ok(lab)
    }

    fn processors(&self) -> Option<f64> {
        self.bound.map(|(processors, _)| processors)
    }

    /// Processor time of a request of the mix, seconds.
    fn weigh(&self, scenario: &Scenario, rate: f64, compressed: bool) -> Result<f64, ServiceError> {
        let before = self.group.used()?;
        let to = SocketAddr::from((Space::Others.server(), SERVICE_PORT));
        let plan = load::mix(scenario, rate, WEIGHED_FOR, to, compressed)?;
        let report = self.load_from(Space::Others, || Ok::<_, ServiceError>(LoadRun::start(plan)?.join()?))?;
        Ok((self.group.used()? - before) / (report.total.admitted as f64).max(1.0))
    }

    /// Starts something in a namespace on the processors that are not Apache's.
    fn load_from<T: Send, E: From<NamespacesError> + Send>(
        &self,
        space: Space,
        start: impl FnOnce() -> Result<T, E> + Send,
    ) -> Result<T, E> {
        self.spaces.within(space, || self.apache.beside(start))
    }

    fn flood(
        &self,
        port: u16,
        rate: f64,
        length: Duration,
    ) -> Result<JoinHandle<Result<io::Result<f64>, NamespacesError>>, NamespacesError> {
        let to = SocketAddr::from((Space::Others.server(), port));
        let count = (rate * length.as_secs_f64()) as u32;
        self.spaces.spawn(Space::Others, move || flood::flood(to, count, rate))
    }

    /// Starts a sentry with the policy of an arm, and the nucleus.
    fn guard(&self, scenario: &Scenario, arm: &Arm, syn: Option<SynPolicing>) -> Result<Guarded, ServiceError> {
        let write = |name: &str, text: &str| {
            let path = self.folder.join(name);
            std::fs::write(&path, text).map_err(|error| ProcessError::File { path: path.clone(), error })?;
            Ok::<PathBuf, ProcessError>(path)
        };
        let key = write("key", &format!("a secret of this experiment only {}\n", std::process::id()))?;
        let server = local(SERVICE_PORT);
        let application = ApplicationFile {
            servers: Some(vec![Server { address: server, max_connections: Some(HELD) }]),
            syn_policing: syn,
            ..ApplicationFile::new(scenario, arm, 0, SocketAddr::from((Ipv4Addr::UNSPECIFIED, SENTRY_PORT)))
        };
        let reports = Reports { listen: local(REPORTS_PORT), key_file: "key".into(), when_silent: "estimate" };
        let file = SentryFile { reports: Some(reports), ..SentryFile::new(local(ADMIN_PORT), vec![application]) };
        let file = write("sentry.toml", &toml::to_string(&file)?)?;
        let mut sentry = Command::new(&self.program);
        sentry.arg("run").arg("-c").arg(file).stdout(Stdio::null());
        let mut nucleus = Command::new(&self.program);
        nucleus.args(["nucleus", "--server", &server.to_string(), "--to", &local(REPORTS_PORT).to_string()]);
        nucleus.args(["--cgroup", &self.group.name, "--key-file"]).arg(key).stdout(Stdio::null());
        self.spaces.within(Space::Server, || {
            let sentry = self.apache.beside(|| Process::start("sentry", sentry, &self.folder))?;
            let guarded = Guarded { sentry, _nucleus: Process::start("nucleus", nucleus, &self.folder)? };
            self.until_it_answers()?;
            Ok(guarded)
        })
    }

    fn until_it_answers(&self) -> Result<(), ServiceError> {
        let give_up = Instant::now() + START;
        while get(local(ADMIN_PORT), "/api/state").is_none() {
            if Instant::now() >= give_up {
                let folder = self.folder.display().to_string();
                return Err(ServiceError::Late { what: "the sentry does not answer", within: START.as_secs(), folder });
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn facts(&self) -> String {
        match self.bound {
            None => "Apache has all of its processors".to_owned(),
            Some((processors, cost)) => format!(
                "a request of the mix takes {:.2} ms of a processor; Apache has {:.1} % of one",
                cost * 1e3,
                processors * 1e2
            ),
        }
    }
}
