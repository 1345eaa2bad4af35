//! The servers of an application: which there are, whose each is, what they have and take, and which gets a request.

mod choose;
mod partitions;
mod reload;
mod reports;
mod server;
mod sums;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::affinity::Pins;
use crate::decision::Open;
use crate::dispatch::{self, DispatchPolicy};
use crate::estimate::Mark;
use crate::request::{AffinityKey, ServerId};
use crate::setup::{Setup, WhenAllDown};
use crate::time::Timestamp;

use partitions::Change;
use sums::Sums;

pub(crate) use partitions::{Held, Partitions};
#[cfg(test)]
pub(crate) use server::new_server;
pub use server::{Role, ServerState, Status};

/// Less than any difference of loads.
const TIE: f64 = 1e-9;

/// All servers, and the policies that choose among them.
pub(crate) struct Fleet {
    pub(crate) servers: Vec<ServerState>,
    pub(crate) partitions: Partitions,
    pub(crate) sums: Sums,
    /// When more servers will serve, where some were asked for.
    pub(crate) coming: Option<Timestamp>,
    pub(crate) dispatch: Box<dyn DispatchPolicy>,
    /// Whether `dispatch` wants to hear of every start and end, and how long answers took: asked once, not per request.
    follows_load: bool,
    follows_answers: bool,
    pins: Option<Pins>,
    when_all_down: WhenAllDown,
    /// Whether servers that look down are tried, as all of them do.
    try_down: bool,
}

impl Fleet {
    pub(crate) fn new(setup: &Setup) -> Fleet {
        let mut fleet = Fleet {
            servers: setup.servers.iter().enumerate().map(|(at, setup)| server::new_server(at, setup)).collect(),
            partitions: Partitions::new(setup),
            sums: Sums::default(),
            coming: None,
            dispatch: dispatch::build(&setup.dispatch, setup),
            follows_load: false,
            follows_answers: false,
            pins: setup.affinity.as_ref().map(Pins::new),
            when_all_down: setup.when_all_down,
            try_down: false,
        };
        fleet.count();
        fleet
    }

    /// A request goes to `server`. `kind`: as what it counts there, if at all.
    pub(crate) fn enter(&mut self, now: Timestamp, server: ServerId, kind: Option<usize>) -> Mark {
        self.sums.free = self.sums.free.map(|free| free.saturating_sub(1));
        let taking = self.taking_status();
        let server = &mut self.servers[server.index()];
        server.in_flight += 1;
        self.partitions.count(server, taking, kind, Change::More);
        if self.follows_load {
            self.dispatch.on_load_changed(server);
        }
        server.capacity.start(now)
    }

    /// An answer came from `server`, so long after it was sent there.
    pub(crate) fn answered(&mut self, now: Timestamp, server: ServerId, took: f64) {
        if self.follows_answers {
            self.dispatch.on_answer(now, &self.servers[server.index()], took);
        }
    }

    /// A request leaves `server` after `work` units of relative work; `None`: it was set aside. `kind` as in
    /// [`Fleet::enter`].
    pub(crate) fn leave(&mut self, now: Timestamp, server: ServerId, kind: Option<usize>, work: Option<f64>) {
        let taking = self.taking_status();
        let server = &mut self.servers[server.index()];
        server.in_flight = server.in_flight.saturating_sub(1);
        self.partitions.count(server, taking, kind, Change::Fewer);
        if self.follows_load {
            self.dispatch.on_load_changed(server);
        }
        if let Some(work) = work {
            server.capacity.end(now, work);
        }
        // A place at a server that takes nothing more, or still has too many, is no room.
        if server.is_taking(taking) && server.has_room() {
            self.sums.free = self.sums.free.map(|free| free + 1);
        }
    }

    /// What left `server` as work stays open there: it still takes a connection.
    pub(crate) fn open(&mut self, server: ServerId, kind: Open) {
        let taking = self.taking_status();
        let server = &mut self.servers[server.index()];
        if server.is_taking(taking) && server.has_room() {
            self.sums.free = self.sums.free.map(|free| free.saturating_sub(1));
        }
        *server.open_mut(kind) += 1;
    }

    /// Something that was open at `server` is over.
    pub(crate) fn close(&mut self, server: ServerId, kind: Open) {
        let taking = self.taking_status();
        let server = &mut self.servers[server.index()];
        let open = server.open_mut(kind);
        *open = open.saturating_sub(1);
        if server.is_taking(taking) && server.has_room() {
            self.sums.free = self.sums.free.map(|free| free + 1);
        }
    }

    /// Of several sentries before these servers, this is the one in place `rank` of so many: among servers with as much
    /// to do it begins its round where the others do not. Drawn, the few requests that each has would meet at some
    /// servers and leave others idle.
    pub(crate) fn spread(&mut self, rank: usize, members: usize) {
        let (servers, begins) = (self.servers.len() as f64, rank as f64 / members as f64);
        for (at, server) in self.servers.iter_mut().enumerate() {
            let around = (at as f64 / servers + 1.0 - begins) % 1.0;
            server.rank.tie = if members > 1 { TIE * around } else { 0.0 };
        }
        self.count();
    }

    /// Whether a server's state is another one now. Unknown and removed servers keep theirs.
    pub(crate) fn set_status(&mut self, id: ServerId, status: Status) -> bool {
        let Some(server) = self.servers.get_mut(id.index()) else { return false };
        if server.status == status || server.status == Status::Removed {
            return false;
        }
        server.status = status;
        // Its nucleus may have been restarted: it is told again.
        server.said_cores.forget();
        self.count();
        true
    }

    /// Whether it is news that a data server can lend from now on, or cannot.
    pub(crate) fn set_can_lend(&mut self, id: ServerId, can: bool) -> bool {
        let Some(server) = self.servers.get_mut(id.index()).filter(|server| server.can_lend != can) else {
            return false;
        };
        server.can_lend = can;
        self.count();
        true
    }

    /// See [`Pins::keep`].
    pub(crate) fn kept_sessions(&self, now: Timestamp, most: usize) -> Vec<(AffinityKey, ServerId, f64, bool)> {
        self.pins.as_ref().map_or_else(Vec::new, |pins| pins.keep(now, most))
    }

    /// A session that was kept, used at `used` last.
    pub(crate) fn recall_session(&mut self, used: Timestamp, key: AffinityKey, server: ServerId, is_given: bool) {
        if let Some(pins) = &mut self.pins {
            pins.pin(used, key, server, is_given);
        }
    }

    /// The state in which servers take requests.
    fn taking_status(&self) -> Status {
        if self.try_down { Status::Down } else { Status::Up }
    }
}
