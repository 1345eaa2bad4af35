//! What becomes of requests, held against their servers.

use tracing::warn;

use super::Ending;
use crate::answered::Answered;
use crate::blame::Witness;
use crate::counters::Counter;
use crate::grpc;
use crate::in_force::{InForce, Server};
use crate::upstream::failure::Failure;

impl Ending {
    /// `server` gave no answer. Too often in a row, and it counts as down until a health check says otherwise.
    pub(crate) fn blame(&self, server: &Server, why: Failure) {
        let health = &self.local.live.config.health;
        let (witness, share) = match why {
            Failure::Connect => (Witness::Server, None),
            _ => (self.witness(), Some(health.max_ejected)),
        };
        let (most, failures) = (health.passive_failures, server.blame.failed(witness));
        if most > 0 && failures >= most {
            self.eject(server, share, "requests in a row got no answer");
        }
    }

    /// Its server, one of `live`, answered. Too many errors in a row while its siblings answer well, and it counts as
    /// down likewise. What a service further down refused says nothing of it, nor what a client can cause. `said`:
    /// gRPC's status, once that is here; `goes_on`: whether it is still to come.
    pub(crate) fn judge(&self, live: &InForce, answered: Answered, said: Option<u8>, goes_on: impl FnOnce() -> bool) {
        let server = self.server.and_then(|server| live.server(server));
        let Some(server) = server.filter(|_| answered.refusal().is_none()) else { return };
        if !matches!(self.status, 500 | 502 | 503 | 504) && !said.is_some_and(grpc::is_error) {
            let is_well = !said.is_some_and(grpc::is_failure);
            if is_well && server.blame.errs() && !goes_on() {
                server.blame.answered_well();
            }
            return;
        }
        let health = &self.local.live.config.health;
        let (most, errors) = (health.passive_errors, server.blame.erred(self.witness()));
        if most > 0 && errors >= most && live.siblings_are_well(server) {
            self.eject(server, Some(health.max_ejected), "answers in a row were errors, while others answer well");
        }
    }

    fn witness(&self) -> Witness {
        let client = self.client.peer().ip().to_canonical();
        let is_proxy = self.local.live.config.forwarded.trust.iter().any(|network| network.contains(&client));
        Witness::Request { client, is_proxy, url: self.request.url }
    }

    fn eject(&self, server: &Server, share: Option<f64>, why: &str) {
        let app = &self.worker.app;
        if app.eject(server.id, share) {
            self.worker.lane().bump(Counter::Ejections);
            warn!(application = app.name(), server = server.name, why, "a server is taken out");
        }
    }
}
