//! Prices that services ask while requests queue there, and tokens that requests bring to pay them.
//!
//! *Intuition.* A street of shops. Where people queue the shopkeeper asks for more, step by step, until fewer come; a
//! shop that sends on to another asks for what is asked there, too. Who has heard of a price he cannot pay stays at
//! home.
//!
//! *Applied.* Every 10 ms a service looks at the longest wait of those that had the processors since. Over a threshold
//! its price goes up by one, otherwise down by one, to nothing. For an API it asks for the most of its own price and
//! those it last heard of from the services it calls for that API. A request with fewer tokens is refused on arrival.
//! Every fifth answer, refusals too, says what was asked when its request came. A request's tokens go with all its
//! calls, and are not used up on the way. Clients share a purse with an income. A request takes a part of what is in
//! it, drawn evenly, and is not sent, and takes nothing, if that does not pay what was last heard of for its API.
//!
//! *Awkward cases.* A price that nobody can pay is no end: nobody takes anything from the purse any more, and after a
//! while its tokens pay. An interval in which nothing had the processors while something waited for them measured
//! nothing; here it leaves the price. (In the source many things have the processors within 10 ms at any time.) The
//! price only knows whether the queue is too long, not by how much, goes by one each time, and an answer is as old as
//! its request: price and queue swing around each other. What was let in at a low price is refused at its next call
//! when the price is high, and its work until then is lost.
//!
//! *Numbers.* From the source, as its program has them: 10 ms, steps of one, the most of prices (not their sum), every
//! fifth answer, refusal rather than waiting at the clients. Chosen are two; the source tunes them for each
//! application, and so they were tuned here, in the world of this crate's tests, with requests of 20 ms and calls of
//! 10.
//!
//! (1) The threshold, 4 % of the target, 20 ms of 500. It is 0 in the source until it is set, and 100 us in an
//! application file, at targets of 10 to 90 ms. With 1, 2 and 4 % goodput is 87, 91 and 91 % at twice the load; with 1
//! % nearly one of a hundred is refused at half the load. (2) The income, 2500 tokens a second for each processor of
//! the first service: about a hundred in the purse at twice the load. In the source it is 100 a second until it is set,
//! from ten in the purse. With 100, 1000 and 3000 a second in all, goodput at twice the load is 32, 68 and 82 %, with
//! the 10,000 that were chosen 91 %, and with 30,000 it is 95 %. The fewer tokens, the more a step of the price is, and
//! the fewer does a request find after the one before.
//!
//! *Applied here.* (1) Tokens are to say how important a request is, but the source's load generator draws them for all
//! requests alike. Here the draw is within the part of the purse that belongs to the class, the upper part to the most
//! important. (2) Tokens are not whole numbers, and come evenly over time. (3) Every fifth answer is counted; there it
//! is the one whose tokens can be divided by five.
//!
//! *Source.* Xing et al., *Rajomon: decentralized and coordinated overload control for latency-sensitive microservices*
//! (NSDI 2025), and its authors' program (pennsail/rajomon f7c7553) and application (Jiali-Xing/hotelApp). The paper's
//! text was not to be had, only its abstract; the values tuned for its experiments are not in these programs.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_engine::Timestamp;

use super::{Asked, Cooperation, Hop, Stay, Turn, Verdict};
use crate::world::World;

/// How often prices move, and by how many tokens.
const INTERVAL: Duration = Duration::from_millis(10);
const STEP: f64 = 1.0;
/// A longer wait raises the price, as a share of the target.
const THRESHOLD: f64 = 0.04;
/// One answer in so many says the price.
const EVERY: u32 = 5;
/// What is in the purse at first, and what it gains in a second for each processor of the first service.
const PURSE: f64 = 10.0;
const INCOME: f64 = 2500.0;

/// The system at work.
pub(super) struct Rajomon {
    services: Vec<Service>,
    clients: Clients,
    /// What was let in, by its number.
    calls: HashMap<u32, Call>,
    next: Timestamp,
}

struct Service {
    threshold: f64,
    price: f64,
    /// By API, what was last heard from each service that is called.
    below: Vec<Vec<f64>>,
    /// The longest wait in this interval, seconds; `None`: nothing was measured.
    longest: Option<f64>,
    /// What was let in and had no processor yet.
    waiting: u32,
    answers: u32,
}

struct Clients {
    classes: f64,
    income: f64,
    purse: f64,
    filled: Timestamp,
    /// What was last heard of the first service, by API.
    heard: Vec<f64>,
    /// What requests on their way have with them, by whose they are.
    tokens: HashMap<u64, f64>,
}

struct Call {
    /// What was asked for it.
    price: f64,
    is_waiting: bool,
}

impl Rajomon {
    pub(super) fn new(world: &World) -> Rajomon {
        let (services, apis) = (world.tiers.len() + 1, world.setup.request_types.len());
        let threshold = THRESHOLD * world.target(Timestamp::ZERO).as_secs_f64();
        Rajomon {
            services: (0..services).map(|_| Service::new(threshold, apis, services)).collect(),
            clients: Clients {
                classes: world.setup.classes.len() as f64,
                income: INCOME * world.servers.iter().map(|server| server.cores).sum::<f64>(),
                purse: PURSE,
                filled: Timestamp::ZERO,
                heard: vec![0.0; apis],
                tokens: HashMap::new(),
            },
            calls: HashMap::new(),
            next: Timestamp::ZERO + INTERVAL,
        }
    }

    /// An answer of a service may say what was asked.
    fn tell(&mut self, hop: Hop, asked: &Asked, price: f64) {
        let service = &mut self.services[hop.to];
        service.answers += 1;
        if !service.answers.is_multiple_of(EVERY) {
            return;
        }
        let api = usize::from(asked.api);
        match hop.from {
            Some(from) => self.services[from].below[api][hop.to] = price,
            None => self.clients.heard[api] = price,
        }
    }

    /// The call has had a processor, or never will.
    fn waits_no_more(&mut self, hop: Hop, asked: &Asked) {
        if let Some(call) = self.calls.get_mut(&asked.number)
            && std::mem::take(&mut call.is_waiting)
        {
            self.services[hop.to].waiting -= 1;
        }
    }
}

impl Cooperation for Rajomon {
    fn asks(&mut self, now: Timestamp, hop: Hop, asked: &Asked) -> Verdict {
        if hop.from.is_none() && !self.clients.send(now, asked) {
            return Verdict::Out;
        }
        let price = self.services[hop.to].price_of(asked.api);
        if self.clients.tokens_of(asked) < price {
            self.tell(hop, asked, price);
            if hop.from.is_none() {
                self.clients.forget(asked);
            }
            return Verdict::Out;
        }
        self.services[hop.to].waiting += 1;
        self.calls.insert(asked.number, Call { price, is_waiting: true });
        Verdict::In
    }

    fn processed(&mut self, _now: Timestamp, hop: Hop, asked: &Asked, turn: &Turn) {
        self.waits_no_more(hop, asked);
        let service = &mut self.services[hop.to];
        service.longest = Some(service.longest.unwrap_or(0.0).max(turn.waited));
    }

    fn ended(&mut self, _now: Timestamp, hop: Hop, asked: &Asked, _stay: &Stay) {
        self.waits_no_more(hop, asked);
        if let Some(call) = self.calls.remove(&asked.number) {
            self.tell(hop, asked, call.price);
        }
        if hop.from.is_none() {
            self.clients.forget(asked);
        }
    }

    fn next_timeout(&self) -> Timestamp {
        self.next
    }

    fn time_out(&mut self, now: Timestamp) {
        self.next = now + INTERVAL;
        self.services.iter_mut().for_each(Service::move_price);
    }
}

impl Service {
    fn new(threshold: f64, apis: usize, services: usize) -> Service {
        let below = vec![vec![0.0; services]; apis];
        Service { threshold, price: 0.0, below, longest: None, waiting: 0, answers: 0 }
    }

    fn move_price(&mut self) {
        let longest = match self.longest.take() {
            None if self.waiting > 0 => return,
            longest => longest.unwrap_or(0.0),
        };
        let step = if longest > self.threshold { STEP } else { -STEP };
        self.price = (self.price + step).max(0.0);
    }

    fn price_of(&self, api: u16) -> f64 {
        self.below[usize::from(api)].iter().copied().fold(self.price, f64::max)
    }
}

impl Clients {
    /// Whether a request is sent; what it has with it is taken from the purse.
    fn send(&mut self, now: Timestamp, asked: &Asked) -> bool {
        self.purse += self.income * now.seconds_since(self.filled);
        self.filled = now;
        let rank = (self.classes - 1.0 - f64::from(asked.class) + asked.lot) / self.classes;
        let tokens = rank * self.purse;
        let sends = tokens >= self.heard[usize::from(asked.api)];
        if sends {
            self.purse -= tokens;
            self.tokens.insert(asked.lot.to_bits(), tokens);
        }
        sends
    }

    fn tokens_of(&self, asked: &Asked) -> f64 {
        self.tokens.get(&asked.lot.to_bits()).copied().unwrap_or(0.0)
    }

    fn forget(&mut self, asked: &Asked) {
        self.tokens.remove(&asked.lot.to_bits());
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ENTRY, INNER, answer, asked, enters, pass, world};
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// Something had the processors of a service after such a wait, and the interval ends.
    fn interval(system: &mut Rajomon, hop: Hop, waited: f64) {
        let end = system.next;
        system.processed(end, hop, &asked(99, 0, 0.0), &Turn { waited, work: 0.010 });
        pass(system, end);
    }

    #[test]
    fn a_wait_over_the_threshold_raises_the_price_and_others_lower_it_to_nothing() {
        let mut system = Rajomon::new(&world());
        (0..30).for_each(|_| interval(&mut system, INNER, 0.0201));
        assert_eq!((system.services[1].price, system.services[0].price), (30.0, 0.0));
        (0..10).for_each(|_| interval(&mut system, INNER, 0.0199));
        assert_eq!(system.services[1].price, 20.0);
        // Nothing is there: nothing waits.
        pass(&mut system, at(10_000));
        assert_eq!(system.services[1].price, 0.0);
    }

    #[test]
    fn the_longest_wait_counts_and_no_measurement_leaves_the_price() {
        let mut system = Rajomon::new(&world());
        interval(&mut system, INNER, 0.5);
        system.processed(at(15), INNER, &asked(98, 0, 0.0), &Turn { waited: 0.5, work: 0.010 });
        interval(&mut system, INNER, 0.0);
        assert_eq!(system.services[1].price, 2.0);
        system.clients.tokens.insert(0.5f64.to_bits(), 90.0);
        let call = asked(1, 0, 0.5);
        assert!(enters(&mut system, at(21), INNER, &call));
        pass(&mut system, at(500));
        assert_eq!(system.services[1].price, 2.0, "it waits");
        answer(&mut system, at(501), INNER, &call, 0.480);
        pass(&mut system, at(510));
        assert_eq!(system.services[1].price, 3.0);
        pass(&mut system, at(520));
        assert_eq!(system.services[1].price, 2.0, "it waits no more");
    }

    #[test]
    fn tokens_pay_or_not_at_each_service() {
        let mut system = Rajomon::new(&world());
        system.services[1].price = 60.0;
        // Two classes: the upper half of the hundred tokens is the first's.
        let (rich, poor) = (asked(1, 0, 0.9), asked(2, 1, 0.8));
        for (request, tokens) in [(&rich, 95.0), (&poor, 40.0)] {
            system.clients.purse = 100.0;
            assert!(enters(&mut system, Timestamp::ZERO, ENTRY, request));
            assert!((system.clients.tokens_of(request) - tokens).abs() < 1e-9);
            assert!((system.clients.purse - (100.0 - tokens)).abs() < 1e-9);
        }
        assert!(enters(&mut system, Timestamp::ZERO, INNER, &Asked { number: 3, ..rich }));
        assert!(enters(&mut system, Timestamp::ZERO, INNER, &Asked { number: 4, ..rich }), "they are not used up");
        assert!(!enters(&mut system, Timestamp::ZERO, INNER, &Asked { number: 5, ..poor }));
    }

    #[test]
    fn a_price_below_is_asked_above_once_an_answer_has_said_it() {
        let mut system = Rajomon::new(&world());
        system.services[1].price = 6.0;
        // Refusals say it, every fifth.
        (0..4).for_each(|number| assert!(!enters(&mut system, Timestamp::ZERO, INNER, &asked(number, 0, 0.1))));
        assert_eq!(system.services[0].price_of(0), 0.0);
        assert!(!enters(&mut system, Timestamp::ZERO, INNER, &asked(4, 0, 0.1)));
        assert_eq!(system.services[0].price_of(0), 6.0);
        assert!(!enters(&mut system, Timestamp::ZERO, ENTRY, &asked(5, 1, 0.0)), "it is asked above");
        system.services[0].price = 7.0;
        assert_eq!(system.services[0].price_of(0), 7.0, "the most of both, not their sum");
        // The first service refuses what has too little, and so a client hears of it and sends nothing more.
        for number in 10..14 {
            assert!(!enters(&mut system, Timestamp::ZERO, ENTRY, &asked(number, 1, 0.0)));
        }
        let answers = system.services[0].answers;
        assert!(!enters(&mut system, Timestamp::ZERO, ENTRY, &asked(16, 1, 0.0)));
        assert_eq!((answers, system.services[0].answers), (5, 5), "it was not sent");
    }

    #[test]
    fn an_answer_says_what_was_asked_when_its_request_came() {
        let mut system = Rajomon::new(&world());
        let calls: Vec<Asked> = (0..5).map(|number| asked(number, 0, 0.1)).collect();
        calls.iter().for_each(|call| assert!(enters(&mut system, Timestamp::ZERO, INNER, call)));
        system.services[1].price = 6.0;
        calls.iter().for_each(|call| answer(&mut system, Timestamp::ZERO, INNER, call, 0.0));
        assert_eq!(system.services[0].price_of(0), 0.0);
    }

    #[test]
    fn a_price_beyond_the_purse_is_paid_after_a_while() {
        let mut system = Rajomon::new(&world());
        system.clients.heard[0] = 500.0;
        let enters_at = |system: &mut Rajomon, millis| enters(system, at(millis), ENTRY, &asked(1, 0, 0.9));
        assert!(!enters_at(&mut system, 100), "485 of 510: there are two processors");
        assert!(enters_at(&mut system, 104), "504 of 530");
        assert!(!enters_at(&mut system, 104), "the purse is empty");
    }
}
