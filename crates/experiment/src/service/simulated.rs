//! The simulator as a service: a scenario's arm in virtual time.

mod machines;
mod provision;

use tidegate_engine::{ClassSnapshot, Snapshot, Timestamp};
use tidegate_sim::{Manner, Report, SiteError, Stream, TenantReport, World};

use crate::configure::{self, ArmError};
use crate::outcome::{Control, Outcome, StreamOutcome};
use crate::scenario;
use crate::scenario::{Arm, Load, Scenario};

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
        let scenario = &*configure::in_arm(scenario, arm)?;
        let setup = configure::setup(scenario, arm)?;
        let mut world = World::new(setup, Vec::new(), scenario.duration);
        world.streams = scenario.loads.iter().map(|load| stream(scenario, load)).collect();
        machines::furnish(&mut world, scenario);
        for (tier, model) in scenario.tiers.iter().zip(&mut world.tiers) {
            model.sentry = configure::service(scenario, arm, tier)?;
        }
        world.protocol = arm.cooperation.protocol();
        world.tells_refusals = arm.cooperation != scenario::Cooperation::None;
        // Outcomes are made from courses alone.
        world.by_answer = false;
        let looks = [scenario::Metric::InFlight, scenario::Metric::AtWorkMost];
        world.count_in_flight = scenario.expects.iter().any(|expect| looks.contains(&expect.metric));
        let loads = scenario.loads.iter().map(|load| (load.label().to_owned(), load.class.clone()));
        let users = scenario.users.iter().map(|users| (users.label().to_owned(), users.class.clone()));
        let of =
            |sessions: &tidegate_workload::Sessions| sessions.labels().map(|label| (label, sessions.class.clone()));
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
        let joules = Some(report.joules()).filter(|joules| *joules > 0.0);
        let controls = controls(&report);
        let courses = std::mem::take(&mut report.courses);
        let in_flight = std::mem::take(&mut report.in_flight);
        let at_work = std::mem::take(&mut report.at_work);
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
        Outcome { streams, types, controls, partitions, in_flight, at_work, notes, joules, ..Outcome::default() }
    }
}

fn stream(scenario: &Scenario, load: &Load) -> Stream {
    let class = scenario.class_index(&load.class).unwrap_or_default();
    let urls = load.requests.iter().flat_map(|(name, weight)| machines::urls(scenario, class, name, *weight));
    Stream {
        class: class as u8,
        profile: load.rate.clone(),
        process: load.arrivals,
        urls: urls.collect(),
        retry: load.retry,
        manner: Manner {
            patience: load.patience,
            deadline: load.deadline,
            tenants: load.tenants,
            sends: load.sends,
            reads: load.reads,
            absent: load.absent,
        },
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
    for snapshot in report.services.iter().flatten() {
        note(of_service(snapshot));
    }
    for (at, tenants) in report.tenants.iter().enumerate().filter(|(_, tenants)| !tenants.is_empty()) {
        note(format!("load {}: {}", at + 1, of_tenants(tenants)));
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

/// What a service that is called did, in a line.
fn of_service(snapshot: &Snapshot) -> String {
    let sum = |of: &dyn Fn(&ClassSnapshot) -> u64| snapshot.classes.iter().map(of).sum::<u64>();
    let offered = sum(&|class| class.offered);
    format!(
        "service {}: {offered} calls, {} refused, {} answered within its target, {} refused further down",
        snapshot.application,
        sum(&ClassSnapshot::rejected_total),
        sum(&|class| class.in_target),
        sum(&|class| class.refused_below),
    )
}

/// What the tenants got, in a line: the one that sends most, and the one that got least of what it asked for.
fn of_tenants(tenants: &[TenantReport]) -> String {
    let share = |tenant: &TenantReport| 100.0 * tenant.good as f64 / tenant.offered.max(1) as f64;
    let asked = || tenants.iter().filter(|tenant| tenant.offered > 0);
    let least = asked().map(share).fold(100.0, f64::min);
    let largest = tenants.first().copied().unwrap_or_default();
    let (count, offered) = (asked().count(), largest.offered);
    format!(
        "{count} tenants; of the {offered} requests of the largest {:.1} % were answered in time, of everybody's {least:.1} % at least",
        share(&largest)
    )
}
