//! Admits everything: what happens without overload control, and the baseline that every experiment compares with.

use serde::{Deserialize, Serialize};

use super::{AdmissionPolicy, Context};
use crate::policer::Share;
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

/// Lets everything pass by the published table, so that even the lock's turn for a decision is saved.
#[derive(Debug)]
pub struct None;

impl AdmissionPolicy for None {
    fn on_tick(&mut self, cx: &mut Context<'_>) {
        for class in cx.class_ids() {
            cx.publish(class, Share::Admit(1.0));
        }
    }
}
