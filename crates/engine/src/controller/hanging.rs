//! Requests that hang: they are at a server that does not work on them.
//!
//! *Intuition.* Who still stands at the counter when twenty who came later have left with their parcels is not being
//! served, however long the queue looks: somebody is fetching a key.
//!
//! *Applied.* A server takes connections and leaves them in its backlog until it has another worker; a request waits
//! for a lock, a connection to a database, a time-out. Counted as in service, such requests make others look cheap, as
//! these seem to get less of the processors than they do, and servers slow, and take room that is free; and what they
//! took in the end would make their kind look dear. So ten times a second those are looked for that should have been
//! answered long ago ([`Calibration::no_accident`](crate::estimate::Calibration::no_accident)) and were overtaken
//! ([`OVERTAKERS`]). They are set aside: not in service, and no lesson for capacities, nor much of one for costs. The
//! calibration learns that they are late, at once, and the more when they came after it had: so servers that hang
//! because they have too many get fewer.
//!
//! *Awkward cases.* A server that stands still altogether answers nobody, so none is overtaken there, and all stay in
//! service: else it would be sent ever more. A request that is dear, though its URL does not say so, is overtaken, too:
//! without it the server looks slower to the others, by what it takes from them, which for them comes to the same. Only
//! where the cost of a URL is well known does it count, and if all its requests seem to hang it is soon known to be
//! dearer ([`Costs::record_hung`](crate::estimate::Costs::record_hung)). In case all this is wrong, those set aside
//! make room for no more than are in service beside them ([`Load::at_work`](crate::admission::Load::at_work)).

use alloc::vec::Vec;

use super::core_state::Core;
use crate::estimate::SEVERAL;
use crate::flight::{Flight, State};
use crate::time::Timestamp;

/// So many that came later were answered.
const OVERTAKERS: u64 = 16;
/// So many places for requests are looked at at once: where more are in flight, in turn.
const LOOKED_AT: usize = 4096;

/// What is known for it.
#[derive(Debug, Default)]
pub(super) struct Hanging {
    /// Slots of those found, while they are looked for.
    found: Vec<u32>,
    /// Where to look next.
    next: usize,
    /// When the calibration learned last that fewer should be let in.
    learned: Timestamp,
}

impl Core {
    /// Sets those aside that hang by now.
    pub(super) fn set_hanging_aside(&mut self, now: Timestamp) {
        if !self.estimates.costs.is_settled() {
            return;
        }
        let factor = self.estimates.calibration.factor();
        let several = self.estimates.calibration.no_accident();
        let Core { traffic, estimates, fleet, hanging, .. } = self;
        let learned = hanging.learned;
        let (flights, next) = traffic.flights.some(hanging.next, LOOKED_AT);
        hanging.next = next;
        hanging.found.extend(flights.filter_map(|(slot, flight)| {
            let &Flight { request, state: State::InFlight { server }, started, mark, .. } = flight else { return None };
            let capacity = &mut fleet.servers[server.index()].capacity;
            let is_excepted = flight.hangs || flight.shadow || flight.first_byte != Timestamp::MAX;
            if is_excepted || capacity.overtakers(mark) < OVERTAKERS || !estimates.costs.knows(&request) {
                return None;
            }
            let cost = flight.cost.max(estimates.costs.estimate(&request));
            if capacity.received(now, mark) < several * cost {
                return None;
            }
            capacity.set_aside(now, mark, now.seconds_since(started));
            // It hangs although fewer were let in by then: still fewer.
            let is_news = started >= learned;
            estimates.calibration.record(now, if is_news { several } else { factor.max(SEVERAL) }, 1.0);
            if is_news {
                hanging.learned = now;
            }
            Some(slot)
        }));
        hanging.found.drain(..).for_each(|slot| traffic.set_aside(slot));
    }
}
