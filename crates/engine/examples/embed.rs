//! The engine in a program of one's own: three servers that complete 100 requests/s each, offered twice as much.
//!
//! A driver does four things: it passes on what arrives and what was answered, calls back at the time-outs that the
//! controller asks for, and does what its actions say. Here time is a variable; a proxy would read its clock.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_engine::{
    Action, Controller, Decision, NoEvents, Outcome, Request, Rng, ServerId, ServerSetup, Setup, Sla, Statistic,
    Ticket, Timestamp,
};

const END: Timestamp = Timestamp::from_millis(60_000);
const SERVICE: Duration = Duration::from_millis(10);
const BETWEEN_ARRIVALS: f64 = 1.0 / 600.0;

/// Servers that take one request after the other.
#[derive(Default)]
struct Servers {
    free_at: [Timestamp; 3],
    /// When which request will be answered.
    answers: BTreeMap<(Timestamp, u64), (Ticket, Timestamp)>,
    sent: u64,
}

impl Servers {
    fn send(&mut self, now: Timestamp, ticket: Ticket, server: ServerId) {
        let free_at = &mut self.free_at[server.0 as usize];
        *free_at = (*free_at).max(now) + SERVICE;
        self.sent += 1;
        self.answers.insert((*free_at, self.sent), (ticket, now));
    }
}

fn main() {
    let sla = Sla::constant(Statistic::P95, Duration::from_millis(500)).expect("more than 0");
    let setup = Setup::simple("shop", sla, ["one", "two", "three"].map(ServerSetup::new));
    let mut controller = Controller::new(setup, 1, 7, Box::new(NoEvents)).expect("a sound setup");
    let (mut servers, mut rng, mut arrival) = (Servers::default(), Rng::new(7), Timestamp::ZERO);
    let (mut offered, mut refused, mut slowest) = (0, 0, Duration::ZERO);
    loop {
        let timeout = controller.poll_timeout().map_or(END, |(at, _)| at);
        let answer = servers.answers.keys().next().map_or(END, |(at, _)| *at);
        let now = arrival.min(answer).min(timeout);
        if now >= END {
            break;
        }
        if now == answer {
            let (_, (ticket, sent)) = servers.answers.pop_first().expect("there is one");
            slowest = slowest.max(now.since(sent));
            controller.handle_completion(now, ticket, Outcome::answered());
        } else if now == arrival {
            offered += 1;
            arrival = now + Duration::from_secs_f64(-rng.next_f64().max(1e-12).ln() * BETWEEN_ARRIVALS);
            match controller.handle_arrival(now, Request::default()) {
                Decision::Admit { ticket, server, .. } => servers.send(now, ticket, server),
                Decision::Enqueue { .. } => {}
                Decision::Reject(_) => refused += 1,
            }
        } else {
            controller.handle_timeout(now);
        }
        while let Some(action) = controller.poll_action() {
            match action {
                Action::Start { ticket, server } => servers.send(now, ticket, server),
                Action::Refuse { .. } => refused += 1,
                _ => {}
            }
        }
    }
    let rate = |count: u64| count as f64 / END.as_secs_f64();
    println!("offered {:.0}/s, refused {:.0}/s, answered {:.0}/s", rate(offered), rate(refused), rate(servers.sent));
    println!("the slowest answer took {:.0} ms; the target is 500 ms for 95 of 100", slowest.as_secs_f64() * 1e3);
}
