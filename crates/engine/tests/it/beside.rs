//! Work that no place stands for: streams that compute, and servers that close a connection and work on. What it takes
//! of a server is not counted, but it is missing there, and the capacity that is learned is what is left for the rest.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_engine::{
    Action, Controller, Decision, NoEvents, Open, Outcome, Request, ServerSetup, Setup, Sla, Statistic, Ticket,
    Timestamp,
};

/// What the server has.
const PROCESSORS: f64 = 4.0;
/// What each request takes, seconds of a processor, and how many arrive per second: twice what the server can do.
const COST: f64 = 0.02;
const RATE: u64 = 400;
const STEP: Duration = Duration::from_millis(1);

/// A controller before a server that shares its processors among the requests it has.
struct World {
    controller: Controller,
    now: Timestamp,
    /// Requests in service, and what each has still to get, seconds.
    in_service: Vec<(Ticket, f64)>,
    /// Processors that other work has to itself.
    taken: f64,
    arrivals: u64,
}

impl World {
    fn new() -> World {
        let sla = Sla::constant(Statistic::P95, Duration::from_millis(500)).expect("a target");
        let setup = Setup::simple("shop", sla, [ServerSetup::new("one")]);
        let controller = Controller::new(setup, 1, 11, Box::new(NoEvents)).expect("a setup");
        World { controller, now: Timestamp::ZERO, in_service: Vec::new(), taken: 0.0, arrivals: 0 }
    }

    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds * 1000 {
            self.now = self.now + STEP;
            while self.controller.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
                self.controller.handle_timeout(self.now);
                self.act();
            }
            self.arrivals += RATE;
            while self.arrivals >= 1000 {
                self.arrivals -= 1000;
                self.arrive();
            }
            self.serve();
        }
    }

    fn arrive(&mut self) {
        if let Decision::Admit { ticket, .. } = self.controller.handle_arrival(self.now, Request::default()) {
            self.in_service.push((ticket, COST));
        }
        self.act();
    }

    fn serve(&mut self) {
        let share = ((PROCESSORS - self.taken) / self.in_service.len().max(1) as f64).min(1.0) * STEP.as_secs_f64();
        self.in_service.iter_mut().for_each(|(_, left)| *left -= share);
        let done: VecDeque<Ticket> =
            self.in_service.extract_if(.., |(_, left)| *left <= 0.0).map(|(ticket, _)| ticket).collect();
        for ticket in done {
            self.controller.handle_completion(self.now, ticket, Outcome::answered());
            self.act();
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.controller.poll_action() {
            if let Action::Start { ticket, .. } = action {
                self.in_service.push((ticket, COST));
            }
        }
    }

    /// One that is in service turns out to be a stream, which computes all the time on a processor of its own.
    fn open(&mut self) -> Ticket {
        let (ticket, _) = self.in_service.pop().expect("the server is full");
        assert!(self.controller.handle_open(self.now, ticket, Open::Stream, self.now));
        self.act();
        self.taken += 1.0;
        ticket
    }

    fn close(&mut self, ticket: Ticket) {
        self.controller.handle_completion(self.now, ticket, Outcome::answered());
        self.taken -= 1.0;
    }

    /// How many requests a second the server is taken to hold, and the share of the answers since `before` that came in
    /// time. Of a server that was never seen idle, processors and costs are right in relation to each other only.
    fn seen(&self, before: (u64, u64)) -> (f64, f64) {
        let (completed, in_target) = self.counts();
        let shown = self.controller.snapshot(self.now);
        let capacity = shown.servers[0].processors / shown.mean_cost.expect("learned");
        (capacity, (in_target - before.1) as f64 / (completed - before.0) as f64)
    }

    fn counts(&self) -> (u64, u64) {
        let class = &self.controller.snapshot(self.now).classes[0];
        (class.completed, class.in_target)
    }
}

/// The default policy at twice the capacity: with three of four processors gone to streams, what is learned is the one
/// that is left, and nine of ten answers are in time, as they are without; when the streams are over, it is four again.
#[test]
fn streams_that_compute_are_missing_in_the_capacity_that_is_learned() {
    let mut world = World::new();
    let phase = |world: &mut World, what: &str, left: f64| {
        // Learning takes a few seconds; then it counts.
        world.run(20);
        let before = world.counts();
        world.run(20);
        let (capacity, in_time) = world.seen(before);
        println!("{what}: {capacity:.0}/s for {}/s, {:.1} % in time", left / COST, in_time * 1e2);
        assert!((capacity * COST / left - 1.0).abs() < 0.25, "{what}: {capacity}/s, {}/s are left", left / COST);
        assert!(in_time > 0.9, "{what}: {in_time} in time");
    };
    phase(&mut world, "alone", PROCESSORS);
    let streams = [world.open(), world.open(), world.open()];
    phase(&mut world, "beside streams", PROCESSORS - 3.0);
    streams.into_iter().for_each(|stream| world.close(stream));
    phase(&mut world, "alone again", PROCESSORS);
}
