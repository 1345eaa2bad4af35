//! What the tests of all systems need: a small world, and requests that are asked about by hand.

use std::time::Duration;

use tidegate_engine::{ClassSetup, ServerSetup, Setup, Sla, Statistic, Timestamp};

use super::{Asked, Cooperation, Hop, Stay, Turn, Verdict};
use crate::model::{ServerModel, Tier};
use crate::park::Ending;
use crate::world::World;

/// Clients call the first service, and that the second.
pub(super) const ENTRY: Hop = Hop { from: None, to: 0 };
pub(super) const INNER: Hop = Hop { from: Some(0), to: 1 };

/// Two services of one server of two cores each, two classes, a target of 500 ms at the 95th percentile.
pub(super) fn world() -> World {
    let sla = Sla::constant(Statistic::P95, Duration::from_millis(500)).expect("more than zero");
    let mut setup = Setup::simple("world", sla, [ServerSetup::new("s")]);
    setup.classes = ["gold", "bronze"].map(ClassSetup::new).to_vec();
    let server = ServerModel::new(2.0, tidegate_workload::Discipline::Fifo);
    let mut world = World::new(setup, vec![server.clone()], Duration::from_secs(60));
    let tier = Tier { name: "second".into(), servers: vec![server], latency: Duration::ZERO, sentry: None };
    world.tiers.push(tier);
    world
}

/// A request of a class, of whom `lot` says.
pub(super) fn asked(number: u32, class: u8, lot: f64) -> Asked {
    Asked { number, class, api: 0, lot }
}

/// Whether it is let in.
pub(super) fn enters(system: &mut dyn Cooperation, at: Timestamp, hop: Hop, asked: &Asked) -> bool {
    system.asks(at, hop, asked) == Verdict::In
}

/// What was let in is answered, after it waited so long.
pub(super) fn answer(system: &mut dyn Cooperation, at: Timestamp, hop: Hop, asked: &Asked, waited: f64) {
    system.processed(at, hop, asked, &Turn { waited, work: 0.010 });
    system.ended(at, hop, asked, &Stay { response: waited + 0.010, ending: Ending::Served });
}

/// Time goes on.
pub(super) fn pass(system: &mut dyn Cooperation, until: Timestamp) {
    while system.next_timeout() <= until {
        system.time_out(system.next_timeout());
    }
}
