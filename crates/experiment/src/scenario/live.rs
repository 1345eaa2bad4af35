//! The live form of a scenario: what it is run on, and what differs with real HTTP.

mod mail;
mod namespaces;
mod spoken;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_config::Step::Key;
use tidegate_config::{ConfigErrors, Found};
use tidegate_loadgen::Protocol;
use tidegate_workload::{Rate, ServiceTime};
use toml::Table;

use super::{Metric, Resource, Scenario};

pub use mail::{Mail, MailDatabase};
pub use namespaces::Namespaces;
pub use spoken::{ServerProtocol, Spoken};

/// What differs when a scenario is run with real HTTP: the machine is another, and time is real.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Typed", into = "Typed")]
pub struct Live {
    /// What it is run on, with that service's settings.
    pub on: On,
    /// What clients, sentry and servers speak with each other.
    pub spoken: Spoken,
    /// What every instant is multiplied by, more than 0 and at most 1.
    pub time_scale: f64,
    /// How fast everything is: rates are multiplied by it; service times, targets, time-outs and what is expected of
    /// times and rates follow, so that as much is in flight. What policies are set to stays. More than 0 and at most 1.
    pub pace: f64,
    /// The arms that are run; all when empty.
    pub arms: Vec<String>,
    /// Values in place of the file's, by the way to them, as in a sweep. Set before time is scaled.
    pub set: Table,
    /// In place of the file's sweep.
    pub sweep: Table,
}

/// What a live run is run on.
#[derive(Debug, Clone, PartialEq)]
pub enum On {
    /// Emulated servers behind a real sentry.
    Emulated {
        /// The arms in which every server has a nucleus, whose reports the sentry hears.
        nuclei: Vec<String>,
    },
    /// A real Apache with PHP behind a real sentry.
    Apache {
        /// The arms in which it has a nucleus.
        nuclei: Vec<String>,
    },
    /// The mail service and its users.
    Mail(Mail),
    /// A real data server that lends: memcached, and the application's software on the same cores.
    Stealing(Stealing),
    /// A control plane, whose servers and sentries come and go, each a process.
    Control(Control),
    /// Apache with files and CGI scripts, behind a sentry whose kernel turns connections away, in network namespaces.
    Namespaces(Namespaces),
}

/// The table as it is typed: `on` names the service, and only that service's keys may be there.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Typed {
    #[serde(default)]
    on: Name,
    #[serde(default, skip_serializing_if = "is_usual")]
    protocol: Protocol,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server_protocol: Option<ServerProtocol>,
    #[serde(default = "as_it_is")]
    time_scale: f64,
    #[serde(default = "as_it_is")]
    pace: f64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    arms: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    nuclei: Vec<String>,
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    set: Table,
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    sweep: Table,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mail: Option<Mail>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stealing: Option<Stealing>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    control: Option<Control>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespaces: Option<Namespaces>,
}

/// A service's name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Name {
    #[default]
    Emulated,
    Apache,
    Mail,
    Stealing,
    Control,
    Namespaces,
}

impl TryFrom<Typed> for Live {
    type Error = String;

    fn try_from(typed: Typed) -> Result<Live, String> {
        let Typed { on, protocol, server_protocol, time_scale, pace, arms, nuclei, set, sweep, .. } = typed;
        let Typed { mail, stealing, control, namespaces, .. } = typed;
        let of_others = [
            ("nuclei", !nuclei.is_empty(), &[Name::Emulated, Name::Apache][..], "\"emulated\" or \"apache\""),
            ("mail", mail.is_some(), &[Name::Mail], "\"mail\""),
            ("stealing", stealing.is_some(), &[Name::Stealing], "\"stealing\""),
            ("control", control.is_some(), &[Name::Control], "\"control\""),
            ("namespaces", namespaces.is_some(), &[Name::Namespaces], "\"namespaces\""),
        ];
        if let Some((key, .., of)) = of_others.iter().find(|(_, given, of, _)| *given && !of.contains(&on)) {
            return Err(format!("`{key}` is only for on = {of}"));
        }
        let on = match on {
            Name::Emulated => On::Emulated { nuclei },
            Name::Apache => On::Apache { nuclei },
            Name::Mail => On::Mail(mail.unwrap_or_default()),
            Name::Stealing => On::Stealing(stealing.unwrap_or_default()),
            Name::Control => On::Control(control.unwrap_or_default()),
            Name::Namespaces => On::Namespaces(namespaces.unwrap_or_default()),
        };
        Ok(Live { on, spoken: Spoken { protocol, server_protocol }, time_scale, pace, arms, set, sweep })
    }
}

impl From<Live> for Typed {
    fn from(live: Live) -> Typed {
        let Live { on, spoken: Spoken { protocol, server_protocol }, time_scale, pace, arms, set, sweep } = live;
        let mut typed = Typed {
            on: Name::Emulated,
            protocol,
            server_protocol,
            time_scale,
            pace,
            arms,
            nuclei: Vec::new(),
            set,
            sweep,
            mail: None,
            stealing: None,
            control: None,
            namespaces: None,
        };
        match on {
            On::Emulated { nuclei } => typed.nuclei = nuclei,
            On::Apache { nuclei } => (typed.on, typed.nuclei) = (Name::Apache, nuclei),
            On::Mail(mail) => (typed.on, typed.mail) = (Name::Mail, Some(mail)),
            On::Stealing(stealing) => (typed.on, typed.stealing) = (Name::Stealing, Some(stealing)),
            On::Control(control) => (typed.on, typed.control) = (Name::Control, Some(control)),
            On::Namespaces(own) => (typed.on, typed.namespaces) = (Name::Namespaces, Some(own)),
        }
        typed
    }
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
    pub fn for_live(&self) -> Result<Scenario, ConfigErrors> {
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

    /// What is spoken in a live run.
    pub fn spoken(&self) -> Spoken {
        self.live.as_ref().map(|live| live.spoken).unwrap_or_default()
    }

    /// What a live run is run on.
    pub fn on(&self) -> On {
        self.live.as_ref().map_or_else(On::default, |live| live.on.clone())
    }
}

impl On {
    /// Whether every server has a nucleus in this arm.
    pub fn has_nuclei(&self, arm: &str) -> bool {
        match self {
            On::Emulated { nuclei } | On::Apache { nuclei } => nuclei.iter().any(|name| name == arm),
            On::Mail(_) | On::Stealing(_) | On::Control(_) | On::Namespaces(_) => false,
        }
    }

    /// The arms that it names.
    fn arms(&self) -> &[String] {
        match self {
            On::Emulated { nuclei } | On::Apache { nuclei } => nuclei,
            On::Mail(_) | On::Stealing(_) | On::Control(_) | On::Namespaces(_) => &[],
        }
    }
}

impl Default for On {
    fn default() -> On {
        On::Emulated { nuclei: Vec::new() }
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
    live.spoken.problems(&live.on).into_iter().for_each(|(key, problem)| demand(false, key, problem));
    for (key, arms) in [("arms", &live.arms[..]), ("nuclei", live.on.arms())] {
        for arm in arms {
            let known = scenario.arms.iter().any(|other| other.name == *arm);
            demand(known, key, &format!("there is no arm \"{arm}\""));
        }
    }
    match &live.on {
        On::Emulated { .. } | On::Apache { .. } => {}
        On::Mail(mail) => {
            demand(live.pace == 1.0, "pace", "is not for the mail service, which is as fast as it is");
            mail.problems().into_iter().for_each(|problem| demand(false, "mail", problem));
        }
        On::Stealing(stealing) => {
            stealing.problems(scenario).into_iter().for_each(|problem| demand(false, "stealing", problem));
        }
        On::Control(control) => {
            demand(scenario.provision.is_some(), "control", "is for a scenario with `provision`");
            let good = control.sentry_full.is_none_or(|rate| rate.per_second() > 0.0);
            demand(good, "control", "its `sentry_full` must be more than 0");
        }
        On::Namespaces(namespaces) => {
            demand(live.pace == 1.0, "pace", "is not for the service in namespaces, which is as fast as it is");
            namespaces.problems(scenario).into_iter().for_each(|problem| demand(false, "namespaces", problem));
        }
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

impl Stealing {
    fn problems(&self, scenario: &Scenario) -> Vec<&'static str> {
        let amounts = self.threads > 0 && self.keys > 0 && self.value_bytes > 0 && self.look_ups > 0;
        let lenders = scenario.tiers.iter().filter(|tier| tier.lends.is_some()).map(|tier| tier.count).sum::<usize>();
        let demands = [
            (amounts, "its `threads`, `keys`, `value_bytes` and `look_ups` must be more than 0"),
            (lenders == 1, "needs a tier of one server that `lends`"),
            (scenario.class_index(&self.probe).is_some(), "its `probe` must be a class"),
        ];
        demands.into_iter().filter(|(holds, _)| !holds).map(|(_, problem)| problem).collect()
    }
}

impl Default for Live {
    fn default() -> Live {
        Live {
            on: On::default(),
            spoken: Spoken::default(),
            time_scale: as_it_is(),
            pace: as_it_is(),
            arms: Vec::new(),
            set: Table::new(),
            sweep: Table::new(),
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
            request.lasts.iter_mut().for_each(|lasts| slower(&mut lasts.time));
        }
        for load in &mut self.loads {
            load.patience.iter_mut().for_each(longer);
            load.sends.iter_mut().chain(&mut load.reads).for_each(slower);
            load.retry.iter_mut().filter_map(|retry| retry.time.as_mut()).for_each(slower);
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
            // A multiple is the same at every pace.
            let factor = if expect.is_ratio() { 1.0 } else { factor(expect.metric) };
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_usual(protocol: &Protocol) -> bool {
    *protocol == Protocol::default()
}

fn as_it_is() -> f64 {
    1.0
}

#[cfg(test)]
mod tests;
