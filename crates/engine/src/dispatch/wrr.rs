//! Weighted round robin: each server in turn, in proportion to its weight.
//!
//! *Intuition.* Dealing cards, where some players get two a round; a double portion is spread over the round, not dealt
//! in one go.
//!
//! *Applied.* Smooth weighted round robin, as nginx does it: every server's credit grows by its weight, the largest
//! credit is chosen and pays the sum.
//!
//! *Awkward cases.* A server that takes nothing gathers no credit, so it is not flooded when it comes back.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::{DispatchPolicy, View};
use crate::request::{Request, ServerId};
use crate::server::{ServerState, Status};
use crate::setup::{Setup, SetupError};

/// No settings: weights belong to the servers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        Ok(())
    }

    pub(super) fn build(&self, setup: &Setup) -> Wrr {
        Wrr { credit: alloc::vec![0.0; setup.servers.len()] }
    }
}

/// The policy.
#[derive(Debug)]
pub struct Wrr {
    credit: Vec<f64>,
}

impl DispatchPolicy for Wrr {
    fn choose(&mut self, view: &mut View<'_>, _request: &Request) -> Option<ServerId> {
        let mut sum = 0.0;
        let mut best: Option<ServerId> = None;
        for server in view.servers {
            let at = server.id.index();
            if !view.takes(server) {
                self.credit[at] = 0.0;
                continue;
            }
            sum += server.weight;
            self.credit[at] += server.weight;
            if best.is_none_or(|b| self.credit[at] > self.credit[b.index()]) {
                best = Some(server.id);
            }
        }
        if let Some(best) = best {
            self.credit[best.index()] -= sum;
        }
        best
    }

    fn on_servers_changed(&mut self, servers: &[ServerState], _taking: Status) {
        self.credit.resize(servers.len(), 0.0);
    }
}
