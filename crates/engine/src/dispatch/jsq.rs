//! Join the shortest queue: the server with the least in flight per effective processor.
//!
//! *Intuition.* The shortest line at the supermarket, where a till with two cashiers counts its line half.
//!
//! *Awkward cases.* Equal lines are ordinary at low load; taking the first would send everything to one server and
//! leave the others' caches and pooled connections cold, so ties are drawn.

use serde::{Deserialize, Serialize};

use super::{DispatchPolicy, View};
use crate::request::{Request, ServerId};
use crate::setup::{Setup, SetupError};

/// No settings.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        Ok(())
    }

    pub(super) fn build(&self, _setup: &Setup) -> Jsq {
        Jsq
    }
}

/// The policy.
#[derive(Debug)]
pub struct Jsq;

impl DispatchPolicy for Jsq {
    fn choose(&mut self, view: &mut View<'_>, _request: &Request) -> Option<ServerId> {
        let mut best: Option<(f64, ServerId)> = None;
        let mut ties = 1;
        for server in view.servers {
            if !view.takes(server) {
                continue;
            }
            let load = server.relative_load();
            match best {
                Some((least, _)) if load > least => continue,
                Some((least, _)) if load == least => {
                    // The n-th of equals replaces the choice with probability 1/n: all are equally likely.
                    ties += 1;
                    if view.rng.below(ties) > 0 {
                        continue;
                    }
                }
                _ => ties = 1,
            }
            best = Some((load, server.id));
        }
        best.map(|(_, id)| id)
    }
}
