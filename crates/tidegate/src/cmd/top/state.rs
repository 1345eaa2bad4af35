//! `/api/state`, as far as it is shown.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(super) struct State {
    pub version: String,
    pub uptime: f64,
    pub draining: bool,
    pub cpus_busy: Option<f64>,
    pub applications: Vec<Application>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Application {
    pub application: String,
    pub statistic: String,
    pub target: f64,
    pub shadow: bool,
    pub in_flight: u64,
    pub waiting: u64,
    pub processors: f64,
    pub policy: Policy,
    pub dispatch: String,
    pub classes: Vec<Class>,
    pub servers: Vec<Server>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Policy {
    pub policy: String,
    pub active: String,
    pub limit: Option<f64>,
    /// Class and the share of it that passes.
    pub threshold: Option<(usize, f64)>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Class {
    pub name: String,
    pub offered: u64,
    pub admitted: u64,
    pub rejected: Vec<(String, u64)>,
    pub in_target: u64,
    pub in_flight: u64,
    pub waiting: u64,
    pub p50: Option<f64>,
    pub p95: Option<f64>,
    pub p99: Option<f64>,
    pub statistic: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Server {
    pub name: String,
    pub status: String,
    pub in_flight: u64,
    pub processors: f64,
    pub learned: bool,
    pub queueing_delay: Option<f64>,
}
