//! The answer's way from the server to the client, over a link that all answers share.

use tidegate_engine::{Outcome, Timestamp};
use tidegate_workload::Discipline;

use super::{Happening, Run, clients::Fate, menu};
use crate::agenda::{Agenda, SlotId};
use crate::model::Link;
use crate::station::Station;

/// The link, if it has any properties at all.
pub(super) struct Way {
    latency: std::time::Duration,
    /// Seconds for a byte, the bytes under way, and when the next answer is over.
    shared: Option<(f64, Station, SlotId)>,
}

impl Way {
    pub(super) fn new(link: Option<Link>, plans: &mut Agenda<Happening>) -> Way {
        let shared = link.and_then(|link| link.rate).map(|rate| {
            let station = Station::new(1.0, Discipline::ProcessorSharing);
            (1.0 / rate, station, plans.slot(Happening::Transferred))
        });
        Way { latency: link.map_or(std::time::Duration::ZERO, |link| link.latency), shared }
    }
}

impl Run<'_> {
    /// The server has answered.
    pub(super) fn answer(&mut self, now: Timestamp, request: u32) {
        let flying = &mut self.requests[request as usize];
        flying.served_in = now.since(flying.started);
        let bytes = menu::url(&self.clients.menus, flying).map_or(0, |url| url.bytes);
        match &mut self.way.shared {
            Some((per_byte, station, _)) if bytes > 0 && !flying.gone => {
                station.start(now, request, *per_byte * bytes as f64);
                self.plan_transfer();
            }
            _ => self.sent(now, request),
        }
    }

    /// The next answer is over the link.
    pub(super) fn transferred(&mut self, now: Timestamp) {
        while let Some(request) = self.way.shared.as_mut().and_then(|(_, station, _)| station.complete(now)) {
            self.sent(now, request);
        }
        self.plan_transfer();
    }

    /// The answer is at the client.
    pub(super) fn received(&mut self, now: Timestamp, request: u32) {
        let flying = &self.requests[request as usize];
        let in_time = flying.gone || self.report.answered(now, flying.subject);
        self.close(now, request, if in_time { Fate::Answered } else { Fate::TooLate });
    }

    /// The last byte has left the sentry.
    fn sent(&mut self, now: Timestamp, request: u32) {
        let flying = &mut self.requests[request as usize];
        if let Some(ticket) = flying.ticket.take() {
            let bytes = menu::url(&self.clients.menus, flying).map(|url| url.bytes);
            let outcome = Outcome { bytes, ..Outcome::answered_in(flying.served_in) };
            self.sentry.controller.handle_completion(now, ticket, outcome);
        }
        if self.way.latency.is_zero() {
            self.received(now, request);
        } else {
            self.plans.once(now + self.way.latency, Happening::Received { request });
        }
    }

    fn plan_transfer(&mut self) {
        let Some((_, station, slot)) = &self.way.shared else { return };
        match station.next() {
            Some(at) => self.plans.plan(*slot, at),
            None => self.plans.cancel(*slot),
        }
    }
}
