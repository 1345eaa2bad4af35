//! Sums over the servers: capacity, and requests in flight.

use alloc::collections::VecDeque;

use super::{Fleet, Role, ServerState, Status};
use crate::admission::Load;
use crate::decision::Action;
use crate::effect::Lending;
use crate::setup::WhenAllDown;

/// Sums over servers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    /// Servers that take requests, and their processors.
    pub(super) up: usize,
    pub(crate) processors: f64,
    /// The processors that are there whatever the estimates say.
    sure_processors: f64,
    /// The room that their connection limits leave; `None`: no end.
    pub(super) free: Option<usize>,
    /// Of reports: Q, seconds, and what is in service beyond what is in flight here.
    pub(super) queueing_delays: f64,
    pub(super) elsewhere: f64,
}

impl Fleet {
    /// How loaded the servers are by `in_flight` requests, `hanging` of which they do not work on. `is_sure`: their
    /// processors are known for sure.
    pub(crate) fn load(&self, in_flight: usize, hanging: usize, is_sure: bool) -> Load {
        let Sums { up, processors, sure_processors, free, queueing_delays, elsewhere } = self.sums;
        Load {
            in_flight,
            hanging,
            servers: up,
            processors,
            idle_processors: if is_sure { processors } else { sure_processors },
            is_sure,
            free: free.unwrap_or(usize::MAX),
            queueing_delay: queueing_delays / up.max(1) as f64,
            elsewhere,
            pressure: 0.0,
            pressed: 0,
        }
    }

    /// Brings the sums over servers up to date, after any of them changed.
    pub(crate) fn count(&mut self) {
        let serves = |server: &ServerState| server.role == Role::Application && server.status == Status::Up;
        self.try_down = !self.servers.iter().any(serves) && self.when_all_down == WhenAllDown::Try;
        let wanted = self.taking_status();
        let taking = || self.servers.iter().filter(move |server| server.is_taking(wanted));
        // Of a server of which nothing is sure, one.
        let sure = |server: &ServerState| if server.capacity.is_given() { server.capacity.processors() } else { 1.0 };
        self.sums = Sums {
            up: taking().count(),
            processors: taking().map(|server| server.capacity.processors()).sum(),
            sure_processors: taking().map(sure).sum(),
            free: taking().map(ServerState::room).sum(),
            ..self.sums
        };
        self.even_out();
        self.divide();
        self.sum_reports();
        self.dispatch.on_servers_changed(&self.servers, wanted);
        self.follows_load = self.dispatch.follows_load();
        self.follows_answers = self.dispatch.follows_answers();
    }

    /// What a server can do is learned from what it does, and what it gets to do follows from what it is thought able
    /// to do: servers that are never full keep whatever they are thought to be. So those on which requests were not
    /// seen to slow each other all count as the largest of them, and where these are most, no other counts as more.
    fn even_out(&mut self) {
        let (mut keepers, mut largest) = (0, 0.0_f64);
        for server in &mut self.servers {
            let capacity = &server.capacity;
            server.rank.keeps_up = !capacity.is_given() && capacity.sharing().slows(capacity.scale()) == Some(false);
            if server.rank.keeps_up {
                (keepers, largest) = (keepers + 1, largest.max(capacity.processors()));
            }
        }
        let are_most = 2 * keepers > self.servers.len();
        for server in &mut self.servers {
            let own = server.capacity.processors();
            server.rank.processors = if server.rank.keeps_up {
                largest
            } else if are_most && !server.capacity.is_given() {
                own.min(largest)
            } else {
                own
            };
        }
    }

    /// Data servers lend so much from now on.
    pub(crate) fn lend(&mut self, Lending { limit, cores }: Lending, actions: &mut VecDeque<Action>) {
        let mut is_changed = false;
        for server in self.servers.iter_mut().filter(|server| server.role == Role::Data) {
            is_changed |= server.lent != limit;
            server.lent = limit;
            // Who no longer divides cores leaves them as they are.
            let Some(cores) = cores.filter(|_| server.status == Status::Up) else { continue };
            if !server.said_cores.is_news(&cores) {
                continue;
            }
            actions.push_back(Action::Isolate { server: server.id, cores });
            if cores > 0 {
                server.capacity.give(f64::from(cores));
                is_changed = true;
            }
        }
        if is_changed {
            self.count();
        }
    }
}
