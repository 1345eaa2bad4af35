//! Policing a request, and the RAII forms of what the engine answered: a permit in flight, a place in a queue.

use std::rc::Rc;

use tidegate_classify::RequestView;
use tidegate_engine::{
    AbandonedBy, Decision, MeasuredCost, Open, Outcome, Reason, Rejection, Request, ServerId, Ticket, Timestamp,
    Verdict, Watch,
};
use tokio::sync::oneshot;

use crate::app::{Core, Woken};
use crate::counters::Counter;
use crate::share::{Local, WorkerApp};

/// A request that was classified and policed, once.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// When.
    pub(crate) at: Timestamp,
    /// What it is.
    pub(crate) request: Request,
    /// What was decided.
    pub(crate) policed: Policed,
    /// The configuration it was decided under.
    pub(crate) local: Rc<Local>,
}

/// What was decided about an arrival.
#[derive(Debug)]
pub(crate) enum Policed {
    /// It is not the engine's business.
    Exempt,
    /// Send it.
    Admitted(Admitted),
    /// It waits in its class queue.
    Waiting(Waiting),
    /// Refuse it.
    Refused(Rejection),
}

/// An admitted request: where it goes, and its permit.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// Held until the last byte of the answer, or until the work for it is over.
    pub(crate) permit: Permit,
    /// Where it goes.
    pub(crate) server: ServerId,
    /// In shadow mode: why it would have been refused.
    pub(crate) shadow: Option<Reason>,
}

/// Classifies and polices a request that arrived at `at`.
pub(crate) fn police(worker: &Rc<WorkerApp>, view: &impl RequestView, at: Timestamp) -> Arrival {
    worker.lane().bump(Counter::Requests);
    let mut has_come = None;
    loop {
        let local = worker.local();
        if local.live.is_exempt(view) {
            worker.lane().bump(Counter::Exempt);
            let request = local.live.classify(view);
            return Arrival { at, request, policed: Policed::Exempt, local };
        }
        let mut request = local.live.classify_due(view, at);
        // Looked up once, whatever is reloaded meanwhile: to look is to have come.
        request.is_retry |= *has_come.get_or_insert_with(|| {
            let key = local.live.classifier.repeat_key(view, &request);
            key.is_some_and(|key| worker.app.repeats.has_come(at, key))
        });
        if let Some(policed) = decide(worker, &local, request, at) {
            return Arrival { at, request, policed, local };
        }
        // A reload came between classifying and deciding: class numbers may mean something else now.
    }
}

/// The driver's rule: first without a lock; then, for whatever is left, the controller. `None` after a reload.
fn decide(worker: &Rc<WorkerApp>, local: &Local, request: Request, at: Timestamp) -> Option<Policed> {
    let policer = &local.live.policer;
    let verdict = policer.police_try(worker.index, at, request.class, request.is_retry);
    if let Verdict::Refuse(rejection) = verdict
        && !policer.shadow()
    {
        return Some(Policed::Refused(rejection));
    }
    let most_waiting = local.live.config.limits.waiting;
    worker.app.engine(|core, now| {
        if core.generation != local.live.generation {
            return None;
        }
        let admitted = |ticket, server, shadow: Option<Rejection>| {
            let permit = Permit { worker: worker.clone(), ticket, done: false };
            Policed::Admitted(Admitted { permit, server, shadow: shadow.map(|rejection| rejection.reason) })
        };
        Some(match core.controller.handle_policed(now, request, verdict) {
            Decision::Admit { ticket, server, shadow } => admitted(ticket, server, shadow),
            Decision::Reject(rejection) => Policed::Refused(rejection),
            Decision::Enqueue { ticket } if core.waiters.len() >= most_waiting => {
                core.controller.handle_cancel(now, ticket);
                Policed::Refused(queue_full(local, request))
            }
            Decision::Enqueue { ticket } => Policed::Waiting(Waiting::join(worker, core, ticket)),
        })
    })
}

/// The bound on all queues together is the sentry's: it is about the sentry's memory.
fn queue_full(local: &Local, request: Request) -> Rejection {
    Rejection {
        reason: Reason::QueueFull,
        policy: local.live.policer.policy(),
        class: request.class,
        retry_after: std::time::Duration::from_secs(1),
        predicted: None,
    }
}

/// The right to be in flight. Dropped without an outcome, it reports that nobody wants an answer and that no server is
/// at work for it.
#[derive(Debug)]
pub(crate) struct Permit {
    worker: Rc<WorkerApp>,
    ticket: Ticket,
    done: bool,
}

impl Permit {
    /// The request is over. `measured`: what it cost, where that was measured on its server.
    pub(crate) fn complete(mut self, outcome: Outcome, measured: Option<(ServerId, Request, MeasuredCost)>) {
        self.done = true;
        let ticket = self.ticket;
        self.worker.app.engine(|core, now| {
            if let Some((server, request, cost)) = measured {
                let cost = MeasuredCost { service_time: outcome.service_time.map(|time| time.as_secs_f64()), ..cost };
                core.controller.handle_cost(now, server, &request, cost);
            }
            core.controller.handle_completion(now, ticket, outcome);
        });
    }

    /// Its answer began at `first_byte` and stays open, or it is a poll that waits: it has no place from now on, and
    /// the permit stands for the open connection. `false`: the pool is full, and it keeps its place.
    pub(crate) fn open(&self, kind: Open, first_byte: Timestamp) -> bool {
        let ticket = self.ticket;
        self.worker.app.engine(|core, now| core.controller.handle_open(now, ticket, kind, first_byte))
    }

    /// Nobody waits for the answer any more. The permit stands for the server's work, which its holder watches.
    pub(crate) fn haunt(self, by: AbandonedBy) -> Permit {
        self.leave(by, Watch::Driver);
        self
    }

    /// Nobody waits for the answer any more, and nobody can see when its server's work is over.
    pub(crate) fn abandon(mut self, by: AbandonedBy) {
        self.done = true;
        self.leave(by, Watch::Nobody);
    }

    fn leave(&self, by: AbandonedBy, watch: Watch) {
        let ticket = self.ticket;
        self.worker.app.engine(|core, now| core.controller.handle_abandon(now, ticket, by, watch));
    }

    /// Its name in the controller.
    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Moves the request to another server after `failed` could not take it.
    pub(crate) fn redispatch(&self, failed: ServerId) -> Option<ServerId> {
        let ticket = self.ticket;
        self.worker.app.engine(|core, now| core.controller.handle_redispatch(now, ticket, failed))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.done {
            let ticket = self.ticket;
            self.worker.app.engine(|core, now| core.controller.handle_cancel(now, ticket));
        }
    }
}

/// A place in a class queue. Dropped, the request leaves the queue.
#[derive(Debug)]
pub(crate) struct Waiting {
    worker: Rc<WorkerApp>,
    ticket: Ticket,
    news: oneshot::Receiver<Woken>,
    over: bool,
}

impl Waiting {
    /// Registers for news of `ticket`, while the lock is still held: the news may come from another worker at once.
    fn join(worker: &Rc<WorkerApp>, core: &mut Core, ticket: Ticket) -> Self {
        let (tell, news) = oneshot::channel();
        core.waiters.insert(ticket, tell);
        Waiting { worker: worker.clone(), ticket, news, over: false }
    }

    /// Waits to be started, or refused.
    pub(crate) async fn turn(mut self) -> Result<Admitted, Rejection> {
        let woken = (&mut self.news).await;
        self.over = true;
        match woken {
            Ok(Woken::Start(server)) => {
                let permit = Permit { worker: self.worker.clone(), ticket: self.ticket, done: false };
                Ok(Admitted { permit, server, shadow: None })
            }
            Ok(Woken::Refuse(rejection)) => Err(rejection),
            // The waiter's other end lives in the core until news is sent.
            Err(_) => unreachable!("a waiting request is always told"),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        self.news.close();
        let ticket = self.ticket;
        // Exactly one of three cancels: here when it was started unheard, here when it still waits, or the one who
        // is just about to tell it and finds nobody.
        let started = matches!(self.news.try_recv(), Ok(Woken::Start(_)));
        self.worker.app.engine(|core, now| {
            if core.waiters.remove(&ticket).is_some() || started {
                core.controller.handle_cancel(now, ticket);
            }
        });
    }
}
