//! Clients that leave before they are answered, and what their servers do about it.
//!
//! What the sentry would see is what the controller is told: a server that closes its side has stopped, as far as can
//! be seen from outside, whether it works on or not; one that does not is watched until it answers.

use tidegate_engine::{AbandonedBy, Ticket, Timestamp, Watch};
use tidegate_workload::Abandoned;

use super::{DONE, NOT_YET, Run, clients::Fate};

impl Run<'_> {
    /// A client has waited long enough.
    pub(super) fn lose_patience(&mut self, now: Timestamp, request: u32) {
        let flying = &mut self.requests[request as usize];
        (flying.timer, flying.gone) = (None, true);
        let was_waiting = std::mem::take(&mut flying.waiting);
        let (subject, ticket, sentry) = (flying.subject, flying.ticket, flying.sentry);
        self.report.failed(subject);
        let is_over = match ticket {
            Some(ticket) if was_waiting => {
                let controller = &mut self.sentries.of(sentry).controller;
                controller.handle_abandon(now, ticket, AbandonedBy::Client, Watch::Nobody);
                true
            }
            Some(ticket) => self.abandon(now, request, ticket),
            None => false,
        };
        self.go_on(now, request, Fate::TimedOut);
        if is_over {
            self.requests.remove(request as usize);
        }
    }

    /// Nobody waits any more for what is still there at the end of all time.
    pub(super) fn fail_the_rest(&mut self) {
        for (_, flying) in std::mem::take(&mut self.requests).into_iter().filter(|(_, flying)| !flying.gone) {
            let counts = &mut self.report.clients[usize::from(flying.subject.course)];
            counts.given_up += 1;
            if !flying.counted {
                self.report.unfinished += 1;
                self.report.failed(flying.subject);
            }
        }
    }

    /// The client of a request left that was let in. Whether nothing more will happen to the request.
    fn abandon(&mut self, now: Timestamp, request: u32, ticket: Ticket) -> bool {
        let let_go = self.let_go(now, request, ticket);
        if let_go.is_none() {
            // The ticket goes on with the server's work.
            let sentry = self.requests[request as usize].sentry;
            self.sentries.of(sentry).controller.handle_abandon(now, ticket, AbandonedBy::Client, Watch::Driver);
        }
        let_go.unwrap_or(false)
    }

    /// Nobody waits any more for a request that was let in: whether nothing more will happen to it, where its server is
    /// done with it as far as the sentry sees. `None`: its server works on.
    pub(super) fn let_go(&mut self, now: Timestamp, request: u32, ticket: Ticket) -> Option<bool> {
        let flying = &self.requests[request as usize];
        let (job, pooled, sentry) = (flying.job, flying.pooled, flying.sentry);
        let server = self.sentries.of(sentry).controller.server_of(ticket);
        let does = server.map(|server| self.world.servers[server.index()].abandoned);
        let works = job != NOT_YET && !pooled;
        let stops = match does.unwrap_or_default() {
            // It works on, unless nothing has begun there, or it only waits.
            _ if !works => false,
            Abandoned::WorksOn => return None,
            Abandoned::HangsUp => false,
            Abandoned::Stops if job == DONE => false,
            Abandoned::Stops => match self.park.abandon(now, job, &mut self.plans) {
                true => true,
                false => return None,
            },
        };
        self.sentries.of(sentry).controller.handle_cancel(now, ticket);
        self.requests[request as usize].ticket = None;
        Some(stops)
    }
}
