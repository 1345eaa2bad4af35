//! The profile file: what was measured, and the table that configurations include.

use serde::{Deserialize, Serialize};
use tidegate_engine::StealingProfile;
use tidegate_loadgen::capacity::Found;

/// A profile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// What data servers lend at which load: `dispatch = { policy = "softscale", profile = FILE }` reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) softscale: Option<StealingProfile>,
    /// What it follows from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) measured: Option<Measured>,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measured {
    /// Seconds: the 95th percentile that had to be held.
    pub(super) target: f64,
    /// Seconds of each step.
    pub(super) step: f64,
    /// Seed of arrivals.
    pub(super) seed: u64,
    /// Each kind of request by itself.
    #[serde(rename = "type", default)]
    pub(super) types: Vec<Found>,
    /// What a data server held beside its own work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) lending: Vec<Lending>,
}

/// What a data server held at one load, with its cores divided in one way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lending {
    /// Cores of application work; `None`: they were not divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cores: Option<u32>,
    /// Share of the peak.
    pub(super) load: f64,
    /// Requests in flight within the target; 0: not one.
    pub(super) n_data: u32,
}
