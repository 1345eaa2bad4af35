//! The live form of a scenario: what differs with real HTTP, and what only the simulator can do.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::Table;

use super::error::Found;
use super::error::Step::Key;
use super::{Metric, Resource, Scenario, ScenarioError};
use crate::service::ServiceTime;
use crate::text::Rate;

/// What differs when a scenario is run with real HTTP: the machine is another, and time is real.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Live {
    /// What every instant is multiplied by, more than 0 and at most 1.
    #[serde(default = "as_it_is")]
    pub time_scale: f64,
    /// How fast everything is: rates are multiplied by it; service times, targets, time-outs and what is expected of
    /// times and rates follow, so that as much is in flight. What policies are set to stays. More than 0 and at most 1.
    #[serde(default = "as_it_is")]
    pub pace: f64,
    /// The arms in which every server has a nucleus, whose reports the sentry hears.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nuclei: Vec<String>,
    /// Whether the server is a real Apache with PHP instead of an emulated one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apache: bool,
    /// The arms that are run; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arms: Vec<String>,
    /// Values in place of the file's, by the way to them, as in a sweep. Set before time is scaled.
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    pub set: Table,
    /// In place of the file's sweep.
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    pub sweep: Table,
    /// The mail service and its users, in place of the sentry and emulated servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mail: Option<Mail>,
    /// A real data server that lends: memcached, and the application's software on the same cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stealing: Option<Stealing>,
    /// A control plane, whose servers and sentries come and go, each a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
}

/// The control plane of a live run. `provision`, `application` and `servers` of the file are its settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Control {
    /// The rate that keeps a sentry's processor busy, for the settings and checks: what its processor really does at
    /// that rate is measured before the run, and counts as 1. Absent: its processor's time counts as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentry_full: Option<Rate>,
}

/// The data tier of a live run of stealing. The tier and the `step`s of requests are its model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stealing {
    /// Threads of memcached.
    pub threads: u32,
    /// Keys in it.
    pub keys: u32,
    /// Bytes of each value.
    pub value_bytes: u32,
    /// Look-ups of each request, one after the other.
    pub look_ups: u32,
    /// The class whose requests go to memcached itself, one look-up each: they show how it fares.
    pub probe: String,
}

/// The mail service of a live run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mail {
    /// Its database.
    pub database: MailDatabase,
    /// Accounts; users share them in turn.
    pub accounts: u32,
    /// Messages in the largest inbox.
    pub largest: u32,
    /// Messages in the smallest.
    pub smallest: u32,
    /// Tail index of the inboxes' sizes: the smaller, the more large ones.
    pub tail: f64,
    /// Mean length of a message's text.
    pub text_bytes: u32,
    /// Connections to the database.
    pub connections: u32,
    /// Workers of each stage that asks it; as many as connections when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Looks at each point of a picture: what drawing one costs.
    pub render_samples: u32,
    /// Processors that the service and its database share; all when absent, or where there are no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processors: Option<u32>,
}

/// Where the mail is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MailDatabase {
    /// A MariaDB of its own.
    #[default]
    Mariadb,
    /// A file.
    Sqlite,
}

/// Where an expectation holds when not everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Only {
    /// In the simulator.
    Simulated,
    /// With real HTTP.
    Live,
}

impl Default for Stealing {
    fn default() -> Stealing {
        Stealing { threads: 2, keys: 10_000, value_bytes: 100, look_ups: 100, probe: "look-ups".to_owned() }
    }
}

impl Default for Mail {
    fn default() -> Mail {
        Mail {
            database: MailDatabase::Mariadb,
            accounts: 16,
            largest: 12_794,
            smallest: 1,
            tail: 0.5,
            text_bytes: 2_000,
            connections: 8,
            workers: None,
            render_samples: 16,
            processors: None,
        }
    }
}

impl Scenario {
    /// The scenario for the simulator: without what is expected of live runs only.
    pub fn for_simulation(&self) -> Scenario {
        let mut scenario = self.clone();
        scenario.expects.retain(|expect| expect.only != Some(Only::Live));
        scenario
    }

    /// The scenario for real HTTP, as its `[live]` table has it.
    ///
    /// # Errors
    /// When a value of `set` makes no sense.
    pub fn for_live(&self) -> Result<Scenario, ScenarioError> {
        let live = self.live.clone().unwrap_or_default();
        let mut scenario = self.with(&live.set)?;
        scenario.expects.retain(|expect| expect.only != Some(Only::Simulated));
        scenario.scale_time(live.time_scale);
        scenario.slow_down(live.pace);
        scenario.keep_arms(&live.arms);
        if !live.sweep.is_empty() {
            scenario.sweep = live.sweep;
        }
        Ok(scenario)
    }

    /// Whether every server of a live run of an arm has a nucleus.
    pub fn has_nuclei(&self, arm: &str) -> bool {
        self.live.as_ref().is_some_and(|live| live.nuclei.iter().any(|name| name == arm))
    }

    /// Whether the server of a live run is an Apache.
    pub fn has_apache(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.apache)
    }

    /// The mail service that a live run needs, if it needs it.
    pub fn mail(&self) -> Option<&Mail> {
        self.live.as_ref()?.mail.as_ref()
    }

    /// The data tier of a live run of stealing, if it is one.
    pub fn stealing(&self) -> Option<&Stealing> {
        self.live.as_ref()?.stealing.as_ref()
    }

    /// The control plane of a live run, if it needs one.
    pub fn control(&self) -> Option<&Control> {
        self.live.as_ref()?.control.as_ref()
    }

    /// The keys that the live arm cannot follow: empty where a scenario can be run with real HTTP. The live arm must
    /// refuse a scenario that has any, rather than run another experiment than the file describes.
    pub fn simulator_only(&self) -> Vec<String> {
        let mut keys = Vec::new();
        let mut add = |used: bool, key: &str| {
            if used {
                keys.push(key.to_owned());
            }
        };
        if self.mail().is_some() {
            // The service is real: what the file says of servers, tiers and service times is a model of it.
            add(!self.loads.is_empty(), "load");
        } else {
            let servers = &self.servers;
            add(servers.limit.is_some(), "servers.limit");
            add(servers.backlog.is_some(), "servers.backlog");
            add(servers.knee.is_some(), "servers.knee");
            add(servers.resources.iter().any(Resource::is_pool), "servers.resource.tokens");
            add(servers.power.is_some(), "servers.power");
            add(servers.off > 0, "servers.off");
            add(servers.warm_up.is_some(), "servers.warm_up");
            // Where the data tier is real, what the file says of it is a model.
            let is_model = self.stealing().is_some();
            add(!self.tiers.is_empty() && !is_model, "tier");
            let calls = |request: &super::Request| request.steps.iter().any(|step| step.tier.is_some());
            add(self.requests.iter().any(calls) && !is_model, "request.step.tier");
            add(self.loads.iter().any(|load| load.retry.is_some()), "load.retry");
            add(!self.users.is_empty(), "users");
            add(self.expects.iter().any(|expect| expect.request.is_some()), "expect.request");
        }
        if self.control().is_some() {
            add(!self.sessions.is_empty(), "sessions");
        }
        if self.has_apache() {
            add(self.servers.count > 1, "servers.count");
            add(!self.servers.resources.is_empty(), "servers.resource");
            add(self.requests.iter().any(|request| !request.steps.is_empty()), "request.step");
            add(self.requests.iter().any(|request| request.degrades_to < 1.0), "request.degrades_to");
            add(!self.sessions.is_empty(), "sessions");
        }
        let inside = |metric: Metric| metric.is_of_partition() || metric.is_of_resource() || metric == Metric::InFlight;
        let with_mail = self.mail().is_some() && self.expects.iter().any(|expect| inside(expect.metric));
        add(with_mail, "expect.metric");
        add(self.link.is_some(), "link");
        // Where processors of sentries are measured, what the file says of them is a model.
        add(self.sentry.is_some() && self.control().is_none_or(|control| control.sentry_full.is_none()), "sentry");
        add(self.reports.is_some(), "reports");
        add(!self.faults.is_empty(), "fault");
        add(self.provision.is_some() && self.control().is_none(), "provision");
        keys
    }
}

/// What is wrong with the `[live]` table.
pub(super) fn problems(scenario: &Scenario) -> Vec<Found> {
    let Some(live) = &scenario.live else { return Vec::new() };
    let mut found = Vec::new();
    let mut demand = |good: bool, key: &'static str, problem: &str| {
        if !good {
            found.push(Found { place: vec![Key("live"), Key(key)], problem: problem.to_owned() });
        }
    };
    demand(live.time_scale > 0.0 && live.time_scale <= 1.0, "time_scale", "must be more than 0 and at most 1");
    demand(live.pace > 0.0 && live.pace <= 1.0, "pace", "must be more than 0 and at most 1");
    let slowed = live.pace < 1.0;
    demand(!(slowed && live.mail.is_some()), "pace", "is not for the mail service, which is as fast as it is");
    let no_sentry = live.mail.is_some();
    demand(live.nuclei.is_empty() || !no_sentry, "nuclei", "are not for the mail service: there is no sentry");
    demand(!(live.apache && no_sentry), "apache", "does not go together with `mail`: there is one service");
    for (key, arms) in [("arms", &live.arms), ("nuclei", &live.nuclei)] {
        for arm in arms {
            let known = scenario.arms.iter().any(|other| other.name == *arm);
            demand(known, key, &format!("there is no arm \"{arm}\""));
        }
    }
    if let Some(mail) = &live.mail {
        let good = mail.accounts > 0 && mail.smallest > 0 && mail.tail > 0.0 && mail.text_bytes > 0;
        demand(good, "mail", "its `accounts`, `smallest`, `tail` and `text_bytes` must be more than 0");
        demand(mail.smallest <= mail.largest, "mail", "its `smallest` must be at most its `largest`");
        demand(mail.processors != Some(0), "mail", "its `processors` must be at least 1");
        let good = (1..=1000).contains(&mail.connections) && (1..=10_000).contains(&mail.render_samples);
        demand(mail.workers.is_none_or(|n| (1..=1000).contains(&n)), "mail", "its `workers` must be 1 to 1000");
        demand(good, "mail", "`connections` must be 1 to 1000, `render_samples` 1 to 10000");
    }
    if let Some(stealing) = &live.stealing {
        let good = stealing.threads > 0 && stealing.keys > 0 && stealing.value_bytes > 0 && stealing.look_ups > 0;
        demand(good, "stealing", "its `threads`, `keys`, `value_bytes` and `look_ups` must be more than 0");
        let lenders = scenario.tiers.iter().filter(|tier| tier.lends.is_some()).map(|tier| tier.count).sum::<usize>();
        demand(lenders == 1, "stealing", "needs a tier of one server that `lends`");
        let known = scenario.classes.iter().any(|class| class.name == stealing.probe);
        demand(known, "stealing", "its `probe` must be a class");
        demand(live.mail.is_none(), "stealing", "does not go with `mail`");
    }
    if let Some(control) = &live.control {
        demand(scenario.provision.is_some(), "control", "is for a scenario with `provision`");
        let alone = live.mail.is_none() && live.stealing.is_none() && !live.apache && live.nuclei.is_empty();
        demand(alone, "control", "does not go with `mail`, `stealing`, `apache` or `nuclei`");
        let good = control.sentry_full.is_none_or(|rate| rate.per_second() > 0.0);
        demand(good, "control", "its `sentry_full` must be more than 0");
    }
    if found.is_empty() {
        let tried = scenario.for_live().and_then(|live| live.points().map(drop));
        if let Err(error) = tried {
            let problem = error.problems.first().map_or(String::new(), |p| format!("{} {}", p.key, p.message));
            found.push(Found { place: vec![Key("live")], problem: problem.trim().to_owned() });
        }
    }
    found
}

impl Default for Live {
    fn default() -> Live {
        Live {
            time_scale: as_it_is(),
            pace: as_it_is(),
            nuclei: Vec::new(),
            apache: false,
            arms: Vec::new(),
            set: Table::new(),
            sweep: Table::new(),
            mail: None,
            stealing: None,
            control: None,
        }
    }
}

impl Scenario {
    /// Makes everything slower in proportion: as much is in flight, and less happens in a second. The time axis stays.
    fn slow_down(&mut self, pace: f64) {
        if pace == 1.0 {
            return;
        }
        let longer = |time: &mut Duration| *time = time.div_f64(pace);
        longer(&mut self.timeout);
        self.sla.target.iter_mut().chain(self.sla.steps.iter_mut().map(|step| &mut step.target)).for_each(longer);
        let slower = |time: &mut ServiceTime| *time = time.scaled(1.0 / pace);
        for request in &mut self.requests {
            slower(&mut request.service);
            request.steps.iter_mut().for_each(|step| slower(&mut step.amount));
        }
        for step in &mut self.sla.steps {
            step.below = step.below.and_then(|below| Rate::new(below.per_second() * pace));
        }
        for class in &mut self.classes {
            class.min_rate = Rate::new(class.min_rate.per_second() * pace).unwrap_or(class.min_rate);
        }
        self.loads.iter_mut().for_each(|load| load.rate = load.rate.scale_rate(pace));
        for sessions in &mut self.sessions {
            sessions.rate = sessions.rate.scale_rate(pace);
            longer(&mut sessions.per_object);
            longer(&mut sessions.per_kib);
        }
        let factor = |metric: Metric| match metric {
            metric if metric.is_time() => 1.0 / pace,
            metric if metric.is_rate() => pace,
            _ => 1.0,
        };
        for panel in self.curves.iter_mut().flat_map(|curves| &mut curves.panels) {
            let factor = factor(panel.metric);
            panel.bound.iter_mut().chain(&mut panel.top).for_each(|value| *value *= factor);
        }
        for expect in &mut self.expects {
            let factor = factor(expect.metric);
            expect.at_least = expect.at_least.map(|bound| bound * factor);
            expect.at_most = expect.at_most.map(|bound| bound * factor);
            expect.tolerance *= factor;
        }
    }
}

impl Resource {
    /// Whether it is held rather than used up: a pool of tokens.
    pub fn is_pool(&self) -> bool {
        self.tokens.is_some()
    }
}

fn as_it_is() -> f64 {
    1.0
}

#[cfg(test)]
mod tests;
