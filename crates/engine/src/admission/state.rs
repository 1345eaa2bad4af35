//! What policies show of themselves: for `/api/state`, metrics and the simulator.

use alloc::string::String;
use alloc::vec::Vec;

use crate::request::ServerId;

/// What a policy may show of itself.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct PolicyState {
    /// The policy's name.
    pub policy: &'static str,
    /// The part in force, where a policy switches between parts.
    pub active: &'static str,
    /// Limit on requests in flight.
    pub limit: Option<f64>,
    /// Threshold: the class at which it stands (0 = most important), and the share of it that passes.
    pub threshold: Option<(u8, f64)>,
    /// Delays d_i, seconds per class.
    pub delays: Vec<f64>,
    /// Measured probability that the system is full.
    pub full: Option<f64>,
    /// Response-time controllers, one per request type or one for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub controllers: Vec<ControllerState>,
    /// Resource controllers: per resource and server, and that of new connections (`syn`) last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ResourceState>,
    /// What requests of each type use, where resources are protected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<UseState>,
    /// More numbers, by name.
    pub more: Vec<(String, f64)>,
}

/// What a response-time controller shows of itself.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ControllerState {
    /// Its request type; `None`: all.
    pub request_type: Option<String>,
    /// How good answers should be, 0 to 1.
    pub quality: f64,
    /// Whether it refuses anybody.
    pub policing: bool,
    /// Per class, most important first.
    pub classes: Vec<ClassControl>,
}

/// What a response-time controller does about a class.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ClassControl {
    /// The class's name.
    pub class: String,
    /// Requests per second that it lets in.
    pub rate: f64,
    /// The smoothed percentile of the response time, seconds, once known.
    pub percentile: Option<f64>,
    /// Its bound, seconds.
    pub target: f64,
    /// What the last run did.
    pub step: Option<&'static str>,
}

/// What requests of a type use, and the tags that follow.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct UseState {
    /// The request type.
    pub request_type: String,
    /// Requests answered.
    pub requests: u64,
    /// Seconds of a server's processors that one costs, on average.
    pub cpu_seconds: Option<f64>,
    /// Bytes of its answer, on average.
    pub bytes: Option<f64>,
    /// The tags it has.
    pub tags: Vec<String>,
    /// The tags that follow from what it uses.
    pub proposed: Vec<String>,
}

/// What a resource's controller shows of itself.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ResourceState {
    /// The resource; `syn`: new connections.
    pub resource: String,
    /// What is measured.
    pub signal: &'static str,
    /// At which server; `None`: at the sentry, or at all servers together.
    pub server: Option<String>,
    /// The same by number.
    #[serde(skip)]
    pub server_id: Option<ServerId>,
    /// Requests (of `syn`: connections) per second that it lets in; `None`: all.
    pub rate: Option<f64>,
    /// How much of it each class has, per second, most important first; empty where all are let in.
    pub parts: Vec<f64>,
    /// Requests per second that wanted in, in the last sample.
    pub hits: f64,
    /// Requests let in and refused since the start.
    pub admitted: u64,
    /// See `admitted`.
    pub refused: u64,
    /// What was measured last, in the signal's unit.
    pub input: Option<f64>,
    /// What it should be.
    pub reference: f64,
    /// The reference less the input.
    pub error: f64,
    /// What the control law said, requests per second.
    pub step: f64,
    /// What was done, or why nothing was.
    pub why: &'static str,
}
