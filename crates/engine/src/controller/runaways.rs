//! Targeted cancellation: a request that has used several times its predicted cost is ended for the sake of more
//! important ones.
//!
//! *Intuition.* A ward round does not end because one examination takes all day. When patients who matter more are kept
//! waiting, that one examination is broken off, and the others go on; nobody sends half the waiting room home instead.
//!
//! *Applied.* Ten times a second: where a class misses its target (more of its answers are late than the SLA permits,
//! or as large a share of its requests is refused because they would be), a request of a less important class is looked
//! for that is at a server of that class, has been there for a whole target, and has received four times what it
//! was expected to cost; where costs vary by themselves, twice what the SLA's statistic of their spread is. Of these
//! the least important goes, and of equals the one that has used most.
//!
//! *Awkward cases.* A prediction may be wrong, and work that is thrown away helps nobody. So it is rare: one for every
//! hundred answers ([`SHARE`]), few at once, and one a server in a target, so that what it brought is
//! seen before the next. Its server may work on all the same: then it is a ghost and keeps its place. An answer that
//! streams has no place to give back and is left alone.
//!
//! *Source.* After Atropos (SOSP 2025), which cancels what holds a contended resource longest; there the resource is
//! watched inside the application, here it is the server's processors as seen from outside.

use alloc::vec::Vec;

use super::Controller;
use super::core_state::Core;
use crate::decision::Action;
use crate::event::Event;
use crate::flight::{Flight, State};
use crate::request::{ClassId, ServerId, Ticket};
use crate::setup::Cancel;
use crate::time::Timestamp;

/// Cancellations for each answer.
const SHARE: f64 = 0.01;
/// Cancellations that may be saved up.
const BURST: f64 = 3.0;
/// What a class did counts with this time constant, seconds.
const TAU: f64 = 1.0;
/// Fewer answers than this say nothing about a share of them.
const FEW: f64 = 5.0;
/// The share of late answers that an SLA on the mean is taken to permit.
const LATE_OF_MEAN: f64 = 0.5;

/// What is known for cancelling.
#[derive(Debug, Default)]
pub(super) struct Runaways {
    /// Cancellations that are earned and not used.
    tokens: f64,
    classes: Vec<Fared>,
    /// Per server: when one was cancelled there last.
    last: Vec<Option<Timestamp>>,
    looked: Timestamp,
}

/// How a class fared lately.
#[derive(Clone, Copy, Debug, Default)]
struct Fared {
    answers: f64,
    late: f64,
    refused: f64,
    /// Counts at the last look: answers, those in time, refused. `None`: this is the first.
    seen: Option<(u64, u64, u64)>,
}

/// A request that may be cancelled.
#[derive(Clone, Copy, Debug)]
struct Runaway {
    ticket: Ticket,
    class: ClassId,
    server: ServerId,
    used: f64,
    predicted: f64,
}

impl Controller {
    /// Ends a runaway, if there is reason to.
    pub(super) fn cancel_runaways(&mut self, now: Timestamp) {
        if self.core.setup.cancel == Cancel::Off {
            return;
        }
        self.core.look_at_classes(now);
        let Some(pressed) = self.core.most_important_pressed() else { return };
        if self.core.setup.shadow || self.core.runaways.tokens < 1.0 || !self.core.estimates.costs.is_settled() {
            return;
        }
        let Some(Runaway { ticket, class, server, used, predicted }) = self.core.worst_runaway(now, pressed) else {
            return;
        };
        self.core.runaways.tokens -= 1.0;
        let last = &mut self.core.runaways.last;
        if last.len() <= server.index() {
            last.resize(server.index() + 1, None);
        }
        last[server.index()] = Some(now);
        if let Some(flight) = self.core.traffic.flights.get_mut(ticket) {
            flight.is_cancelled = true;
        }
        self.core.outbox.record(now, Event::RunawayCancelled { class, server, used, predicted });
        self.core.outbox.actions.push_back(Action::Cancel { ticket });
    }
}

impl Runaways {
    /// Other classes stand where these stood.
    pub(super) fn forget_classes(&mut self) {
        self.classes.clear();
    }
}

impl Core {
    /// Brings what classes did lately up to date, and earns tokens by answers.
    fn look_at_classes(&mut self, now: Timestamp) {
        let keep = libm::exp(-now.seconds_since(self.runaways.looked) / TAU);
        self.runaways.looked = now;
        self.runaways.classes.resize_with(self.traffic.stats.len(), Fared::default);
        for (at, (fared, stats)) in self.runaways.classes.iter_mut().zip(&self.traffic.stats).enumerate() {
            let by_table = self.policer.counts(ClassId(at as u8)).refused + stats.carried.refused;
            let counts = (stats.completed, stats.in_target, stats.refused_for_want() + by_table);
            let before = fared.seen.replace(counts).unwrap_or(counts);
            let answers = counts.0.saturating_sub(before.0);
            let late = answers.saturating_sub(counts.1.saturating_sub(before.1));
            fared.answers = fared.answers * keep + answers as f64;
            fared.late = fared.late * keep + late as f64;
            fared.refused = fared.refused * keep + counts.2.saturating_sub(before.2) as f64;
            self.runaways.tokens = (self.runaways.tokens + SHARE * answers as f64).min(BURST);
        }
    }

    /// The most important class that misses its target.
    fn most_important_pressed(&self) -> Option<ClassId> {
        let permitted = self.setup.sla.statistic().quantile().map_or(LATE_OF_MEAN, |quantile| 1.0 - quantile);
        let is_pressed = |fared: &Fared| {
            let all = fared.answers + fared.refused;
            all >= FEW && (fared.late > permitted * fared.answers || fared.refused > permitted * all)
        };
        self.runaways.classes.iter().position(is_pressed).map(|at| ClassId(at as u8))
    }

    /// The request that is to be cancelled for the sake of a class. O(in flight), and only while tokens are there.
    fn worst_runaway(&mut self, now: Timestamp, pressed: ClassId) -> Option<Runaway> {
        let Core { traffic, estimates, fleet, runaways, .. } = self;
        let several = estimates.calibration.no_accident();
        let own = fleet.partitions.of(pressed);
        let mut worst: Option<Runaway> = None;
        for (slot, flight) in traffic.flights.iter() {
            let &Flight { request, state: State::InFlight { server }, started, mark, .. } = flight else { continue };
            let is_excepted = flight.shadow || flight.is_cancelled || request.class <= pressed;
            if is_excepted || now.seconds_since(started) < estimates.target {
                continue;
            }
            let recent = runaways.last.get(server.index()).copied().flatten();
            let state = &mut fleet.servers[server.index()];
            let is_elsewhere = state.partition.is_some_and(|partition| usize::from(partition) != own);
            if is_elsewhere || recent.is_some_and(|last| now.seconds_since(last) < estimates.target) {
                continue;
            }
            let used = state.capacity.received(now, mark);
            let predicted = flight.cost.max(estimates.costs.estimate(&request));
            let is_worse = |than: &Runaway| (request.class, used) > (than.class, than.used);
            if used >= several * predicted && worst.as_ref().is_none_or(is_worse) {
                let ticket = traffic.flights.ticket(slot);
                worst = Some(Runaway { ticket, class: request.class, server, used, predicted });
            }
        }
        worst
    }
}
