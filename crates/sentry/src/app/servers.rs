//! Servers that come and go: by their health, their nuclei, their unanswered requests, or by hand.

use tidegate_engine::{ServerId, Status};

use super::App;
use crate::in_force::Server;

impl App {
    /// Tells the controller of a server's state.
    pub fn set_status(&self, server: ServerId, status: Status) {
        self.change(server, |server| server.set_health(status));
    }

    /// Takes a server out for requests that it did not answer; unless more than `share` of all servers would be out.
    /// Whether it did.
    pub(crate) fn eject(&self, id: ServerId, share: Option<f64>) -> bool {
        let live = self.live();
        let Some(server) = live.server(id) else { return false };
        self.engine(|core, now| {
            let all = live.servers().filter(|server| server.status() != Status::Draining).count();
            let down = live.servers().filter(|server| server.status() == Status::Down).count();
            let most = share.map_or(all, |share| (all as f64 * share) as usize);
            if server.status() != Status::Up || down >= most {
                return false;
            }
            let health = &live.config.health;
            server.blame.eject(now, health.interval);
            server.set_health(Status::Down);
            core.controller.handle_server(now, id, server.status());
            true
        })
    }

    /// A server's nucleus is silent, or says that nothing listens there: it gets nothing; or it may again.
    pub(crate) fn exclude(&self, server: ServerId, excluded: bool) {
        self.change(server, |server| server.set_excluded(excluded));
    }

    fn change(&self, id: ServerId, change: impl FnOnce(&Server)) {
        let live = self.live();
        let Some(server) = live.server(id) else { return };
        // Under the lock: of two who change different parts at once, the later one sees both.
        self.engine(|core, now| {
            change(server);
            core.controller.handle_server(now, id, server.status());
        });
    }
}
