//! The sentry's own processors: arrivals queue for a worker, which decides, and refuses or relays.

use std::collections::VecDeque;

use tidegate_engine::{Decision, LoadReport, Rejection, ServerId, Timestamp};

use super::{Happening, Run, clients::Fate};
use crate::model::SentryModel;

/// The workers.
pub(super) struct Desk {
    model: SentryModel,
    busy: u32,
    queue: VecDeque<Errand>,
    /// Busy workers summed up over time, worker-seconds: up to `since`, and up to the last report.
    worked: f64,
    since: Timestamp,
    reported: (Timestamp, f64),
}

/// What a worker does next.
#[derive(Clone, Copy, Debug)]
enum Errand {
    /// An arrival: decide.
    Decide { request: u32 },
    /// A request that waited starts.
    Relay { request: u32, server: ServerId },
}

/// What a worker's work ends with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    Start(ServerId),
    Refuse { retry_after: std::time::Duration },
    Nothing,
}

impl Desk {
    pub(super) fn new(model: SentryModel) -> Desk {
        let zero = Timestamp::ZERO;
        Desk { model, busy: 0, queue: VecDeque::new(), worked: 0.0, since: zero, reported: (zero, 0.0) }
    }

    /// Share of the workers' time in use so far.
    pub(super) fn use_until(&mut self, now: Timestamp) -> f64 {
        self.meter(now);
        self.worked / (now.as_secs_f64() * f64::from(self.model.workers)).max(f64::MIN_POSITIVE)
    }

    /// Worker-seconds in use so far, for each worker.
    pub(super) fn worked_until(&mut self, now: Timestamp) -> f64 {
        self.meter(now);
        self.worked / f64::from(self.model.workers)
    }

    fn meter(&mut self, now: Timestamp) {
        self.worked += now.seconds_since(self.since) * f64::from(self.busy);
        self.since = now;
    }

    /// Share in use since the last report.
    fn report(&mut self, now: Timestamp) -> f64 {
        self.meter(now);
        let (at, worked) = std::mem::replace(&mut self.reported, (now, self.worked));
        (self.worked - worked) / (now.seconds_since(at) * f64::from(self.model.workers)).max(f64::MIN_POSITIVE)
    }
}

impl Run<'_> {
    /// A request is at the sentry.
    pub(super) fn at_sentry(&mut self, now: Timestamp, request: u32) {
        if !self.kernel.lets_in(now) {
            return self.turned_away(now, request);
        }
        if self.desk.is_some() {
            return self.queue_errand(now, Errand::Decide { request });
        }
        let asked = self.asked(&self.requests[request as usize]);
        let decision = self.controller.handle_arrival(now, asked);
        self.decided(now, request, decision);
    }

    /// Without a desk a decision is carried out at once.
    pub(super) fn decided(&mut self, now: Timestamp, request: u32, decision: Decision) {
        self.keep_ticket(request, &decision);
        match decision {
            Decision::Admit { server, .. } => self.start(now, request, server),
            Decision::Enqueue { .. } => {}
            Decision::Reject(rejection) => self.refuse(now, request, &rejection),
        }
    }

    /// A request that waited in the controller may start.
    pub(super) fn start_waiting(&mut self, now: Timestamp, request: u32, server: ServerId) {
        match self.desk {
            Some(_) => self.queue_errand(now, Errand::Relay { request, server }),
            None => self.start(now, request, server),
        }
    }

    /// The first report is due one interval after the start.
    pub(super) fn open_desk(&mut self) {
        if let Some(desk) = &self.desk {
            self.plans.once(Timestamp::ZERO + desk.model.report_every, Happening::SentryReport);
        }
    }

    pub(super) fn report_sentry(&mut self, now: Timestamp) {
        let Some(desk) = &mut self.desk else { return };
        let cpu = desk.report(now);
        self.plans.once(now + desk.model.report_every, Happening::SentryReport);
        self.send(now, LoadReport::SentryCpu(cpu));
    }

    /// A worker is free again.
    pub(super) fn sentry_done(&mut self, now: Timestamp, request: u32, then: Then) {
        match then {
            Then::Start(server) if !self.requests[request as usize].gone => self.start(now, request, server),
            Then::Start(_) => self.close(now, request, Fate::TimedOut),
            Then::Refuse { retry_after } => self.refused_by_desk(now, request, retry_after),
            Then::Nothing => {}
        }
        let Some(desk) = &mut self.desk else { return };
        desk.meter(now);
        desk.busy -= 1;
        if let Some(errand) = desk.queue.pop_front() {
            self.take(now, errand);
        }
    }

    /// A client whose connection is not let in tries it again a second later, as its kernel does, or gives up.
    fn turned_away(&mut self, now: Timestamp, request: u32) {
        self.refused_by_desk(now, request, std::time::Duration::from_secs(1));
    }

    fn refused_by_desk(&mut self, now: Timestamp, request: u32, retry_after: std::time::Duration) {
        let flying = &self.requests[request as usize];
        if !flying.gone {
            self.report.refused(now, flying.subject);
        }
        self.close(now, request, Fate::Refused(retry_after));
    }

    fn queue_errand(&mut self, now: Timestamp, errand: Errand) {
        let Some(desk) = &mut self.desk else { return };
        if desk.busy < desk.model.workers {
            return self.take(now, errand);
        }
        let full = desk.model.backlog.is_some_and(|backlog| desk.queue.len() as u32 >= backlog);
        match errand {
            // The accept queue is full: the connection fails. What was admitted already is not turned away here.
            Errand::Decide { request } if full => self.fail(now, request),
            _ => desk.queue.push_back(errand),
        }
    }

    /// A worker takes an errand.
    fn take(&mut self, now: Timestamp, errand: Errand) {
        let Some(desk) = &mut self.desk else { return };
        let SentryModel { admitted, refused, .. } = desk.model;
        desk.meter(now);
        desk.busy += 1;
        let (request, took, then) = match errand {
            Errand::Relay { request, server } => (request, admitted.saturating_sub(refused), Then::Start(server)),
            // It finds the connection closed.
            Errand::Decide { request } if self.requests[request as usize].gone => {
                (request, refused, Then::Refuse { retry_after: std::time::Duration::ZERO })
            }
            Errand::Decide { request } => match self.decide(now, request) {
                Decision::Admit { server, .. } => (request, admitted, Then::Start(server)),
                Decision::Enqueue { .. } => (request, refused, Then::Nothing),
                Decision::Reject(Rejection { retry_after, .. }) => (request, refused, Then::Refuse { retry_after }),
            },
        };
        self.plans.once(now + took, Happening::SentryDone { request, then });
    }

    /// Asks the controller.
    fn decide(&mut self, now: Timestamp, request: u32) -> Decision {
        let asked = self.asked(&self.requests[request as usize]);
        let decision = self.controller.handle_arrival(now, asked);
        self.keep_ticket(request, &decision);
        decision
    }

    fn keep_ticket(&mut self, request: u32, decision: &Decision) {
        match *decision {
            Decision::Admit { ticket, .. } => self.requests[request as usize].ticket = Some(ticket),
            Decision::Enqueue { ticket } => self.wait(request, ticket),
            Decision::Reject(_) => {}
        }
    }
}
