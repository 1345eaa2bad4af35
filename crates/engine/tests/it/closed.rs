//! Clients that ask again as soon as they are answered, as load generators do: however fast the server is and however
//! its speed moves, whoever could be answered in a hundredth of the target is not refused.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_engine::{
    Action, Controller, Decision, NoEvents, Outcome, Request, ServerSetup, Setup, Sla, Statistic, Ticket, Timestamp,
    UrlKey,
};

use crate::support::cases::admission;

const CLIENTS: usize = 64;
/// Microseconds, where the target is a second.
const FASTEST: u64 = 30;
/// How often its speed changes, microseconds.
const CHANGES: u64 = 50_000;
/// From a refusal until the client asks again, microseconds.
const AGAIN: u64 = 500;

/// A server that answers one after the other, at a speed that is drawn anew again and again.
struct World {
    controller: Controller,
    now: u64,
    /// At the server, the first under work, which ends then.
    queue: VecDeque<(Ticket, Timestamp)>,
    ends: u64,
    /// Clients that ask then.
    asking: VecDeque<u64>,
    admitted: u64,
    refused: u64,
}

impl World {
    fn new() -> World {
        let sla = Sla::constant(Statistic::P95, Duration::from_secs(1)).expect("a target");
        let mut setup = Setup::simple("shop", sla, [ServerSetup::new("one")]);
        setup.admission = admission(r#"{ "policy": "waiting" }"#);
        let controller = Controller::new(setup, 1, 1, Box::new(NoEvents)).expect("it makes sense");
        let (queue, asking) = (VecDeque::new(), (0..CLIENTS as u64).collect());
        World { controller, now: 0, queue, ends: 0, asking, admitted: 0, refused: 0 }
    }

    fn time(&self) -> Timestamp {
        Timestamp::ZERO + Duration::from_micros(self.now)
    }

    /// What a request takes now, microseconds: one to six times the fastest.
    fn service(&self) -> u64 {
        let drawn = (self.now / CHANGES + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        FASTEST * (1 + drawn % 6)
    }

    fn send(&mut self, ticket: Ticket) {
        self.admitted += 1;
        if self.queue.is_empty() {
            self.ends = self.now + self.service();
        }
        self.queue.push_back((ticket, self.time()));
    }

    fn ask(&mut self) {
        let request = Request { url: UrlKey(1 << 40), ..Request::default() };
        match self.controller.handle_arrival(self.time(), request) {
            Decision::Admit { ticket, .. } => self.send(ticket),
            Decision::Enqueue { .. } => {}
            Decision::Reject(_) => self.is_refused(),
        }
    }

    fn is_refused(&mut self) {
        self.refused += 1;
        self.asking.push_back(self.now + AGAIN);
    }

    fn answer(&mut self) {
        let (ticket, since) = self.queue.pop_front().expect("one is under work");
        let took = self.time().since(since);
        self.controller.handle_completion(self.time(), ticket, Outcome::answered_in(took));
        self.asking.push_back(self.now);
        if !self.queue.is_empty() {
            self.ends = self.now + self.service();
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.controller.poll_action() {
            match action {
                Action::Start { ticket, .. } => self.send(ticket),
                Action::Refuse { .. } => self.is_refused(),
                _ => {}
            }
        }
    }

    fn run(&mut self, until: u64) {
        while self.now < until {
            let asks = self.asking.iter().min().copied().unwrap_or(u64::MAX);
            let ends = if self.queue.is_empty() { u64::MAX } else { self.ends };
            let timeout = self.controller.poll_timeout().map_or(u64::MAX, |(at, _)| at.as_nanos().div_ceil(1000));
            self.now = self.now.max(asks.min(ends).min(timeout));
            if timeout <= self.now {
                self.controller.handle_timeout(self.time());
            } else if ends <= self.now {
                self.answer();
            } else if let Some(at) = self.asking.iter().position(|asks| *asks <= self.now) {
                self.asking.remove(at);
                self.ask();
            }
            self.act();
        }
    }
}

#[test]
fn nobody_is_refused_who_could_be_answered_at_once() {
    let mut world = World::new();
    // The first second is a start from nothing.
    world.run(1_000_000);
    let (admitted, refused) = (world.admitted, world.refused);
    world.run(6_000_000);
    let (admitted, refused) = (world.admitted - admitted, world.refused - refused);
    assert!(admitted > 5_000_000 / (6 * FASTEST) && refused == 0, "{refused} refused, {admitted} admitted");
}
