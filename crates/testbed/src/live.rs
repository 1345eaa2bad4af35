//! The live arm of a scenario: real HTTP, through a real sentry, to emulated servers, with nuclei beside them where the
//! scenario wants some. All in this process, on loopback.

mod sessions;
mod watching;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{ClassifierSetup, PathMatch, Rule, TypeRules, ValueMatch, ValuePattern};
use tidegate_loadgen::{
    ClassReport, LoadError, LoadRun, Plan, PlanError, Progress, Report, Stopper, Stream, raise_open_files_limit,
};
use tidegate_sentry::config::{self, Application, Config};
use tidegate_sentry::record::NoRecords;
use tidegate_sentry::{Sentry, SentryHandle, StartError as SentryError};
use tidegate_sim::ArmError;
use tidegate_wire::{Key, random_u64};
use tidegate_workload::outcome::{Course, Outcome, Responses, Second, StreamOutcome};
use tidegate_workload::scenario::{self, Arm, Discipline, Scenario};
use tokio::sync::watch;

use crate::apache::{Apache, ApacheError};
use crate::cluster::{EmulatedCluster, ThreadedCluster};
use crate::cores;
use crate::nuclei::{Nuclei, NucleiError, STATUS_PATH};
use crate::server::StartError;
use crate::spec::{Resource, Route, ServerSpec, Step};
use watching::Seen;

/// One arm of a scenario, being played on real HTTP. Dropping it ends it.
#[derive(Debug)]
pub struct LiveRun {
    load: LoadRun,
    // The order matters: who sends goes first, whoever answers last.
    nuclei: Option<Nuclei>,
    sentry: SentryHandle,
    servers: Servers,
    scenario: Scenario,
}

/// Why an arm cannot be played, or gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The engine does not take its policies.
    #[error(transparent)]
    Arm(#[from] ArmError),
    /// The emulated servers do not start.
    #[error(transparent)]
    Servers(#[from] StartError),
    /// Apache does not serve.
    #[error(transparent)]
    Apache(#[from] ApacheError),
    /// The nuclei do not start.
    #[error(transparent)]
    Nuclei(#[from] NucleiError),
    /// The sentry does not start.
    #[error("the sentry does not start: {0}")]
    Sentry(#[from] SentryError),
    /// The load cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The load cannot be sent.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl LiveRun {
    /// Starts servers, sentry and load. `seed` decides arrivals and service times.
    ///
    /// # Errors
    /// When something of it cannot be started.
    pub fn start(scenario: &Scenario, arm: &Arm, seed: u64) -> Result<LiveRun, LiveError> {
        let setup = tidegate_sim::setup(scenario, arm)?;
        let has_nuclei = scenario.has_nuclei(&arm.name);
        let servers = Servers::start(scenario, seed, has_nuclei)?;
        let addresses = servers.addresses();
        let application = application(scenario, setup, &addresses);
        let start = || {
            let key = Key::derive(&[random_u64(), random_u64()].map(u64::to_ne_bytes).concat());
            let reports = has_nuclei.then(|| reports(key.clone()));
            let sentry = Sentry::start(process(application, reports), Arc::new(NoRecords))?;
            let nuclei = match sentry.reports() {
                Some(view) => Some(Nuclei::begin(&addresses, view.address(), &key, REPORTS, scenario.has_apache())?),
                None => None,
            };
            // It listens on the one address that it was told to.
            let address = sentry.addresses(&scenario.id)[0];
            let load = LoadRun::start(plan(scenario, |_| address, seed)?)?;
            Ok::<_, LiveError>((load, nuclei, sentry))
        };
        let (load, nuclei, sentry) = match &servers {
            Servers::Emulated(_) => start()?,
            Servers::Apache(apache) => apache.beside(start)?,
        };
        Ok(LiveRun { load, nuclei, sentry, servers, scenario: scenario.clone() })
    }

    /// The state of the run, renewed ten times a second.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.load.progress()
    }

    /// The nuclei beside the servers, to silence, kill and restart; `None` where there are none.
    pub fn nuclei(&self) -> Option<&Nuclei> {
        self.nuclei.as_ref()
    }

    /// A handle that ends the run early.
    pub fn stopper(&self) -> Stopper {
        self.load.stopper()
    }

    /// Waits for the end, and sums up.
    ///
    /// # Errors
    /// When the load could not be sent.
    pub async fn wait(self) -> Result<Outcome, LiveError> {
        let seen = Seen::new(&self.scenario, &self.sentry);
        let (report, seen) = seen.until_done(self.load, &self.sentry).await?;
        let state = self.sentry.apps().first().map(|app| app.snapshot());
        drop(self.nuclei);
        self.sentry.shutdown(GRACE);
        drop(self.servers);
        let mut notes = seen.notes;
        notes.extend(state.map(|state| (report.sent_for, format!("at the end: {state:?}"))));
        let warnings = [report.warnings.clone(), seen.warnings].concat();
        let streams = streams(&self.scenario, &report);
        let (partitions, in_flight) = (seen.partitions, seen.in_flight);
        Ok(Outcome { streams, partitions, in_flight, warnings, notes, ..Outcome::default() })
    }
}

/// How long the sentry may take to close its connections.
const GRACE: Duration = Duration::from_secs(1);

/// Time between the reports of a nucleus.
const REPORTS: Duration = Duration::from_millis(100);

/// Connections of the load at most.
const CONNECTIONS: u64 = 4096;
/// Open files that are no connections of the load.
const OTHER_FILES: u64 = 500;

/// Connections that fit; each is four open files of this process: both ends, on both sides of the sentry.
fn connections() -> usize {
    (raise_open_files_limit().saturating_sub(OTHER_FILES) / 4).clamp(64, CONNECTIONS) as usize
}

/// Whoever answers.
#[derive(Debug)]
enum Servers {
    Emulated(ThreadedCluster),
    Apache(Apache),
}

impl Servers {
    fn start(scenario: &Scenario, seed: u64, has_nuclei: bool) -> Result<Servers, LiveError> {
        if scenario.has_apache() {
            return Ok(Servers::Apache(Apache::start(scenario, seed)?));
        }
        let mut spec = server(scenario, seed);
        spec.status_path = has_nuclei.then(|| STATUS_PATH.split('?').next().unwrap_or_default().to_owned());
        Ok(Servers::Emulated(EmulatedCluster::start_on_thread(scenario.servers.count, spec)?))
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Servers::Emulated(cluster) => cluster.addresses(),
            Servers::Apache(apache) => vec![apache.address()],
        }
    }
}

/// What every server answers: one route for each pair of class and request type, and one for each type of which the
/// class is in a cookie.
pub(crate) fn server(scenario: &Scenario, seed: u64) -> ServerSpec {
    let route = |prefix: String, request: usize| {
        let request = &scenario.requests[request];
        Route {
            prefix,
            service: request.service,
            response_bytes: request.response_bytes,
            degrades_to: request.degrades_to,
            steps: request.steps.iter().filter(|step| step.tier.is_none()).map(step).collect(),
            request_type: request.name.clone(),
        }
    };
    let by_class = pairs(scenario).map(|(class, request)| route(prefix(scenario, class, request), request));
    let by_cookie = (0..scenario.requests.len()).map(|request| route(sessions::prefix(scenario, request), request));
    let resource = |resource: &scenario::Resource| Resource {
        name: resource.name.clone(),
        units: resource.units,
        discipline: discipline(resource.discipline),
        rate: resource.rate,
    };
    ServerSpec {
        name: "server".to_owned(),
        cores: scenario.servers.cores,
        discipline: discipline(scenario.servers.discipline),
        resources: scenario.servers.resources.iter().map(resource).collect(),
        routes: by_class.chain(by_cookie).collect(),
        // What a page of a session costs besides its type's time.
        cost_header: !scenario.sessions.is_empty(),
        // Far from the seeds of other runs: a cluster counts upwards from it.
        seed: seed.wrapping_mul(1000),
        ..ServerSpec::default()
    }
}

fn step(step: &scenario::Use) -> Step {
    let resource = step.resource.clone().filter(|name| name != scenario::CORES);
    Step { resource, amount: step.amount, overlap: step.overlap }
}

fn discipline(discipline: Discipline) -> cores::Discipline {
    match discipline {
        Discipline::Ps => cores::Discipline::Ps,
        Discipline::Fifo => cores::Discipline::Fifo,
    }
}

pub(crate) fn application(scenario: &Scenario, setup: tidegate_engine::Setup, servers: &[SocketAddr]) -> Application {
    let of_cookie = |name: &str| ValueMatch {
        name: sessions::CLASS_COOKIE.to_owned(),
        value: ValuePattern::Exact(name.to_owned()),
    };
    let classes = scenario.classes.iter().map(|class| {
        let cookie = Rule { cookies: vec![of_cookie(&class.name)], ..rule(sessions::PREFIX.to_owned()) };
        vec![rule(format!("/{}/", class.name)), cookie]
    });
    let request_types = (0..scenario.requests.len()).map(|request| {
        let by_class = (0..scenario.classes.len()).map(|class| rule(prefix(scenario, class, request)));
        let rules = by_class.chain([rule(sessions::prefix(scenario, request))]).collect();
        TypeRules { rules, tags: tidegate_sim::tags_of(scenario, request) }
    });
    let classifier =
        ClassifierSetup { classes: classes.collect(), request_types: request_types.collect(), seed: 0, affinity: None };
    let server = |(setup, address): (&tidegate_engine::ServerSetup, &SocketAddr)| config::Server {
        name: setup.name.clone(),
        address: address.to_string(),
    };
    Application {
        name: scenario.id.clone(),
        listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
        servers: setup.servers.iter().zip(servers).map(server).collect(),
        setup,
        classifier,
        tags: tidegate_sim::tags(scenario),
        timeouts: config::Timeouts::default(),
        limits: config::Limits::default(),
        health: config::Health::default(),
        retry: config::Retry::default(),
        pool: config::Pool::default(),
        forwarded: config::Forwarded::default(),
        syn: config::SynPolicing::default(),
        rejection: config::RejectionPages {
            status: 503,
            pages: vec![None; scenario.classes.len()],
            decision_on_admitted: false,
        },
        exempt: Vec::new(),
    }
}

fn reports(key: Key) -> config::Reports {
    config::Reports {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        key_file: PathBuf::new(),
        key,
        silent_after: None,
        when_silent: config::WhenSilent::Exclude,
    }
}

pub(crate) fn process(application: Application, reports: Option<config::Reports>) -> Config {
    Config {
        sentry: config::SentryConfig { workers: 1, drain: GRACE },
        admin: config::Admin::default(),
        reports,
        traces: None,
        control: None,
        access_log: config::AccessLog::Off,
        applications: vec![application],
        source: None,
    }
}

/// What is sent; `sentry` says where the requests of a class go.
pub(crate) fn plan(scenario: &Scenario, sentry: impl Fn(&str) -> SocketAddr, seed: u64) -> Result<Plan, PlanError> {
    let mut streams = Vec::new();
    for load in &scenario.loads {
        let sentry = sentry(&load.class);
        let class = scenario.class_index(&load.class).unwrap_or_default();
        let mut stream = Stream::new(load.label(), load.rate.until(scenario.duration))
            .arrivals(load.arrivals)
            .timeout(scenario.timeout);
        for (name, weight) in &load.requests {
            let Some(request) = scenario.request_index(name) else { continue };
            let urls = scenario.requests[request].urls;
            for number in 0..urls {
                let url = format!("http://{sentry}{}{number}", prefix(scenario, class, request));
                stream = stream.url(&url, weight / f64::from(urls))?;
            }
        }
        streams.push(stream);
    }
    streams.extend(sessions::streams(scenario, &sentry, seed)?);
    let mut plan = Plan::new(streams, scenario.duration);
    plan.seed = seed;
    plan.target = Some(scenario.target(0.0));
    plan.connections = connections();
    Ok(plan)
}

/// What came of the loads, and then of the sessions.
fn streams(scenario: &Scenario, report: &Report) -> Vec<StreamOutcome> {
    let stream = |(name, class): (String, &String)| {
        let counted = report.classes.iter().find(|counted| counted.class == name);
        let course = counted.map(|class| course(scenario, class, 0)).unwrap_or_default();
        StreamOutcome { name, class: class.clone(), course }
    };
    labels(scenario).into_iter().map(stream).collect()
}

/// The names of all that is sent, each with its class.
fn labels(scenario: &Scenario) -> Vec<(String, &String)> {
    let loads = scenario.loads.iter().map(|load| (load.label().to_owned(), &load.class));
    let sessions = scenario.sessions.iter().flat_map(|group| group.labels().map(|label| (label, &group.class)));
    loads.chain(sessions).collect()
}

/// What the load generator counted, by the second of arrival. It began in the scenario's second `from`.
pub(crate) fn course(scenario: &Scenario, class: &ClassReport, from: usize) -> Course {
    let mut course = Course::default();
    for (at, counted) in class.seconds.iter().enumerate() {
        let second = from + at;
        let target = scenario.target(scenario.offered_at(Duration::from_secs(second as u64))).as_secs_f32();
        let times: &[f32] = class.responses.get(at).map_or(&[], Vec::as_slice);
        let mut responses = Responses::default();
        times.iter().for_each(|&time| responses.add(Duration::from_secs_f32(time.max(0.0))));
        let value = Second {
            offered: counted.offered,
            refused: counted.refused,
            // What was given up at the end of a stopped run counts as failed too.
            failed: counted.offered - counted.refused - counted.admitted,
            good: times.iter().filter(|&&time| time <= target).count() as u64,
            responses,
        };
        course.set(second, value);
    }
    course
}

/// Every class with every request type.
fn pairs(scenario: &Scenario) -> impl Iterator<Item = (usize, usize)> {
    let requests = scenario.requests.len();
    (0..scenario.classes.len()).flat_map(move |class| (0..requests).map(move |request| (class, request)))
}

/// The beginning of the paths of a class and a request type.
fn prefix(scenario: &Scenario, class: usize, request: usize) -> String {
    format!("/{}/{}/", scenario.classes[class].name, scenario.requests[request].name)
}

fn rule(prefix: String) -> Rule {
    Rule { path: Some(PathMatch::Prefix(prefix)), ..Rule::default() }
}
