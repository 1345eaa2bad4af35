//! The live arm of a scenario whose servers and sentries come and go: `tidegate control` with its local provider, every
//! server and every sentry a process of its own, on loopback.
//!
//! *What is real.* Control plane, sentries, the connections between them, the starting and stopping of servers, HTTP.
//! *What is emulated.* The servers' processors. *Who starts sentries.* The control plane says how many an application
//! is to have; this run does what an operator's automation would: it starts them, and clients are told as by a name
//! server that gives its answers in turn.
//!
//! *Time.* A plan is made so long after the control plane began, so its beginning is the scenario's. The load begins
//! [`LEAD`] later, when the first servers serve, with what the scenario then offers.

mod cost;
mod look;
mod site;

use std::path::Path;
use std::time::{Duration, Instant};

use tidegate_loadgen::{LoadError, LoadRun, PlanError, Progress, Report};
use tidegate_sim::ArmError;
use tidegate_workload::outcome::{Outcome, StreamOutcome};
use tidegate_workload::scenario::{Arm, Load, Scenario};
use tokio::sync::watch;

use crate::live;
use crate::process::ProcessError;

use look::Look;
use site::Site;

/// The load begins so long after the control plane.
const LEAD: Duration = Duration::from_secs(5);

/// One arm of a scenario, being played. Dropping it ends everything.
#[derive(Debug)]
pub struct ProvisionRun {
    load: LoadRun,
    look: Look,
    scenario: Scenario,
}

/// Why an arm cannot be played, or gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ProvisionRunError {
    /// The scenario does not say so.
    #[error("the scenario has no [live.control] with `provision`")]
    NotProvisioned,
    /// The engine does not take its policies.
    #[error(transparent)]
    Arm(#[from] ArmError),
    /// A program does not start.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A configuration cannot be written: a bug.
    #[error("cannot write a configuration: {0}")]
    Text(#[from] toml::ser::Error),
    /// Not enough ports in a row are free.
    #[error("no {0} ports in a row are free")]
    Ports(usize),
    /// Something is not there in time.
    #[error("{what} within {} s; see the logs in {folder}", LEAD.as_secs())]
    Late {
        /// What is waited for.
        what: &'static str,
        /// Where the logs are.
        folder: String,
    },
    /// The load cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The load cannot be sent.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl ProvisionRun {
    /// Starts control plane, sentry and load. `program` is the executable `tidegate`, `folder` is where files and logs
    /// go.
    ///
    /// # Errors
    /// When something of it cannot be started.
    pub fn start(
        scenario: &Scenario,
        arm: &Arm,
        seed: u64,
        program: &Path,
        folder: &Path,
    ) -> Result<ProvisionRun, ProvisionRunError> {
        let control = scenario.control().ok_or(ProvisionRunError::NotProvisioned)?;
        // What the engine would say to it is said before anything is started.
        tidegate_sim::setup(scenario, arm)?;
        let full = match control.sentry_full {
            Some(rate) => cost::processor_at(scenario, arm, seed, rate, program, folder)?,
            None => 1.0,
        };
        let site = Site::start(scenario, arm, seed, full, program, folder)?;
        let began = site.began();
        let look = Look::new(site, full);
        let mut plan = live::plan(scenario, |class| look.first_sentry(scenario.application_of(class)), seed)?;
        for stream in &mut plan.streams {
            stream.profile = stream.profile.after(LEAD);
        }
        plan.duration = scenario.duration.saturating_sub(LEAD);
        plan.members = look.members();
        std::thread::sleep((began + LEAD).saturating_duration_since(Instant::now()));
        Ok(ProvisionRun { load: LoadRun::start(plan)?, look, scenario: scenario.clone() })
    }

    /// The state of the run, renewed ten times a second.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.load.progress()
    }

    /// Waits for the end, starts and stops sentries meanwhile, and sums up.
    ///
    /// # Errors
    /// When the load could not be sent.
    pub async fn wait(mut self) -> Result<Outcome, ProvisionRunError> {
        let report = self.look.until_done(self.load, self.scenario.duration).await?;
        let (provisioned, notes, mut warnings) = self.look.finish();
        warnings.extend(report.warnings.iter().cloned());
        let streams = streams(&self.scenario, &report);
        Ok(Outcome { streams, provisioned, notes, warnings, ..Outcome::default() })
    }
}

fn streams(scenario: &Scenario, report: &Report) -> Vec<StreamOutcome> {
    let stream = |load: &Load| {
        let class = report.classes.iter().find(|class| class.class == load.label());
        let course = class.map(|class| live::course(scenario, class, LEAD.as_secs() as usize));
        StreamOutcome { name: load.label().to_owned(), class: load.class.clone(), course: course.unwrap_or_default() }
    };
    scenario.loads.iter().map(stream).collect()
}
