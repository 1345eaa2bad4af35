//! The live arm of a scenario against the mail service: the program itself, with its database, and users over HTTP.
//!
//! *Intuition.* What the scenario says of servers and tiers is a model of this service; here is the service. Users,
//! their transitions, the spike, the arms and what must come of it are those of the file.
//!
//! *Applied.* Each request type is the HTTP request of the same name in `apps/mail/users.toml`. An arm's
//! `admission` becomes options of the program: the policies `aimd` (also `single`, without classes, and with a
//! quality), `none`, and `concurrency` as a limit of connections, each used for one request, whose clients give up
//! after `queue_timeout`.
//!
//! *Awkward cases.* What users delete or move is gone from their inboxes, so every arm begins with new mail. A service
//! that is hardly loaded passes checks for the wrong reason: see in the figure whether rates moved.

mod program;
mod settings;
mod watch;

use std::time::Duration;

use tidegate_config::ConfigErrors;
use tidegate_loadgen::{LoadRun, Progress, UsersError, UsersFile, UsersPlan, UsersReport};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::emulated::course;
use super::{Beyond, Ending, Lab, Running, Service, ServiceError};
use crate::outcome::{Control, Outcome, StreamOutcome};
use crate::scenario::{Arm, Metric, On, Scenario};

pub use program::MailProgramError;
use program::Program;
use settings::Settings;
use watch::Watcher;

/// The mail service, a program of its own, and its users.
#[derive(Debug)]
pub(super) struct MailService;

impl Service for MailService {
    fn cannot_do(&self, scenario: &Scenario) -> Vec<String> {
        let mut beyond = Beyond::default();
        // The service is real: what the file says of servers, tiers and service times is a model of it.
        beyond.add(!scenario.loads.is_empty(), "load");
        let inside = |metric: Metric| metric.is_of_partition() || metric.is_of_resource() || metric == Metric::InFlight;
        beyond.add(scenario.expects.iter().any(|expect| inside(expect.metric)), "expect.metric");
        beyond.add_emulated(scenario);
        beyond.add_models(scenario);
        beyond.add_told(scenario);
        beyond.0
    }

    /// Blocks until the mail is made.
    fn start(&self, scenario: &Scenario, arm: &Arm, seed: u64, lab: &Lab) -> Result<Box<dyn Running>, ServiceError> {
        let On::Mail(mail) = scenario.on() else { return Err(ServiceError::OtherService) };
        let settings = Settings::of(scenario, arm)?;
        let users = users(scenario, mail.accounts, settings.patience)?;
        let program = Program::start(&lab.mail, &lab.folder, &mail, &settings, seed)?;
        let mut plan = UsersPlan::new(users, &format!("http://{}", program.address()), scenario.duration)?;
        plan.seed = seed;
        plan.target = Some(scenario.target(0.0));
        plan.keep_alive = settings.keep_alive;
        let watcher = settings.is_controlled.then(|| Watcher::new(scenario, program.address()));
        let load = LoadRun::start_users(plan)?;
        Ok(Box::new(Run { load, program, watcher, scenario: scenario.clone() }))
    }
}

#[derive(Debug)]
struct Run {
    load: LoadRun<UsersReport>,
    // The order matters: users go first, then the service.
    program: Program,
    watcher: Option<Watcher>,
    scenario: Scenario,
}

impl Running for Run {
    fn progress(&self) -> Receiver<Progress> {
        self.load.progress()
    }

    /// Looks at the controllers every second meanwhile.
    fn wait(self: Box<Self>) -> Ending {
        Box::pin(self.finish())
    }
}

impl Run {
    async fn finish(mut self: Box<Self>) -> Result<Outcome, ServiceError> {
        let (start, mut controls) = (Instant::now(), Vec::new());
        let mut seconds = interval_at(start + SECOND, SECOND);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut done = std::pin::pin!(self.load.wait());
        let report = loop {
            tokio::select! {
                report = &mut done => break report?,
                _ = seconds.tick() => {
                    let second = start.elapsed().as_secs();
                    let goes_on = second <= self.scenario.duration.as_secs();
                    if let Some(watcher) = self.watcher.as_mut().filter(|_| goes_on) {
                        controls.extend(watcher.look(second).await);
                    }
                }
            }
        };
        let end = self.program.stop();
        Ok(outcome(&self.scenario, &report, controls, end))
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// The HTTP request of each request type.
const REQUESTS: &str = include_str!("../../../../apps/mail/users.toml");

/// The scenario's users as the load generator has them.
fn users(scenario: &Scenario, accounts: u32, patience: Duration) -> Result<UsersFile, UsersError> {
    let wrong = |error: &dyn std::fmt::Display| ConfigErrors::whole(&scenario.id, error.to_string());
    let mut file: toml::Table = toml::from_str(REQUESTS).map_err(|error| wrong(&error))?;
    let (mut groups, mut active) = (Vec::new(), Vec::new());
    for group in &scenario.users {
        // A class is known to the service by its rank.
        let class = scenario.class_index(&group.class).unwrap_or_default() + 1;
        let mut alike = group.clone();
        alike.name = Some(group.label().to_owned());
        alike.class = class.to_string();
        groups.push(toml::Value::try_from(&alike).map_err(|error| wrong(&error))?);
        let mut from = |at: Duration, count: u32| {
            let mut change = toml::Table::new();
            change.insert("users".to_owned(), group.label().into());
            change.insert("at".to_owned(), at.as_secs_f64().into());
            change.insert("count".to_owned(), i64::from(count).into());
            active.push(toml::Value::Table(change));
        };
        from(group.from, group.count);
        group.until.into_iter().for_each(|until| from(until, 0));
    }
    file.insert("users".to_owned(), groups.into());
    file.insert("active".to_owned(), active.into());
    file.insert("timeout".to_owned(), patience.as_secs_f64().into());
    let text = file.to_string().replace("{user%16}", &format!("{{user%{accounts}}}"));
    UsersFile::parse(&text, &scenario.id)
}

fn outcome(scenario: &Scenario, report: &UsersReport, controls: Vec<Control>, note: Option<String>) -> Outcome {
    let stream = |users: &tidegate_workload::Users| StreamOutcome {
        name: users.label().to_owned(),
        class: users.class.clone(),
        course: report
            .groups
            .iter()
            .find(|group| group.class == users.label())
            .map_or_else(Default::default, |group| course(scenario, group, 0)),
    };
    let types = scenario.requests.iter().map(|request| {
        let found = report.request(&request.name);
        (request.name.clone(), found.map(|found| course(scenario, found, 0)).unwrap_or_default())
    });
    Outcome {
        streams: scenario.users.iter().map(stream).collect(),
        types: types.collect(),
        controls,
        warnings: report.warnings.clone(),
        notes: note.into_iter().map(|note| (report.sent_for, note)).collect(),
        ..Outcome::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_a_scenario_become_users_of_the_service() {
        let scenario = Scenario::parse(include_str!("../../../../scenarios/w7.toml"), "w7.toml").unwrap();
        let file = users(&scenario, 5, Duration::from_secs(7)).unwrap();
        let groups: Vec<_> = file.users.iter().map(|group| (group.label(), &group.class[..], group.count)).collect();
        assert_eq!(groups, [("low", "2", 128), ("high", "1", 128)]);
        let changes: Vec<_> = file.active.iter().map(|change| (&change.users[..], change.at.0, change.count)).collect();
        assert_eq!(changes, [("low", 0.0, 128), ("high", 100.0, 128), ("high", 400.0, 0)]);
        assert_eq!(file.timeout(), Duration::from_secs(7));
        assert!(file.requests.iter().any(|request| request.form.values().any(|text| text == "user{user%5}")));
    }
}
