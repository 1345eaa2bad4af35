//! A fast server that is not near: a request is on its way for longer than it is worked on. So several must be under
//! way at once, however few processors there are.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_engine::{
    Action, Controller, Decision, NoEvents, Outcome, Request, ServerSetup, Setup, Sla, Statistic, Ticket, Timestamp,
    UrlKey,
};

use crate::support::cases::admission;

/// They ask again as soon as they are answered.
const CLIENTS: usize = 64;
/// The only processor works on a request for so long, nanoseconds.
const SERVICE: u64 = 20_000;

/// A pause of the server's, and how often there is one, while it starts: nanoseconds.
const PAUSE: u64 = 3_000_000;
const PAUSE_EVERY: u64 = 50_000_000;
const DISTURBED: u64 = 1_000_000_000;

struct World {
    controller: Controller,
    /// From the sentry to the server and back, nanoseconds.
    way: u64,
    now: u64,
    /// Answers on their way: when they are here.
    answers: VecDeque<(Ticket, u64, u64)>,
    /// When the server has done all that is sent.
    done: u64,
    asking: VecDeque<u64>,
    answered: u64,
    refused: u64,
    drawn: u64,
    /// When the next pause begins.
    pause: u64,
}

impl World {
    fn new(way: u64, target: Duration) -> World {
        let sla = Sla::constant(Statistic::P95, target).expect("a target");
        let mut setup = Setup::simple("shop", sla, [ServerSetup::new("one")]);
        setup.admission = admission(r#"{ "policy": "waiting" }"#);
        let controller = Controller::new(setup, 1, 1, Box::new(NoEvents)).expect("it makes sense");
        let (answers, asking) = (VecDeque::new(), (0..CLIENTS as u64).collect());
        World {
            controller,
            way,
            now: 0,
            answers,
            done: 0,
            asking,
            answered: 0,
            refused: 0,
            drawn: 1,
            pause: PAUSE_EVERY,
        }
    }

    fn time(&self) -> Timestamp {
        Timestamp::ZERO + Duration::from_nanos(self.now)
    }

    /// Half to three halves of the mean.
    fn service(&mut self) -> u64 {
        self.drawn = self.drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        SERVICE / 2 + (self.drawn >> 33) % SERVICE
    }

    fn send(&mut self, ticket: Ticket) {
        // Something else has the processor now and then, at first.
        if self.now < DISTURBED && self.now >= self.pause {
            self.pause = self.now + PAUSE_EVERY;
            self.done = self.now + PAUSE;
        }
        let begins = self.done.max(self.now + self.way / 2);
        self.done = begins + self.service();
        self.answers.push_back((ticket, self.now, self.done + self.way / 2));
    }

    fn ask(&mut self) {
        let request = Request { url: UrlKey(1 << 40), ..Request::default() };
        match self.controller.handle_arrival(self.time(), request) {
            Decision::Admit { ticket, .. } => self.send(ticket),
            Decision::Enqueue { .. } => {}
            Decision::Reject(_) => self.refuse(),
        }
        self.act();
    }

    fn refuse(&mut self) {
        self.refused += 1;
        self.asking.push_back(self.now + 500_000);
    }

    fn answer(&mut self) {
        let (ticket, sent, _) = self.answers.pop_front().expect("one is there");
        self.answered += 1;
        let took = Duration::from_nanos(self.now - sent);
        self.controller.handle_completion(self.time(), ticket, Outcome::answered_in(took));
        self.asking.push_back(self.now);
        self.act();
    }

    fn act(&mut self) {
        while let Some(action) = self.controller.poll_action() {
            match action {
                Action::Start { ticket, .. } => self.send(ticket),
                Action::Refuse { .. } => self.refuse(),
                _ => {}
            }
        }
    }

    fn run(&mut self, until: u64) {
        while self.now < until {
            let asks = self.asking.iter().min().copied().unwrap_or(u64::MAX);
            let here = self.answers.front().map_or(u64::MAX, |(_, _, here)| *here);
            let timeout = self.controller.poll_timeout().map_or(u64::MAX, |(at, _)| at.as_nanos());
            self.now = self.now.max(asks.min(here).min(timeout));
            if timeout <= self.now {
                self.controller.handle_timeout(self.time());
                self.act();
            } else if here <= self.now {
                self.answer();
            } else if let Some(at) = self.asking.iter().position(|asks| *asks <= self.now) {
                self.asking.remove(at);
                self.ask();
            }
        }
    }

    /// Answers a second, over so many from now on.
    fn rate(&mut self, seconds: u64) -> u64 {
        let before = self.answered;
        self.run(self.now + seconds * 1_000_000_000);
        (self.answered - before) / seconds
    }
}

#[test]
fn a_server_is_kept_busy_however_far_it_is() {
    for (target, way) in [10, 1000].into_iter().flat_map(|ms| [0, 20_000, 60_000, 200_000].map(|way| (ms, way))) {
        let mut world = World::new(way, Duration::from_millis(target));
        world.rate(5);
        let rate = world.rate(5);
        let is_well = rate * SERVICE >= 900_000_000 && world.refused == 0;
        assert!(is_well, "{target} ms, {way} ns: {rate}/s, {} refused", world.refused);
    }
}

/// All of them need a thousandth of the target: to hold any back would only cost the sentry its time.
#[test]
fn nobody_is_held_back_where_all_are_in_time_anyway() {
    for way in [0, 200_000] {
        let mut world = World::new(way, Duration::from_secs(1));
        world.rate(5);
        let rate = world.rate(5);
        let limit = world.controller.snapshot(world.time()).policy.limit.expect("it has one");
        let is_well = rate * SERVICE >= 990_000_000 && world.refused == 0 && limit >= CLIENTS as f64;
        assert!(is_well, "{way} ns: {rate}/s by {limit}, {} refused", world.refused);
    }
}
