//! Scenario files in which servers and sentries come and go.

use std::time::Duration;

use tidegate_engine::{ClassSetup, Seconds, Setup};
use tidegate_provision::{
    ApplicationSetup, Pool, Posts, ProvisionConfig, ProvisionEvent, Provisioner, SentryRule, Site,
};
use tidegate_sim::{SiteError, SiteReport, SiteWorld, Stream, World};
use tidegate_workload::Course;

use crate::configure::{ArmError, policy};
use crate::outcome::{Outcome, Provisioned, StreamOutcome};
use crate::scenario::{Application, Arm, Provision, Scenario};

/// A site, and which of the scenario's loads are whose.
#[derive(Debug, Clone)]
pub(super) struct PlayedSite {
    world: SiteWorld,
    /// Per load of the scenario: its application, and its place there.
    places: Vec<(usize, usize)>,
    names: Vec<String>,
}

/// The site of a scenario; `None` where servers stay. `whole` is everything as if it were one application.
pub(super) fn site(whole: &World, scenario: &Scenario, arm: &Arm) -> Result<Option<PlayedSite>, ArmError> {
    let Some(provision) = scenario.provision else { return Ok(None) };
    let applications = scenario.all_applications();
    let site = Site {
        servers: scenario.servers.count as u32,
        pool: pool(scenario),
        applications: (0..).zip(&applications).map(|(at, a)| setup(whole, scenario, at, a, &provision)).collect(),
        policy: policy(arm, "provision", &arm.provision, ProvisionConfig::NAMES)?,
        sentries: SentryRule {
            high: provision.sentry_high,
            low: provision.sentry_low,
            hold: Seconds(provision.sentry_hold.as_secs_f64()),
        },
        posts: Posts::default(),
    };
    Provisioner::new(site.clone()).map_err(|source| ArmError::Site { arm: arm.name.clone(), source })?;
    let mut counts = vec![0; applications.len()];
    let place = |application: usize| {
        counts[application] += 1;
        (application, counts[application] - 1)
    };
    let owners = scenario.loads.iter().map(|load| scenario.application_of(&load.class));
    let places: Vec<(usize, usize)> = owners.map(place).collect();
    let worlds = (0..applications.len()).map(|at| part(whole, scenario, at, &places)).collect();
    let past = vec![Vec::new(); applications.len()];
    let world = SiteWorld { site, worlds, every: provision.every, past, origin: Duration::ZERO };
    Ok(Some(PlayedSite { world, places, names: applications.into_iter().map(|a| a.name).collect() }))
}

impl PlayedSite {
    /// Plays it. `names` are the loads and their classes.
    pub(super) fn play(&self, seed: u64, names: &[(String, String)]) -> Result<Outcome, SiteError> {
        let report = self.world.run(seed)?;
        let stream = |(at, (name, class)): (usize, &(String, String))| {
            let (application, place) = self.places[at];
            let mut course = Course::default();
            report.reports[application].iter().for_each(|sentry| course.add(&sentry.courses[place]));
            StreamOutcome { name: name.clone(), class: class.clone(), course }
        };
        Ok(Outcome {
            streams: names.iter().enumerate().map(stream).collect(),
            types: self.types(&report),
            notes: self.notes(&report),
            provisioned: self.provisioned(report),
            ..Outcome::default()
        })
    }

    /// Request types are those of the scenario, whichever application's. The engine's first is for what no rule
    /// matches.
    fn types(&self, report: &SiteReport) -> Vec<(String, Course)> {
        let course = |at: usize| {
            let mut sum = Course::default();
            let sentries = report.reports.iter().flatten();
            sentries.filter_map(|sentry| sentry.types.get(at)).for_each(|course| sum.add(course));
            sum
        };
        let names = self.world.worlds.first().map_or(&[][..], |world| &world.setup.request_types);
        names.iter().enumerate().skip(1).map(|(at, name)| (name.clone(), course(at))).collect()
    }

    fn provisioned(&self, report: SiteReport) -> Vec<Provisioned> {
        let name = |(name, seconds): (&String, _)| Provisioned { name: name.clone(), seconds };
        self.names.iter().zip(report.provisioned).map(name).collect()
    }

    fn notes(&self, report: &SiteReport) -> Vec<(f64, String)> {
        let line =
            |(at, event): &(tidegate_engine::Timestamp, ProvisionEvent)| (at.as_secs_f64(), format!("{event:?}"));
        let mut notes: Vec<(f64, String)> = report.events.iter().map(line).collect();
        let end = self.world.worlds[0].duration.as_secs_f64();
        notes.push((end, format!("{:.2} server hours", report.server_seconds / 3600.0)));
        notes
    }
}

fn pool(scenario: &Scenario) -> Pool {
    let warm_up = scenario.servers.warm_up;
    Pool {
        setup_time: scenario.servers.setup_time,
        warm_up: warm_up.map_or(Duration::ZERO, |warm_up| warm_up.time),
        warm_up_speed: warm_up.map_or(1.0, |warm_up| warm_up.speed),
        ..Pool::default()
    }
}

fn setup(
    whole: &World,
    scenario: &Scenario,
    at: usize,
    application: &Application,
    provision: &Provision,
) -> ApplicationSetup {
    ApplicationSetup {
        name: application.name.clone(),
        sla: whole.setup.sla.clone(),
        revenues: classes(&whole.setup, scenario, at).iter().map(|class| class.revenue).collect(),
        min_servers: application.min_servers,
        max_servers: application.max_servers.unwrap_or(scenario.servers.count as u32),
        servers: application.servers,
        max_sentries: provision.max_sentries,
        replica: None,
    }
}

fn classes(whole: &Setup, scenario: &Scenario, application: usize) -> Vec<ClassSetup> {
    let own = |class: &&ClassSetup| scenario.application_of(&class.name) == application;
    whole.classes.iter().filter(own).cloned().collect()
}

/// One application's part of everything: its classes, numbered anew, and its loads.
fn part(whole: &World, scenario: &Scenario, application: usize, places: &[(usize, usize)]) -> World {
    let own_classes = classes(&whole.setup, scenario, application);
    let renumbered = |stream: &Stream| {
        let name = &whole.setup.classes[usize::from(stream.class)].name;
        let class = own_classes.iter().position(|class| class.name == *name).unwrap_or(0);
        Stream { class: class as u8, ..stream.clone() }
    };
    let streams = whole.streams.iter().zip(places).filter(|(_, place)| place.0 == application);
    let mut world = World { streams: streams.map(|(stream, _)| renumbered(stream)).collect(), ..whole.clone() };
    world.setup.classes = own_classes;
    world
}
