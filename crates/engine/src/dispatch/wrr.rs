//! Weighted round robin: each server in turn, in proportion to its weight.
//!
//! *Intuition.* Dealing cards, where some players get two a round; a double portion is spread over the round, not dealt
//! in one go.
//!
//! *Applied.* A few servers are dealt to by smooth weighted round robin, as nginx does it: every server's credit grows
//! by its weight, the largest credit is chosen and pays the sum. That looks at every server. Of many, each has an
//! instant when it is due, `1 / weight` after the one before; the earliest is next, found in a tournament tree for each
//! partition ([`Forest`]) in log2(n) steps. Shares are the same; within a round, servers of one weight come in an order
//! that is drawn.
//!
//! *Awkward cases.* A server that takes nothing gathers no credit, so it is not flooded when it comes back: nor one
//! that comes from another partition.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::forest::{Forest, group};
use super::{DispatchPolicy, View};
use crate::demands::Demands;
use crate::fleet::{ServerState, Status};
use crate::request::{Request, ServerId};
use crate::setup::Setup;

/// No settings: weights belong to the servers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {}

impl Config {
    pub(super) fn demands(&self) -> Demands {
        Demands { weights: true, ..Demands::default() }
    }

    pub(super) fn build(&self, setup: &Setup) -> Wrr {
        Wrr { credit: alloc::vec![0.0; setup.servers.len()], many: None }
    }
}

/// Up to so many servers, looking at each is faster than keeping a tree.
const SCANNED: usize = 16;

/// State of the policy `wrr`.
#[derive(Debug)]
pub struct Wrr {
    credit: Vec<f64>,
    /// `None`: few servers.
    many: Option<Many>,
}

/// Turns of many servers.
#[derive(Debug)]
struct Many {
    trees: Forest,
    /// By server: when it is next, in rounds.
    due: Vec<f64>,
    /// By partition: when the last choice was due.
    clocks: Vec<f64>,
    taking: Status,
}

impl DispatchPolicy for Wrr {
    fn choose(&mut self, view: &mut View<'_>, _request: &Request) -> Option<ServerId> {
        match &mut self.many {
            Some(many) => many.choose(view),
            None => scan(&mut self.credit, view),
        }
    }

    fn follows_load(&self) -> bool {
        self.many.is_some()
    }

    fn on_load_changed(&mut self, server: &ServerState) {
        if let Some(many) = &mut self.many {
            many.refresh(server);
        }
    }

    fn on_servers_changed(&mut self, servers: &[ServerState], taking: Status) {
        self.credit.resize(servers.len(), 0.0);
        let before = self.many.take();
        self.many = (servers.len() > SCANNED).then(|| Many::new(servers, taking, before));
    }
}

fn scan(credit: &mut [f64], view: &View<'_>) -> Option<ServerId> {
    let mut sum = 0.0;
    let mut best: Option<ServerId> = None;
    for server in view.servers.iter().filter(|server| view.has(server)) {
        let at = server.id.index();
        if !view.takes(server) {
            credit[at] = 0.0;
            continue;
        }
        sum += server.weight;
        credit[at] += server.weight;
        if best.is_none_or(|b| credit[at] > credit[b.index()]) {
            best = Some(server.id);
        }
    }
    if let Some(best) = best {
        credit[best.index()] -= sum;
    }
    best
}

impl Many {
    /// Turns go on where they stood.
    fn new(servers: &[ServerState], taking: Status, before: Option<Many>) -> Many {
        let (mut due, mut clocks) = before.map_or_else(Default::default, |before| (before.due, before.clocks));
        clocks.resize(servers.iter().map(group).max().map_or(1, |last| last + 1), 0.0);
        due.resize(servers.len(), 0.0);
        for server in servers {
            let (due, clock) = (&mut due[server.id.index()], clocks[group(server)]);
            // Neither turns that were missed, nor those that another partition had before this one.
            let round = 1.0 / server.weight;
            *due = if *due < clock || *due > clock + round { clock + round } else { *due };
        }
        let trees = Forest::new(servers, |server| takes(server, taking).then(|| due[server.id.index()]));
        Many { trees, due, clocks, taking }
    }

    fn choose(&mut self, view: &mut View<'_>) -> Option<ServerId> {
        let except = view.except.and_then(|id| view.servers.get(id.index()));
        if let Some(except) = except {
            self.trees.set(except, None);
        }
        let chosen = self.trees.draw(view.partition, view.rng).map(|id| &view.servers[id.index()]);
        if let Some(except) = except {
            self.refresh(except);
        }
        let server = chosen?;
        let due = &mut self.due[server.id.index()];
        self.clocks[group(server)] = *due;
        *due += 1.0 / server.weight;
        self.refresh(server);
        Some(server.id)
    }

    /// It may be full now, or have room again.
    fn refresh(&mut self, server: &ServerState) {
        let due = &mut self.due[server.id.index()];
        *due = due.max(self.clocks[group(server)]);
        self.trees.set(server, takes(server, self.taking).then_some(*due));
    }
}

fn takes(server: &ServerState, taking: Status) -> bool {
    server.status == taking && server.has_room()
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use core::time::Duration;

    use super::*;
    use crate::{
        AdmissionConfig, Controller, Decision, DispatchConfig, NoEvents, Outcome, ServerSetup, Sla, Statistic, Ticket,
        Timestamp,
    };

    fn controller(weights: &[f64], max: Option<u32>) -> Controller {
        let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("more than zero");
        let server = |(at, &weight): (usize, &f64)| ServerSetup {
            weight,
            max_connections: max,
            ..ServerSetup::new(alloc::format!("s{at}"))
        };
        let mut setup = Setup::simple("wrr", sla, weights.iter().enumerate().map(server));
        setup.admission = AdmissionConfig::from_name("none").expect("a name of the table");
        setup.dispatch = DispatchConfig::from_name("wrr").expect("a name of the table");
        Controller::new(setup, 1, 1, Box::new(NoEvents)).expect("it makes sense")
    }

    fn send(controller: &mut Controller) -> Option<(Ticket, ServerId)> {
        match controller.handle_arrival(Timestamp::ZERO, Request::default()) {
            Decision::Admit { ticket, server, .. } => Some((ticket, server)),
            _ => None,
        }
    }

    fn deal(controller: &mut Controller, requests: usize) -> Vec<u32> {
        let mut counts = alloc::vec![0; controller.servers().len()];
        for _ in 0..requests {
            counts[send(controller).expect("nothing is refused").1.index()] += 1;
        }
        counts
    }

    #[test]
    fn few_and_many_servers_get_their_weights_share_in_every_round() {
        for servers in [5usize, 40] {
            let weights: Vec<f64> = (0..servers).map(|at| [1.0, 2.0, 0.5][at % 3]).collect();
            let sum: f64 = weights.iter().sum();
            let mut controller = controller(&weights, None);
            for round in 1..4 {
                let requests = (sum * 4.0) as usize;
                for (at, count) in deal(&mut controller, requests).into_iter().enumerate() {
                    let fair = 4.0 * weights[at];
                    assert!((f64::from(count) - fair).abs() <= 2.0, "round {round}, {at}: {count} of {fair}");
                }
            }
        }
    }

    #[test]
    fn one_that_comes_back_is_not_flooded() {
        for servers in [4usize, 40] {
            let mut controller = controller(&alloc::vec![1.0; servers], None);
            controller.handle_server(Timestamp::ZERO, ServerId(1), Status::Down);
            assert_eq!(deal(&mut controller, 100 * servers)[1], 0);
            controller.handle_server(Timestamp::ZERO, ServerId(1), Status::Up);
            let counts = deal(&mut controller, 3 * servers);
            assert!((2..=4).contains(&counts[1]), "{counts:?}");
        }
    }

    #[test]
    fn a_full_server_is_passed_over_until_it_has_room() {
        for servers in [4usize, 40] {
            let mut controller = controller(&alloc::vec![1.0; servers], Some(1));
            let sent: Vec<(Ticket, ServerId)> = (0..servers).filter_map(|_| send(&mut controller)).collect();
            assert_eq!((sent.len(), send(&mut controller)), (servers, None));
            let (ticket, server) = sent[2];
            controller.handle_completion(Timestamp::ZERO, ticket, Outcome::answered());
            assert_eq!(send(&mut controller).map(|(_, server)| server), Some(server));
        }
    }
}
