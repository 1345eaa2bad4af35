//! Join the shortest queue: the server with the fewest requests in flight per effective processor.
//!
//! *Intuition.* The shortest line at the supermarket, where a till with two cashiers counts its line half.
//!
//! *Applied.* A few servers are looked at one by one. Of many, a tournament tree is kept for each partition
//! ([`Forest`]): a request then costs log2(n) steps when it is sent, and as many when it starts and ends. An ordered
//! structure rather than sampling two servers at random: it is exact, so that the queues' lengths differ by one and not
//! by the two or three that sampling leaves, and at 1,000 servers it costs no more than the cache misses of sampling
//! would.
//!
//! *Awkward cases.* Equal lines are ordinary at low load; taking the first would send everything to one server and
//! leave the others' caches and pooled connections cold, so ties are drawn. A request that goes to another server
//! because one failed must not choose that one again: it leaves the tree for that choice. What a server can do is
//! learned from what it does, and what it gets to do would follow from what it is thought able to do: in a large fleet
//! that is far from full equal servers would be taken for unequal, and stay so. Those on which requests were not seen
//! to be slower when there are more of them count as the largest of these, and where these are most, no other as more.

use serde::{Deserialize, Serialize};

use super::forest::Forest;
use super::{DispatchPolicy, View};
use crate::fleet::{ServerState, Status};
use crate::request::{Request, ServerId};
use crate::setup::Setup;

/// No settings.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {}

impl Config {
    pub(super) fn build(&self, _setup: &Setup) -> Jsq {
        Jsq { trees: None, taking: Status::Up }
    }
}

/// Up to so many servers, looking at each is faster than keeping a tree.
const SCANNED: usize = 16;

/// State of the policy `jsq`.
#[derive(Debug)]
pub struct Jsq {
    /// By relative load; `None`: few servers.
    trees: Option<Forest>,
    /// The state in which servers take requests.
    taking: Status,
}

impl DispatchPolicy for Jsq {
    fn choose(&mut self, view: &mut View<'_>, _request: &Request) -> Option<ServerId> {
        let Some(trees) = &mut self.trees else { return scan(view) };
        let except = view.except.and_then(|id| view.servers.get(id.index()));
        let Some(except) = except else { return trees.draw(view.partition, view.rng) };
        trees.set(except, None);
        let chosen = trees.draw(view.partition, view.rng);
        trees.set(except, load(except, self.taking));
        chosen
    }

    fn follows_load(&self) -> bool {
        self.trees.is_some()
    }

    fn on_load_changed(&mut self, server: &ServerState) {
        if let Some(trees) = &mut self.trees {
            trees.set(server, load(server, self.taking));
        }
    }

    fn on_servers_changed(&mut self, servers: &[ServerState], taking: Status) {
        self.taking = taking;
        self.trees = (servers.len() > SCANNED).then(|| Forest::new(servers, |server| load(server, taking)));
    }
}

/// What is compared; `None` for a server that takes nothing.
fn load(server: &ServerState, taking: Status) -> Option<f64> {
    (server.status == taking && server.has_room()).then(|| server.relative_load())
}

fn scan(view: &mut View<'_>) -> Option<ServerId> {
    let mut best: Option<(f64, ServerId)> = None;
    let mut ties = 1;
    for server in view.servers {
        if !view.takes(server) {
            continue;
        }
        let load = server.relative_load();
        match best {
            Some((least, _)) if load > least => continue,
            Some((least, _)) if load == least => {
                // The n-th of equals replaces the choice with probability 1/n: all are equally likely.
                ties += 1;
                if view.rng.below(ties) > 0 {
                    continue;
                }
            }
            _ => ties = 1,
        }
        best = Some((load, server.id));
    }
    best.map(|(_, id)| id)
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::format;
    use alloc::vec::Vec;
    use core::time::Duration;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        AdmissionConfig, Controller, Decision, NoEvents, Outcome, ServerSetup, Sla, Statistic, Ticket, Timestamp,
    };

    /// Servers of different processors, some known and some to be learned, some with a limit.
    fn setup(servers: usize) -> Setup {
        let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("more than zero");
        let server = |i: usize| ServerSetup {
            cores: (!i.is_multiple_of(3)).then_some(1.0 + (i % 4) as f64),
            max_connections: i.is_multiple_of(5).then_some(1 + i as u32 % 3),
            ..ServerSetup::new(format!("s{i}"))
        };
        let mut setup = Setup::simple("jsq", sla, (0..servers).map(server));
        setup.admission = AdmissionConfig::from_name("none").expect("a name of the table");
        setup
    }

    /// The servers that take a request and have the least load, looked at one by one.
    fn least(controller: &Controller, except: Option<ServerId>) -> Vec<ServerId> {
        let servers = controller.servers();
        let any_up = servers.iter().any(|server| server.status == Status::Up);
        let taking = if any_up { Status::Up } else { Status::Down };
        let takes = |server: &&ServerState| load(server, taking).is_some() && Some(server.id) != except;
        let least = servers.iter().filter(takes).map(ServerState::relative_load).fold(f64::INFINITY, f64::min);
        let best = servers.iter().filter(takes).filter(|server| server.relative_load() == least);
        best.map(|server| server.id).collect()
    }

    fn sends(best: &[ServerId], chosen: Option<ServerId>) -> bool {
        chosen.map_or(best.is_empty(), |server| best.contains(&server))
    }

    proptest! {
        /// Whatever happened before: with few servers as with many, and when one that failed is left out.
        #[test]
        fn every_request_goes_to_a_least_loaded_server(
            servers in prop::sample::select(alloc::vec![3usize, 17, 40]),
            steps in prop::collection::vec((0u8..14, any::<prop::sample::Index>()), 1..300),
        ) {
            let mut controller = Controller::new(setup(servers), 1, 1, Box::new(NoEvents)).expect("it makes sense");
            let mut flying: Vec<Ticket> = Vec::new();
            let mut now = Timestamp::ZERO;
            for (what, which) in steps {
                now = now + Duration::from_millis(7);
                match what {
                    0..7 => {
                        let best = least(&controller, None);
                        let decision = controller.handle_arrival(now, Request::default());
                        let Decision::Admit { ticket, server, .. } = decision else {
                            prop_assert!(best.is_empty());
                            continue;
                        };
                        prop_assert!(best.contains(&server), "{:?} is none of {:?}", server, best);
                        flying.push(ticket);
                    }
                    7..10 if !flying.is_empty() => {
                        let ticket = flying.swap_remove(which.index(flying.len()));
                        controller.handle_completion(now, ticket, Outcome::answered());
                    }
                    10 if !flying.is_empty() => {
                        let ticket = flying[which.index(flying.len())];
                        let failed = controller.server_of(ticket).expect("it is in flight");
                        let best = least(&controller, Some(failed));
                        let chosen = controller.handle_redispatch(now, ticket, failed);
                        prop_assert!(sends(&best, chosen), "{:?} is none of {:?}", chosen, best);
                    }
                    11 => controller.handle_timeout(now),
                    12 => {
                        let status = [Status::Up, Status::Down, Status::Draining][which.index(3)];
                        let server = ServerId(which.index(servers) as u16);
                        controller.handle_server(now, server, status);
                    }
                    13 => {
                        let mut setup = setup(servers);
                        setup.servers.remove(which.index(servers));
                        controller.reconfigure(now, setup).expect("it makes sense");
                    }
                    _ => {}
                }
            }
        }
    }
}
