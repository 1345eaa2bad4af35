//! How many requests the engine decides in a second of one core, an arrival and an end each, without a boundary: what
//! `examples/go/rate` does through libtidegate, for the same requests.
//!
//! Time is an argument, so the requests come in virtual time: to a server that takes one after the other, each for 100
//! microseconds, at half of what it can serve and at three times of it.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_engine::{
    Action, Controller, Decision, NoEvents, Outcome, Request, ServerSetup, Setup, Sla, Statistic, Ticket, Timestamp,
};

const SERVICE: Duration = Duration::from_micros(100);

/// A server that takes one request after the other.
struct Server {
    controller: Controller,
    free_at: Timestamp,
    work: VecDeque<(Timestamp, Ticket)>,
    due: Timestamp,
    refused: usize,
}

impl Server {
    fn take(&mut self, now: Timestamp, ticket: Ticket) {
        self.free_at = self.free_at.max(now) + SERVICE;
        self.work.push_back((self.free_at, ticket));
    }

    fn follow(&mut self, now: Timestamp) {
        while let Some(action) = self.controller.poll_action() {
            match action {
                Action::Start { ticket, .. } => self.take(now, ticket),
                Action::Refuse { .. } => self.refused += 1,
                _ => {}
            }
        }
        let next = self.controller.poll_timeout().map_or(Timestamp::MAX, |(at, _)| at);
        self.due = self.due.min(next);
    }

    fn until(&mut self, now: Timestamp) {
        while let Some(&(done, ticket)) = self.work.front().filter(|(done, _)| *done <= now) {
            self.work.pop_front();
            self.controller.handle_completion(done, ticket, Outcome::answered_in(SERVICE));
            self.follow(done);
        }
        if now >= self.due {
            self.controller.handle_timeout(now);
            self.due = Timestamp::MAX;
            self.follow(now);
        }
    }

    fn arrive(&mut self, now: Timestamp) {
        match self.controller.handle_arrival(now, Request::default()) {
            Decision::Admit { ticket, .. } => self.take(now, ticket),
            Decision::Enqueue { .. } => {}
            Decision::Reject(_) => self.refused += 1,
        }
        self.follow(now);
    }
}

/// Decides about `count` requests that come every `between`, and gives how many it refused.
fn play(count: usize, between: Duration) -> usize {
    let sla = Sla::constant(Statistic::P95, Duration::from_millis(100)).expect("more than 0");
    let setup = Setup::simple("default", sla, [ServerSetup::new("here")]);
    let mut server = Server {
        controller: Controller::new(setup, 1, 7, Box::new(NoEvents)).expect("a sound setup"),
        free_at: Timestamp::ZERO,
        work: VecDeque::new(),
        due: Timestamp::ZERO,
        refused: 0,
    };
    let mut now = Timestamp::ZERO;
    for _ in 0..count {
        now = now + between;
        server.until(now);
        server.arrive(now);
    }
    server.refused
}

/// How many are refused of `count` requests, at half and at three times of what can be served.
pub fn refused(count: usize) -> [usize; 2] {
    LOADS.map(|(_, between)| play(count, between))
}

/// How often requests come.
const LOADS: [(&str, Duration); 2] =
    [("half", SERVICE.saturating_mul(2)), ("three times", Duration::from_nanos(33_333))];

/// How many are decided of each; the first argument is another number.
pub fn main() {
    let count = std::env::args().nth(1).map_or(2_000_000, |count| count.parse().expect("how many requests"));
    for (name, between) in LOADS {
        let begun = processor_time();
        let refused = play(count, between);
        let rate = count as f64 / (processor_time() - begun).as_secs_f64() * 1e-6;
        println!("{name} what can be served: {rate:.2} M requests/s decided, {refused} refused");
    }
}

/// What this thread has had of a processor: other programs may have a part of the machine. Linux tells it.
fn processor_time() -> Duration {
    let told = std::fs::read_to_string("/proc/self/schedstat").expect("Linux tells how long a thread has run");
    let nanos = told.split_whitespace().next().expect("it begins with that");
    Duration::from_nanos(nanos.parse().expect("a number"))
}
