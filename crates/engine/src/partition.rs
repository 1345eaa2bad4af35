//! Partition policies: which servers the requests of a class may use.
//!
//! A *partition* is a group of servers for one class (or, where there are more classes than servers, for several of the
//! least important ones). Every server is in one. Admission by `switch` and every dispatch policy look at a class's own
//! partition only, so a flood of one class does not reach the others' servers. To add a policy: write
//! `partition/<name>.rs`, add its `mod` line and its entry in the table below.

mod division;
mod dynamic;
mod fixed;
mod none;
#[cfg(test)]
mod testing;

use alloc::boxed::Box;
use core::fmt::Debug;

use crate::setup::{Setup, SetupError, SetupPlace};
use crate::table::policies;
use crate::time::Timestamp;

pub use division::Division;

policies! {
    /// A partition policy and its settings.
    pub enum PartitionConfig for PartitionPolicy, default None {
        /// Every class may use every server.
        None("none") => none,
        /// A fixed number of servers for each class, from its expected share (QoWS, StaticPart).
        Static("static") => fixed,
        /// Servers follow the load of the classes, one at a time (QoWS, DynamicPart).
        Dynamic("dynamic") => dynamic,
    }
}

/// Divides servers among classes.
pub trait PartitionPolicy: Debug + Send {
    /// Whether classes have servers of their own.
    fn divides(&self) -> bool {
        true
    }

    /// Servers were added, removed, came up or went down: brings the division in line with them. Not told when
    /// no server takes requests any more.
    fn on_servers_changed(&mut self, division: &mut Division<'_>) {
        let _ = division;
    }

    /// Ten times a second, also while no server takes requests. Whether it moved a server.
    fn on_tick(&mut self, now: Timestamp, division: &mut Division<'_>) -> bool {
        let _ = (now, division);
        false
    }
}

/// Builds the policy that `config` describes.
pub(crate) fn build(config: &PartitionConfig, setup: &Setup) -> Box<dyn PartitionPolicy> {
    config.build(setup)
}

/// A setting that makes no sense.
fn require(holds: bool, policy: &'static str, key: &'static str, problem: &'static str) -> Result<(), SetupError> {
    if holds { Ok(()) } else { Err(SetupError::wrong(SetupPlace::Partition(policy), format_args!("{key} {problem}"))) }
}
