//! Services: what scenarios are run on with real HTTP, behind one trait and in one table; and the simulator.

mod apache;
mod control;
mod data_tier;
mod emulated;
mod mail;
mod namespaces;
mod processes;
mod simulated;

use std::fmt::Debug;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use tidegate_loadgen::{LoadError, PlanError, Progress, UsersError};
use tidegate_sentry::StartError as SentryError;
use tidegate_testbed::{NucleiError, ProcessError, StartError};
use tidegate_workload::Abandoned;
use tokio::sync::watch::Receiver;

use crate::configure::ArmError;
use crate::outcome::Outcome;
use crate::scenario::{Arm, On, Resource, Scenario};

pub use apache::{Apache, ApacheError};
pub use data_tier::DataServerError;
pub use mail::MailProgramError;
pub use namespaces::NamespacesError;
pub use simulated::Played;

/// Something real that plays a scenario.
pub trait Service: Debug + Sync {
    /// The keys of a scenario's live form that it cannot follow; empty where it can play it. Whoever starts it must
    /// refuse a scenario that has any, rather than run another experiment than the file describes.
    fn cannot_do(&self, scenario: &Scenario) -> Vec<String>;

    /// Starts an arm of a scenario's live form. `seed` decides arrivals and service times.
    ///
    /// # Errors
    /// When something of it cannot be started.
    fn start(&self, scenario: &Scenario, arm: &Arm, seed: u64, lab: &Lab) -> Result<Box<dyn Running>, ServiceError>;
}

/// An arm that is being played. Dropping it ends it.
pub trait Running: Debug {
    /// The state of the run, renewed ten times a second.
    fn progress(&self) -> Receiver<Progress>;

    /// Waits for the end, and sums up.
    ///
    /// # Errors
    /// When the load could not be sent.
    fn wait(self: Box<Self>) -> Ending;
}

/// What a run ends with.
pub type Ending = Pin<Box<dyn Future<Output = Result<Outcome, ServiceError>>>>;

/// What services find in the laboratory.
#[derive(Debug, Clone)]
pub struct Lab {
    /// The program `tidegate`: sentries, nuclei and control planes that are processes of their own.
    pub tidegate: PathBuf,
    /// The program `tidegate-mail`.
    pub mail: PathBuf,
    /// Where files and logs go.
    pub folder: PathBuf,
}

/// The service that a scenario is run on.
pub fn of(on: &On) -> &'static dyn Service {
    match on {
        On::Emulated { .. } => &emulated::BehindSentry::Emulated,
        On::Apache { .. } => &emulated::BehindSentry::Apache,
        On::Mail(_) => &mail::MailService,
        On::Stealing(_) => &data_tier::DataTier,
        On::Control(_) => &control::ControlPlane,
        On::Namespaces(_) => &namespaces::InNamespaces,
    }
}

/// Why an arm cannot be played, or gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The scenario is for another service.
    #[error("the scenario's [live] is on another service")]
    OtherService,
    /// The engine does not take its policies.
    #[error(transparent)]
    Arm(#[from] ArmError),
    /// The service has nothing of the kind.
    #[error("arm \"{arm}\": the mail service cannot do {what}")]
    CannotDo {
        /// The arm.
        arm: String,
        /// What it asks for.
        what: String,
    },
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
    /// Sentries before the same servers do not hear of each other.
    #[error("the sentries do not hear of each other")]
    NotHeard,
    /// The sentry does not take what it was started with: a bug.
    #[error("the sentry does not reload: {0}")]
    Reload(#[from] tidegate_sentry::ReloadError),
    /// Clients do not find the sentries.
    #[error("clients do not find the sentries by name: {0}")]
    Names(String),
    /// The data server does not start.
    #[error(transparent)]
    DataServer(#[from] DataServerError),
    /// The data server cannot be probed.
    #[error("cannot ask memcached: {0}")]
    Probe(std::io::Error),
    /// The mail service does not start.
    #[error(transparent)]
    Mail(#[from] MailProgramError),
    /// A program does not start.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A configuration cannot be written: a bug.
    #[error("cannot write a configuration: {0}")]
    Text(#[from] toml::ser::Error),
    /// The same for what is written as JSON: a bug.
    #[error("cannot write what a server is: {0}")]
    Json(#[from] serde_json::Error),
    /// What namespaces need.
    #[error(transparent)]
    Namespaces(#[from] NamespacesError),
    /// Not enough ports in a row are free.
    #[error("no {0} ports in a row are free")]
    Ports(usize),
    /// Something is not there in time.
    #[error("{what} within {within} s; see the logs in {folder}")]
    Late {
        /// What is waited for.
        what: &'static str,
        /// How long, seconds.
        within: u64,
        /// Where the logs are.
        folder: String,
    },
    /// The users make no sense.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// The load cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The load cannot be sent.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Keys that are in use, of those that a service cannot follow.
#[derive(Debug, Default)]
struct Beyond(Vec<String>);

impl Beyond {
    fn add(&mut self, used: bool, key: &str) {
        if used {
            self.0.push(key.to_owned());
        }
    }

    /// Only the simulator has models of these.
    fn add_models(&mut self, scenario: &Scenario) {
        let loads = || scenario.loads.iter();
        self.add(loads().any(|load| load.sends.is_some()), "load.sends");
        self.add(loads().any(|load| load.reads.is_some()), "load.reads");
        self.add(!scenario.holds_bodies, "holds_bodies");
        self.add(scenario.link.is_some(), "link");
        // Where processors of sentries are measured, what the file says of them is a model.
        let measured = matches!(scenario.on(), On::Control(control) if control.sentry_full.is_some());
        self.add(scenario.sentry.is_some() && !measured, "sentry");
        self.add(scenario.reports.is_some(), "reports");
        self.add(!scenario.faults.is_empty(), "fault");
        self.add(scenario.provision.is_some() && !matches!(scenario.on(), On::Control(_)), "provision");
    }

    /// What the load generator's clients say with their requests, where it is not the one to send them.
    fn add_told(&mut self, scenario: &Scenario) {
        let loads = || scenario.loads.iter();
        self.add(loads().any(|load| load.tenants.is_some()), "load.tenants");
        self.add(loads().any(|load| load.deadline.is_some()), "load.deadline");
        self.add(loads().any(|load| load.retry.is_some_and(|retry| retry.says)), "load.retry.says");
    }

    /// Emulated servers have no models of these.
    fn add_servers(&mut self, scenario: &Scenario) {
        let servers = &scenario.servers;
        self.add(servers.limit.is_some(), "servers.limit");
        self.add(servers.backlog.is_some(), "servers.backlog");
        self.add(servers.knee.is_some(), "servers.knee");
        self.add(servers.resources.iter().any(Resource::is_pool), "servers.resource.tokens");
        self.add(servers.power.is_some(), "servers.power");
        self.add(servers.off > 0, "servers.off");
        self.add(servers.warm_up.is_some(), "servers.warm_up");
    }

    /// The load generator's streams do not know these.
    fn add_clients(&mut self, scenario: &Scenario) {
        self.add(!scenario.users.is_empty(), "users");
        self.add(scenario.expects.iter().any(|expect| expect.request.is_some()), "expect.request");
    }

    /// Only emulated servers have these.
    fn add_emulated(&mut self, scenario: &Scenario) {
        self.add(scenario.requests.iter().any(|request| request.lasts.is_some()), "request.lasts");
        self.add(scenario.servers.abandoned != Abandoned::default(), "servers.abandoned");
        let at_work = |expect: &crate::scenario::Expect| expect.metric == crate::scenario::Metric::AtWorkMost;
        self.add(scenario.expects.iter().any(at_work), "expect.metric = at_work_most");
    }

    fn add_tiers(&mut self, scenario: &Scenario) {
        self.add(!scenario.tiers.is_empty(), "tier");
        let calls = |request: &crate::scenario::Request| request.steps.iter().any(|step| step.tier.is_some());
        self.add(scenario.requests.iter().any(calls), "request.step.tier");
    }
}
