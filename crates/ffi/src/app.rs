//! An application: the engine's controller, with what its callers in other languages need besides.
//!
//! *Time.* Threads read their clocks before they have the lock, so their times arrive out of order; the engine's never
//! goes back. A time before the latest one is taken to be that one: nanoseconds, while threads take turns.
//!
//! *Requests that wait* are decided in calls about others. Their decisions are kept here until they are polled, each
//! with the number that the caller gave with the request, so that no caller has to know a ticket before another thread
//! polls it. Once a request was cancelled or abandoned nothing more is said of it: its caller may have freed what the
//! number stands for.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashMap;
use tidegate_engine::{
    AbandonedBy, Action, AffinityKey, ClassId, Controller, Decision, End, Explanation, NoEvents, Outcome, Reason,
    Rejection, Request, RequestTypeId, ServerId, Setup, Snapshot, Status, Tags, TenantKey, Ticket, Timestamp, UrlKey,
    Watch,
};

use crate::failure::Failure;
use crate::types::{self, POLL, SOONER};
use crate::{config, say};

/// One application.
pub struct App {
    controller: Controller,
    /// The latest time that a call brought.
    now: Timestamp,
    /// What the last tick said. Before the first one is due at once.
    armed: Timestamp,
    /// Decisions about requests that waited, to be polled.
    decided: VecDeque<types::Decision>,
    /// Requests that wait.
    waiting: HashMap<Ticket, Waiting>,
}

struct Waiting {
    user: u64,
    class: u8,
}

impl App {
    /// An application of this configuration. Equal calls after an equal `seed` get equal decisions.
    ///
    /// # Errors
    /// What is wrong with the configuration: a line for each mistake.
    pub fn open(text: &str, seed: u64) -> Result<App, String> {
        let controller =
            Controller::new(App::read(text)?, 1, seed, Box::new(NoEvents)).map_err(|error| error.to_string())?;
        Ok(App {
            controller,
            now: Timestamp::ZERO,
            armed: Timestamp::MAX,
            decided: VecDeque::new(),
            waiting: HashMap::new(),
        })
    }

    /// Reads a configuration.
    ///
    /// # Errors
    /// What is wrong with it: a line for each mistake.
    pub fn read(text: &str) -> Result<Setup, String> {
        config::read(text).map_err(|errors| errors.to_string())
    }

    /// Puts another configuration in force; what was learned is kept, by name of class, type and server.
    ///
    /// # Errors
    /// What is wrong with it; then nothing has changed.
    pub fn reload(&mut self, now_ns: u64, setup: Setup) -> Result<i32, String> {
        let now = self.at(now_ns);
        self.controller.reconfigure(now, setup).map_err(|error| error.to_string())?;
        Ok(self.follow())
    }

    /// What the engine makes of a request.
    ///
    /// # Errors
    /// [`Failure::Argument`] when the configuration has no such class or type.
    pub fn check(&self, request: &types::Request) -> Result<Request, Failure> {
        let setup = self.controller.setup();
        let is_known = usize::from(request.class) < setup.classes.len()
            && usize::from(request.request_type) < setup.request_types.len();
        is_known.then_some(()).ok_or(Failure::Argument)?;
        Ok(Request {
            class: ClassId(request.class),
            request_type: RequestTypeId(request.request_type),
            tags: Tags::default(),
            url: UrlKey(request.url),
            affinity: AffinityKey(request.session),
            tenant: TenantKey(request.tenant),
            deadline: (request.deadline_ns > 0).then(|| Timestamp::from_nanos(request.deadline_ns)),
            is_retry: request.is_retry != 0,
        })
    }

    /// A request arrives, which [`App::check`] took.
    pub fn arrive(&mut self, now_ns: u64, request: Request, user: u64) -> types::Decision {
        let now = self.at(now_ns);
        let class = request.class.0;
        let told = match self.controller.handle_arrival(now, request) {
            Decision::Admit { ticket, server, shadow } => {
                let mut told = shadow.map_or_else(types::Decision::default, refusal);
                (told.ticket, told.server, told.shadow) = (ticket.as_u64(), server.0, u8::from(shadow.is_some()));
                types::Decision { kind: types::ADMITTED, ..told }
            }
            Decision::Enqueue { ticket } => {
                self.waiting.insert(ticket, Waiting { user, class });
                types::Decision { kind: types::WAITS, ticket: ticket.as_u64(), ..types::Decision::default() }
            }
            Decision::Reject(rejection) => refusal(rejection),
        };
        types::Decision { user, class, ..told }
    }

    /// An admitted request ended.
    ///
    /// # Errors
    /// [`Failure::Ticket`] when it was not admitted, or ended before; [`Failure::Argument`] for an unknown kind of end.
    pub fn complete(&mut self, now_ns: u64, end: &types::End) -> Result<(), Failure> {
        let (kind, refused_below) = match end.end {
            types::ANSWERED => (End::Answered, false),
            types::FAILED => (End::Failed, false),
            types::TIMED_OUT => (End::TimedOut, false),
            types::REFUSED_BELOW => (End::Failed, true),
            _ => return Err(Failure::Argument),
        };
        let now = self.at(now_ns);
        let ticket = Ticket::from_u64(end.ticket);
        if self.controller.server_of(ticket).is_none() || self.is_to_be_polled(end.ticket) {
            return Err(Failure::Ticket);
        }
        let service_time = (end.service_time_ns > 0).then(|| Duration::from_nanos(end.service_time_ns));
        let bytes = (end.bytes > 0).then_some(end.bytes);
        self.controller.handle_completion(now, ticket, Outcome { end: kind, service_time, bytes, refused_below });
        Ok(())
    }

    /// The answer to an admitted request began then.
    ///
    /// # Errors
    /// [`Failure::Ticket`] when it was not admitted, or ended before.
    pub fn first_byte(&mut self, now_ns: u64, ticket: u64) -> Result<(), Failure> {
        let now = self.at(now_ns);
        let named = Ticket::from_u64(ticket);
        if self.controller.server_of(named).is_none() || self.is_to_be_polled(ticket) {
            return Err(Failure::Ticket);
        }
        self.controller.handle_first_byte(named, now);
        Ok(())
    }

    /// Nobody wants the answer any more, and nobody works on it.
    ///
    /// # Errors
    /// [`Failure::Ticket`] when it ended before.
    pub fn cancel(&mut self, now_ns: u64, ticket: u64) -> Result<(), Failure> {
        self.end_unserved(now_ns, ticket, AbandonedBy::Client)
    }

    /// Nobody wants the answer any more, and the server works on; whether the end of that will be said.
    ///
    /// # Errors
    /// [`Failure::Ticket`] when it ended before, [`Failure::Argument`] when nobody is called so.
    pub fn abandon(&mut self, now_ns: u64, ticket: u64, by: u32, is_watched: bool) -> Result<(), Failure> {
        let by = match by {
            types::BY_CLIENT => AbandonedBy::Client,
            types::BY_TIME_OUT => AbandonedBy::TimeOut,
            _ => return Err(Failure::Argument),
        };
        let named = Ticket::from_u64(ticket);
        // What waits, or was decided and not polled, nobody works on.
        if self.controller.server_of(named).is_none() || self.is_to_be_polled(ticket) {
            return self.end_unserved(now_ns, ticket, by);
        }
        let now = self.at(now_ns);
        let watch = if is_watched { Watch::Driver } else { Watch::Nobody };
        self.controller.handle_abandon(now, named, by, watch);
        Ok(())
    }

    /// The next decision about a request that waited.
    pub fn poll(&mut self) -> Option<types::Decision> {
        self.decided.pop_front()
    }

    /// Does what is due, and says when to come again.
    pub fn tick(&mut self, now_ns: u64) -> u64 {
        let now = self.at(now_ns);
        self.controller.handle_timeout(now);
        self.armed = self.controller.poll_timeout().map_or(Timestamp::MAX, |(at, _)| at);
        self.armed.as_nanos()
    }

    /// A server came up, went down, or is to finish what it has.
    ///
    /// # Errors
    /// [`Failure::Argument`] when there is no such server or state.
    pub fn set_server(&mut self, now_ns: u64, server: u16, state: u32) -> Result<(), Failure> {
        let status = match state {
            types::UP => Status::Up,
            types::DOWN => Status::Down,
            types::DRAINING => Status::Draining,
            _ => return Err(Failure::Argument),
        };
        if self.controller.servers().get(usize::from(server)).is_none() {
            return Err(Failure::Argument);
        }
        let now = self.at(now_ns);
        self.controller.handle_server(now, ServerId(server), status);
        Ok(())
    }

    /// Turns shadow mode on or off.
    pub fn set_shadow(&mut self, now_ns: u64, shadow: bool) {
        let now = self.at(now_ns);
        self.controller.set_shadow(now, shadow);
    }

    /// Takes up what follows of a call for others, and says of it what the caller has to do: [`POLL`], [`SOONER`].
    pub fn follow(&mut self) -> i32 {
        while let Some(action) = self.controller.poll_action() {
            let (ticket, told) = match action {
                Action::Start { ticket, server } => {
                    let kind = types::ADMITTED;
                    (ticket, types::Decision { kind, server: server.0, ..types::Decision::default() })
                }
                Action::Refuse { ticket, rejection } => (ticket, refusal(rejection)),
                // No policy that a configuration here can name asks for more.
                _ => continue,
            };
            let Waiting { user, class } = self.waiting.remove(&ticket).unwrap_or(Waiting { user: 0, class: 0 });
            self.decided.push_back(types::Decision { ticket: ticket.as_u64(), user, class, ..told });
        }
        let is_sooner = self.controller.poll_timeout().is_some_and(|(at, _)| at < self.armed);
        let sooner = if is_sooner { SOONER } else { 0 };
        sooner | if self.decided.is_empty() { 0 } else { POLL }
    }

    /// How many classes there are.
    pub fn classes(&self) -> usize {
        self.controller.setup().classes.len()
    }

    /// The number of the class of that name.
    pub fn class_named(&self, name: &str) -> Option<usize> {
        self.controller.setup().classes.iter().position(|class| class.name == name)
    }

    /// The number of the request type of that name.
    pub fn type_named(&self, name: &str) -> Option<usize> {
        self.controller.setup().request_types.iter().position(|known| known == name)
    }

    /// The number of the server of that name.
    pub fn server_named(&self, name: &str) -> Option<usize> {
        self.controller.servers().iter().find(|server| server.name == name).map(|server| server.id.index())
    }

    /// What became of the requests of a class.
    ///
    /// # Errors
    /// [`Failure::Argument`] when there is no such class.
    pub fn counts(&mut self, now_ns: u64, class: u8) -> Result<types::Counts, Failure> {
        let snapshot = self.snapshot(now_ns);
        let class = snapshot.classes.get(usize::from(class)).ok_or(Failure::Argument)?;
        Ok(types::Counts {
            offered: class.offered,
            retries: class.retries,
            admitted: class.admitted,
            guaranteed: class.guaranteed,
            refused: class.rejected_total(),
            completed: class.completed,
            in_target: class.in_target,
            failed: class.failed,
            cancelled: class.cancelled,
            in_flight: class.in_flight,
            waiting: class.waiting,
        })
    }

    /// Everything there is to see.
    pub fn snapshot(&mut self, now_ns: u64) -> Snapshot {
        let now = self.at(now_ns);
        self.controller.snapshot(now)
    }

    /// What people and programs are told of a decision.
    ///
    /// # Errors
    /// [`Failure::Argument`] for an unknown form, reason or class, or where there is no refusal to be told.
    pub fn say(&self, decision: &types::Decision, form: u32) -> Result<String, Failure> {
        let setup = self.controller.setup();
        let class = setup.classes.get(usize::from(decision.class)).ok_or(Failure::Argument)?;
        let reason = reason_of(decision.reason).ok_or(Failure::Argument)?;
        let after = u64::from(decision.retry_after_s);
        let told = Explanation::new(reason, setup.admission.name(), &class.name, after);
        say::in_form(&told, form).ok_or(Failure::Argument)
    }

    fn at(&mut self, now_ns: u64) -> Timestamp {
        self.now = self.now.max(Timestamp::from_nanos(now_ns));
        self.now
    }

    /// A request is over that nobody works on; of one that waits it matters who gave it up.
    fn end_unserved(&mut self, now_ns: u64, ticket: u64, by: AbandonedBy) -> Result<(), Failure> {
        let now = self.at(now_ns);
        let undelivered = self.decided.iter().position(|decision| decision.ticket == ticket);
        let was_refused =
            undelivered.and_then(|at| self.decided.remove(at)).is_some_and(|decision| decision.kind == types::REFUSED);
        if was_refused {
            return Ok(());
        }
        let ticket = Ticket::from_u64(ticket);
        if !self.controller.is_live(ticket) {
            return Err(Failure::Ticket);
        }
        self.waiting.remove(&ticket);
        match self.controller.server_of(ticket) {
            None => self.controller.handle_abandon(now, ticket, by, Watch::Nobody),
            Some(_) => self.controller.handle_cancel(now, ticket),
        }
        Ok(())
    }

    fn is_to_be_polled(&self, ticket: u64) -> bool {
        self.decided.iter().any(|decision| decision.ticket == ticket)
    }
}

/// The reason with this number, from 1.
pub(crate) fn reason_of(number: u32) -> Option<Reason> {
    Reason::ALL.get((number as usize).checked_sub(1)?).copied()
}

fn refusal(rejection: Rejection) -> types::Decision {
    let number = Reason::ALL.iter().position(|reason| *reason == rejection.reason);
    let after = rejection.retry_after;
    let seconds = (after.as_secs() + u64::from(after.subsec_nanos() > 0)).max(1);
    types::Decision {
        kind: types::REFUSED,
        reason: number.map_or(0, |number| number as u32 + 1),
        retry_after_ns: nanos(after),
        retry_after_s: u32::try_from(seconds).unwrap_or(u32::MAX),
        predicted_ns: rejection.predicted.map_or(0, nanos),
        class: rejection.class.0,
        ..types::Decision::default()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
