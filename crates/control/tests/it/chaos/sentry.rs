//! A sentry, as far as it decides: its controller, and what it knows of its requests.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_engine::{
    AdmissionConfig, Controller, NoEvents, ServerId, ServerSetup, Setup, Sla, Statistic, Status, Ticket, Timestamp,
};

use super::SERVERS;

/// A request as its sentry sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) server: ServerId,
    pub(super) since: Timestamp,
    /// When its server answers; `None`: never.
    pub(super) ends: Option<Timestamp>,
    /// Its client is gone.
    pub(super) left: bool,
}

/// A sentry: its controller, and what it knows of its requests.
pub(super) struct Sentry {
    pub(super) controller: Controller,
    pub(super) policy: &'static str,
    pub(super) jobs: BTreeMap<Ticket, Job>,
    pub(super) waiting: Vec<Ticket>,
    /// The newest orders that it heard, and their number.
    pub(super) orders: (u64, Vec<usize>),
    pub(super) offered: u64,
}

pub(super) fn controller(policy: &str, seed: u64) -> Controller {
    let sla = Sla::constant(Statistic::P95, Duration::from_millis(500)).expect("a target");
    let mut setup = Setup::simple("app", sla, (0..SERVERS).map(|place| ServerSetup::new(format!("place-{place}"))));
    setup.admission = AdmissionConfig::from_name(policy).expect("a policy");
    let mut controller = Controller::new(setup, 1, seed, Box::new(NoEvents)).expect("it makes sense");
    for place in 0..SERVERS {
        controller.handle_server(Timestamp::ZERO, ServerId(place as u16), Status::Down);
    }
    controller
}

impl Sentry {
    pub(super) fn new(policy: &'static str, seed: u64) -> Sentry {
        let (jobs, waiting, orders) = (BTreeMap::new(), Vec::new(), (0, Vec::new()));
        Sentry { controller: controller(policy, seed), policy, jobs, waiting, orders, offered: 0 }
    }

    /// It gets requests where it was told to, and nowhere else.
    pub(super) fn obey(&mut self, now: Timestamp) {
        for place in 0..SERVERS {
            let is_mine = self.orders.1.contains(&place);
            let status = if is_mine { Status::Up } else { Status::Draining };
            self.controller.handle_server(now, ServerId(place as u16), status);
        }
    }

    /// As many places are taken as requests hold them, and those that nobody saw the end of fade.
    pub(super) fn adds_up(&self) {
        let at_servers: u32 = self.controller.servers().iter().map(|server| server.in_flight).sum();
        assert_eq!(at_servers as usize, self.controller.in_flight(), "places at servers and in all");
        assert!(self.controller.in_flight() >= self.jobs.len(), "a place was lost");
        assert_eq!(self.controller.waiting(), self.waiting.len(), "who waits");
    }
}
