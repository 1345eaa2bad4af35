//! The live arm of a scenario with a data server that is real: memcached, the application's software beside it, and a
//! nucleus that divides this machine's cores between them.
//!
//! *What is real.* memcached, its data and every look-up, also those of requests at application servers; the
//! application's software on the data server (a process of its own that looks up and then computes); its cores and the
//! nucleus that divides them; sentry, HTTP and load. *What is emulated.* The processors of the application servers:
//! their part of a request's time is waited for, not computed, as there are no further machines for it. *What is
//! shared.* Load, sentry, application servers and the probe run on the core that the application's software is given:
//! on machines of their own they would disturb nobody.
//!
//! Requests of the class `probe` go to memcached itself, one look-up each, from a thread of their own that goes before
//! others: what it measures is how long memcached takes.

mod data_server;
mod probe;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::Role;
use tidegate_loadgen::{LoadRun, Progress, Report};
use tidegate_sentry::{
    Sentry, SentryHandle,
    config::{self, WhenSilent},
    record::NoRecords,
};
use tidegate_testbed::{EmulatedCluster, LookUps, ServerSpec, ThreadedCluster, pinned};
use tidegate_wire::Keys;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{Beyond, Ending, Lab, Running, Service, ServiceError};
use crate::configure;
use crate::outcome::{Outcome, StreamOutcome};
use crate::scenario::{Arm, On, Scenario};
use crate::service::emulated;
use data_server::DataServer;
pub use data_server::DataServerError;
use probe::Probe;

/// Emulated servers behind a real sentry, and a data server that is real: memcached, with the application's software on
/// the same cores.
#[derive(Debug)]
pub(super) struct DataTier;

impl Service for DataTier {
    fn cannot_do(&self, scenario: &Scenario) -> Vec<String> {
        let mut beyond = Beyond::default();
        // What the file says of the data tier is a model of what is real here.
        beyond.add_servers(scenario);
        beyond.add_clients(scenario);
        beyond.add_emulated(scenario);
        beyond.add_models(scenario);
        beyond.add_told(scenario);
        beyond.0
    }

    fn start(&self, scenario: &Scenario, arm: &Arm, seed: u64, lab: &Lab) -> Result<Box<dyn Running>, ServiceError> {
        let On::Stealing(stealing) = scenario.on() else { return Err(ServiceError::OtherService) };
        let (program, folder) = (&lab.tidegate, &lab.folder);
        let setup = configure::setup(scenario, arm)?;
        let mut data_server = DataServer::start(scenario, &stealing, seed, program, folder)?;
        let look_ups = LookUps { memcached: data_server.memcached(), count: stealing.look_ups, keys: stealing.keys };
        let spec = ServerSpec { look_ups: Some(look_ups), ..emulated::server(scenario, seed) };
        let cluster = elsewhere(|| EmulatedCluster::start_on_thread(scenario.servers.count, spec))?;
        let mut addresses = cluster.addresses().into_iter();
        let at = |server: &tidegate_engine::ServerSetup| match server.role {
            Role::Data => data_server.application(),
            Role::Application => addresses.next().unwrap_or(data_server.application()),
        };
        let addresses: Vec<SocketAddr> = setup.servers.iter().map(at).collect();
        let mut process = configure::process(configure::application(scenario, setup, &addresses), None, None);
        process.reports = Some(config::Reports {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            key_file: folder.join("key"),
            keys: Keys::load(&folder.join("key")).map_err(DataServerError::from)?,
            silent_after: None,
            when_silent: WhenSilent::Exclude,
        });
        let sentry = elsewhere(|| Sentry::start(process, Arc::new(NoRecords)))?;
        if let Some(reports) = sentry.reports() {
            data_server.start_nucleus(program, folder, reports.address())?;
        }
        let address = sentry.addresses(&scenario.id)[0];
        let mut plan = emulated::plan(&without_probe(scenario, &stealing.probe), |_| address, seed)?;
        plan.connections = CONNECTIONS;
        let probe = elsewhere(|| Probe::start(scenario, &stealing.probe, look_ups)).map_err(ServiceError::Probe)?;
        let load = elsewhere(|| LoadRun::start(plan))?;
        let (scenario, probed) = (scenario.clone(), stealing.probe);
        Ok(Box::new(Run { load, probe, probed, sentry, data_server, cluster, scenario }))
    }
}

#[derive(Debug)]
struct Run {
    load: LoadRun,
    probe: Probe,
    /// The class that the probe stands for.
    probed: String,
    // The order matters: who sends goes first, whoever answers last.
    sentry: SentryHandle,
    data_server: DataServer,
    cluster: ThreadedCluster,
    scenario: Scenario,
}

impl Running for Run {
    fn progress(&self) -> Receiver<Progress> {
        self.load.progress()
    }

    /// Looks at the division of the cores meanwhile.
    fn wait(self: Box<Self>) -> Ending {
        Box::pin(self.finish())
    }
}

impl Run {
    async fn finish(mut self: Box<Self>) -> Result<Outcome, ServiceError> {
        let (start, mut notes, mut last) = (Instant::now(), Vec::new(), String::new());
        let mut ticks = interval_at(start, LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut done = std::pin::pin!(self.load.wait());
        let report = loop {
            tokio::select! {
                report = &mut done => break report?,
                _ = ticks.tick() => {
                    let shown = division(&self.sentry);
                    if shown != last {
                        notes.push((start.elapsed().as_secs_f64(), shown.clone()));
                        last = shown;
                    }
                }
            }
        };
        if let Some(app) = self.sentry.apps().first() {
            notes.push((report.sent_for, format!("at the end: {:?}", app.snapshot().dispatching.get("stealing"))));
        }
        self.sentry.shutdown(GRACE);
        let mut outcome = outcome(&self.scenario, report, notes);
        for stream in &mut outcome.streams {
            if self.probed == stream.class {
                stream.course = self.probe.stop();
            }
        }
        outcome.warnings.extend(self.data_server.stop());
        drop(self.cluster);
        Ok(outcome)
    }
}

/// How long the sentry may take to close its connections.
const GRACE: Duration = Duration::from_secs(1);
/// How often the division of the cores is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Connections of the load at most.
const CONNECTIONS: usize = 2048;

/// Runs `start` so that what it starts leaves memcached its core: the application's software gets the last one.
fn elsewhere<T: Send>(start: impl FnOnce() -> T + Send) -> T {
    pinned(|all| &all[all.len().saturating_sub(1)..], start)
}

fn without_probe(scenario: &Scenario, probe: &str) -> Scenario {
    let mut scenario = scenario.clone();
    scenario.loads.retain(|load| load.class != probe);
    scenario
}

/// What the sentry knows of the division, without what changes all the time.
fn division(sentry: &SentryHandle) -> String {
    let Some(reports) = sentry.reports() else { return String::new() };
    let divisions = reports.divisions();
    let Some((_, division)) = divisions.first() else { return "cores are not divided".to_owned() };
    let cores = |cores: Option<u16>| cores.map_or("none".to_owned(), |cores| cores.to_string());
    let moved = division.move_seconds.map_or(String::new(), |time| format!(", moved in {:.0} us", time * 1e6));
    let problem = division.problem.map_or(String::new(), |problem| format!(", {problem}"));
    format!(
        "cores for application work: {} wanted, {} in force{moved}{problem}",
        division.wanted,
        cores(division.in_force)
    )
}

fn outcome(scenario: &Scenario, report: Report, notes: Vec<(f64, String)>) -> Outcome {
    let stream = |load: &crate::scenario::Load| {
        let class = report.classes.iter().find(|class| class.class == load.label());
        StreamOutcome {
            name: load.label().to_owned(),
            class: load.class.clone(),
            course: class.map(|class| emulated::course(scenario, class, 0)).unwrap_or_default(),
        }
    };
    let streams = scenario.loads.iter().map(stream).collect();
    Outcome { streams, warnings: report.warnings.clone(), notes, ..Outcome::default() }
}
