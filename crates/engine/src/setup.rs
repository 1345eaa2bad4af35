//! Setup of an application: classes, SLA, servers, policies. Plain data, checked once.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use thiserror::Error;

use crate::admission::AdmissionConfig;
use crate::affinity::Affinity;
use crate::demands::Demands;
use crate::dispatch::DispatchConfig;
use crate::fleet::Role;
use crate::max_conn::{self, MaxConn};
use crate::partition::PartitionConfig;
use crate::sla::Sla;
use crate::tenants::TenantSetup;

/// The most that are open, unless told otherwise: a client connection each, of which a sentry takes 100,000.
pub const MOST_OPEN: usize = 10_000;

/// One application, as its controller needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Name, for metrics and messages.
    pub name: String,
    /// Its classes, most important first: 1 to 255.
    pub classes: Vec<ClassSetup>,
    /// Names of the request types; the first is the default type.
    pub request_types: Vec<String>,
    /// Names of the resource tags that request types carry; bit `i` of [`crate::Tags`] is the `i`-th. At most 64.
    pub tags: Vec<String>,
    /// Its servers: at most 65,535.
    pub servers: Vec<ServerSetup>,
    /// Its response-time target.
    pub sla: Sla,
    /// Its admission policy.
    pub admission: AdmissionConfig,
    /// Its dispatch policy.
    pub dispatch: DispatchConfig,
    /// Which servers each class may use.
    pub partition: PartitionConfig,
    /// What a server can have in flight, by kind of requests; empty: [`MaxConn::unknown`].
    pub max_conn: Vec<MaxConn>,
    /// Whether requests of a page or session go to one server; `None`: each goes where it is best.
    pub affinity: Option<Affinity>,
    /// Decide and count, but refuse nothing.
    pub shadow: bool,
    /// The cost of a request of which nothing is known yet. `None`: a quarter of the target, which starts safe.
    pub default_cost: Option<Duration>,
    /// What to do when health checks say that every server is down.
    pub when_all_down: WhenAllDown,
    /// The most streams, polls and tunnels in the pool of what is open without being work. Beyond that they keep their
    /// places, as requests in flight do.
    pub most_open: usize,
    /// Tenants of which more is to be said than of others: at most 10,000.
    pub tenants: Vec<TenantSetup>,
    /// Which requests in flight may be ended for the sake of more important ones.
    pub cancel: Cancel,
}

/// Setup of a class of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassSetup {
    /// Name, for metrics and messages.
    pub name: String,
    /// What one answer within the target is worth.
    pub revenue: f64,
    /// Guaranteed rate, requests per second; 0 for none. Conforming requests are admitted untested.
    pub min_rate: f64,
    /// How many guaranteed requests may come at once, 1 or more.
    pub burst: f64,
}

impl ClassSetup {
    /// A class without a guarantee.
    pub fn new(name: impl Into<String>) -> Self {
        ClassSetup { name: name.into(), revenue: 1.0, min_rate: 0.0, burst: 1.0 }
    }
}

/// Setup of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSetup {
    /// Its name; learned state follows the name through a reload.
    pub name: String,
    /// What it is there for.
    pub role: Role,
    /// Effective processors, when known. `None`: learned.
    pub cores: Option<f64>,
    /// Its part under weighted round robin, and of what [`MaxConn`] and partitions count; 1 is an ordinary server.
    pub weight: f64,
    /// The most requests it may have in flight.
    pub max_connections: Option<u32>,
}

impl ServerSetup {
    /// A server of which nothing is known but its name.
    pub fn new(name: impl Into<String>) -> Self {
        ServerSetup { name: name.into(), role: Role::Application, cores: None, weight: 1.0, max_connections: None }
    }
}

/// What to do when every server is down by its health checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenAllDown {
    /// Fail open: send requests to servers that look down; health checks may be what is wrong.
    #[default]
    Try,
    /// Fail closed: refuse.
    Refuse,
}

/// Which requests in flight the controller may end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cancel {
    /// None.
    #[default]
    Off,
    /// Those that have used several times their predicted cost while more important classes miss the target: rarely,
    /// and one after the other.
    Runaways,
}

impl Cancel {
    /// The name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Cancel::Off => "off",
            Cancel::Runaways => "runaways",
        }
    }
}

impl Setup {
    /// A setup with one class, one target and default policies.
    pub fn simple(name: impl Into<String>, sla: Sla, servers: impl IntoIterator<Item = ServerSetup>) -> Self {
        Setup {
            name: name.into(),
            classes: alloc::vec![ClassSetup::new("default")],
            request_types: alloc::vec![String::from("default")],
            tags: Vec::new(),
            servers: servers.into_iter().collect(),
            sla,
            admission: AdmissionConfig::default(),
            dispatch: DispatchConfig::default(),
            partition: PartitionConfig::default(),
            max_conn: Vec::new(),
            affinity: None,
            shadow: false,
            default_cost: None,
            when_all_down: WhenAllDown::default(),
            most_open: MOST_OPEN,
            tenants: Vec::new(),
            cancel: Cancel::default(),
        }
    }

    /// What its policies need from the program that runs them.
    pub fn demands(&self) -> Demands {
        self.admission.demands().and(self.dispatch.demands()).and(self.partition.demands())
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// The first thing that makes no sense, by name.
    pub fn check(&self) -> Result<(), SetupError> {
        self.check_counts()?;
        for class in &self.classes {
            let bad = |what: &str, value: f64| {
                let problem = format!("{what} = {value} is out of range");
                Err(SetupError::wrong(SetupPlace::Class(class.name.clone()), problem))
            };
            if !(class.min_rate.is_finite() && class.min_rate >= 0.0) {
                return bad("min_rate", class.min_rate);
            }
            if !(class.burst.is_finite() && class.burst >= 1.0) {
                return bad("burst", class.burst);
            }
            if !class.revenue.is_finite() {
                return bad("revenue", class.revenue);
            }
        }
        for server in &self.servers {
            let bad = |what: &str, value: f64| {
                let problem = format!("{what} = {value} is out of range; it must be more than zero");
                Err(SetupError::wrong(SetupPlace::Server(server.name.clone()), problem))
            };
            match server.cores {
                Some(cores) if !(cores.is_finite() && cores > 0.0) => return bad("cores", cores),
                _ => {}
            }
            if !(server.weight.is_finite() && server.weight > 0.0) {
                return bad("weight", server.weight);
            }
        }
        self.tenants.iter().try_for_each(TenantSetup::check)?;
        max_conn::check(self)?;
        self.partition.check()?;
        self.partition.fits(self)?;
        self.affinity.as_ref().map_or(Ok(()), Affinity::check)?;
        self.admission.check()?;
        self.admission.fits(self)?;
        self.dispatch.check()?;
        self.dispatch.fits(self)
    }

    fn check_counts(&self) -> Result<(), SetupError> {
        if self.classes.is_empty() || self.classes.len() > 255 {
            return Err(SetupError::Count { what: "classes", least: 1, most: 255, given: self.classes.len() });
        }
        if self.request_types.is_empty() || self.request_types.len() > 65_535 {
            let given = self.request_types.len();
            return Err(SetupError::Count { what: "request types", least: 1, most: 65_535, given });
        }
        if self.tags.len() > 64 {
            return Err(SetupError::Count { what: "resource tags", least: 0, most: 64, given: self.tags.len() });
        }
        if self.servers.len() > 65_535 {
            return Err(SetupError::Count { what: "servers", least: 0, most: 65_535, given: self.servers.len() });
        }
        if self.tenants.len() > 10_000 {
            return Err(SetupError::Count { what: "tenants", least: 0, most: 10_000, given: self.tenants.len() });
        }
        let mut keys: Vec<_> = self.tenants.iter().map(|tenant| (tenant.key, &tenant.name)).collect();
        keys.sort_unstable();
        if let Some(pair) = keys.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(SetupError::Duplicate { what: "tenant", name: pair[1].1.clone() });
        }
        let mut names: Vec<_> = self.servers.iter().map(|server| &server.name).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(SetupError::Duplicate { what: "server", name: pair[1].clone() }),
            None => Ok(()),
        }
    }
}

/// Why a setup makes no sense.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SetupError {
    /// Too few or too many of something.
    #[error("{given} {what}: give {least} to {most}")]
    Count {
        /// Kind of the things that are counted.
        what: &'static str,
        /// The least there may be.
        least: usize,
        /// The most there may be.
        most: usize,
        /// How many were given.
        given: usize,
    },
    /// Two of one name.
    #[error("{what} \"{name}\" is there twice; give each {what} a name of its own")]
    Duplicate {
        /// Kind of the things that are counted.
        what: &'static str,
        /// The name that occurs twice.
        name: String,
    },
    /// Something makes no sense.
    #[error("{place}: {problem}")]
    Wrong {
        /// Place of the mistake.
        place: SetupPlace,
        /// What is wrong and what to write.
        problem: String,
    },
}

impl SetupError {
    /// Something is wrong at `place`.
    pub(crate) fn wrong(place: SetupPlace, problem: impl fmt::Display) -> SetupError {
        SetupError::Wrong { place, problem: problem.to_string() }
    }
}

/// The part of a setup that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupPlace {
    /// The class of this name.
    Class(String),
    /// The server of this name.
    Server(String),
    /// The entry of this name in [`Setup::max_conn`].
    MaxConn(String),
    /// The tenant of this name.
    Tenant(String),
    /// The affinity.
    Affinity,
    /// The settings of this admission policy.
    Admission(&'static str),
    /// The settings of this dispatch policy.
    Dispatch(&'static str),
    /// The settings of this partition policy.
    Partition(&'static str),
    /// The settings of a response-time controller ([`crate::seda`]).
    ResponseTime,
}

impl fmt::Display for SetupPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupPlace::Class(name) => write!(f, "class \"{name}\""),
            SetupPlace::Server(name) => write!(f, "server \"{name}\""),
            SetupPlace::MaxConn(name) => write!(f, "max_conn \"{name}\""),
            SetupPlace::Tenant(name) => write!(f, "tenant \"{name}\""),
            SetupPlace::Affinity => f.write_str("affinity"),
            SetupPlace::Admission(policy) => write!(f, "admission policy \"{policy}\""),
            SetupPlace::Dispatch(policy) => write!(f, "dispatch policy \"{policy}\""),
            SetupPlace::Partition(policy) => write!(f, "partition policy \"{policy}\""),
            SetupPlace::ResponseTime => f.write_str("response-time controller"),
        }
    }
}
