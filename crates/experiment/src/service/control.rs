//! The live arm of a scenario whose servers and sentries come and go: `tidegate control` with its local provider, every
//! server and every sentry a process of its own, on loopback.
//!
//! *What is real.* Control plane, sentries, the connections between them, the starting and stopping of both servers and
//! sentries, DNS, HTTP. *What is emulated.* The servers' processors. *How clients find sentries.* By the application's
//! name: they ask the control plane's DNS, as often as its answers say, and go to the addresses in turn.
//!
//! *Time.* A plan is made so long after the control plane began, so its beginning is the scenario's. The load begins
//! [`LEAD`] later, when the first servers serve, with what the scenario then offers.

mod cost;
mod look;
mod names;
mod site;

use std::time::{Duration, Instant};

use tidegate_loadgen::{LoadRun, Progress, Report};
use tokio::sync::watch;

use super::{Beyond, Ending, Lab, Running, Service, ServiceError};
use crate::configure;
use crate::outcome::{Outcome, StreamOutcome};
use crate::scenario::{Arm, Load, On, Scenario};
use crate::service::emulated;
use look::Look;
use site::Site;

/// The load begins so long after the control plane, which waits three seconds for sentries that somebody else has
/// started before it starts one.
const LEAD: Duration = Duration::from_secs(8);

/// A control plane, and the sentries and servers that it starts and stops, each a process.
#[derive(Debug)]
pub(super) struct ControlPlane;

impl Service for ControlPlane {
    fn cannot_do(&self, scenario: &Scenario) -> Vec<String> {
        let mut beyond = Beyond::default();
        beyond.add_servers(scenario);
        beyond.add_tiers(scenario);
        beyond.add_clients(scenario);
        beyond.add_emulated(scenario);
        beyond.add(!scenario.sessions.is_empty(), "sessions");
        beyond.add_models(scenario);
        beyond.add_told(scenario);
        beyond.0
    }

    fn start(&self, scenario: &Scenario, arm: &Arm, seed: u64, lab: &Lab) -> Result<Box<dyn Running>, ServiceError> {
        let On::Control(control) = scenario.on() else { return Err(ServiceError::OtherService) };
        let (program, folder) = (&lab.tidegate, lab.folder.join(&arm.name));
        // What the engine would say to it is said before anything is started.
        configure::setup(scenario, arm)?;
        let full = match control.sentry_full {
            Some(rate) => cost::processor_at(scenario, arm, seed, rate, program, &folder)?,
            None => 1.0,
        };
        let site = Site::start(scenario, arm, seed, full, program, &folder)?;
        let began = site.began();
        let look = Look::new(site, full)?;
        let mut plan = emulated::plan(scenario, |class| look.first_sentry(scenario.application_of(class)), seed)?;
        for stream in &mut plan.streams {
            stream.profile = stream.profile.after(LEAD);
        }
        plan.duration = scenario.duration.saturating_sub(LEAD);
        plan.members = look.members();
        std::thread::sleep((began + LEAD).saturating_duration_since(Instant::now()));
        Ok(Box::new(Run { load: LoadRun::start(plan)?, look, scenario: scenario.clone() }))
    }
}

#[derive(Debug)]
struct Run {
    load: LoadRun,
    look: Look,
    scenario: Scenario,
}

impl Running for Run {
    fn progress(&self) -> watch::Receiver<Progress> {
        self.load.progress()
    }

    /// Looks meanwhile who is there, and follows names.
    fn wait(mut self: Box<Self>) -> Ending {
        Box::pin(async move {
            let report = self.look.until_done(self.load, self.scenario.duration).await?;
            let (provisioned, notes, mut warnings) = self.look.finish();
            warnings.extend(report.warnings.iter().cloned());
            let streams = streams(&self.scenario, &report);
            Ok(Outcome { streams, provisioned, notes, warnings, ..Outcome::default() })
        })
    }
}

fn streams(scenario: &Scenario, report: &Report) -> Vec<StreamOutcome> {
    let stream = |load: &Load| {
        let class = report.classes.iter().find(|class| class.class == load.label());
        let course = class.map(|class| emulated::course(scenario, class, LEAD.as_secs() as usize));
        StreamOutcome { name: load.label().to_owned(), class: load.class.clone(), course: course.unwrap_or_default() }
    };
    scenario.loads.iter().map(stream).collect()
}
