//! Servers behind a real sentry: emulated ones, or an Apache, with nuclei beside them where the scenario wants some.
//! Sentry and emulated servers are in this process, on loopback.

mod fleet;
mod sessions;
mod watching;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tidegate_loadgen::{ClassReport, LoadRun, Plan, PlanError, Progress, Report, Stream, raise_open_files_limit};
use tidegate_sentry::{SentryHandle, config};
use tidegate_testbed::{
    EmulatedCluster, Lasts, LastsAs, Nuclei, Resource, Route, STATUS_PATH, ServerSpec, Step, ThreadedCluster,
};
use tidegate_wire::{Keys, random_u64};
use tidegate_workload::{Course, Responses, Second};
use tokio::sync::watch;

use super::apache::Apache;
use super::{Beyond, Ending, Lab, Running, Service, ServiceError};
use crate::configure::{self, pairs, prefix, session_prefix};
use crate::outcome::{Outcome, StreamOutcome};
use crate::scenario;
use crate::scenario::{Arm, Scenario};
use watching::Seen;

/// Servers behind a real sentry.
#[derive(Debug)]
pub(super) enum BehindSentry {
    /// Emulated ones.
    Emulated,
    /// A real Apache with PHP.
    Apache,
}

impl Service for BehindSentry {
    fn cannot_do(&self, scenario: &Scenario) -> Vec<String> {
        let mut beyond = Beyond::default();
        beyond.add_servers(scenario);
        beyond.add_tiers(scenario);
        beyond.add_clients(scenario);
        if let BehindSentry::Apache = self {
            beyond.add_emulated(scenario);
            beyond.add(scenario.servers.count > 1, "servers.count");
            beyond.add(!scenario.servers.resources.is_empty(), "servers.resource");
            beyond.add(scenario.requests.iter().any(|request| !request.steps.is_empty()), "request.step");
            beyond.add(scenario.requests.iter().any(|request| request.degrades_to < 1.0), "request.degrades_to");
            beyond.add(!scenario.sessions.is_empty(), "sessions");
        }
        beyond.add_models(scenario);
        let one_place = matches!(self, BehindSentry::Emulated) && scenario.sessions.is_empty();
        beyond.add(scenario.fleet.is_some() && !one_place, "fleet");
        beyond.0
    }

    fn start(&self, scenario: &Scenario, arm: &Arm, seed: u64, _: &Lab) -> Result<Box<dyn Running>, ServiceError> {
        let setup = configure::setup(scenario, arm)?;
        let has_nuclei = scenario.on().has_nuclei(&arm.name);
        let servers = self.servers(scenario, seed, has_nuclei)?;
        let addresses = servers.addresses();
        let application = configure::application(scenario, setup, &addresses);
        let fleet = scenario.fleet.as_ref().filter(|fleet| !fleet.absent);
        let start = || {
            let keys = Keys::derive(&[random_u64(), random_u64()].map(u64::to_ne_bytes).concat());
            let reports = has_nuclei.then(|| reports(keys.clone()));
            let sentry = || configure::process(application.clone(), reports.clone(), None);
            let sentries = fleet::start(sentry, fleet)?;
            let sentry = &sentries[0];
            let by_connection = matches!(self, BehindSentry::Apache);
            let nuclei = match sentry.reports() {
                Some(view) => Some(Nuclei::begin(&addresses, view.address(), &keys, REPORTS, by_connection)?),
                None => None,
            };
            // Each listens on the one address that it was told to.
            let listening: Vec<_> = sentries.iter().map(|sentry| sentry.addresses(&scenario.id)[0]).collect();
            let to = |load| {
                let weights = fleet.map_or_else(|| vec![1.0], |fleet| fleet.of_load(load));
                listening.iter().copied().zip(weights).collect()
            };
            let load = LoadRun::start(plan_to(scenario, to, &|_| listening[0], seed)?)?;
            Ok::<_, ServiceError>((load, nuclei, sentries))
        };
        let (load, nuclei, sentries) = match &servers {
            Servers::Emulated(_) => start()?,
            Servers::Apache(apache) => apache.beside(start)?,
        };
        Ok(Box::new(Run { load, nuclei, sentries, servers, scenario: scenario.clone() }))
    }
}

impl BehindSentry {
    fn servers(&self, scenario: &Scenario, seed: u64, has_nuclei: bool) -> Result<Servers, ServiceError> {
        match self {
            BehindSentry::Apache => Ok(Servers::Apache(Apache::start(scenario, seed, None)?)),
            BehindSentry::Emulated => {
                let mut spec = server(scenario, seed);
                spec.status_path = has_nuclei.then(|| STATUS_PATH.split('?').next().unwrap_or_default().to_owned());
                Ok(Servers::Emulated(EmulatedCluster::start_on_thread(scenario.servers.count, spec)?))
            }
        }
    }
}

#[derive(Debug)]
struct Run {
    load: LoadRun,
    // The order matters: who sends goes first, whoever answers last.
    nuclei: Option<Nuclei>,
    /// One, or several before the same servers.
    sentries: Vec<SentryHandle>,
    servers: Servers,
    scenario: Scenario,
}

impl Running for Run {
    fn progress(&self) -> watch::Receiver<Progress> {
        self.load.progress()
    }

    fn wait(self: Box<Self>) -> Ending {
        Box::pin(async move {
            let seen = Seen::new(&self.scenario, &self.sentries[0]);
            let (report, seen) = seen.until_done(self.load, &self.sentries[0], &self.servers).await?;
            let apps = self.sentries.iter().filter_map(|sentry| sentry.apps().first());
            let states: Vec<_> = apps.map(|app| app.snapshot()).collect();
            drop(self.nuclei);
            for sentry in self.sentries {
                sentry.shutdown(GRACE);
            }
            drop(self.servers);
            let mut notes = seen.notes;
            notes.extend(states.into_iter().map(|state| (report.sent_for, format!("at the end: {state:?}"))));
            let warnings = [report.warnings.clone(), seen.warnings].concat();
            let streams = streams(&self.scenario, &report);
            let (partitions, in_flight, at_work) = (seen.partitions, seen.in_flight, seen.at_work);
            Ok(Outcome { streams, partitions, in_flight, at_work, warnings, notes, ..Outcome::default() })
        })
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
    /// The most that one had at work at once since the last call, where that is known.
    fn take_most(&self) -> Option<usize> {
        match self {
            Servers::Emulated(cluster) => Some(cluster.take_most()),
            Servers::Apache(_) => None,
        }
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
            lasts: request.lasts.map(lasts),
            request_type: request.name.clone(),
        }
    };
    let by_class = pairs(scenario).map(|(class, request)| route(prefix(scenario, class, request), request));
    let by_cookie = (0..scenario.requests.len()).map(|request| route(session_prefix(scenario, request), request));
    let resource = |resource: &scenario::Resource| Resource {
        name: resource.name.clone(),
        units: resource.units,
        discipline: resource.discipline,
        rate: resource.rate,
    };
    ServerSpec {
        name: "server".to_owned(),
        cores: scenario.servers.cores,
        discipline: scenario.servers.discipline,
        abandoned: scenario.servers.abandoned,
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

fn lasts(lasts: scenario::Lasts) -> Lasts {
    let kind = match lasts.kind {
        scenario::LastsAs::Stream => LastsAs::Stream,
        scenario::LastsAs::Poll => LastsAs::Poll,
    };
    Lasts { kind, time: lasts.time, told: lasts.told }
}

fn reports(keys: Keys) -> config::Reports {
    config::Reports {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        key_file: PathBuf::new(),
        keys,
        silent_after: None,
        when_silent: config::WhenSilent::Exclude,
    }
}

/// What is sent; `sentry` says where the requests of a class go.
pub(crate) fn plan(scenario: &Scenario, sentry: impl Fn(&str) -> SocketAddr, seed: u64) -> Result<Plan, PlanError> {
    let to = |load: usize| vec![(sentry(&scenario.loads[load].class), 1.0)];
    plan_to(scenario, to, &sentry, seed)
}

/// The same, where each load goes to several sentries, by weight.
fn plan_to(
    scenario: &Scenario,
    to: impl Fn(usize) -> Vec<(SocketAddr, f64)>,
    sentry: &impl Fn(&str) -> SocketAddr,
    seed: u64,
) -> Result<Plan, PlanError> {
    let mut streams = Vec::new();
    for (number, load) in scenario.loads.iter().enumerate().filter(|(_, load)| !load.absent) {
        let class = scenario.class_index(&load.class).unwrap_or_default();
        let mut stream = Stream::new(load.label(), load.rate.until(scenario.duration))
            .arrivals(load.arrivals)
            .timeout(patience(load).unwrap_or(scenario.timeout))
            .retry(load.retry)
            .tenants(load.tenants);
        if let Some(deadline) = load.deadline {
            stream = stream.header(DEADLINE, &deadline.as_millis().to_string())?;
        }
        for (name, weight) in &load.requests {
            let Some(request) = scenario.request_index(name) else { continue };
            let urls = scenario.requests[request].urls;
            for (sentry, part) in to(number).into_iter().filter(|(_, part)| *part > 0.0) {
                for number in 0..urls {
                    let url = format!("http://{sentry}{}{number}", prefix(scenario, class, request));
                    stream = stream.url(&url, weight * part / f64::from(urls))?;
                }
            }
        }
        streams.push(stream);
    }
    streams.extend(sessions::streams(scenario, sentry, seed)?);
    let mut plan = Plan::new(streams, scenario.duration);
    plan.seed = seed;
    plan.target = Some(scenario.target(0.0));
    plan.connections = connections();
    plan.protocol = scenario.spoken().protocol;
    Ok(plan)
}

/// The field in which clients say how many milliseconds they wait.
const DEADLINE: &str = "x-envoy-expected-rq-timeout-ms";

/// How long a client waits that waits for less than everybody does.
fn patience(load: &scenario::Load) -> Option<Duration> {
    load.patience.into_iter().chain(load.deadline).min()
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
