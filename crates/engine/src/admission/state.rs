//! Published state of policies: for `/api/state`, metrics and the simulator.

use alloc::string::String;
use alloc::vec::Vec;

use crate::facts::Facts;

/// What a policy may show of itself.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct PolicyState {
    /// Name of the policy.
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
    /// What only this policy shows.
    #[serde(flatten)]
    pub own: Facts,
    /// More numbers, by name.
    pub more: Vec<(String, f64)>,
}
