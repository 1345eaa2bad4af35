//! What must hold of any controller under any policy, checked step by step on a trace.
//!
//! The model knows nothing of policies: it counts, and compares its counts with what the controller shows.

mod counts;
mod due;
mod rules;
mod servers;
mod tally;

use std::collections::{HashMap, HashSet};

use tidegate_engine::{
    AbandonedBy, Action, ClassId, Decision, End, Open, Outcome, Reason, Rejection, Request, Role, ServerId, Setup,
    Status, Ticket, Timestamp, WhenAllDown,
};

use super::cases::Case;
use super::driver::{Input, Output, Server, Step, View};
use super::finite;
use counts::{Counts, Sums};
use rules::{
    equal, lending_changed, longest_target, may_use, no_inversion, partitions, require, same_estimates, unchanged,
};
use tally::{Places, Tally};

type Checked = Result<(), String>;

/// A request between its arrival and its end.
#[derive(Clone, Copy, Debug)]
struct Live {
    class: usize,
    /// `None` while it waits.
    server: Option<ServerId>,
    kind: Kind,
    deadline: Option<Timestamp>,
    is_retry: bool,
}

/// What a request at a server is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Work that somebody waits for.
    Wanted,
    /// Work that nobody waits for.
    Ghost,
    /// No work.
    Open(Open),
}

/// The model.
pub struct Model {
    setup: Setup,
    shadow: bool,
    now: Timestamp,
    live: HashMap<Ticket, Live>,
    ended: HashSet<Ticket>,
    /// Of these, first tries.
    first_tries_ended: HashSet<Ticket>,
    classes: Vec<Counts>,
    sums: Sums,
    stale: u64,
    before: Option<View>,
    longest_target: f64,
}

impl Model {
    /// A model of a controller that was just made for `case`.
    pub fn new(case: &Case) -> Model {
        Model {
            setup: case.setup.clone(),
            shadow: case.setup.shadow,
            now: Timestamp::ZERO,
            live: HashMap::new(),
            ended: HashSet::new(),
            first_tries_ended: HashSet::new(),
            classes: vec![Counts::default(); case.setup.classes.len()],
            sums: Sums::default(),
            stale: 0,
            before: None,
            longest_target: longest_target(&case.setup),
        }
    }

    /// Takes the next step.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&mut self, step: &Step) -> Checked {
        require(step.now >= self.now, || format!("time went back from {:?}", self.now))?;
        self.now = step.now;
        self.take_input(step)?;
        step.faded.iter().try_for_each(|ticket| self.fade(*ticket))?;
        step.actions.iter().try_for_each(|action| self.take_action(step, action))?;
        no_inversion(self, step)?;
        due::check(self, step)?;
        self.compare(&step.after)?;
        require(step.events.iter().all(|(at, _)| *at == step.now), || "an event of another time".into())?;
        finite::check(&step.after.snapshot, &self.setup, self.longest_target)?;
        let wakes = step.after.timeout.is_none_or(|at| at > step.now);
        require(wakes || !matches!(step.input, Input::Timeout), || {
            format!("wants to be called at {:?} again, without end", step.after.timeout)
        })?;
        self.before = Some(step.after.clone());
        Ok(())
    }

    fn take_input(&mut self, step: &Step) -> Checked {
        match (&step.input, &step.output) {
            (Input::Arrive(request), Output::Decision(decision)) => self.arrival(step, request, decision),
            (Input::Complete(ticket, outcome), _) => self.completion(*ticket, outcome, step),
            (Input::Cancel(ticket), _) => self.cancel(*ticket, step),
            (Input::Abandon(ticket, by, _), _) => self.abandon(*ticket, *by, step),
            (Input::Open(ticket, kind, _), Output::Pooled(pooled)) => self.open(*ticket, *kind, *pooled, step),
            (Input::FirstByte(..), _) => unchanged(self.before.as_ref(), step),
            (Input::Redispatch(ticket, failed), Output::Moved(moved)) => self.moved(step, *ticket, *failed, *moved),
            (Input::Server(id, status), _) => {
                let now = step.after.servers[id.index()].status;
                require(now == *status || now == Status::Removed, || format!("the server is {now:?}"))
            }
            (Input::Shadow(on), _) => {
                self.shadow = *on;
                Ok(())
            }
            (Input::Reconfigure(setup), _) => {
                self.reconfigure(setup);
                Ok(())
            }
            (Input::Made | Input::Timeout | Input::SentryCpu(_) | Input::Report(_), _) => Ok(()),
            (input, output) => Err(format!("{input:?} cannot be answered with {output:?}")),
        }
    }

    fn arrival(&mut self, step: &Step, request: &Request, decision: &Decision) -> Checked {
        let class = request.class.index();
        self.classes[class].offered += 1;
        self.classes[class].retries += u64::from(request.is_retry);
        self.sums.offered += 1;
        let Request { deadline, is_retry, .. } = *request;
        match *decision {
            Decision::Admit { ticket, server, shadow } => {
                require(self.shadow || shadow.is_none(), || "a shadow refusal outside shadow mode".into())?;
                if let Some(rejection) = shadow {
                    due::fits(&rejection, deadline, is_retry)?;
                    self.explains(step, request.class, &rejection)?;
                    self.classes[class].rejected += 1;
                }
                self.sums.admitted += 1;
                self.begin(ticket, Live { class, server: None, kind: Kind::Wanted, deadline, is_retry })?;
                require(may_use(&step.after, class, server), || format!("{server:?} is another class's"))?;
                self.send(step, ticket, server)
            }
            Decision::Enqueue { ticket } => {
                require(!self.shadow, || "it waits in shadow mode".into())?;
                self.begin(ticket, Live { class, server: None, kind: Kind::Wanted, deadline, is_retry })
            }
            Decision::Reject(rejection) => {
                due::fits(&rejection, deadline, is_retry)?;
                let unservable = matches!(rejection.reason, Reason::NoServer | Reason::ServerLimit);
                require(!self.shadow || unservable, || format!("shadow mode refused: {:?}", rejection.reason))?;
                self.refused(step, class, &rejection)
            }
        }
    }

    fn completion(&mut self, ticket: Ticket, outcome: &Outcome, step: &Step) -> Checked {
        match self.live.get(&ticket).copied() {
            Some(Live { class, server: Some(_), kind, .. }) => {
                self.end(ticket);
                self.classes[class].heard_of_below |= outcome.refused_below;
                match outcome.end {
                    _ if !matches!(kind, Kind::Wanted | Kind::Open(Open::Poll)) => {}
                    End::Answered => {
                        self.classes[class].completed += 1;
                        self.sums.completed += 1;
                    }
                    End::Failed | End::TimedOut => {
                        self.classes[class].failed += 1;
                        // Of a poll it is not known at whom it was refused.
                        let refused_below = outcome.refused_below && kind == Kind::Wanted;
                        self.classes[class].refused_below += u64::from(refused_below);
                    }
                }
                Ok(())
            }
            _ => self.nothing_happened(step),
        }
    }

    fn cancel(&mut self, ticket: Ticket, step: &Step) -> Checked {
        let Some(live) = self.live.get(&ticket).copied() else { return self.nothing_happened(step) };
        self.end(ticket);
        self.classes[live.class].cancelled += u64::from(matches!(live.kind, Kind::Wanted | Kind::Open(Open::Poll)));
        self.sums.cancelled_waiting += u64::from(live.server.is_none());
        match &self.before {
            Some(before) => {
                let was_at_work = live.server.is_some() && !matches!(live.kind, Kind::Open(_));
                same_estimates(before, &step.after, was_at_work)
            }
            None => Ok(()),
        }
    }

    fn abandon(&mut self, ticket: Ticket, by: AbandonedBy, step: &Step) -> Checked {
        match self.live.get_mut(&ticket) {
            None => self.nothing_happened(step),
            Some(Live { server: None, .. } | Live { kind: Kind::Open(_), .. }) => self.cancel(ticket, step),
            Some(live) => {
                let counts = &mut self.classes[live.class];
                match std::mem::replace(&mut live.kind, Kind::Ghost) {
                    Kind::Wanted if by == AbandonedBy::Client => counts.cancelled += 1,
                    Kind::Wanted => {
                        counts.failed += 1;
                        counts.runaways += u64::from(by == AbandonedBy::Controller);
                    }
                    _ => {}
                }
                Ok(())
            }
        }
    }

    /// The work of a ghost is taken to be over, which nobody said.
    fn fade(&mut self, ticket: Ticket) -> Checked {
        let ghost = self.live.get(&ticket).is_some_and(|live| live.kind == Kind::Ghost);
        require(ghost, || format!("{ticket:?} faded and is no ghost"))?;
        self.end(ticket);
        Ok(())
    }

    fn open(&mut self, ticket: Ticket, kind: Open, pooled: bool, step: &Step) -> Checked {
        let open = self.live.values().filter(|live| matches!(live.kind, Kind::Open(_))).count();
        let Some(live) = self.live.get_mut(&ticket) else { return self.nothing_happened(step) };
        let expected = live.kind == Kind::Wanted && live.server.is_some() && open < self.setup.most_open;
        require(pooled == expected, || format!("pooled: {pooled}, the model says {expected}"))?;
        if pooled {
            live.kind = Kind::Open(kind);
            self.classes[live.class].completed += u64::from(kind != Open::Poll);
            self.sums.completed += u64::from(kind != Open::Poll);
        }
        Ok(())
    }

    fn moved(&mut self, step: &Step, ticket: Ticket, failed: ServerId, moved: Option<ServerId>) -> Checked {
        let Some(server) = moved else { return Ok(()) };
        require(server != failed, || "sent to the server that just failed".into())?;
        let live = self.live.get_mut(&ticket).ok_or("a request that is not there was moved")?;
        require(live.server.take().is_some(), || "a request that waits was moved".into())?;
        self.send(step, ticket, server)
    }

    fn take_action(&mut self, step: &Step, action: &Action) -> Checked {
        if let Action::Isolate { server, cores } = action {
            return self.isolates(step, *server, *cores);
        }
        if let Action::Cancel { ticket } = action {
            return due::cancels(self, *ticket);
        }
        if let Action::SynRate { rate, depth } = action {
            let sound = rate.is_none_or(|rate| rate > 0.0 && rate.is_finite()) && *depth >= 1.0;
            return require(sound, || format!("{action:?} lets nobody in"));
        }
        let (Action::Start { ticket, .. } | Action::Refuse { ticket, .. }) = action else {
            return Err(format!("an action that the model does not know: {action:?}"));
        };
        let waiting = self.live.get(ticket).filter(|live| live.server.is_none()).copied();
        let Live { class, deadline, is_retry, .. } =
            waiting.ok_or_else(|| format!("{action:?} is about nobody who waits"))?;
        match action {
            Action::Start { ticket, server } => {
                self.sums.admitted += 1;
                self.send(step, *ticket, *server)
            }
            Action::Refuse { ticket, rejection } => {
                due::fits(rejection, deadline, is_retry)?;
                let unservable = matches!(rejection.reason, Reason::NoServer | Reason::ServerLimit);
                require(!self.shadow || unservable, || format!("shadow mode refused: {:?}", rejection.reason))?;
                self.end(*ticket);
                self.refused(step, class, rejection)
            }
            _ => Ok(()),
        }
    }

    fn refused(&mut self, step: &Step, class: usize, rejection: &Rejection) -> Checked {
        self.classes[class].rejected += 1;
        self.sums.refused += 1;
        self.explains(step, ClassId(class as u8), rejection)?;
        let taking = self.taking(&step.after);
        match rejection.reason {
            Reason::NoServer => require(taking.is_empty(), || format!("no server, but {taking:?} take requests")),
            // What data servers lend may have changed later at the same instant.
            Reason::ServerLimit if lending_changed(step) => Ok(()),
            Reason::ServerLimit => {
                let full = |id: &ServerId| !self.has_room(&step.after, *id);
                let own: Vec<ServerId> = taking.into_iter().filter(|id| may_use(&step.after, class, *id)).collect();
                // A tick refuses by the partitions before it, and then moves a server.
                let moved = self.before.as_ref().is_some_and(|before| partitions(before) != partitions(&step.after));
                require(moved || !own.is_empty() && own.iter().all(full), || format!("of {own:?} one has room"))
            }
            _ => Ok(()),
        }
    }

    fn explains(&self, step: &Step, class: ClassId, rejection: &Rejection) -> Checked {
        require(rejection.class == class, || format!("{rejection:?} is about another class"))?;
        let policy = step.after.snapshot.policy.policy;
        require(rejection.policy == policy, || format!("{} refused in the name of {policy}", rejection.policy))?;
        let heard = self.classes[class.index()].heard_of_below;
        require(heard || rejection.reason != Reason::RefusedBelow, || "nothing of its class was refused below".into())?;
        let seconds = rejection.retry_after.as_secs_f64();
        require((1.0..=60.0).contains(&seconds), || format!("come back after {seconds} s"))
    }

    fn begin(&mut self, ticket: Ticket, live: Live) -> Checked {
        require(!self.ended.contains(&ticket), || format!("{ticket:?} was used before"))?;
        require(self.live.insert(ticket, live).is_none(), || format!("{ticket:?} is in use"))
    }

    fn end(&mut self, ticket: Ticket) {
        let live = self.live.remove(&ticket);
        if live.is_some_and(|live| !live.is_retry) {
            self.first_tries_ended.insert(ticket);
        }
        self.ended.insert(ticket);
    }

    /// The request goes to `server`, which must take it. Counts it as admitted unless it was before.
    fn send(&mut self, step: &Step, ticket: Ticket, server: ServerId) -> Checked {
        let is_data = step.after.servers[server.index()].role == Role::Data;
        let takes = (is_data && lending_changed(step))
            || (self.taking(&step.after).contains(&server) && self.has_room(&step.after, server));
        require(takes, || format!("{server:?} takes nothing: {:?}", step.after.servers[server.index()]))?;
        let live = self.live.get_mut(&ticket).ok_or("nobody to send")?;
        live.server = Some(server);
        if !matches!(step.input, Input::Redispatch(..)) {
            self.classes[live.class].admitted += 1;
        }
        Ok(())
    }

    /// Servers that may take requests, by state.
    fn taking(&self, view: &View) -> Vec<ServerId> {
        let of = |wanted: Status| -> Vec<ServerId> {
            let serves = |server: &Server| server.role == Role::Application && server.status == wanted;
            let ids = view.servers.iter().enumerate().filter(|(_, server)| serves(server));
            ids.map(|(at, _)| ServerId(at as u16)).collect()
        };
        let mut taking = match of(Status::Up) {
            up if up.is_empty() && self.setup.when_all_down == WhenAllDown::Try => of(Status::Down),
            up => up,
        };
        let lends = |server: &Server| server.role == Role::Data && server.status == Status::Up && server.max != Some(0);
        let lending = view.servers.iter().enumerate().filter(|(_, server)| lends(server));
        taking.extend(lending.map(|(at, _)| ServerId(at as u16)));
        taking
    }

    fn has_room(&self, view: &View, server: ServerId) -> bool {
        let connections = self.live.values().filter(|live| live.server == Some(server)).count();
        view.servers[server.index()].max.is_none_or(|max| connections < max as usize)
    }

    fn nothing_happened(&mut self, step: &Step) -> Checked {
        self.stale += 1;
        let Some(before) = &self.before else { return Ok(()) };
        let mut expected = before.snapshot.clone();
        expected.stale_tickets += 1;
        require(step.actions.is_empty(), || "a stale ticket caused actions".into())?;
        let seen = &step.after.snapshot;
        require(expected == *seen, || format!("a stale ticket changed {expected:?} to {seen:?}"))
    }

    fn compare(&self, view: &View) -> Checked {
        let Sums { offered, admitted, refused, cancelled_waiting, .. } = self.sums;
        let tally = Tally::of(self.live.values(), view.servers.len(), self.classes.len());
        let Places { waiting, working, ghosts, streams, tunnels } = tally.all;
        let open = streams + tunnels;
        let ended_or_waits = admitted + refused + waiting as u64 + cancelled_waiting;
        require(offered == ended_or_waits, || format!("{offered} offered, {ended_or_waits} accounted for"))?;
        equal("waiting", view.waiting, waiting)?;
        equal("in flight", view.in_flight, working)?;
        equal("open", view.open, open)?;
        equal("ghosts", view.snapshot.ghosts as usize, ghosts)?;
        equal("streams and tunnels", (view.snapshot.streams + view.snapshot.tunnels) as usize, open)?;
        equal("waiting in the snapshot", view.snapshot.waiting, waiting)?;
        equal("in flight in the snapshot", view.snapshot.in_flight, working)?;
        equal("stale tickets", view.snapshot.stale_tickets, self.stale)?;
        require(!self.shadow || waiting == 0, || format!("{waiting} wait in shadow mode"))?;
        for (at, (server, there)) in view.servers.iter().zip(&tally.servers).enumerate() {
            equal(format_args!("in flight at server {at}"), server.in_flight as usize, there.working)?;
            equal(format_args!("open at server {at}"), server.open as usize, there.streams + there.tunnels)?;
        }
        self.divided(view)?;
        equal("classes", view.snapshot.classes.len(), self.classes.len())?;
        (0..self.classes.len()).try_for_each(|class| self.compare_class(view, class, tally.classes[class]))
    }

    fn compare_class(&self, view: &View, class: usize, places: Places) -> Checked {
        let (seen, counts) = (&view.snapshot.classes[class], &self.classes[class]);
        let numbers = [
            ("offered", seen.offered, counts.offered),
            ("retries", seen.retries, counts.retries),
            ("runaways", seen.runaways, counts.runaways),
            ("refused below", seen.refused_below, counts.refused_below),
            ("admitted", seen.admitted, counts.admitted),
            ("rejected", seen.rejected_total(), counts.rejected),
            ("completed", seen.completed, counts.completed),
            ("failed", seen.failed, counts.failed),
            ("cancelled", seen.cancelled, counts.cancelled),
            ("in flight", seen.in_flight, places.working as u64),
            ("waiting", seen.waiting, places.waiting as u64),
            ("ghosts", seen.ghosts, places.ghosts as u64),
            ("streams", seen.streams, places.streams as u64),
            ("tunnels", seen.tunnels, places.tunnels as u64),
        ];
        for (what, shown, expected) in numbers {
            equal(format_args!("{what} of class {}", seen.name), shown, expected)?;
        }
        let sane = seen.guaranteed <= seen.offered && seen.in_target <= seen.completed;
        require(sane, || format!("guaranteed or in target of class {}", seen.name))
    }
}
