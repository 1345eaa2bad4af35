//! Scenario files: an experiment as data.
//!
//! A scenario says which servers there are, what arrives over time, which policies are compared (its *arms*), and what
//! must come of it (its *expectations*). The simulator and the live arm run the same file. A policy is kept here as the
//! table that stands in the file: what its keys mean is for the engine to say.
//!
//! ```
//! use tidegate_experiment::scenario::Scenario;
//!
//! let text = r#"
//!     id = "rush"
//!     title = "Three minutes of too much"
//!     duration = "3min"
//!     [sla]
//!     target = "500ms"
//!     [servers]
//!     count = 2
//!     [[class]]
//!     name = "everyone"
//!     [[request]]
//!     name = "page"
//!     service = { distribution = "exponential", mean = "20ms" }
//!     [[load]]
//!     class = "everyone"
//!     requests = { page = 1 }
//!     rate = "0s:50/s, 1min:300/s, 2min:50/s"
//!     [[arm]]
//!     name = "sentry"
//!     admission = { policy = "sentry" }
//!     [[expect]]
//!     metric = "p95"
//!     over = "60s..120s"
//!     at_most = 0.5
//! "#;
//! let scenario = Scenario::parse(text, "rush.toml")?;
//! assert_eq!(scenario.arms[0].expectations(&scenario).count(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arms;
mod check;
mod check_clients;
mod check_machines;
mod check_max_conn;
mod claims;
mod cooperation;
mod curves;
mod expect;
mod fleet;
mod lasts;
mod live;
mod machines;
mod max_conn;
mod provision;
mod short;
mod sla;
mod space;
mod sweep;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_config::ConfigErrors;
use tidegate_engine::Cancel;
use tidegate_sim::{Channel, Link, SentryModel};
use tidegate_workload::{ArrivalProcess, Profile, Rate, Retry, ServiceTime, Sessions, Tenants, Users, time};

pub use claims::{Mark, unsaid};
pub use cooperation::Cooperation;
pub use curves::{Curves, Panel};
pub use expect::{Expect, Metric, Span};
pub use fleet::Fleet;
pub use lasts::{Lasts, LastsAs};
pub use live::{Control, Live, Mail, MailDatabase, Namespaces, On, Only, ServerProtocol, Spoken, Stealing};
pub use machines::{CARD, CORES, Fault, FaultKind, Lends, Resource, Servers, Step as Use, Tier, TierSentry};
pub use max_conn::MaxConn;
pub use provision::{Application, Provision};
pub use short::Short;
pub use sla::{Sla, Step};
pub use space::Space;
pub use sweep::Point;

/// An experiment. Every name that it refers to exists, and every number makes sense: it was checked when it was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its short name, such as `C1`: letters, digits, `-` and `_`.
    pub id: String,
    /// What it is about, in one line.
    pub title: String,
    /// Where it comes from: paper and figure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// How long requests arrive.
    #[serde(with = "time::text")]
    pub duration: Duration,
    /// Seed of all randomness, where the command line gives none.
    #[serde(default = "one")]
    pub seed: u64,
    /// How long a client waits for its answer; a later one counts as failed.
    #[serde(default = "patience", with = "time::text")]
    pub timeout: Duration,
    /// The form that fits into continuous integration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short: Option<Short>,
    /// What differs with real HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<Live>,
    /// The response-time target.
    pub sla: Sla,
    /// The servers.
    pub servers: Servers,
    /// What servers call.
    #[serde(rename = "tier", default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Tier>,
    /// The way to the clients; answers are there at once when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// Whether the sentry holds bodies: takes a request in before it decides, and an answer at its server's pace.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub holds_bodies: bool,
    /// Whether the sentry knows the tenants of loads.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub tells_tenants: bool,
    /// Whether classes have their guaranteed rates.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub guarantees: bool,
    /// The sentry's own CPU; never short when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sentry: Option<SentryModel>,
    /// How many sentries there are; one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<Fleet>,
    /// How measurements reach the engine; at once when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reports: Option<Channel>,
    /// What happens to servers.
    #[serde(rename = "fault", default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// How servers and sentries come and go; they stay as they are when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provision: Option<Provision>,
    /// The applications that share the servers; a single one when empty.
    #[serde(rename = "application", default, skip_serializing_if = "Vec::is_empty")]
    pub applications: Vec<Application>,
    /// The classes, most important first.
    #[serde(rename = "class")]
    pub classes: Vec<Class>,
    /// How many requests a server can have in flight, by kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub max_conn: Vec<MaxConn>,
    /// The request types.
    #[serde(rename = "request")]
    pub requests: Vec<Request>,
    /// What arrives, however it fares.
    #[serde(rename = "load", default)]
    pub loads: Vec<Load>,
    /// Who waits for an answer before asking for more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<Users>,
    /// Web users: sessions of pages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<Sessions>,
    /// The policies that are compared, each in a run of its own.
    #[serde(rename = "arm")]
    pub arms: Vec<Arm>,
    /// What must come of it.
    #[serde(rename = "expect", default)]
    pub expects: Vec<Expect>,
    /// A figure over the load: all arms in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curves: Option<Curves>,
    /// Values that are tried in place of the file's: keys and lists of values. See [`Scenario::points`].
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub sweep: toml::Table,
    /// A figure over the sweep: which jumps of load hold the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<Space>,
}

/// A class of requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Its name; part of its URLs, so letters, digits, `-` and `_`.
    pub name: String,
    /// What one answer within the target is worth.
    #[serde(default = "one_revenue")]
    pub revenue: f64,
    /// Guaranteed rate.
    #[serde(default)]
    pub min_rate: Rate,
    /// The application it is of; the first when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
}

/// A request type: what is asked for, and what it costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Its name; part of its URLs, so letters, digits, `-` and `_`.
    pub name: String,
    /// Inherent service time.
    pub service: ServiceTime,
    /// The resources that it strains: tags for the policy `resource`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Size of the answer's body, bytes.
    #[serde(default)]
    pub response_bytes: u64,
    /// The share of `service` that remains at quality 0; in between in proportion. 1: it cannot be answered cheaper.
    #[serde(default = "one_share", skip_serializing_if = "is_one")]
    pub degrades_to: f64,
    /// How many different URLs of this type there are, each asked for equally often.
    #[serde(default = "one_url")]
    pub urls: u32,
    /// What it does at its server after its time on a core.
    #[serde(rename = "step", default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Use>,
    /// How it is open without being work; it is work and nothing else when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<Lasts>,
}

/// One stream of requests of one class. Results are kept per load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Its name, for results and expectations; the class's name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The class of its requests.
    pub class: String,
    /// What they ask for: request types and their weights.
    pub requests: BTreeMap<String, f64>,
    /// Offered rate over time, in the notation of [`Profile`].
    pub rate: Profile,
    /// How arrivals are spread around it.
    #[serde(default)]
    pub arrivals: ArrivalProcess,
    /// What its clients do when they are not answered; nothing when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// How long they wait before they leave; when absent, those that try again leave after the scenario's `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::optional")]
    pub patience: Option<Duration>,
    /// Whose requests they are; nobody's in particular when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<Tenants>,
    /// How long a client takes to send a request; no time when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sends: Option<ServiceTime>,
    /// How long a client takes to read an answer; no time when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<ServiceTime>,
    /// Whether it stays away: for arms that show what the others would be without it.
    #[serde(default, skip_serializing_if = "is_no")]
    pub absent: bool,
    /// How long its clients wait, which they say with their requests; unsaid when absent. Beside `patience`, the sooner
    /// holds.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::optional")]
    pub deadline: Option<Duration>,
}

/// One of the policies that are compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Its name; letters, digits, `-` and `_`.
    pub name: String,
    /// What it is meant to show, in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The admission policy: `policy` and its settings. The engine's default when absent.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub admission: toml::Table,
    /// The dispatch policy: `policy` and its settings. The engine's default when absent.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub dispatch: toml::Table,
    /// The partition policy: `policy` and its settings. The engine's default when absent.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub partition: toml::Table,
    /// The provisioning policy: `policy` and its settings. The engine's default when absent.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub provision: toml::Table,
    /// What is otherwise in this arm than in the file: by the way to it, as in a sweep. See [`Scenario::for_arm`].
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub set: toml::Table,
    /// What services with sentries tell those that call them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cooperation: Cooperation,
    /// Which requests in flight may be ended: `off` or `runaways`.
    #[serde(default, skip_serializing_if = "is_off")]
    pub cancel: Cancel,
    /// Why nothing is expected of it, where nothing is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unchecked: String,
}

impl Scenario {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Everything that is wrong, with file, line and key.
    pub fn load(path: &Path) -> Result<Scenario, ConfigErrors> {
        Scenario::parse(&tidegate_config::load(path)?, &path.display().to_string())
    }

    /// Reads and checks a text; `source` is the file's name in messages.
    ///
    /// # Errors
    /// Everything that is wrong, with line and key.
    pub fn parse(text: &str, source: &str) -> Result<Scenario, ConfigErrors> {
        let scenario: Scenario = tidegate_config::parse(text, source)?;
        let mut problems = check::problems(&scenario);
        if problems.is_empty() {
            problems = [expect::problems, claims::problems, arms::problems, sweep::problems, live::problems]
                .map(|of| of(&scenario))
                .concat();
        }
        if problems.is_empty() { Ok(scenario) } else { Err(ConfigErrors::of_checks(source, text, problems)) }
    }

    /// The scenario as a file that reads back as the same scenario.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a scenario holds nothing that TOML cannot")
    }

    /// Requests per second that all loads together offer at `at`.
    pub fn offered_at(&self, at: Duration) -> f64 {
        let come = self.loads.iter().filter(|load| !load.absent);
        come.map(|load| load.rate.rate_at(at).per_second()).sum()
    }

    /// How many servers stand behind the sentry: its own, and those of tiers that lend theirs.
    pub fn front_servers(&self) -> usize {
        let lending = self.tiers.iter().filter(|tier| tier.lends.is_some());
        self.servers.count + lending.map(|tier| tier.count).sum::<usize>()
    }

    /// The position of a class, 0 = most important.
    pub fn class_index(&self, name: &str) -> Option<usize> {
        self.classes.iter().position(|class| class.name == name)
    }

    /// The position of a tier.
    pub fn tier_index(&self, name: &str) -> Option<usize> {
        self.tiers.iter().position(|tier| tier.name == name)
    }

    /// The position of a request type.
    pub fn request_index(&self, name: &str) -> Option<usize> {
        self.requests.iter().position(|request| request.name == name)
    }
}

impl Load {
    /// Its name in results.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.class)
    }
}

fn one() -> u64 {
    1
}

fn one_core() -> u32 {
    1
}

fn one_url() -> u32 {
    1
}

fn one_share() -> f64 {
    1.0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_off(cancel: &Cancel) -> bool {
    *cancel == Cancel::Off
}

fn is_one(share: &f64) -> bool {
    *share == 1.0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_yes(yes: &bool) -> bool {
    *yes
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_no(yes: &bool) -> bool {
    !*yes
}

fn one_revenue() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

fn patience() -> Duration {
    Duration::from_secs(30)
}

#[cfg(test)]
mod tests;
