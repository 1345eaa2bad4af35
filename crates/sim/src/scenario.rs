//! Scenario files in virtual time.

use tidegate_engine::{
    AdmissionConfig, ClassSetup, DispatchConfig, ServerSetup, Setup, SetupError, Sla, SlaError, Statistic, Step,
    Timestamp,
};
use tidegate_workload::outcome::{Outcome, StreamOutcome};
use tidegate_workload::scenario::{self, Arm, Discipline, Load, Scenario};

use crate::model::ServerModel;
use crate::report::Report;
use crate::station;
use crate::world::{Stream, Url, World};

/// Why an arm of a scenario cannot be run: the policy is the engine's to understand.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ArmError {
    /// A policy's table has no `policy`, an unknown name, or a key or value that the policy does not know.
    #[error("arm \"{arm}\": {family}: {problem}")]
    Policy {
        /// The arm.
        arm: String,
        /// `admission` or `dispatch`.
        family: &'static str,
        /// What is wrong and what is known.
        problem: String,
    },
    /// The target makes no sense to the engine.
    #[error("sla: {0}")]
    Sla(#[from] SlaError),
    /// The setup makes no sense to the engine.
    #[error("arm \"{arm}\": {source}")]
    Setup {
        /// The arm.
        arm: String,
        /// What is wrong.
        source: SetupError,
    },
}

/// A scenario's arm as a world that can be played with any seed.
#[derive(Debug, Clone)]
pub struct Played {
    world: World,
    names: Vec<(String, String)>,
}

impl Played {
    /// The world of one arm.
    ///
    /// # Errors
    /// When the engine does not take its policies.
    pub fn new(scenario: &Scenario, arm: &Arm) -> Result<Played, ArmError> {
        let setup = setup(scenario, arm)?;
        let discipline = match scenario.servers.discipline {
            Discipline::Ps => station::Discipline::ProcessorSharing,
            Discipline::Fifo => station::Discipline::Fifo,
        };
        let server = ServerModel::new(f64::from(scenario.servers.cores), discipline);
        let mut world = World::new(setup, vec![server; scenario.servers.count], scenario.duration);
        world.streams = scenario.loads.iter().map(|load| stream(scenario, load)).collect();
        world.patience = scenario.timeout;
        let names = scenario.loads.iter().map(|load| (load.label().to_owned(), load.class.clone())).collect();
        Ok(Played { world, names })
    }

    /// The world, to change what scenario files cannot say.
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// Plays it. Equal seeds give equal outcomes.
    ///
    /// # Errors
    /// When the world was changed into one that makes no sense.
    pub fn play(&self, seed: u64) -> Result<Outcome, SetupError> {
        let mut report = self.world.run(seed)?;
        let notes = notes(&report);
        let courses = std::mem::take(&mut report.courses);
        let streams = self.names.iter().zip(courses).map(|((name, class), course)| StreamOutcome {
            name: name.clone(),
            class: class.clone(),
            course,
        });
        Ok(Outcome { streams: streams.collect(), warnings: Vec::new(), notes })
    }
}

/// What the engine needs to know of an arm. Request type `i + 1` is the scenario's request type `i`.
///
/// # Errors
/// When the engine does not take its policies.
pub fn setup(scenario: &Scenario, arm: &Arm) -> Result<Setup, ArmError> {
    let cores = (!scenario.servers.learned).then_some(f64::from(scenario.servers.cores));
    let server = |at| ServerSetup { cores, ..ServerSetup::new(format!("server-{at}")) };
    let mut setup = Setup::simple(&scenario.id, sla(&scenario.sla)?, (0..scenario.servers.count).map(server));
    setup.classes = scenario.classes.iter().map(class).collect();
    setup.request_types.extend(scenario.requests.iter().map(|request| request.name.clone()));
    setup.admission = policy(arm, "admission", &arm.admission, AdmissionConfig::NAMES)?;
    setup.dispatch = policy(arm, "dispatch", &arm.dispatch, DispatchConfig::NAMES)?;
    setup.check().map_err(|source| ArmError::Setup { arm: arm.name.clone(), source })?;
    Ok(setup)
}

fn class(class: &scenario::Class) -> ClassSetup {
    ClassSetup { revenue: class.revenue, min_rate: class.min_rate.per_second(), ..ClassSetup::new(&class.name) }
}

fn sla(sla: &scenario::Sla) -> Result<Sla, SlaError> {
    let statistics = [Statistic::Mean, Statistic::P90, Statistic::P95, Statistic::P99];
    let statistic = statistics.into_iter().find(|s| s.name() == sla.statistic).unwrap_or_default();
    if let Some(target) = sla.target {
        return Sla::constant(statistic, target);
    }
    let step = |step: &scenario::Step| Step {
        below: step.below.map_or(f64::INFINITY, |below| below.per_second()),
        target: step.target,
    };
    Sla::new(statistic, sla.steps.iter().map(step).collect())
}

/// Reads a policy's table as the engine does; an empty one is the default policy.
fn policy<T: Default + serde::de::DeserializeOwned>(
    arm: &Arm,
    family: &'static str,
    table: &toml::Table,
    names: &[&str],
) -> Result<T, ArmError> {
    if table.is_empty() {
        return Ok(T::default());
    }
    let error = |problem: String| ArmError::Policy { arm: arm.name.clone(), family, problem };
    if !table.contains_key("policy") {
        return Err(error(format!("does not say which policy; add policy = one of {}", names.join(", "))));
    }
    T::deserialize(toml::Value::Table(table.clone())).map_err(|e| error(e.message().trim().to_owned()))
}

fn stream(scenario: &Scenario, load: &Load) -> Stream {
    let class = scenario.class_index(&load.class).unwrap_or_default();
    let mut urls = Vec::new();
    for (name, weight) in &load.requests {
        let Some(at) = scenario.request_index(name) else { continue };
        let request = &scenario.requests[at];
        for number in 0..request.urls {
            urls.push(Url {
                // One class's URLs are not another's: the class is read from the URL.
                key: ((class as u64) << 40) | ((at as u64 + 1) << 20) | u64::from(number),
                request_type: at as u16 + 1,
                weight: weight / f64::from(request.urls),
                cost: request.service,
                program: 0,
                bytes: request.response_bytes,
            });
        }
    }
    Stream { class: class as u8, profile: load.rate.clone(), process: load.arrivals, urls, retry: None }
}

/// What the engine said, in lines.
fn notes(report: &Report) -> Vec<(f64, String)> {
    let line = |(at, event): &(Timestamp, tidegate_engine::Event)| (at.as_secs_f64(), format!("{event:?}"));
    report.events.iter().map(line).collect()
}
