//! Policing a request, and the RAII forms of what the engine answered: a permit in flight, a place in a queue.

use std::cell::Cell;
use std::rc::Rc;

use tidegate_classify::RequestView;
use tidegate_engine::{
    AbandonedBy, ClassId, Decision, MeasuredCost, Open, Outcome, Reason, Rejection, Request, ServerId, Ticket,
    Timestamp, Verdict, Watch,
};
use tokio::sync::oneshot;

use crate::app::{Core, Woken};
use crate::client::Admission;
use crate::config::{Application, RequestKind};
use crate::counters::Counter;
use crate::headers::{is_grpc, is_stream};
use crate::share::{Local, WorkerApp};

/// A request that was classified and policed, once.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// At which application.
    pub(crate) worker: Rc<WorkerApp>,
    /// When.
    pub(crate) at: Timestamp,
    /// What it is.
    pub(crate) request: Request,
    /// What was decided.
    pub(crate) policed: Policed,
    /// The configuration it was decided under.
    pub(crate) local: Rc<Local>,
}

impl Arrival {
    /// Who had an important request let in is important when it next comes by TLS.
    fn note_class(&self, view: &impl RequestView) {
        let live = &self.local.live;
        if live.config.tls.is_some()
            && !matches!(self.policed, Policed::Refused(_) | Policed::Exempt)
            && let Some(client) = view.client()
        {
            live.ranks.note(client, self.request.class, self.at);
        }
    }
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
    /// Its body is read before it asks for a place.
    Reading(Reading),
}

/// Whether a request's body is here when it is policed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyIs {
    /// It is, or there is none.
    Here,
    /// It is not, or not all of it.
    ToCome,
}

/// An admitted request: where it goes, and its permit.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// Held until the server's last byte, or until the work for it is over.
    pub(crate) permit: Permit,
    /// Where it goes.
    pub(crate) server: ServerId,
    /// In shadow mode: why it would have been refused.
    pub(crate) shadow: Option<Reason>,
}

/// Classifies and polices a request that arrived at `at`.
pub(crate) fn police(worker: &Rc<WorkerApp>, view: &impl RequestView, at: Timestamp, body: BodyIs) -> Arrival {
    worker.lane().bump(Counter::Requests);
    let arrival = police_uncounted(worker, view, at, body, None);
    arrival.note_class(view);
    arrival
}

/// `before`: what it was when its head came, where that is not now.
fn police_uncounted(
    worker: &Rc<WorkerApp>,
    view: &impl RequestView,
    at: Timestamp,
    body: BodyIs,
    before: Option<Request>,
) -> Arrival {
    let mut has_come = None;
    loop {
        let local = worker.local();
        if local.live.is_exempt(view) {
            worker.lane().bump(Counter::Exempt);
            let request = local.live.classify(view);
            return Arrival { worker: worker.clone(), at, request, policed: Policed::Exempt, local };
        }
        let mut request = local.live.classify_due(view, at);
        if let Some(before) = before {
            // Its time runs since its head came, and it is not its own retry.
            (request.deadline, request.is_retry) = (before.deadline, before.is_retry);
        } else {
            // Looked up once, whatever is reloaded meanwhile: to look is to have come.
            request.is_retry |= *has_come.get_or_insert_with(|| {
                let key = local.live.classifier.repeat_key(view, &request);
                key.is_some_and(|key| worker.app.repeats.has_come(at, key))
            });
        }
        let is_read = body == BodyIs::ToCome && reads_ahead(&local.live.config, view, &request);
        if let Some(policed) = decide(worker, &local, request, at, is_read) {
            return Arrival { worker: worker.clone(), at, request, policed, local };
        }
        // A reload came between classifying and deciding: class numbers may mean something else now.
    }
}

/// Whether a request's body is read before it asks for a place.
fn reads_ahead(config: &Application, view: &impl RequestView, request: &Request) -> bool {
    config.limits.ahead > 0
        && config.kind(request) != RequestKind::Upload
        // Its parts are messages, and the server may answer the first before there is a second.
        && !view.header("content-type").is_some_and(|kind| is_stream(kind) || is_grpc(kind))
}

/// The driver's rule: first without a lock; then, for whatever is left, the controller. `None` after a reload.
fn decide(
    worker: &Rc<WorkerApp>,
    local: &Rc<Local>,
    request: Request,
    at: Timestamp,
    is_read: bool,
) -> Option<Policed> {
    let policer = &local.live.policer;
    let verdict = policer.police(worker.index, at, &request);
    if let Verdict::Refuse(rejection) = verdict
        && !policer.shadow()
    {
        return Some(Policed::Refused(rejection));
    }
    ask(worker, local, request, verdict, is_read)
}

/// Asks the controller for a place, unless the body `is_read` before: then only whether there is any use in that.
fn ask(
    worker: &Rc<WorkerApp>,
    local: &Rc<Local>,
    request: Request,
    verdict: Verdict,
    is_read: bool,
) -> Option<Policed> {
    let most_waiting = local.live.config.limits.waiting;
    worker.app.engine(|core, now| {
        if core.generation != local.live.generation {
            return None;
        }
        let is_late = request.deadline.is_some_and(|deadline| deadline <= now) && !local.live.policer.shadow();
        if is_read && !is_late && !(verdict == Verdict::Ask && core.controller.is_full(now)) {
            return Some(Policed::Reading(Reading::new(worker, local, request, verdict)));
        }
        let epoch = core.epoch;
        let admitted = |ticket, server, shadow: Option<Rejection>| {
            let permit = Permit::new(worker, epoch, ticket);
            Policed::Admitted(Admitted { permit, server, shadow: shadow.map(|rejection| rejection.reason) })
        };
        Some(match core.controller.handle_policed(now, request, verdict) {
            Decision::Admit { ticket, server, shadow } => admitted(ticket, server, shadow),
            Decision::Reject(rejection) => Policed::Refused(rejection),
            Decision::Enqueue { ticket } if core.waiters.len() >= most_waiting => {
                core.controller.handle_cancel(now, ticket);
                Policed::Refused(queue_full(local, request.class))
            }
            Decision::Enqueue { ticket } => Policed::Waiting(Waiting::join(worker, core, ticket, request.class)),
        })
    })
}

/// The bound on all queues together is the sentry's: it is about the sentry's memory.
fn queue_full(local: &Local, class: ClassId) -> Rejection {
    Rejection {
        reason: Reason::QueueFull,
        policy: local.live.policer.policy(),
        class,
        retry_after: std::time::Duration::from_secs(1),
        predicted: None,
    }
}

/// The right to be in flight. Dropped without an outcome, it reports that nobody wants an answer and that no server is
/// at work for it.
#[derive(Debug)]
pub(crate) struct Permit {
    worker: Rc<WorkerApp>,
    /// Whose ticket it is: another controller knows nothing of it.
    epoch: u64,
    ticket: Ticket,
    done: bool,
    /// When the answer began, once it has.
    first_byte: Cell<Option<Timestamp>>,
}

impl Permit {
    fn new(worker: &Rc<WorkerApp>, epoch: u64, ticket: Ticket) -> Self {
        Permit { worker: worker.clone(), epoch, ticket, done: false, first_byte: Cell::new(None) }
    }

    /// The answer began at that time. The engine hears of it with the outcome: its lock is taken once.
    pub(crate) fn note_first_byte(&self, at: Timestamp) {
        self.first_byte.set(Some(at));
    }

    /// The request is over. `measured`: what it cost, where that was measured on its server.
    pub(crate) fn complete(mut self, outcome: Outcome, measured: Option<(ServerId, Request, MeasuredCost)>) {
        self.done = true;
        let (ticket, first_byte) = (self.ticket, self.first_byte.get());
        self.engine(|core, now| {
            if let Some(first_byte) = first_byte {
                core.controller.handle_first_byte(ticket, first_byte);
            }
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
        self.engine(|core, now| core.controller.handle_open(now, ticket, kind, first_byte))
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
        let (ticket, first_byte) = (self.ticket, self.first_byte.get());
        self.engine(|core, now| {
            if let Some(first_byte) = first_byte {
                core.controller.handle_first_byte(ticket, first_byte);
            }
            core.controller.handle_abandon(now, ticket, by, watch);
        });
    }

    /// Asks the controller that gave the permit. Where another took its place, nobody is asked.
    fn engine<T: Default>(&self, call: impl FnOnce(&mut Core, Timestamp) -> T) -> T {
        in_epoch(&self.worker, self.epoch, call)
    }

    /// Whose it is, and its name in the controller.
    pub(crate) fn admission(&self) -> Admission {
        (self.worker.number, self.ticket)
    }

    /// Moves the request to another server after `failed` could not take it.
    pub(crate) fn redispatch(&self, failed: ServerId) -> Option<ServerId> {
        let ticket = self.ticket;
        self.engine(|core, now| core.controller.handle_redispatch(now, ticket, failed))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.done {
            let ticket = self.ticket;
            self.engine(|core, now| core.controller.handle_cancel(now, ticket));
        }
    }
}

/// Asks the controller of that epoch, unless another took its place.
fn in_epoch<T: Default>(worker: &WorkerApp, epoch: u64, call: impl FnOnce(&mut Core, Timestamp) -> T) -> T {
    worker.app.engine(|core, now| if core.epoch == epoch { call(core, now) } else { T::default() })
}

/// A request that was policed at its head, and whose body is read before it asks for a place: it has none, and waits
/// in no queue. Dropped, it never asks.
#[derive(Debug)]
pub(crate) struct Reading {
    worker: Rc<WorkerApp>,
    local: Rc<Local>,
    request: Request,
    verdict: Verdict,
    has_asked: bool,
}

impl Reading {
    fn new(worker: &Rc<WorkerApp>, local: &Rc<Local>, request: Request, verdict: Verdict) -> Self {
        Reading { worker: worker.clone(), local: local.clone(), request, verdict, has_asked: false }
    }

    /// Its body is here, or as much of it as there is room for: for the driver the request arrives now.
    pub(crate) fn arrive(mut self, view: &impl RequestView, at: Timestamp) -> Arrival {
        self.has_asked = true;
        let (local, request) = (self.local.clone(), self.request);
        let verdict = local.live.policer.police_again(self.worker.index, &request, self.verdict);
        match ask(&self.worker, &local, request, verdict, false) {
            Some(policed) => Arrival { worker: self.worker.clone(), at, request, policed, local },
            // After a reload: nothing of before means anything.
            None => police_uncounted(&self.worker, view, at, BodyIs::Here, Some(request)),
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if self.has_asked {
            return;
        }
        let (generation, class) = (self.local.live.generation, self.request.class);
        self.worker.app.engine(|core, _| {
            if core.generation == generation {
                core.controller.handle_dropout(class);
            }
        });
    }
}

/// A place in a class queue. Dropped, the request leaves the queue.
#[derive(Debug)]
pub(crate) struct Waiting {
    worker: Rc<WorkerApp>,
    epoch: u64,
    class: ClassId,
    ticket: Ticket,
    news: oneshot::Receiver<Woken>,
    over: bool,
}

impl Waiting {
    /// Registers for news of `ticket`, while the lock is still held: the news may come from another worker at once.
    fn join(worker: &Rc<WorkerApp>, core: &mut Core, ticket: Ticket, class: ClassId) -> Self {
        let (tell, news) = oneshot::channel();
        core.waiters.insert(ticket, tell);
        Waiting { worker: worker.clone(), epoch: core.epoch, class, ticket, news, over: false }
    }

    /// Waits to be started, or refused.
    pub(crate) async fn turn(mut self) -> Result<Admitted, Rejection> {
        let woken = (&mut self.news).await;
        self.over = true;
        match woken {
            Ok(Woken::Start(server)) => {
                let permit = Permit::new(&self.worker, self.epoch, self.ticket);
                Ok(Admitted { permit, server, shadow: None })
            }
            Ok(Woken::Refuse(rejection)) => Err(rejection),
            // The waiter's other end lives in the core until news is sent, unless the controller was built anew, with
            // empty queues.
            Err(_) => Err(queue_full(&self.worker.local(), self.class)),
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
        in_epoch(&self.worker, self.epoch, |core, now| {
            if core.waiters.remove(&ticket).is_some() {
                core.controller.handle_abandon(now, ticket, AbandonedBy::Client, Watch::Nobody);
            } else if started {
                core.controller.handle_cancel(now, ticket);
            }
        });
    }
}
