//! Scenario files in virtual time.

mod machines;
mod provision;

use tidegate_engine::{
    AdmissionConfig, ClassSetup, DispatchConfig, MaxConn, PartitionConfig, Role, ServerSetup, Setup, SetupError, Sla,
    SlaError, Statistic, Step, Tags, Timestamp,
};
use tidegate_workload::outcome::{Control, Outcome, StreamOutcome};
use tidegate_workload::scenario::{self, Arm, Load, Scenario};

use crate::report::Report;
use crate::site::SiteError;
use crate::world::{Stream, World};

/// Why an arm of a scenario cannot be run: the policy is the engine's to understand.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ArmError {
    /// A policy's table has no `policy`, an unknown name, or a key or value that the policy does not know.
    #[error("arm \"{arm}\": {family}: {problem}")]
    Policy {
        /// The arm.
        arm: String,
        /// `admission`, `dispatch` or `partition`.
        family: &'static str,
        /// What is wrong and what is known.
        problem: String,
    },
    /// The target makes no sense to the engine.
    #[error("sla: {0}")]
    Sla(#[from] SlaError),
    /// Applications, servers and provisioning do not fit.
    #[error("arm \"{arm}\": {source}")]
    Site {
        /// The arm.
        arm: String,
        /// What is wrong.
        source: tidegate_engine::provision::ProvisionError,
    },
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
    /// In place of the world, where servers come and go.
    site: Option<provision::PlayedSite>,
}

impl Played {
    /// The world of one arm.
    ///
    /// # Errors
    /// When the engine does not take its policies.
    pub fn new(scenario: &Scenario, arm: &Arm) -> Result<Played, ArmError> {
        let setup = setup(scenario, arm)?;
        let mut world = World::new(setup, Vec::new(), scenario.duration);
        world.streams = scenario.loads.iter().map(|load| stream(scenario, load)).collect();
        machines::furnish(&mut world, scenario);
        // Outcomes are made from courses alone.
        world.by_answer = false;
        world.count_in_flight = scenario.expects.iter().any(|expect| expect.metric == scenario::Metric::InFlight);
        let loads = scenario.loads.iter().map(|load| (load.label().to_owned(), load.class.clone()));
        let users = scenario.users.iter().map(|users| (users.label().to_owned(), users.class.clone()));
        let of = |sessions: &scenario::Sessions| sessions.labels().map(|label| (label, sessions.class.clone()));
        let sessions = scenario.sessions.iter().flat_map(of);
        let site = provision::site(&world, scenario, arm)?;
        Ok(Played { world, names: loads.chain(users).chain(sessions).collect(), site })
    }

    /// The world, to change what scenario files cannot say.
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// Plays it. Equal seeds give equal outcomes.
    ///
    /// # Errors
    /// When the world was changed into one that makes no sense.
    pub fn play(&self, seed: u64) -> Result<Outcome, SiteError> {
        if let Some(site) = &self.site {
            return site.play(seed, &self.names);
        }
        Ok(self.outcome(self.world.run(seed)?))
    }

    /// The part of a report that scenarios make demands on.
    pub fn outcome(&self, mut report: Report) -> Outcome {
        let notes = notes(&report, &self.world);
        let controls = controls(&report);
        let courses = std::mem::take(&mut report.courses);
        let in_flight = std::mem::take(&mut report.in_flight);
        let partitions = std::mem::take(&mut report.partitions);
        // The engine's first type is for what no rule matches: nothing, here.
        let names = self.world.setup.request_types.iter().cloned();
        let types = names.zip(std::mem::take(&mut report.types)).skip(1).collect();
        let streams = self.names.iter().zip(courses).map(|((name, class), course)| StreamOutcome {
            name: name.clone(),
            class: class.clone(),
            course,
        });
        let streams = streams.collect();
        Outcome { streams, types, controls, partitions, in_flight, notes, ..Outcome::default() }
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
    for tier in scenario.tiers.iter().filter(|tier| tier.lends.is_some()) {
        let server = |at| {
            let cores = Some(f64::from(tier.cores));
            ServerSetup { role: Role::Data, cores, ..ServerSetup::new(format!("{}-{at}", tier.name)) }
        };
        setup.servers.extend((0..tier.count).map(server));
    }
    setup.classes = scenario.classes.iter().map(class).collect();
    setup.request_types.extend(scenario.requests.iter().map(|request| request.name.clone()));
    setup.tags = tags(scenario);
    setup.admission = policy(arm, "admission", &arm.admission, AdmissionConfig::NAMES)?;
    setup.dispatch = policy(arm, "dispatch", &arm.dispatch, DispatchConfig::NAMES)?;
    setup.partition = policy(arm, "partition", &arm.partition, PartitionConfig::NAMES)?;
    setup.max_conn = scenario.max_conn.iter().map(max_conn).collect();
    setup.check().map_err(|source| ArmError::Setup { arm: arm.name.clone(), source })?;
    Ok(setup)
}

/// Names of the resource tags of request types, each once: bit `i` is the `i`-th.
pub fn tags(scenario: &Scenario) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for tag in scenario.requests.iter().flat_map(|request| &request.tags) {
        if !names.contains(tag) {
            names.push(tag.clone());
        }
    }
    names
}

/// The tags of a request type.
pub fn tags_of(scenario: &Scenario, request: usize) -> Tags {
    let bit = |tag: &String| tags(scenario).iter().position(|name| name == tag).map_or(0, |at| 1 << at);
    Tags(scenario.requests[request].tags.iter().map(bit).fold(0, |tags, bit| tags | bit))
}

fn max_conn(kind: &scenario::MaxConn) -> MaxConn {
    MaxConn {
        name: kind.name.clone(),
        request_types: kind.requests.clone(),
        within_target: kind.within_target,
        most: kind.most,
    }
}

fn class(class: &scenario::Class) -> ClassSetup {
    ClassSetup { revenue: class.revenue, min_rate: class.min_rate.per_second(), ..ClassSetup::new(&class.name) }
}

fn sla(sla: &scenario::Sla) -> Result<Sla, SlaError> {
    let statistic = Statistic::of(&sla.statistic).unwrap_or_default();
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
    let urls = load.requests.iter().flat_map(|(name, weight)| machines::urls(scenario, class, name, *weight));
    Stream {
        class: class as u8,
        profile: load.rate.clone(),
        process: load.arrivals,
        urls: urls.collect(),
        retry: load.retry.as_ref().map(machines::retry),
    }
}

/// What response-time and resource controllers did, in lines.
fn controls(report: &Report) -> Vec<Control> {
    let mut lines = Vec::new();
    for (at, shown) in &report.shown {
        for controller in shown.list("controllers") {
            let request = controller.text("request_type").unwrap_or("all");
            lines.extend(controller.list("classes").map(|class| Control {
                second: at.as_secs(),
                request: request.to_owned(),
                class: class.text("class").unwrap_or_default().to_owned(),
                rate: class.number("rate").filter(|_| controller.is_set("policing")),
                percentile: class.number("percentile"),
                quality: controller.number("quality").unwrap_or(1.0),
            }));
        }
        lines.extend(shown.list("resources").map(|resource| {
            let name = resource.text("resource").unwrap_or_default();
            Control {
                second: at.as_secs(),
                request: match resource.text("server") {
                    Some(server) => format!("{name} at {server}"),
                    None => name.to_owned(),
                },
                class: "all".to_owned(),
                rate: resource.number("rate"),
                percentile: None,
                quality: 1.0,
            }
        }));
    }
    lines
}

/// What the engine said, in lines, and then what there is to say of models that only the simulator has.
fn notes(report: &Report, world: &World) -> Vec<(f64, String)> {
    let line = |(at, event): &(Timestamp, tidegate_engine::Event)| (at.as_secs_f64(), event.to_string());
    let mut notes: Vec<(f64, String)> = report.events.iter().map(line).collect();
    let end = report.duration.as_secs_f64();
    let mut note = |text: String| notes.push((end, text));
    if report.events_left_out > 0 {
        note(format!("{} more events were not kept", report.events_left_out));
    }
    if let Some(cpu) = report.sentry_cpu {
        note(format!("the sentry's CPU was in use for {:.1} % of the time", cpu * 100.0));
    }
    if report.joules() > 0.0 {
        note(format!("servers drew {:.0} kJ", report.joules() / 1e3));
    }
    for (at, client) in report.clients.iter().enumerate() {
        let retries = world.streams.get(at).is_none_or(|stream| stream.retry.is_some());
        if retries {
            let (wanted, satisfied, given_up) = (client.wanted, client.satisfied, client.given_up);
            note(format!("load {}: {wanted} wanted, {satisfied} answered, {given_up} given up", at + 1));
        }
    }
    notes
}
