//! No partitions: every class may use every server. The baseline, and the paper's `SwitchAdm` and `WRR`.

use serde::{Deserialize, Serialize};

use super::PartitionPolicy;
use crate::setup::Setup;

/// No settings.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {}

impl Config {
    pub(super) fn build(&self, _setup: &Setup) -> None {
        None
    }
}

/// The policy `none`, which has no state.
#[derive(Debug)]
pub struct None;

impl PartitionPolicy for None {
    fn divides(&self) -> bool {
        false
    }
}
