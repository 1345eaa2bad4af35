//! Power of two choices: of two servers drawn at random, the one with fewer requests in flight.
//!
//! *Intuition.* Who looks at two tills and takes the shorter line does nearly as well as who looks at all of them, and
//! much better than who looks at none.
//!
//! *Applied.* What a server has in flight from this sentry is counted, however many processors it has. A server that
//! takes nothing is not drawn.
//!
//! *Awkward cases.* Servers of different speed: a slow one holds its requests for longer and so gets fewer, but only
//! once it has them. `jsq` counts what is in flight for each processor that it has learned, and looks at all.
//!
//! *Source.* M. Mitzenmacher, *The Power of Two Choices in Randomized Load Balancing* (2001); Envoy's `LEAST_REQUEST`
//! with its default of two choices, nginx's `random two least_conn`.

use serde::{Deserialize, Serialize};

use super::drawn::Candidates;
use super::{DispatchPolicy, View};
use crate::fleet::{ServerState, Status};
use crate::request::{Request, ServerId};
use crate::setup::Setup;

/// No settings.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {}

impl Config {
    pub(super) fn build(&self, _setup: &Setup) -> P2c {
        P2c::default()
    }
}

/// The policy `p2c`, which remembers nothing of requests.
#[derive(Debug, Default)]
pub struct P2c {
    candidates: Candidates,
}

impl DispatchPolicy for P2c {
    fn choose(&mut self, view: &mut View<'_>, _request: &Request) -> Option<ServerId> {
        self.candidates.lesser_of_two(view, |view, id| f64::from(view.servers[id.index()].in_flight))
    }

    fn on_servers_changed(&mut self, servers: &[ServerState], taking: Status) {
        self.candidates = Candidates::new(servers, taking);
    }
}
