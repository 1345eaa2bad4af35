//! A cluster on a bench: servers that hold what they are given, a class for each partition, 18 of 26 in flight.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use crate::{
    AdmissionConfig, ClassId, ClassSetup, Controller, Decision, MaxConn, NoEvents, Outcome, Request, ServerId,
    ServerSetup, Setup, Sla, Statistic, Status, Ticket, Timestamp, WhenAllDown,
};

pub(super) struct Cluster {
    controller: Controller,
    now: Timestamp,
    held: Vec<(u8, Ticket)>,
}

impl Cluster {
    pub(super) fn new(servers: usize, classes: usize, partition: &str) -> Cluster {
        Cluster::of(Cluster::setup(servers, classes, partition))
    }

    pub(super) fn setup(servers: usize, classes: usize, partition: &str) -> Setup {
        let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("more than zero");
        let mut setup = Setup::simple("cluster", sla, (0..servers).map(|at| ServerSetup::new(format!("s{at}"))));
        setup.classes = (0..classes).map(|at| ClassSetup::new(format!("c{at}"))).collect();
        setup.admission = AdmissionConfig::from_name("none").expect("a name of the table");
        setup.partition = serde_json::from_str(partition).unwrap_or_else(|error| panic!("{partition}: {error}"));
        setup.max_conn =
            alloc::vec![MaxConn { name: "default".into(), within_target: 18.0, most: 26.0, ..MaxConn::unknown() }];
        setup
    }

    pub(super) fn of(setup: Setup) -> Cluster {
        let controller = Controller::new(setup, 1, 1, Box::new(NoEvents)).expect("it makes sense");
        Cluster { controller, now: Timestamp::ZERO, held: Vec::new() }
    }

    /// Requests of a class come and stay; to which servers they went.
    pub(super) fn hold(&mut self, class: u8, count: usize) -> Vec<u16> {
        let mut servers = Vec::new();
        for _ in 0..count {
            let request = Request { class: ClassId(class), ..Request::default() };
            let Decision::Admit { ticket, server, .. } = self.controller.handle_arrival(self.now, request) else {
                panic!("nothing is refused")
            };
            self.held.push((class, ticket));
            servers.push(server.0);
        }
        servers
    }

    /// A class has so many requests in flight, no more and no fewer.
    pub(super) fn only(&mut self, class: u8, count: usize) {
        let held = self.held.iter().filter(|(of, _)| *of == class).count();
        self.hold(class, count.saturating_sub(held));
        for _ in count..held {
            let at = self.held.iter().position(|(of, _)| *of == class).expect("they are held");
            let (_, ticket) = self.held.swap_remove(at);
            self.controller.handle_completion(self.now, ticket, Outcome::answered());
        }
    }

    /// All that is held ends, and as much comes again.
    pub(super) fn turn_over(&mut self) {
        for (class, ticket) in core::mem::take(&mut self.held) {
            self.controller.handle_completion(self.now, ticket, Outcome::answered());
            self.hold(class, 1);
        }
    }

    pub(super) fn seconds(&mut self, seconds: u64) {
        self.pass(Duration::from_secs(seconds));
    }

    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some((at, _)) = self.controller.poll_timeout()
            && at <= end
        {
            self.now = at;
            self.controller.handle_timeout(at);
        }
    }

    pub(super) fn down(&mut self, server: u16) {
        self.controller.handle_server(self.now, ServerId(server), Status::Down);
    }

    pub(super) fn up(&mut self, server: u16) {
        self.controller.handle_server(self.now, ServerId(server), Status::Up);
    }

    pub(super) fn when_all_down(&mut self, what: WhenAllDown) {
        let mut setup = self.controller.setup().clone();
        setup.when_all_down = what;
        self.controller.reconfigure(self.now, setup).expect("it makes sense");
    }

    pub(super) fn owner(&self, server: u16) -> Option<u8> {
        self.controller.servers()[usize::from(server)].partition
    }

    pub(super) fn in_flight(&self, server: u16) -> u32 {
        self.controller.servers()[usize::from(server)].in_flight
    }

    pub(super) fn group_of(&self, class: u8) -> usize {
        let partitions = self.controller.snapshot(self.now).partitions;
        let name = format!("c{class}");
        partitions.iter().position(|partition| partition.classes.contains(&name)).expect("every class has one")
    }
}

/// How many live servers each partition has.
pub(super) fn sizes(cluster: &Cluster) -> Vec<usize> {
    cluster.controller.partition_sizes().to_vec()
}
