//! What the servers have and take, all together.

use crate::admission::Load;
use crate::decision::{Action, Reason};
use crate::effect::Lending;
use crate::event::Event;
use crate::request::ServerId;
use crate::server::{Role, ServerState, Status};
use crate::setup::WhenAllDown;
use crate::time::Timestamp;

use super::Core;

impl Core {
    /// Requests in flight; in shadow mode only those that would have been admitted.
    pub(in crate::controller) fn in_flight(&self) -> usize {
        if self.setup.shadow { self.in_flight - self.in_shadow } else { self.in_flight }
    }

    pub(in crate::controller) fn load(&self) -> Load {
        Load {
            in_flight: self.in_flight(),
            servers: self.up,
            processors: self.processors,
            idle_processors: if self.scale.is_sure() { self.processors } else { self.sure_processors },
            free: self.free.unwrap_or(usize::MAX),
            queueing_delay: self.queueing_delays / self.up.max(1) as f64,
            elsewhere: self.elsewhere,
        }
    }

    /// Brings the sums over servers up to date, after any of them changed.
    pub(in crate::controller) fn count_servers(&mut self) {
        let serves = |server: &ServerState| server.role == Role::Application && server.status == Status::Up;
        self.try_down = !self.servers.iter().any(serves) && self.setup.when_all_down == WhenAllDown::Try;
        let wanted = self.taking_status();
        let taking = || self.servers.iter().filter(move |server| server.is_taking(wanted));
        self.up = taking().count();
        self.processors = taking().map(|server| server.capacity.processors()).sum();
        // Of a server of which nothing is sure, one.
        let sure = |server: &ServerState| if server.capacity.is_given() { server.capacity.processors() } else { 1.0 };
        self.sure_processors = taking().map(sure).sum();
        self.free = taking().map(ServerState::room).sum();
        self.divide();
        self.sum_reports();
        self.dispatch.on_servers_changed(&self.servers, wanted);
        self.follows_load = self.dispatch.follows_load();
    }

    /// Data servers lend so much from now on.
    pub(in crate::controller) fn lend(&mut self, Lending { limit, cores }: Lending) {
        let mut is_changed = false;
        for server in self.servers.iter_mut().filter(|server| server.role == Role::Data) {
            is_changed |= server.lent != limit;
            server.lent = limit;
            // Who no longer divides cores leaves them as they are.
            let Some(cores) = cores.filter(|_| server.status == Status::Up) else { continue };
            if !server.said_cores.is_news(&cores) {
                continue;
            }
            self.actions.push_back(Action::Isolate { server: server.id, cores });
            if cores > 0 {
                server.capacity.give(f64::from(cores));
                is_changed = true;
            }
        }
        if is_changed {
            self.count_servers();
        }
    }

    /// A data server can lend from now on, or cannot.
    pub(in crate::controller) fn set_can_lend(&mut self, now: Timestamp, id: ServerId, can: bool) {
        let Some(server) = self.servers.get_mut(id.index()).filter(|server| server.can_lend != can) else { return };
        server.can_lend = can;
        self.sink.record(now, Event::LenderChanged { server: id, lends: can });
        self.count_servers();
    }

    /// The state in which servers take requests.
    pub(in crate::controller) fn taking_status(&self) -> Status {
        if self.try_down { Status::Down } else { Status::Up }
    }

    pub(in crate::controller) fn processors(&self) -> f64 {
        self.processors
    }

    /// Why nothing could be chosen.
    pub(in crate::controller) fn no_server_reason(&self) -> Reason {
        if self.up == 0 { Reason::NoServer } else { Reason::ServerLimit }
    }
}
