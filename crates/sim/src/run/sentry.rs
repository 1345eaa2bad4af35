//! The sentry: the controller that decides, and the processors on which it does.
//!
//! Where its own processors can be short, arrivals queue for a worker, which decides, and refuses or relays.

use std::collections::VecDeque;

use tidegate_engine::{
    Controller, Decision, LoadReport, Rejection, ServerId, Setup, SetupError, Ticket, Timestamp, Verdict,
};

use super::kernel::Kernel;
use super::{Flying, Happening, Run, clients::Fate};
use crate::agenda::{Agenda, SlotId};
use crate::model::SentryModel;
use crate::park::Ending;
use crate::report::EventLog;
use crate::world::World;

/// The controller, what stands before it, and who waits in it.
pub(super) struct Sentry {
    pub(super) controller: Controller,
    pub(super) log: EventLog,
    pub(super) kernel: Kernel,
    pub(super) desk: Option<Desk>,
    /// The request or call that has a ticket, by the ticket's low half, which is unique among live ones.
    by_ticket: Vec<u32>,
    /// When the controller wants to be called again.
    pub(super) timeout: Timestamp,
    pub(super) timer: SlotId,
}

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

impl Sentry {
    /// The `number`th of a world.
    pub(super) fn new(
        world: &World,
        seed: u64,
        number: u16,
        plans: &mut Agenda<Happening>,
    ) -> Result<Sentry, SetupError> {
        let seed = seed.wrapping_add(u64::from(number) << 32);
        let sentry = Sentry::of(world.setup.clone(), seed, plans.slot(Happening::Timeout { sentry: number }))?;
        Ok(Sentry { desk: world.sentry.map(Desk::new), ..sentry })
    }

    /// One whose own processors are never short, for a setup.
    pub(super) fn of(setup: Setup, seed: u64, timer: SlotId) -> Result<Sentry, SetupError> {
        let log = EventLog::default();
        Ok(Sentry {
            controller: Controller::new(setup, 1, seed, Box::new(log.clone()))?,
            log,
            kernel: Kernel::default(),
            desk: None,
            by_ticket: Vec::new(),
            timeout: Timestamp::MAX,
            timer,
        })
    }

    /// A request or call has a ticket from now on.
    pub(super) fn keep(&mut self, ticket: Ticket, number: u32) {
        let at = low_half(ticket);
        if self.by_ticket.len() <= at {
            self.by_ticket.resize(at + 1, u32::MAX);
        }
        self.by_ticket[at] = number;
    }

    /// Which request or call has a ticket that is alive.
    pub(super) fn number_of(&self, ticket: Ticket) -> u32 {
        self.by_ticket[low_half(ticket)]
    }

    /// The time that the controller named has come.
    pub(super) fn time_out(&mut self, now: Timestamp) {
        self.timeout = Timestamp::MAX;
        self.controller.handle_timeout(now);
    }

    /// Plans the next call of the controller, if that is sooner than what is planned.
    pub(super) fn plan_timeout(&mut self, now: Timestamp, plans: &mut Agenda<Happening>) {
        if let Some((at, _)) = self.controller.poll_timeout()
            && at < self.timeout
        {
            self.timeout = at;
            plans.plan(self.timer, at.max(now));
        }
    }
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
        if !self.agrees(now, request) {
            return;
        }
        let sentry = self.sentries.of(self.requests[request as usize].sentry);
        if !sentry.kernel.lets_in(now) {
            return self.turned_away(now, request);
        }
        if sentry.desk.is_some() {
            return self.queue_errand(now, Errand::Decide { request });
        }
        let decision = self.ask_controller(now, request);
        self.decided(now, request, decision);
    }

    /// Without a desk a decision is carried out at once.
    pub(super) fn decided(&mut self, now: Timestamp, request: u32, decision: Decision) {
        self.keep_ticket(request, &decision);
        match decision {
            Decision::Admit { server, .. } => self.start(now, request, server),
            Decision::Enqueue { .. } => {}
            Decision::Reject(rejection) => self.refuse(now, request, rejection.retry_after),
        }
    }

    /// A request that waited in the controller may start.
    pub(super) fn start_waiting(&mut self, now: Timestamp, request: u32, server: ServerId) {
        match self.sentries.of(self.requests[request as usize].sentry).desk {
            Some(_) => self.queue_errand(now, Errand::Relay { request, server }),
            None => self.start(now, request, server),
        }
    }

    /// The first report is due one interval after the start.
    pub(super) fn open_desk(&mut self) {
        for (number, sentry) in self.sentries.all().iter().enumerate() {
            if let Some(desk) = &sentry.desk {
                let report = Happening::SentryReport { sentry: number as u16 };
                self.plans.once(Timestamp::ZERO + desk.model.report_every, report);
            }
        }
    }

    pub(super) fn report_sentry(&mut self, now: Timestamp, sentry: u16) {
        let Some(desk) = &mut self.sentries.of(sentry).desk else { return };
        let cpu = desk.report(now);
        self.plans.once(now + desk.model.report_every, Happening::SentryReport { sentry });
        self.send(now, Some(sentry), LoadReport::SentryCpu(cpu));
    }

    /// A worker is free again.
    pub(super) fn sentry_done(&mut self, now: Timestamp, sentry: u16, request: u32, then: Then) {
        match then {
            Then::Start(server) if !self.requests[request as usize].gone => self.start(now, request, server),
            Then::Start(_) => self.close(now, request, Fate::TimedOut),
            Then::Refuse { retry_after } => self.refuse(now, request, retry_after),
            Then::Nothing => {}
        }
        let Some(desk) = &mut self.sentries.of(sentry).desk else { return };
        desk.meter(now);
        desk.busy -= 1;
        if let Some(errand) = desk.queue.pop_front() {
            self.take(now, sentry, errand);
        }
    }

    /// A client whose connection is not let in tries it again a second later, as its kernel does, or gives up.
    fn turned_away(&mut self, now: Timestamp, request: u32) {
        self.refuse(now, request, std::time::Duration::from_secs(1));
    }

    /// A request is refused; it may come back after `retry_after`.
    pub(super) fn refuse(&mut self, now: Timestamp, request: u32, retry_after: std::time::Duration) {
        let Flying { gone, subject, call, .. } = self.requests[request as usize];
        if !gone {
            self.report.refused(now, subject);
        }
        // A protocol let it in, and the sentry did not: its worker's queue may be full, or its policy refuses.
        self.end_agreed(now, call, Ending::Failed);
        self.close(now, request, Fate::Refused(retry_after));
    }

    fn queue_errand(&mut self, now: Timestamp, errand: Errand) {
        let (Errand::Decide { request } | Errand::Relay { request, .. }) = errand;
        let sentry = self.requests[request as usize].sentry;
        let Some(desk) = &mut self.sentries.of(sentry).desk else { return };
        if desk.busy < desk.model.workers {
            return self.take(now, sentry, errand);
        }
        let full = desk.model.backlog.is_some_and(|backlog| desk.queue.len() as u32 >= backlog);
        match errand {
            // The accept queue is full: the connection fails. What was admitted already is not turned away here.
            Errand::Decide { request } if full => self.fail(now, request),
            _ => desk.queue.push_back(errand),
        }
    }

    /// A worker takes an errand.
    fn take(&mut self, now: Timestamp, sentry: u16, errand: Errand) {
        let Some(desk) = &mut self.sentries.of(sentry).desk else { return };
        let SentryModel { admitted, refused, tested, .. } = desk.model;
        desk.meter(now);
        desk.busy += 1;
        let (request, took, then) = match errand {
            Errand::Relay { request, server } => (request, admitted.saturating_sub(refused), Then::Start(server)),
            // It finds the connection closed.
            Errand::Decide { request } if self.requests[request as usize].gone => {
                (request, refused, Then::Refuse { retry_after: std::time::Duration::ZERO })
            }
            Errand::Decide { request } => {
                let (decision, is_tested) = self.decide(now, request);
                let (took, then) = match decision {
                    Decision::Admit { server, .. } => (admitted, Then::Start(server)),
                    Decision::Enqueue { .. } => (refused, Then::Nothing),
                    Decision::Reject(Rejection { retry_after, .. }) => (refused, Then::Refuse { retry_after }),
                };
                (request, if is_tested { took + tested } else { took }, then)
            }
        };
        self.plans.once(now + took, Happening::SentryDone { sentry, request, then });
    }

    /// The decision, and whether it took more than a look at the published table.
    fn decide(&mut self, now: Timestamp, request: u32) -> (Decision, bool) {
        let flying = &self.requests[request as usize];
        let asked = self.asked(flying);
        let controller = &mut self.sentries.of(flying.sentry).controller;
        let verdict = controller.policer().police(0, now, &asked);
        let decision = controller.handle_policed(now, asked, verdict);
        self.keep_ticket(request, &decision);
        (decision, verdict == Verdict::Ask)
    }

    fn ask_controller(&mut self, now: Timestamp, request: u32) -> Decision {
        let flying = &self.requests[request as usize];
        let asked = self.asked(flying);
        self.sentries.of(flying.sentry).controller.handle_arrival(now, asked)
    }

    fn keep_ticket(&mut self, request: u32, decision: &Decision) {
        match *decision {
            Decision::Admit { ticket, .. } => self.keep(request, ticket),
            Decision::Enqueue { ticket } => self.wait(request, ticket),
            Decision::Reject(_) => {}
        }
    }

    /// A request waits in the controller.
    fn wait(&mut self, request: u32, ticket: Ticket) {
        self.keep(request, ticket);
        self.requests[request as usize].waiting = true;
    }

    fn keep(&mut self, request: u32, ticket: Ticket) {
        let flying = &mut self.requests[request as usize];
        self.sentries.of(flying.sentry).keep(ticket, request);
        flying.ticket = Some(ticket);
    }

    /// The request that has a ticket, if it is still there.
    pub(super) fn request_of(&self, sentry: u16, ticket: Ticket) -> Option<u32> {
        let request = self.sentries.all()[usize::from(sentry)].by_ticket.get(low_half(ticket)).copied()?;
        let flying = self.requests.get(request as usize)?;
        (flying.ticket == Some(ticket)).then_some(request)
    }

    pub(super) fn stop_waiting(&mut self, sentry: u16, ticket: Ticket) -> u32 {
        let request = self.sentries.all()[usize::from(sentry)].number_of(ticket);
        let flying = &mut self.requests[request as usize];
        assert_eq!(flying.ticket, Some(ticket), "the low half of a ticket is unique among live ones");
        flying.waiting = false;
        request
    }
}

fn low_half(ticket: Ticket) -> usize {
    ticket.as_u64() as u32 as usize
}
