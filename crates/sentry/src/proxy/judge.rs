//! What becomes of requests, held against their servers.

use http::StatusCode;
use tracing::warn;

use super::Exchange;
use crate::answered::Answered;
use crate::blame::Witness;
use crate::counters::Counter;
use crate::in_force::Server;
use crate::upstream::pool::Pool;
use crate::upstream::send::Failure;

impl Exchange {
    /// A server gave no answer. Too often in a row, and it counts as down until a health check says otherwise.
    pub(super) fn blame(&self, pool: &Pool, why: Failure) {
        let health = &self.local.live.config.health;
        let (witness, share) = match why {
            Failure::Connect => (Witness::Server, None),
            _ => (self.witness(), Some(health.max_ejected)),
        };
        let (most, failures) = (health.passive_failures, pool.server.blame.failed(witness));
        if most > 0 && failures >= most {
            self.eject(&pool.server, share, "requests in a row got no answer");
        }
    }

    /// A server answered. Too many errors in a row while its siblings answer well, and it counts as down likewise. What
    /// a service further down refused says nothing of it.
    pub(super) fn judge(&self, status: StatusCode, answered: Answered) {
        let pool = self.ending.server.and_then(|server| self.local.pool(server));
        let Some(pool) = pool.filter(|_| answered.refusal().is_none()) else { return };
        if !matches!(status.as_u16(), 500 | 502 | 503 | 504) {
            return pool.server.blame.answered_well();
        }
        let health = &self.local.live.config.health;
        let (most, errors) = (health.passive_errors, pool.server.blame.erred(self.witness()));
        if most > 0 && errors >= most && self.local.live.siblings_are_well(&pool.server) {
            self.eject(
                &pool.server,
                Some(health.max_ejected),
                "answers in a row were errors, while others answer well",
            );
        }
    }

    fn witness(&self) -> Witness {
        let client = self.client.peer().ip().to_canonical();
        let is_proxy = self.local.live.config.forwarded.trust.iter().any(|network| network.contains(&client));
        Witness::Request { client, is_proxy, url: self.ending.request().url }
    }

    fn eject(&self, server: &Server, share: Option<f64>, why: &str) {
        let app = &self.worker.app;
        if app.eject(server.id, share) {
            self.worker.lane().bump(Counter::Ejections);
            warn!(application = app.name(), server = server.name, why, "a server is taken out");
        }
    }
}
