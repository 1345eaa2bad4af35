//! Settings of resource protection, and their defaults.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Law, Protection};
use crate::admission::require;
use crate::demands::Demands;
use crate::setup::{Setup, SetupError, SetupPlace};
use crate::signal::Signal;
use crate::units::{PerSecond, Seconds};

/// New connections at once, where nothing is said.
const CONNECTIONS_DEPTH: f64 = 20.0;

/// Settings. Without any, `cpu` and `nic_queue` are protected, and connections by the queue of those that wait.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How often controllers sample.
    pub period: Seconds,
    /// What is protected.
    pub resources: Vec<Resource>,
    /// Whether new connections are limited too, when that is not enough.
    pub connections: bool,
    /// The controller of new connections.
    pub syn: Tuning,
    /// Parts of each bucket by class, most important first, in proportion; empty: each has twice that of the next.
    pub shares: Vec<f64>,
    /// Where tags come from.
    pub tags: Tagging,
    /// Nothing but the paper's controllers, to be compared with: steps as large at every rate, none repeated faster,
    /// no raise of a rate whose queue stands still, and a rate from the beginning, so that each needs `initial_rate`.
    pub paper: bool,
}

/// Where tags come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tagging {
    /// From the request types' `tags`.
    #[default]
    Rules,
    /// From there, and from what each URL is seen to use of the processors and of the network.
    Learn,
}

/// Settings of one protected resource.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// Its name, and the tag of requests that strain it.
    pub name: String,
    /// What is measured of it; the signal of that name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<Signal>,
    /// Its controller.
    #[serde(default)]
    pub control: Tuning,
}

/// Settings of a controller. What is absent depends on the signal: see [`Tuning::resolve`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tuning {
    /// What the measured number should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<f64>,
    /// Change of the rate for each unit below the reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proportional: Option<f64>,
    /// Change of the rate for each unit that the number fell since the last sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub derivative: Option<f64>,
    /// The least rate, so that no kind of request is shut out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rate: Option<PerSecond>,
    /// The most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rate: Option<PerSecond>,
    /// The rate at the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_rate: Option<PerSecond>,
    /// Beyond this rate steps grow in proportion to the rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<PerSecond>,
    /// How many requests may come at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<f64>,
}

impl Default for Config {
    fn default() -> Self {
        let resource = |name: &str| Resource { name: name.into(), signal: None, control: Tuning::default() };
        Config {
            period: Seconds(1.0),
            resources: ["cpu", "nic_queue"].map(resource).into(),
            connections: true,
            syn: Tuning::default(),
            shares: Vec::new(),
            tags: Tagging::Rules,
            paper: false,
        }
    }
}

impl Config {
    pub(in crate::admission) fn check(&self) -> Result<(), SetupError> {
        let period = (0.05..=60.0).contains(&self.period.0);
        require(period, "resource", "period", "must lie between 50ms and 60s")?;
        let shares = self.shares.iter().all(|share| share.is_finite() && *share > 0.0);
        require(shares, "resource", "shares", "must be more than zero")?;
        for (at, resource) in self.resources.iter().enumerate() {
            let wrong = |problem| Err(wrong(&resource.name, problem));
            if self.resources[..at].iter().any(|other| other.name == resource.name) {
                return wrong("is there twice; give each resource a name of its own");
            }
            if resource.name.is_empty() || resource.name == super::CONNECTIONS {
                return wrong("is no name for a resource; new connections have the key syn");
            }
            let Some(signal) = resource.signal() else {
                return wrong("is no signal's name; add signal = \"cpu\", \"nic_queue\", \"memory\" or another one");
            };
            if let Err(problem) = self.law(&resource.control, signal, 5.0) {
                return wrong(problem);
            }
        }
        let problem = self.connections_law().err().filter(|_| self.connections || !self.paper);
        problem.map_or(Ok(()), |problem| Err(wrong(super::CONNECTIONS, problem)))
    }

    /// Checks what depends on the application: a tag without a resource would do nothing.
    pub(in crate::admission) fn fits(&self, setup: &Setup) -> Result<(), SetupError> {
        let is_known = |tag: &&String| self.resources.iter().any(|resource| resource.name == **tag);
        match setup.tags.iter().find(|tag| !is_known(tag)) {
            Some(name) => {
                let problem = "is a tag without a resource; add it to resources, or take it from the request type";
                Err(wrong(name, problem))
            }
            None => Ok(()),
        }
    }

    pub(in crate::admission) fn demands(&self) -> Demands {
        let connections = self.connections.then(|| self.syn.depth.unwrap_or(CONNECTIONS_DEPTH));
        Demands { signals: true, connections, ..Demands::default() }
    }

    pub(in crate::admission) fn build(&self, setup: &Setup) -> Protection {
        Protection::new(self, setup)
    }

    /// The law of new connections, and how many may come at once.
    pub(super) fn connections_law(&self) -> Result<(Law, f64), &'static str> {
        self.law(&self.syn, Signal::ListenQueue, CONNECTIONS_DEPTH)
    }

    /// A controller's law, and how many requests may come at once.
    pub(super) fn law(&self, tuning: &Tuning, signal: Signal, depth: f64) -> Result<(Law, f64), &'static str> {
        let (law, depth) = tuning.resolve(signal, depth)?;
        match self.paper && law.start.is_none() {
            true => Err("needs initial_rate with paper = true: such a controller has a rate from the beginning"),
            false => Ok((Law { is_strict: self.paper, ..law }, depth)),
        }
    }

    pub(super) fn learns(&self) -> bool {
        self.tags == Tagging::Learn
    }

    /// New connections are not let in faster while the processors are used more than this, percent.
    pub(super) fn cpu_reference(&self) -> f64 {
        let cpu = self.resources.iter().find(|resource| resource.signal() == Some(Signal::Cpu));
        cpu.and_then(|cpu| cpu.control.reference).unwrap_or(90.0)
    }
}

impl Resource {
    /// What is measured of it.
    pub fn signal(&self) -> Option<Signal> {
        self.signal.or_else(|| Signal::from_name(&self.name))
    }
}

impl Tuning {
    /// The control law, and how many requests may come at once. The paper's values where nothing is set: of a queue
    /// 1/16 and 1/4, and of everything else 1/5 of a request per second for each percent.
    ///
    /// # Errors
    /// What is wrong, as the end of a sentence that begins with the resource.
    pub fn resolve(&self, signal: Signal, depth: f64) -> Result<(Law, f64), &'static str> {
        let Some(reference) = self.reference.or_else(|| default_reference(signal)) else {
            return Err("has no reference; add control = { reference = ... } in the signal's unit");
        };
        let is_queue = signal.is_queue();
        let (proportional, derivative) = if is_queue { (1.0 / 16.0, 0.25) } else { (18.0 / reference, 0.0) };
        let rate = |given: Option<PerSecond>, otherwise: f64| given.map_or(otherwise, |rate| rate.0);
        // Where the paper's steps were found: at 75 CGI requests per second, and at 1000 connections.
        let scale = if signal == Signal::ListenQueue { 1000.0 } else { 100.0 };
        let law = Law {
            reference,
            proportional: self.proportional.unwrap_or(proportional),
            derivative: self.derivative.unwrap_or(derivative),
            least: rate(self.min_rate, 10.0),
            most: rate(self.max_rate, f64::INFINITY),
            start: self.initial_rate.map(|rate| rate.0),
            scale: rate(self.scale, scale),
            is_queue,
            is_strict: false,
        };
        let depth = self.depth.unwrap_or(depth);
        law.check().and(if depth >= 1.0 && depth.is_finite() { Ok(()) } else { Err("has a depth below 1") })?;
        Ok((law, depth))
    }
}

impl Law {
    fn check(&self) -> Result<(), &'static str> {
        let positive = |number: f64| number.is_finite() && number > 0.0;
        let gain = |number: f64| number.is_finite() && number >= 0.0;
        if !positive(self.reference) {
            return Err("needs a reference of more than zero");
        }
        if !gain(self.proportional) || !gain(self.derivative) || self.proportional + self.derivative == 0.0 {
            return Err("needs proportional or derivative to be more than zero, and none below it");
        }
        if !positive(self.least) || !positive(self.scale) {
            return Err("needs min_rate and scale to be more than zero");
        }
        if self.most < self.least || self.most.is_nan() {
            return Err("has a max_rate below its min_rate");
        }
        match self.start {
            Some(start) if !(self.least..=self.most).contains(&start) => {
                Err("has an initial_rate outside min_rate and max_rate")
            }
            _ => Ok(()),
        }
    }
}

/// A resource, or a tag that has none, makes no sense.
fn wrong(name: &str, problem: &str) -> SetupError {
    SetupError::wrong(SetupPlace::Admission("resource"), format_args!("\"{name}\" {problem}"))
}

/// What a number should be where nothing is said.
fn default_reference(signal: Signal) -> Option<f64> {
    match signal {
        Signal::Cpu | Signal::Memory | Signal::Disk => Some(90.0),
        Signal::NicQueue => Some(35.0),
        Signal::ListenQueue => Some(100.0),
        Signal::PressureCpu | Signal::PressureMemory | Signal::PressureIo => Some(40.0),
        Signal::NetSent | Signal::InService | Signal::ListenOverflows | Signal::NicDrops => None,
    }
}
