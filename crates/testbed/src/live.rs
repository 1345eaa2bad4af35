//! The live arm of a scenario: real HTTP, through a real sentry, to emulated servers. All in this process, on loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{ClassifierSetup, PathMatch, Rule, Tags, TypeRules};
use tidegate_loadgen::{ClassReport, LoadError, LoadRun, Plan, PlanError, Progress, Report, Stopper, Stream};
use tidegate_sentry::config::{self, Application, Config};
use tidegate_sentry::record::NoRecords;
use tidegate_sentry::{Sentry, SentryHandle, StartError as SentryError};
use tidegate_sim::ArmError;
use tidegate_workload::outcome::{Course, Outcome, Responses, Second, StreamOutcome};
use tidegate_workload::scenario::{Arm, Discipline, Scenario};
use tokio::sync::watch;

use crate::cluster::{EmulatedCluster, ThreadedCluster};
use crate::cores;
use crate::server::StartError;
use crate::spec::{Route, ServerSpec};

/// One arm of a scenario, being played on real HTTP. Dropping it ends it.
#[derive(Debug)]
pub struct LiveRun {
    load: LoadRun,
    // The order matters: who sends goes first, whoever answers last.
    sentry: SentryHandle,
    cluster: ThreadedCluster,
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
        let cluster = EmulatedCluster::start_on_thread(scenario.servers.count, server(scenario, seed))?;
        let application = application(scenario, setup, &cluster.addresses());
        let sentry = Sentry::start(process(application), Arc::new(NoRecords))?;
        // It listens on the one address that it was told to.
        let address = sentry.addresses(&scenario.id)[0];
        let load = LoadRun::start(plan(scenario, address, seed)?)?;
        Ok(LiveRun { load, sentry, cluster, scenario: scenario.clone() })
    }

    /// The state of the run, renewed ten times a second.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.load.progress()
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
        let report = self.load.wait().await?;
        let state = self.sentry.apps().first().map(|app| app.snapshot());
        self.sentry.shutdown(GRACE);
        drop(self.cluster);
        let notes = state.map(|state| (report.sent_for, format!("at the end: {state:?}")));
        Ok(outcome(&self.scenario, report, notes.into_iter().collect()))
    }
}

/// How long the sentry may take to close its connections.
const GRACE: Duration = Duration::from_secs(1);

/// Connections of the load at most; each is four open files of this process: both ends, on both sides of the sentry.
const CONNECTIONS: usize = 2048;

/// What every server answers: one route for each pair of class and request type.
fn server(scenario: &Scenario, seed: u64) -> ServerSpec {
    let route = |(class, request): (usize, usize)| Route {
        prefix: prefix(scenario, class, request),
        service: scenario.requests[request].service,
        response_bytes: scenario.requests[request].response_bytes,
        degrades_to: scenario.requests[request].degrades_to,
    };
    ServerSpec {
        name: "server".to_owned(),
        cores: scenario.servers.cores,
        discipline: match scenario.servers.discipline {
            Discipline::Ps => cores::Discipline::Ps,
            Discipline::Fifo => cores::Discipline::Fifo,
        },
        routes: pairs(scenario).map(route).collect(),
        // Far from the seeds of other runs: a cluster counts upwards from it.
        seed: seed.wrapping_mul(1000),
        ..ServerSpec::default()
    }
}

fn application(scenario: &Scenario, setup: tidegate_engine::Setup, servers: &[SocketAddr]) -> Application {
    let classes = (0..scenario.classes.len()).map(|class| vec![rule(format!("/{}/", scenario.classes[class].name))]);
    let request_types = (0..scenario.requests.len()).map(|request| TypeRules {
        rules: (0..scenario.classes.len()).map(|class| rule(prefix(scenario, class, request))).collect(),
        tags: Tags::default(),
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
        tags: Vec::new(),
        timeouts: config::Timeouts::default(),
        limits: config::Limits::default(),
        health: config::Health::default(),
        retry: config::Retry::default(),
        pool: config::Pool::default(),
        forwarded: config::Forwarded::default(),
        rejection: config::RejectionPages {
            status: 503,
            pages: vec![None; scenario.classes.len()],
            decision_on_admitted: false,
        },
        exempt: Vec::new(),
    }
}

fn process(application: Application) -> Config {
    Config {
        sentry: config::SentryConfig { workers: 1, drain: GRACE },
        admin: config::Admin::default(),
        reports: None,
        control: None,
        access_log: config::AccessLog::Off,
        applications: vec![application],
        source: None,
    }
}

fn plan(scenario: &Scenario, sentry: SocketAddr, seed: u64) -> Result<Plan, PlanError> {
    let mut streams = Vec::new();
    for load in &scenario.loads {
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
    let mut plan = Plan::new(streams, scenario.duration);
    plan.seed = seed;
    plan.target = Some(scenario.target(0.0));
    plan.connections = CONNECTIONS;
    Ok(plan)
}

fn outcome(scenario: &Scenario, report: Report, notes: Vec<(f64, String)>) -> Outcome {
    let stream = |load: &tidegate_workload::scenario::Load| {
        let class = report.classes.iter().find(|class| class.class == load.label());
        StreamOutcome {
            name: load.label().to_owned(),
            class: load.class.clone(),
            course: class.map(|class| course(scenario, class)).unwrap_or_default(),
        }
    };
    let streams = scenario.loads.iter().map(stream).collect();
    Outcome { streams, warnings: report.warnings.clone(), notes, ..Outcome::default() }
}

/// What the load generator counted, by the second of arrival.
pub(crate) fn course(scenario: &Scenario, class: &ClassReport) -> Course {
    let mut course = Course::default();
    for (second, counted) in class.seconds.iter().enumerate() {
        let target = scenario.target(scenario.offered_at(Duration::from_secs(second as u64))).as_secs_f32();
        let times: &[f32] = class.responses.get(second).map_or(&[], Vec::as_slice);
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
