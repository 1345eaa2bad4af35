//! A change of setup while requests are waiting and in flight. What was learned follows names: a server keeps its
//! capacity, a class its rates and counts, a type its cost.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Controller;
use super::core_state::{ClassStats, Core, default_cost, new_class, new_server};
use crate::admission::{self, AdmissionPolicy};
use crate::affinity::Pins;
use crate::dispatch;
use crate::effect::Effect;
use crate::estimate::{Calibration, Capacity};
use crate::flight::State;
use crate::policer::{ClassCounts, Policer};
use crate::request::{ClassId, RequestTypeId, ServerId};
use crate::server::Status;
use crate::setup::{ClassSetup, ServerSetup, Setup, SetupError};
use crate::time::Timestamp;
use crate::waiting::Waiting;

impl Controller {
    /// Takes over another setup without losing a request: in-flight ones stay with their servers, waiting ones wait on
    /// (in the least important class, if theirs is gone). Removed servers drain. Fetch the
    /// [policer](Controller::policer) again afterwards.
    ///
    /// # Errors
    /// When the setup makes no sense; nothing has changed then.
    pub fn reconfigure(&mut self, now: Timestamp, setup: Setup) -> Result<(), SetupError> {
        setup.check()?;
        let same_policy = setup.admission == self.core.setup.admission && setup.classes == self.core.setup.classes;
        let fresh: Option<Box<dyn AdmissionPolicy>> =
            (!same_policy).then(|| admission::build(&setup.admission, &setup));
        let before = Arc::clone(&self.core.policer);
        self.core.reconfigure(setup);
        if same_policy {
            self.core.policer.inherit_shares(&before);
        }
        let takes_over = fresh.is_some();
        match fresh {
            Some(policy) => {
                self.admission = policy;
                // Until the new policy asks for it.
                self.core.effects.push(Effect::Connections { rate: None, depth: 1.0 });
            }
            None => self.admission.on_setup(&self.core.setup),
        }
        self.core.requeue(self.admission.buckets());
        if self.core.setup.shadow {
            // Nobody waits in shadow mode.
            self.core.context(now).start_all();
        } else if takes_over {
            self.admission.on_takeover(&mut self.core.context(now));
        }
        self.settle(now);
        self.tick(now);
        Ok(())
    }
}

impl Core {
    fn reconfigure(&mut self, setup: Setup) {
        let class_names = |setup: &Setup| -> Vec<String> { setup.classes.iter().map(|c| c.name.clone()).collect() };
        let classes = positions(&class_names(&setup), &class_names(&self.setup));
        let types = positions(&setup.request_types, &self.setup.request_types);
        self.rename_requests(&classes, &types);
        self.replace_policer(&setup, &classes);
        self.replace_classes(&setup, &classes);
        self.costs.remap(&types, &classes, default_cost(&setup));
        if setup.sla.statistic() != self.setup.sla.statistic() {
            self.calibration = Calibration::new(setup.sla.statistic());
        }
        self.replace_servers(&setup.servers);
        self.replace_partitions(&setup);
        if setup.affinity.as_ref() != self.pins.as_ref().map(Pins::config) {
            self.pins = setup.affinity.as_ref().map(Pins::new);
        }
        if setup.dispatch != self.setup.dispatch {
            self.dispatch = dispatch::build(&setup.dispatch, &setup);
            // Until the new policy asks for it.
            self.servers.iter_mut().for_each(|server| server.lent = 0);
        }
        self.setup = setup;
        self.count_servers();
    }

    /// Gives waiting and flying requests the new numbers of their classes and types.
    fn rename_requests(&mut self, classes: &[Option<usize>], types: &[Option<usize>]) {
        let new_class = |old: ClassId| classes.iter().position(|&at| at == Some(old.index()));
        let new_type = |old: RequestTypeId| types.iter().position(|&at| at == Some(old.index()));
        let last = classes.len() - 1;
        for (_, flight) in self.flights.iter_mut() {
            let request = &mut flight.request;
            request.class = ClassId(new_class(request.class).unwrap_or(last) as u8);
            request.request_type = RequestTypeId(new_type(request.request_type).unwrap_or(0) as u16);
        }
    }

    fn replace_policer(&mut self, setup: &Setup, classes: &[Option<usize>]) {
        let lanes = self.policer.lanes();
        let seed = self.rng.next_u64();
        let mut policer = Policer::new(setup.admission.name(), setup, lanes, seed);
        let old = |at: &Option<usize>| at.map(|at| ClassId(at as u8));
        let pairs: Vec<(ClassSetup, Option<ClassId>)> =
            setup.classes.iter().cloned().zip(classes.iter().map(old)).collect();
        policer.inherit_guarantees(&self.policer, &pairs);
        // Requests that a worker polices by the old table from now on are lost to the counters: a handful at most.
        for (class, stats) in self.stats.iter_mut().enumerate() {
            let counts = self.policer.counts(ClassId(class as u8));
            stats.carried = sum(stats.carried, counts);
        }
        self.policer = Arc::new(policer);
    }

    fn replace_classes(&mut self, setup: &Setup, classes: &[Option<usize>]) {
        let (old_stats, old_estimates) = (core::mem::take(&mut self.stats), core::mem::take(&mut self.classes));
        for (class, at) in setup.classes.iter().zip(classes) {
            let stats = at.map_or_else(ClassStats::new, |at| old_stats[at].clone());
            let mut estimate = at.map_or_else(|| new_class(class), |at| old_estimates[at].clone());
            estimate.min_rate = class.min_rate;
            self.stats.push(stats);
            self.classes.push(estimate);
        }
        self.counted = alloc::vec![ClassCounts::default(); setup.classes.len()];
        for (class, stats) in self.stats.iter_mut().enumerate() {
            let id = ClassId(class as u8);
            stats.in_flight = 0;
            let flying = |state: State| matches!(state, State::InFlight { .. });
            let count = self.flights.iter_mut().filter(|(_, f)| f.request.class == id && flying(f.state)).count();
            stats.in_flight = count as u64;
        }
    }

    fn replace_servers(&mut self, setups: &[ServerSetup]) {
        for server in &mut self.servers {
            match setups.iter().find(|setup| setup.name == server.name) {
                None if server.in_flight > 0 => server.status = Status::Draining,
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
            let free = |s: &crate::server::ServerState| s.status == Status::Removed && s.in_flight == 0;
            match self.servers.iter().position(free) {
                Some(at) => {
                    self.servers[at] = new_server(at, setup);
                    self.pins.iter_mut().for_each(|pins| pins.forget(ServerId(at as u16)));
                }
                None => self.servers.push(new_server(self.servers.len(), setup)),
            }
        }
    }

    /// Puts waiting requests into the queues of the policy now in force. Their buckets are unknown to it: the first.
    fn requeue(&mut self, buckets: usize) {
        let mut waiting = Waiting::new(self.classes.len(), buckets);
        let queued: Vec<(u32, ClassId)> = self
            .flights
            .iter_mut()
            .filter_map(|(slot, flight)| match &mut flight.state {
                State::Waiting { bucket } => {
                    *bucket = (*bucket).min(buckets - 1);
                    Some((slot, flight.request.class))
                }
                State::InFlight { .. } => None,
            })
            .collect();
        for (slot, class) in queued {
            let ticket = self.flights.ticket(slot);
            let bucket = match self.flights.get(ticket).map(|flight| flight.state) {
                Some(State::Waiting { bucket }) => bucket,
                _ => continue,
            };
            waiting.push(&mut self.flights, class, bucket, slot);
        }
        self.waiting = waiting;
    }

    /// The server's id by name, among those not removed.
    pub(super) fn server_named(&self, name: &str) -> Option<ServerId> {
        let is = |s: &&crate::server::ServerState| s.name == name && s.status != Status::Removed;
        self.servers.iter().find(is).map(|server| server.id)
    }
}

impl Controller {
    /// The id of the server of that name.
    pub fn server_named(&self, name: &str) -> Option<ServerId> {
        self.core.server_named(name)
    }
}

/// For each new name, where it stood before.
fn positions(new: &[String], old: &[String]) -> Vec<Option<usize>> {
    new.iter().map(|name| old.iter().position(|before| before == name)).collect()
}

fn sum(a: ClassCounts, b: ClassCounts) -> ClassCounts {
    ClassCounts {
        offered: a.offered + b.offered,
        guaranteed: a.guaranteed + b.guaranteed,
        refused: a.refused + b.refused,
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
