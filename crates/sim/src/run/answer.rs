//! The answer's way from the server to the client, over a link that all answers share.

use std::time::Duration;

use tidegate_engine::{Outcome, Timestamp};
use tidegate_workload::Discipline;

use super::{DONE, Happening, Run, clients::Fate, menu};
use crate::agenda::{Agenda, SlotId};
use crate::model::Link;
use crate::station::Station;

/// The link, if it has any properties at all.
pub(super) struct Way {
    latency: Duration,
    /// Seconds for a byte, the bytes under way, and when the next answer is over.
    shared: Option<(f64, Station, SlotId)>,
}

impl Way {
    pub(super) fn new(link: Option<Link>, plans: &mut Agenda<Happening>) -> Way {
        let shared = link.and_then(|link| link.rate).map(|rate| {
            let station = Station::new(1.0, Discipline::ProcessorSharing);
            (1.0 / rate, station, plans.slot(Happening::Transferred))
        });
        Way { latency: link.map_or(Duration::ZERO, |link| link.latency), shared }
    }
}

impl Run<'_> {
    /// The server has done the work.
    pub(super) fn answer(&mut self, now: Timestamp, request: u32) {
        let flying = &mut self.requests[request as usize];
        flying.job = DONE;
        if flying.besides.lasts > 0.0 && !flying.gone {
            return self.last(now, request);
        }
        self.send_answer(now, request);
    }

    /// The server has answered.
    pub(super) fn send_answer(&mut self, now: Timestamp, request: u32) {
        let flying = &mut self.requests[request as usize];
        flying.served_in = now.since(flying.started);
        let reads = Duration::from_secs_f64(flying.besides.reads);
        if !reads.is_zero() && !flying.gone && !self.world.holds_bodies {
            self.plans.once(now + reads, Happening::Read { request });
            return;
        }
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
        // News come in time whenever they come.
        let response = now.since(flying.subject.arrived).saturating_sub(Duration::from_secs_f64(flying.besides.waited));
        let in_time = flying.gone || self.report.answered(now, flying.subject, response);
        self.close(now, request, if in_time { Fate::Answered } else { Fate::TooLate });
    }

    /// The last byte has left the sentry, or is in its hands.
    pub(super) fn sent(&mut self, now: Timestamp, request: u32) {
        let flying = &mut self.requests[request as usize];
        if let Some(ticket) = flying.ticket.take() {
            let bytes = menu::url(&self.clients.menus, flying).map(|url| url.bytes);
            // A server that cannot get rid of its answer is not done.
            let read_in = if self.world.holds_bodies { 0.0 } else { flying.besides.reads };
            let served_in = flying.served_in + Duration::from_secs_f64(read_in);
            let outcome = Outcome { bytes, ..Outcome::answered_in(served_in) };
            self.sentries.of(flying.sentry).controller.handle_completion(now, ticket, outcome);
        }
        let flying = &self.requests[request as usize];
        let reads = if self.world.holds_bodies && !flying.gone { flying.besides.reads } else { 0.0 };
        let on_its_way = self.way.latency + Duration::from_secs_f64(reads);
        if on_its_way.is_zero() {
            self.received(now, request);
        } else {
            self.plans.once(now + on_its_way, Happening::Received { request });
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
