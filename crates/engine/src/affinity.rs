//! Sessions and pages that stay with a server.
//!
//! *Intuition.* A waiter who has taken a table's order brings the dishes too: what one server has fetched for a page or
//! a session need not be fetched again by another.
//!
//! *Applied.* The classifier hashes the value of a cookie or header to a key. The first request with a key goes where
//! the dispatch policy says; those after it go to the same server while one comes within `idle` of the other. The table
//! is bounded: four places for each value of the key's low bits, of which the one that was not used for longest goes.
//! A key that a server itself gave out (it set the cookie) goes for none that only a client claims: else who sends one
//! random cookie after the other would make everybody's session move.
//!
//! *Awkward cases.* A pin is a wish. A server that is down, drains, is full, left the class's partition, or just failed
//! this very request does not get it: the dispatch policy chooses another, and the pin moves there. Keys are hashed
//! with a secret, so clients cannot aim at each other's places.
//!
//! *Source.* M. Andreolini et al. (2004), section 4.2: requests are dispatched by page, so that a page's latency
//! depends on one server.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::request::{AffinityKey, ServerId};
use crate::setup::{SetupError, SetupPlace};
use crate::time::Timestamp;
use crate::units::Seconds;

/// How long and how many.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Affinity {
    /// A key that was not seen for so long is forgotten: seconds for pages, minutes for sessions.
    pub idle: Seconds,
    /// So many keys are remembered, about: rounded up to a power of two.
    pub keys: u32,
}

impl Default for Affinity {
    fn default() -> Self {
        Affinity { idle: Seconds(300.0), keys: 65_536 }
    }
}

impl Affinity {
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        let idle = self.idle.0;
        if !(idle.is_finite() && idle > 0.0) {
            return Err(SetupError::wrong(SetupPlace::Affinity, "idle must be more than zero"));
        }
        match self.keys {
            1..=16_777_216 => Ok(()),
            _ => Err(SetupError::wrong(SetupPlace::Affinity, "keys must be 1 to 16777216")),
        }
    }
}

/// Places with the same low bits of the key.
const WAYS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Pin {
    /// [`AffinityKey::NONE`]: free.
    key: AffinityKey,
    server: ServerId,
    used: Timestamp,
    /// A server gave the key out.
    is_given: bool,
}

/// Which server each key is pinned to.
#[derive(Debug)]
pub(crate) struct Pins {
    config: Affinity,
    sets: Vec<[Pin; WAYS]>,
}

impl Pins {
    pub(crate) fn new(config: &Affinity) -> Pins {
        let sets = (config.keys as usize).div_ceil(WAYS).next_power_of_two();
        Pins { config: config.clone(), sets: alloc::vec![[Pin::default(); WAYS]; sets] }
    }

    /// The settings it was made from.
    pub(crate) fn config(&self) -> &Affinity {
        &self.config
    }

    /// Where a key is pinned to.
    pub(crate) fn server(&self, now: Timestamp, key: AffinityKey) -> Option<ServerId> {
        let idle = self.config.idle.duration();
        let pin = self.set(key).iter().find(|pin| pin.key == key)?;
        (now.since(pin.used) <= idle).then_some(pin.server)
    }

    /// A request with a key goes to a server; or, where it `is_given`, the server's answer set it.
    pub(crate) fn pin(&mut self, now: Timestamp, key: AffinityKey, server: ServerId, is_given: bool) {
        let (at, idle) = (self.index(key), self.config.idle.duration());
        let set = &mut self.sets[at];
        let old = set.iter().position(|pin| pin.key == key);
        let free = |pin: &Pin| pin.key == AffinityKey::NONE || now.since(pin.used) > idle;
        let oldest =
            |given: bool| (0..WAYS).filter(|&way| given || !set[way].is_given).min_by_key(|&way| set[way].used);
        let given = is_given || old.is_some_and(|way| set[way].is_given);
        let way = old.or_else(|| set.iter().position(free)).or_else(|| oldest(false)).or_else(|| oldest(given));
        if let Some(way) = way.filter(|&way| given || !set[way].is_given || free(&set[way])) {
            set[way] = Pin { key, server, used: now, is_given: given };
        }
    }

    /// A server is gone: its number may be another's soon.
    pub(crate) fn forget(&mut self, server: ServerId) {
        self.sets.iter_mut().flatten().filter(|pin| pin.server == server).for_each(|pin| *pin = Pin::default());
    }

    /// The sessions that are not over at `now`, those used last first, at most `most`: their keys, servers, seconds
    /// since they were used, and whether a server began them.
    pub(crate) fn keep(&self, now: Timestamp, most: usize) -> Vec<(AffinityKey, ServerId, f64, bool)> {
        let idle = self.config.idle.duration();
        let used = |pin: &&Pin| pin.key != AffinityKey::NONE && now.since(pin.used) <= idle;
        let kept = self.sets.iter().flatten().filter(used);
        let kept = kept.map(|pin| (pin.key, pin.server, now.seconds_since(pin.used), pin.is_given));
        let mut kept: Vec<_> = kept.collect();
        kept.sort_unstable_by(|a, b| a.2.total_cmp(&b.2));
        kept.truncate(most);
        kept
    }

    fn set(&self, key: AffinityKey) -> &[Pin; WAYS] {
        &self.sets[self.index(key)]
    }

    fn index(&self, key: AffinityKey) -> usize {
        key.0 as usize & (self.sets.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use core::time::Duration;

    use super::*;
    use crate::{
        AdmissionConfig, Controller, Decision, DispatchConfig, NoEvents, Request, ServerSetup, Setup, Sla, Statistic,
        Status, Ticket,
    };

    const SECOND: Duration = Duration::from_secs(1);

    fn controller(dispatch: &str, servers: usize) -> Controller {
        let sla = Sla::constant(Statistic::P95, SECOND).expect("more than zero");
        let server = |at| ServerSetup::new(alloc::format!("s{at}"));
        let mut setup = Setup::simple("affinity", sla, (0..servers).map(server));
        setup.admission = AdmissionConfig::from_name("none").expect("a name of the table");
        setup.dispatch = DispatchConfig::from_name(dispatch).expect("a name of the table");
        setup.affinity = Some(Affinity { idle: Seconds(10.0), keys: 100 });
        Controller::new(setup, 1, 1, Box::new(NoEvents)).expect("it makes sense")
    }

    fn send(controller: &mut Controller, now: Timestamp, key: u64) -> (Ticket, ServerId) {
        let request = Request { affinity: AffinityKey(key), ..Request::default() };
        match controller.handle_arrival(now, request) {
            Decision::Admit { ticket, server, .. } => (ticket, server),
            other => panic!("nothing is refused: {other:?}"),
        }
    }

    #[test]
    fn a_session_stays_with_its_server_however_loaded_until_it_was_idle() {
        for (dispatch, servers) in [("jsq", 4), ("wrr", 4), ("jsq", 40), ("wrr", 40)] {
            let mut controller = controller(dispatch, servers);
            let home = send(&mut controller, Timestamp::ZERO, 7).1;
            let mut now = Timestamp::ZERO;
            for _ in 0..50 {
                now = now + 9 * SECOND;
                assert_eq!(send(&mut controller, now, 7).1, home, "{dispatch}");
            }
            assert_eq!(controller.servers()[home.index()].in_flight, 51);
            now = now + 11 * SECOND;
            let elsewhere = (0..20).any(|key| send(&mut controller, now, 100 + key).1 != home);
            assert!(elsewhere, "others are spread");
        }
    }

    #[test]
    fn a_pin_never_holds_against_a_server_that_is_down_or_failed() {
        let now = Timestamp::ZERO;
        let mut controller = controller("jsq", 3);
        let (ticket, home) = send(&mut controller, now, 7);
        let moved = controller.handle_redispatch(now, ticket, home).expect("there are others");
        assert_ne!(moved, home);
        assert_eq!(send(&mut controller, now, 7).1, moved, "the session moves along");
        controller.handle_server(now, moved, Status::Down);
        let third = send(&mut controller, now, 7).1;
        assert_ne!(third, moved);
        controller.handle_server(now, moved, Status::Up);
        assert_eq!(send(&mut controller, now, 7).1, third, "and stays where it is when the dead comes back");
        controller.handle_server(now, third, Status::Draining);
        assert_ne!(send(&mut controller, now, 7).1, third, "it does not keep a server from draining");
    }

    #[test]
    fn a_server_that_is_gone_leaves_no_pins_to_the_next_one_of_its_number() {
        let mut pins = Pins::new(&Affinity::default());
        pins.pin(Timestamp::ZERO, AffinityKey(7), ServerId(1), false);
        pins.pin(Timestamp::ZERO, AffinityKey(8), ServerId(2), false);
        pins.forget(ServerId(1));
        let server = |key| pins.server(Timestamp::ZERO, AffinityKey(key));
        assert_eq!((server(7), server(8)), (None, Some(ServerId(2))));
    }

    #[test]
    fn the_table_is_bounded_and_forgets_the_oldest() {
        let mut pins = Pins::new(&Affinity { idle: Seconds(1e6), keys: 64 });
        for key in 1..=10_000u64 {
            pins.pin(Timestamp::from_nanos(key), AffinityKey(key), ServerId(1), false);
        }
        let now = Timestamp::from_nanos(10_001);
        let known = (1..=10_000).filter(|&key| pins.server(now, AffinityKey(key)).is_some()).count();
        assert_eq!(known, 64);
        assert!(pins.server(now, AffinityKey(10_000)).is_some());
    }

    #[test]
    fn keys_that_clients_make_up_move_no_session_that_a_server_began() {
        let mut pins = Pins::new(&Affinity { idle: Seconds(10.0), keys: 64 });
        let at = |nanos: u64| Timestamp::from_nanos(nanos);
        // The key of a session that its client uses, too, stays what it is.
        pins.pin(at(1), AffinityKey(3), ServerId(2), true);
        pins.pin(at(2), AffinityKey(3), ServerId(2), false);
        for key in 100..10_000 {
            pins.pin(at(key), AffinityKey(key), ServerId(1), false);
        }
        assert_eq!(pins.server(at(10_000), AffinityKey(3)), Some(ServerId(2)));
        let known = (100..10_000).filter(|&key| pins.server(at(10_000), AffinityKey(key)).is_some()).count();
        assert_eq!(known, 63, "and the rest of the table is theirs");
        // Sessions take places of sessions, and those that are idle are everybody's.
        for key in 0..64 {
            pins.pin(at(20_000 + key), AffinityKey(16 * key + 3), ServerId(3), true);
        }
        assert_eq!(pins.server(at(30_000), AffinityKey(3)), None);
        let later = Timestamp::ZERO + 11 * SECOND;
        pins.pin(later, AffinityKey(3 + 16 * 999), ServerId(1), false);
        assert_eq!(pins.server(later, AffinityKey(3 + 16 * 999)), Some(ServerId(1)));
    }
}
