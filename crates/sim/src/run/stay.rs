//! A request's stay at its server, from setting off to what became of it there.

use std::time::Duration;

use tidegate_engine::{Outcome, RequestTypeId, ServerId, Timestamp};

use super::{Flying, Happening, NOT_YET, Run, clients::Fate, menu};
use crate::park::{Ending, Owner};

impl Run<'_> {
    /// A request sets off for its server. One that is off is noticed at once, and the request sent to another, as the
    /// sentry does it; one that is full refuses it.
    pub(super) fn start(&mut self, now: Timestamp, request: u32, server: ServerId) {
        let flying = &mut self.requests[request as usize];
        flying.started = now;
        let sends = Duration::from_secs_f64(flying.besides.sends);
        if sends.is_zero() || self.world.holds_bodies {
            self.begin_work(now, request, server);
        } else {
            self.plans.once(now + sends, Happening::Uploaded { request, server });
        }
    }

    /// A request is at its server, all of it.
    pub(super) fn begin_work(&mut self, now: Timestamp, request: u32, mut server: ServerId) {
        let flying = &self.requests[request as usize];
        let mut task = flying.task;
        if let Some(url) = menu::url(&self.clients.menus, flying)
            && url.degrades_to < 1.0
        {
            let quality = self.sentries.of(flying.sentry).controller.policer().quality(RequestTypeId(url.request_type));
            task.work *= url.degrades_to + (1.0 - url.degrades_to) * quality;
        }
        for attempt in 0..3 {
            let owner = Owner::Request(request);
            if let Some(job) = self.park.begin(now, u32::from(server.0), owner, task, &mut self.plans) {
                let flying = &mut self.requests[request as usize];
                flying.job = job;
                self.park.is_call(job, flying.call);
                return self.open_poll(now, request);
            }
            let flying = &self.requests[request as usize];
            let Some(ticket) = flying.ticket else { break };
            if attempt == 2 || self.park.is_on(u32::from(server.0)) {
                break;
            }
            match self.sentries.of(flying.sentry).controller.handle_redispatch(now, ticket, server) {
                Some(other) => server = other,
                None => break,
            }
        }
        self.fail(now, request);
    }

    /// What became of requests at their servers.
    pub(super) fn collect(&mut self, now: Timestamp) {
        while let Some(ended) = self.park.next_ended() {
            match ended.ending {
                Ending::Served => self.answer(now, ended.request),
                Ending::Failed => self.fail(now, ended.request),
                Ending::Refused => self.fail_as(now, ended.request, self.services.refusal()),
            }
        }
    }

    /// The server failed the request.
    pub(super) fn fail(&mut self, now: Timestamp, request: u32) {
        self.fail_as(now, request, Outcome::failed());
    }

    fn fail_as(&mut self, now: Timestamp, request: u32, outcome: Outcome) {
        let Flying { job, call, .. } = self.requests[request as usize];
        if job == NOT_YET {
            // No server took it. Of others the park says that they ended.
            self.end_agreed(now, call, Ending::Failed);
        }
        let flying = &mut self.requests[request as usize];
        if let Some(ticket) = flying.ticket.take() {
            self.sentries.of(flying.sentry).controller.handle_completion(now, ticket, outcome);
        }
        if !flying.gone {
            self.report.failed(flying.subject);
        }
        self.close(now, request, Fate::Failed);
    }
}
