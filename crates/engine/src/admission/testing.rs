//! A policy on a bench: a controller with three classes and one server, driven by hand.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use super::PolicyState;
use crate::{
    Action, ClassId, ClassSetup, Controller, Decision, LoadReport, NoEvents, Outcome, Peers, Reason, Request,
    ServerSetup, Setup, Sla, Statistic, Summary, Ticket, Timestamp,
};

pub(super) struct Bench {
    controller: Controller,
    now: Timestamp,
    limits: Vec<f64>,
    /// Waiting requests that were let in, in order.
    pub(super) started: Vec<Ticket>,
    /// Waiting requests that were refused, in order.
    pub(super) refused: Vec<(Ticket, Reason)>,
}

impl Bench {
    /// A policy from its JSON.
    pub(super) fn new(policy: &str) -> Bench {
        let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("more than zero");
        let mut setup = Setup::simple("bench", sla, [ServerSetup::new("one")]);
        setup.classes = ["gold", "silver", "bronze"].map(ClassSetup::new).to_vec();
        setup.admission = serde_json::from_str(policy).unwrap_or_else(|error| panic!("{policy}: {error}"));
        let controller = Controller::new(setup, 1, 1, Box::new(NoEvents)).expect("it makes sense");
        let (limits, started, refused) = (Vec::new(), Vec::new(), Vec::new());
        Bench { controller, now: Timestamp::ZERO, limits, started, refused }
    }

    pub(super) fn decide(&mut self, class: u8) -> Decision {
        let request = Request { class: ClassId(class), ..Request::default() };
        let decision = self.controller.handle_arrival(self.now, request);
        self.note();
        decision
    }

    /// The ticket of a request that gets in at once.
    pub(super) fn arrive(&mut self, class: u8) -> Option<Ticket> {
        match self.decide(class) {
            Decision::Admit { ticket, .. } => Some(ticket),
            _ => None,
        }
    }

    /// The ticket of a request that waits.
    pub(super) fn wait(&mut self, class: u8) -> Ticket {
        match self.decide(class) {
            Decision::Enqueue { ticket } => ticket,
            other => panic!("it does not wait: {other:?}"),
        }
    }

    pub(super) fn complete(&mut self, ticket: Ticket, outcome: Outcome) {
        self.controller.handle_completion(self.now, ticket, outcome);
        self.note();
    }

    pub(super) fn cancel(&mut self, ticket: Ticket) {
        self.controller.handle_cancel(self.now, ticket);
        self.note();
    }

    pub(super) fn report(&mut self, report: LoadReport) {
        self.controller.handle_report(self.now, report);
        self.note();
    }

    /// Tells the others, and hears this of them.
    pub(super) fn exchange(&mut self, peers: Peers) -> Summary {
        let summary = self.controller.summary(self.now);
        self.controller.handle_peers(self.now, peers);
        self.note();
        summary
    }

    pub(super) fn advance(&mut self, ms: u64) {
        let end = self.now + Duration::from_millis(ms);
        while let Some((at, _)) = self.controller.poll_timeout()
            && at <= end
        {
            self.now = self.now.max(at);
            self.controller.handle_timeout(self.now);
            self.note();
        }
        self.now = end;
    }

    pub(super) fn state(&self) -> PolicyState {
        self.controller.snapshot(self.now).policy
    }

    /// How many in flight count as hanging: no more than work.
    pub(super) fn hanging(&self) -> usize {
        let snapshot = self.controller.snapshot(self.now);
        snapshot.hanging.min(snapshot.in_flight / 2)
    }

    /// The limit after each step.
    pub(super) fn limits(&self) -> &[f64] {
        &self.limits
    }

    fn note(&mut self) {
        self.limits.extend(self.state().limit);
        while let Some(action) = self.controller.poll_action() {
            match action {
                Action::Start { ticket, .. } => self.started.push(ticket),
                Action::Refuse { ticket, rejection } => self.refused.push((ticket, rejection.reason)),
                Action::Isolate { .. } | Action::SynRate { .. } | Action::Cancel { .. } => {}
            }
        }
    }
}

/// A complete answer after `ms`.
pub(super) fn answered(ms: u64) -> Outcome {
    Outcome::answered_in(Duration::from_millis(ms))
}
