//! What an application is: classes, SLA, servers, policies. Plain data, checked once.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use thiserror::Error;

use crate::admission::AdmissionConfig;
use crate::affinity::Affinity;
use crate::demands::Demands;
use crate::dispatch::DispatchConfig;
use crate::max_conn::{self, MaxConn};
use crate::partition::PartitionConfig;
use crate::server::Role;
use crate::sla::Sla;

/// One application, as its controller needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Its name.
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
}

/// One class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassSetup {
    /// Its name.
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

/// One server.
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
            let bad = |what, value| Err(SetupError::Class { class: class.name.clone(), what, value });
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
            let bad = |what, value| Err(SetupError::Server { server: server.name.clone(), what, value });
            match server.cores {
                Some(cores) if !(cores.is_finite() && cores > 0.0) => return bad("cores", cores),
                _ => {}
            }
            if !(server.weight.is_finite() && server.weight > 0.0) {
                return bad("weight", server.weight);
            }
        }
        max_conn::check(self)?;
        self.partition.check()?;
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
        let twice = |name: &&ServerSetup| self.servers.iter().filter(|s| s.name == name.name).count() > 1;
        match self.servers.iter().find(twice) {
            Some(server) => Err(SetupError::DuplicateServer { server: server.name.clone() }),
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
        /// Of what.
        what: &'static str,
        /// The least there may be.
        least: usize,
        /// The most there may be.
        most: usize,
        /// How many were given.
        given: usize,
    },
    /// A class's number is out of range.
    #[error("class \"{class}\": {what} = {value} is out of range")]
    Class {
        /// The class's name.
        class: String,
        /// The key.
        what: &'static str,
        /// What was given.
        value: f64,
    },
    /// A server's number is out of range.
    #[error("server \"{server}\": {what} = {value} is out of range; it must be more than zero")]
    Server {
        /// The server's name.
        server: String,
        /// The key.
        what: &'static str,
        /// What was given.
        value: f64,
    },
    /// Two servers of one name.
    #[error("server \"{server}\" is there twice; give each server a name of its own")]
    DuplicateServer {
        /// The name.
        server: String,
    },
    /// A setting of a response-time controller ([`crate::seda`]) is out of range.
    #[error("response-time controller: {key} {problem}")]
    ResponseTime {
        /// The key.
        key: &'static str,
        /// What is wrong and what to write.
        problem: &'static str,
    },
    /// A setting names a request type that is not there.
    #[error("admission policy \"aimd\": targets: there is no request type \"{name}\"")]
    UnknownRequestType {
        /// The name.
        name: String,
    },
    /// A dispatch policy's setting makes no sense.
    #[error("dispatch policy \"{policy}\": {place} {problem}")]
    Dispatch {
        /// The policy.
        policy: &'static str,
        /// The key, with its place in a list.
        place: String,
        /// What is wrong and what to write.
        problem: String,
    },
    /// A resource of the policy `resource` makes no sense.
    #[error("admission policy \"resource\": \"{name}\" {problem}")]
    Resource {
        /// The resource, or the tag that has none.
        name: String,
        /// What is wrong and what to write.
        problem: &'static str,
    },
    /// What servers can have in flight makes no sense.
    #[error("max_conn \"{name}\": {problem}")]
    MaxConn {
        /// The entry.
        name: String,
        /// What is wrong and what to write.
        problem: &'static str,
    },
    /// A setting of affinity is out of range.
    #[error("affinity: {key} {problem}")]
    Affinity {
        /// The key.
        key: &'static str,
        /// What is wrong and what to write.
        problem: &'static str,
    },
    /// A partition policy's setting is out of range.
    #[error("partition policy \"{policy}\": {key} {problem}")]
    Partition {
        /// The policy.
        policy: &'static str,
        /// The key.
        key: &'static str,
        /// What is wrong and what to write.
        problem: &'static str,
    },
    /// A policy's setting is out of range.
    #[error("admission policy \"{policy}\": {key} {problem}")]
    Policy {
        /// The policy.
        policy: &'static str,
        /// The key.
        key: &'static str,
        /// What is wrong and what to write.
        problem: &'static str,
    },
}
