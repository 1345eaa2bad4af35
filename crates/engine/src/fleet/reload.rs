//! Other servers, or other policies among them. What was learned of a server follows its name.

use super::server::new_server;
use super::{Fleet, ServerState, Status};
use crate::affinity::Pins;
use crate::dispatch;
use crate::estimate::Capacity;
use crate::flight::Flights;
use crate::request::ServerId;
use crate::setup::{ServerSetup, Setup};

impl Fleet {
    /// Takes over another setup than `old`. Removed servers drain.
    pub(crate) fn follow(&mut self, setup: &Setup, old: &Setup, flights: &mut Flights) {
        self.replace_servers(&setup.servers);
        let is_same = setup.partition == old.partition && setup.max_conn == old.max_conn;
        self.replace_partitions(setup, is_same, flights);
        if setup.affinity.as_ref() != self.pins.as_ref().map(Pins::config) {
            self.pins = setup.affinity.as_ref().map(Pins::new);
        }
        if setup.dispatch != old.dispatch {
            self.dispatch = dispatch::build(&setup.dispatch, setup);
            // Until the new policy asks for it.
            self.servers.iter_mut().for_each(|server| server.lent = 0);
        }
        self.when_all_down = setup.when_all_down;
        self.count();
    }

    /// The server's id by name, among those not removed.
    pub(crate) fn server_named(&self, name: &str) -> Option<ServerId> {
        let is = |server: &&ServerState| server.name == name && server.status != Status::Removed;
        self.servers.iter().find(is).map(|server| server.id)
    }

    fn replace_servers(&mut self, setups: &[ServerSetup]) {
        for server in &mut self.servers {
            match setups.iter().find(|setup| setup.name == server.name) {
                None if server.connections() > 0 => server.status = Status::Draining,
                None => server.status = Status::Removed,
                Some(setup) => {
                    (server.weight, server.max_connections) = (setup.weight, setup.max_connections);
                    server.role = setup.role;
                    // Told anew, as what it gives is set anew below.
                    server.said_cores.forget();
                    match setup.cores {
                        Some(cores) => {
                            server.capacity.set_given(cores);
                            server.given_by_report = false;
                        }
                        // What its nucleus said stays in force.
                        None if server.given_by_report => {}
                        None => server.capacity.set_learned(),
                    }
                    if matches!(server.status, Status::Removed | Status::Draining) {
                        server.status = Status::Up;
                    }
                }
            }
        }
        for setup in setups {
            if self.servers.iter().any(|server| server.name == setup.name) {
                continue;
            }
            let free = |s: &ServerState| s.status == Status::Removed && s.connections() == 0;
            match self.servers.iter().position(free) {
                Some(at) => {
                    self.servers[at] = new_server(at, setup);
                    self.pins.iter_mut().for_each(|pins| pins.forget(ServerId(at as u16)));
                }
                None => self.servers.push(new_server(self.servers.len(), setup)),
            }
        }
    }
}

impl Capacity {
    fn set_given(&mut self, processors: f64) {
        if !self.is_given() || self.processors() != processors {
            self.give(processors);
        }
    }

    fn set_learned(&mut self) {
        self.release();
    }
}
