//! Requests that are open without being work: streams after their first byte, and polls before it.
//!
//! What the sentry would see is what the controller is told, when it would see it. In the report a stream is answered
//! with its first byte, and what a poll waits for news is no response time. An open stream outlives a failure of its
//! server here.

use std::time::Duration;

use tidegate_engine::{Open, Outcome, Timestamp};

use super::{Happening, Run, clients::Fate, menu};
use crate::world::Lasting;

/// The sentry takes an answer that has been open for so many times the target for a stream, if little comes.
const STREAM_TARGETS: u32 = 8;

impl Run<'_> {
    /// A poll of which the sentry is told has no place from the moment at which it sets off.
    pub(super) fn open_poll(&mut self, now: Timestamp, request: u32) {
        if let Some(Lasting { kind: Open::Poll, told: true, .. }) = self.lasting(request) {
            self.join_pool(now, request, Open::Poll, now);
        }
    }

    /// The server has done its work for a request that goes on.
    pub(super) fn last(&mut self, now: Timestamp, request: u32) {
        match self.lasting(request) {
            Some(Lasting { kind: Open::Poll, .. }) => {
                let wait = Duration::from_secs_f64(self.requests[request as usize].besides.lasts);
                self.plans.once(now + wait, Happening::News { request });
            }
            lasting => self.begin_stream(now, request, lasting.is_some_and(|lasting| lasting.told)),
        }
    }

    /// There is news for a poll, if it is still there.
    pub(super) fn news(&mut self, now: Timestamp, request: u32) {
        let flying = &mut self.requests[request as usize];
        flying.besides.waited = std::mem::take(&mut flying.besides.lasts);
        self.send_answer(now, request);
    }

    /// A stream that goes on and on is seen to be one.
    pub(super) fn notice(&mut self, now: Timestamp, request: u32) {
        let flying = &self.requests[request as usize];
        let first_byte = flying.started + flying.served_in;
        self.join_pool(now, request, Open::Stream, first_byte);
    }

    /// A stream is over.
    pub(super) fn end_stream(&mut self, now: Timestamp, request: u32) {
        let told = self.lasting(request).is_some_and(|lasting| lasting.told);
        let flying = &mut self.requests[request as usize];
        // Where the pool was full it kept its place, and taught no more than its first byte.
        let served_in = if told || flying.pooled { flying.served_in } else { now.since(flying.started) };
        if let Some(ticket) = flying.ticket.take() {
            self.sentries.of(flying.sentry).controller.handle_completion(now, ticket, Outcome::answered_in(served_in));
        }
        self.close(now, request, Fate::Answered);
    }

    fn begin_stream(&mut self, now: Timestamp, request: u32, told: bool) {
        let flying = &mut self.requests[request as usize];
        flying.served_in = now.since(flying.started);
        if let Some(timer) = flying.timer.take() {
            self.plans.cancel(timer);
        }
        let flying = &mut self.requests[request as usize];
        let (subject, lasts) = (flying.subject, Duration::from_secs_f64(flying.besides.lasts));
        if !self.report.answered(now, subject, now.since(subject.arrived)) {
            // Nobody is there any more: the answer ends before it began.
            if let Some(ticket) = flying.ticket.take() {
                let outcome = Outcome::answered_in(flying.served_in);
                self.sentries.of(flying.sentry).controller.handle_completion(now, ticket, outcome);
            }
            return self.close(now, request, Fate::TooLate);
        }
        flying.counted = true;
        let notice = subject.target.saturating_mul(STREAM_TARGETS);
        if told {
            self.join_pool(now, request, Open::Stream, now);
        } else if notice < lasts {
            self.plans.once(now + notice, Happening::Noticed { request });
        }
        self.plans.once(now + lasts, Happening::Closed { request });
    }

    /// A request gives its place back, if the pool has room.
    fn join_pool(&mut self, now: Timestamp, request: u32, kind: Open, first_byte: Timestamp) {
        let flying = &mut self.requests[request as usize];
        if let Some(ticket) = flying.ticket {
            let joined = self.sentries.of(flying.sentry).controller.handle_open(now, ticket, kind, first_byte);
            flying.pooled = joined;
        }
    }

    fn lasting(&self, request: u32) -> Option<Lasting> {
        let flying = &self.requests[request as usize];
        menu::url(&self.clients.menus, flying).and_then(|url| url.lasts)
    }
}
