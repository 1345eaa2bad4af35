//! Credits that a service gives to its callers, as many as keep the wait there at a target.
//!
//! *Intuition.* A bakery that hands out numbers, and only so many that the queue stays short. A customer without a
//! number waits outside, but not for long. The baker does not know who wants bread; so he gives a number more to each
//! than was asked for, and when too many come at once he sends the last away at the counter.
//!
//! *Applied.* A service has a pool of credits, at least one for each processor. At intervals it looks at the delay: how
//! long the first of those that wait for a processor has been there. Below the target `d_t` the pool grows by one, or
//! by a thousandth of its callers if that is more. From there on it is multiplied by `1 - 0.02 (delay - d_t) / d_t`, by
//! a half at least, and rounded down. A caller may have as many requests there as it has credits. How many that are
//! goes back with every answer: while there are credits left, what it has there, what it said with its last request
//! that waits for one (the demand), and a share of what is left, one at least (the overcommitment); while more are
//! given than the pool has, one less than before. A caller always keeps a credit, as in the source where there are no
//! more callers than processors. What finds no credit waits at its caller, first come, first served, and is refused
//! when it has waited too long. What arrives at a delay of twice `d_t` is refused by the service.
//!
//! *Awkward cases.* Nobody tells services further up: a call that is refused costs them the work for its request, and
//! one request of several calls falls at the second or third as well as at the first. No request is more important than
//! another. While a service is idle its pool grows to its bound, and the first overload finds credits for all; then
//! only the refusals at twice `d_t` help until the pool has shrunk. Without priorities and with one credit in each
//! interval, a service of two processors gains a tenth of its pool in one interval, where one with a hundred credits
//! gains a hundredth.
//!
//! *Numbers.* From the source: 0.1 % of the callers or one, 2 %, half, twice `d_t`, and by ratio of its times, which
//! are microseconds: `d_t` is 80 us where requests take 10, and 45 and 500 where they take 1 and 100, at 10 us to go
//! there and back; its target is ten times these together, and so `d_t` is 40 % of that. It is four times the mean time
//! at a processor here, as the service measures it, and no more than 40 % of the SLA's target; that alone holds until
//! something was measured. The pool is looked at every 10 us there, and what waits at its caller is refused after 10
//! us: both are an eighth of `d_t` here, and a millisecond at least. Chosen: no more credits than 64 for each
//! processor; there it is 64 for each connection, of which there are a thousand.
//!
//! *Applied here.* (1) A service is one caller of another, with however many servers, and all clients together are one
//! of the first service; in the source each has a connection of its own. So nobody is ever without credits, and the
//! list of those to be woken is not needed. (2) What is left is counted without what this caller was given before and
//! does not use. A caller that has all of the pool leaves nothing otherwise, and the next answer takes all but one from
//! it; with a thousand callers it makes no difference. (3) The delay is seen by what was let in and had no processor
//! yet: as many of it as there are processors are taken for being served, the oldest; the age of the next is the delay.
//!
//! *Source.* Cho et al., *Overload control for us-scale RPCs with Breakwater* (OSDI 2020): its authors' program
//! (shenango/caladan, `breakwater`) and the settings of their experiments (inhocho89/breakwater-artifact e8a284b). Of
//! the paper only the abstract was to be had. That the pool grows by one at least is as others read the paper
//! (lohpaul9/breakwater-grpc), whose 40 % of the target this is, too; the program adds up fractions.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tidegate_engine::Timestamp;

use super::{Asked, Cooperation, Hop, Released, Stay, Turn, Verdict};
use crate::model::ServerModel;
use crate::world::World;

/// `d_t` in mean times at a processor, and at most this share of the target.
const TARGET_WORKS: f64 = 4.0;
const TARGET_SHARE: f64 = 0.4;
/// At this many `d_t` requests are refused on arrival.
const DROPS_AT: f64 = 2.0;
/// Between two looks, and how long something waits at its caller: as a share of `d_t`, and at least so long.
const INTERVAL_SHARE: f64 = 0.125;
const LEAST_INTERVAL: f64 = 0.001;
/// What the pool grows by, as a share of the callers.
const INCREASE: f64 = 0.001;
/// What it shrinks by at twice `d_t`, and what it is multiplied by at least.
const DECREASE: f64 = 0.02;
const LEAST_FACTOR: f64 = 0.5;
/// Most credits for each processor.
const MOST_CREDITS: u32 = 64;

/// The system at work.
pub(super) struct Breakwater {
    services: Vec<Service>,
    /// By service that is called, its callers. `None`: the clients.
    callers: Vec<BTreeMap<Option<usize>, Caller>>,
    released: VecDeque<Released>,
}

struct Service {
    cores: u32,
    /// 40 % of the SLA's target, seconds.
    most_delay: f64,
    /// Time at a processor so far, seconds, and of how many.
    work: f64,
    worked: f64,
    /// The pool, and what of it is given to callers.
    credits: u32,
    given: u32,
    /// What was let in and had no processor yet, in the order in which it came.
    waiting: VecDeque<(Timestamp, u32)>,
    looks: Timestamp,
}

/// Both ends of what is between a caller and a service.
#[derive(Default)]
struct Caller {
    /// At the caller: credits it was last told of, its requests that are there, and those that wait for a credit.
    told: u32,
    flying: u32,
    queue: VecDeque<(Timestamp, u32)>,
    /// At the service: credits given, requests that are there, and the demand that was last told.
    given: u32,
    there: u32,
    demand: u32,
}

impl Breakwater {
    pub(super) fn new(world: &World) -> Breakwater {
        let all = std::iter::once(&world.servers).chain(world.tiers.iter().map(|tier| &tier.servers));
        let target = world.target(Timestamp::ZERO).as_secs_f64();
        let services: Vec<Service> = all.map(|servers| Service::new(servers, TARGET_SHARE * target)).collect();
        let callers = services.iter().map(|_| BTreeMap::new()).collect();
        Breakwater { services, callers, released: VecDeque::new() }
    }

    /// A request with a credit is at its service. `false`: that refuses it.
    fn arrives(&mut self, now: Timestamp, hop: Hop, number: u32) -> bool {
        let (service, callers) = (&mut self.services[hop.to], &mut self.callers[hop.to]);
        let count = callers.len() as u32;
        let caller = callers.entry(hop.from).or_default();
        caller.demand = caller.queue.len() as u32;
        caller.there += 1;
        // What was given in advance and is not asked for is taken back.
        service.give(caller, |caller| caller.given.min(caller.there + caller.demand));
        if service.delay(now) >= DROPS_AT * service.target() {
            caller.there -= 1;
            service.answer(caller, count);
            return false;
        }
        caller.flying += 1;
        service.waiting.push_back((now, number));
        true
    }

    /// Those that wait at a caller go while it has credits; what waited too long is refused.
    fn drain(&mut self, now: Timestamp, hop: Hop) {
        let patience = self.services[hop.to].interval();
        loop {
            let Some(caller) = self.callers[hop.to].get_mut(&hop.from) else { return };
            let Some(&(since, number)) = caller.queue.front() else { return };
            let expires = now >= since + patience;
            if !expires && caller.flying >= caller.told {
                return;
            }
            caller.queue.pop_front();
            let goes = !expires && self.arrives(now, hop, number);
            self.released.push_back(Released { number, goes });
        }
    }
}

impl Cooperation for Breakwater {
    fn asks(&mut self, now: Timestamp, hop: Hop, asked: &Asked) -> Verdict {
        let is_new = !self.callers[hop.to].contains_key(&hop.from);
        let caller = self.callers[hop.to].entry(hop.from).or_default();
        if is_new {
            (caller.told, caller.given) = (1, 1);
            self.services[hop.to].given += 1;
        }
        if caller.flying < caller.told && caller.queue.is_empty() {
            return if self.arrives(now, hop, asked.number) { Verdict::In } else { Verdict::Out };
        }
        caller.queue.push_back((now, asked.number));
        Verdict::Wait
    }

    fn processed(&mut self, _now: Timestamp, hop: Hop, asked: &Asked, turn: &Turn) {
        let service = &mut self.services[hop.to];
        service.waits_no_more(asked.number);
        service.work += turn.work;
        service.worked += 1.0;
    }

    fn ended(&mut self, now: Timestamp, hop: Hop, asked: &Asked, _stay: &Stay) {
        let service = &mut self.services[hop.to];
        service.waits_no_more(asked.number);
        let count = self.callers[hop.to].len() as u32;
        // What was refused as it was to be released is not there.
        let Some(caller) = self.callers[hop.to].get_mut(&hop.from) else { return };
        caller.there -= 1;
        caller.flying -= 1;
        service.answer(caller, count);
        self.drain(now, hop);
    }

    fn next_released(&mut self, _now: Timestamp) -> Option<Released> {
        self.released.pop_front()
    }

    fn next_timeout(&self) -> Timestamp {
        let expiry = |(service, callers): (&Service, &BTreeMap<_, Caller>)| {
            let first = callers.values().filter_map(|caller| caller.queue.front()).map(|(since, _)| *since).min();
            first.map_or(service.looks, |since| service.looks.min(since + service.interval()))
        };
        self.services.iter().zip(&self.callers).map(expiry).min().unwrap_or(Timestamp::MAX)
    }

    fn time_out(&mut self, now: Timestamp) {
        for to in 0..self.services.len() {
            if self.services[to].looks <= now {
                self.services[to].look(now, self.callers[to].len());
            }
            let callers: Vec<Option<usize>> = self.callers[to].keys().copied().collect();
            callers.into_iter().for_each(|from| self.drain(now, Hop { from, to }));
        }
    }
}

impl Service {
    fn new(servers: &[ServerModel], most_delay: f64) -> Service {
        let cores = servers.iter().map(|server| server.cores).sum::<f64>().ceil().max(1.0) as u32;
        let waiting = VecDeque::new();
        let looks = Timestamp::ZERO;
        Service { cores, most_delay, work: 0.0, worked: 0.0, credits: cores, given: 0, waiting, looks }
    }

    /// The pool grows or shrinks.
    fn look(&mut self, now: Timestamp, callers: usize) {
        self.looks = now + self.interval();
        let over = (self.delay(now) - self.target()) / self.target();
        let credits = f64::from(self.credits);
        let wanted = match over {
            0.0.. => credits * (1.0 - DECREASE * over).max(LEAST_FACTOR),
            _ => credits + (INCREASE * callers as f64).max(1.0),
        };
        self.credits = (wanted as u32).clamp(self.cores, MOST_CREDITS * self.cores);
    }

    /// An answer, or a refusal, tells a caller how many credits it has now.
    fn answer(&mut self, caller: &mut Caller, callers: u32) {
        let room = self.credits.saturating_sub(self.given - caller.given);
        let more = (room.saturating_sub(caller.there) / callers.max(1)).max(1);
        let most = if self.given > self.credits { caller.given.saturating_sub(1) } else { room };
        let wanted = caller.there + caller.demand + more;
        self.give(caller, |caller| wanted.min(most).max(caller.there).max(1));
        caller.told = caller.given;
    }

    fn give(&mut self, caller: &mut Caller, credits: impl Fn(&Caller) -> u32) {
        self.given -= caller.given;
        caller.given = credits(caller);
        self.given += caller.given;
    }

    fn waits_no_more(&mut self, number: u32) {
        self.waiting.retain(|(_, other)| *other != number);
    }

    /// How long the first that waits for a processor has been there, seconds.
    fn delay(&self, now: Timestamp) -> f64 {
        self.waiting.get(self.cores as usize).map_or(0.0, |(since, _)| now.seconds_since(*since))
    }

    /// `d_t`, seconds.
    fn target(&self) -> f64 {
        if self.worked > 0.0 { self.most_delay.min(TARGET_WORKS * self.work / self.worked) } else { self.most_delay }
    }

    fn interval(&self) -> Duration {
        Duration::from_secs_f64((INTERVAL_SHARE * self.target()).max(LEAST_INTERVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ENTRY, INNER, answer, asked, enters, world};
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// The second service, whose calls take 10 ms: `d_t` is 40 ms.
    fn system() -> Breakwater {
        let mut system = Breakwater::new(&world());
        (system.services[1].work, system.services[1].worked) = (1.0, 100.0);
        system
    }

    /// Two are served and one has waited so long.
    fn waits(service: &mut Service, now: Timestamp, millis: u64) {
        service.waiting = (0..3).map(|number| (now - Duration::from_millis(millis), number)).collect();
    }

    #[test]
    fn below_the_target_the_pool_grows_by_one_and_above_it_shrinks_by_how_much_it_is() {
        let mut system = system();
        let service = &mut system.services[1];
        let mut pool = |credits: u32, millis| {
            service.credits = credits;
            waits(service, at(9000), millis);
            service.look(at(9000), 1);
            service.credits
        };
        assert_eq!(pool(100, 39), 101);
        assert_eq!(pool(100, 40), 100);
        assert_eq!(pool(100, 80), 98, "2 % at twice the target");
        assert_eq!(pool(10, 41), 9, "rounded down");
        assert_eq!(pool(100, 40 + 40 * 20), 60);
        assert_eq!(pool(100, 40 + 40 * 40), 50, "a half at least");
        assert_eq!((pool(3, 2000), pool(128, 0)), (2, 128), "its bounds");
        // A thousandth of the callers, where there are so many.
        waits(service, at(9000), 0);
        service.credits = 50;
        service.look(at(9000), 3000);
        assert_eq!(service.credits, 53);
    }

    #[test]
    fn the_target_is_four_times_the_measured_work_and_has_a_bound() {
        let mut system = Breakwater::new(&world());
        assert_eq!(system.services[1].target(), 0.2, "nothing is known");
        let call = asked(1, 0, 0.5);
        assert!(enters(&mut system, at(0), INNER, &call));
        answer(&mut system, at(10), INNER, &call, 0.0);
        assert!((system.services[1].target() - 0.040).abs() < 1e-9);
        assert_eq!(system.services[1].interval(), Duration::from_millis(5));
        system.services[1].work = 0.1;
        assert_eq!(system.services[1].target(), 0.2);
    }

    #[test]
    fn without_a_credit_a_call_waits_at_its_caller_and_goes_with_the_next_answer() {
        let mut system = system();
        let [first, second, third] = [1, 2, 3].map(|number| asked(number, 0, 0.5));
        assert!(enters(&mut system, at(0), INNER, &first), "one credit at first");
        assert_eq!(system.asks(at(1), INNER, &second), Verdict::Wait);
        assert_eq!(system.asks(at(2), INNER, &third), Verdict::Wait);
        assert!(system.next_released(at(2)).is_none());
        // It is told of the two credits of the pool.
        answer(&mut system, at(3), INNER, &first, 0.0);
        let released: Vec<(u32, bool)> =
            std::iter::from_fn(|| system.next_released(at(3))).map(|out| (out.number, out.goes)).collect();
        assert_eq!(released, [(2, true), (3, true)]);
        assert_eq!(system.asks(at(3), INNER, &asked(4, 0, 0.5)), Verdict::Wait);
    }

    #[test]
    fn what_waited_too_long_is_refused() {
        let mut system = system();
        assert!(enters(&mut system, at(0), INNER, &asked(1, 0, 0.5)));
        assert_eq!(system.asks(at(1), INNER, &asked(2, 0, 0.5)), Verdict::Wait);
        system.time_out(at(5));
        assert!(system.next_released(at(5)).is_none());
        assert!(system.next_timeout() <= at(6));
        system.time_out(at(6));
        let out = system.next_released(at(6)).expect("an eighth of 40 ms is over");
        assert_eq!((out.number, out.goes), (2, false));
    }

    #[test]
    fn a_service_refuses_at_twice_the_target() {
        let mut system = system();
        assert!(enters(&mut system, at(0), INNER, &asked(9, 0, 0.5)));
        system.callers[1].get_mut(&Some(0)).expect("it called").told = 50;
        waits(&mut system.services[1], at(1000), 79);
        assert!(enters(&mut system, at(1000), INNER, &asked(10, 0, 0.5)));
        waits(&mut system.services[1], at(1000), 80);
        assert_eq!(system.asks(at(1000), INNER, &asked(11, 0, 0.5)), Verdict::Out);
        // The refusal tells the caller that two are too many.
        assert_eq!(system.callers[1][&Some(0)].told, 2);
        assert_eq!(system.asks(at(1000), INNER, &asked(12, 0, 0.5)), Verdict::Wait);
    }

    #[test]
    fn callers_share_what_is_left_and_none_is_without() {
        let mut system = system();
        let service = &mut system.services[1];
        service.credits = 40;
        let mut callers = [Caller::default(), Caller::default()];
        callers.iter_mut().for_each(|caller| service.give(caller, |_| 1));
        service.answer(&mut callers[0], 2);
        // Half of the 39 that the other has not; then half of what the first leaves.
        assert_eq!(callers[0].told, 19);
        service.answer(&mut callers[1], 2);
        assert_eq!((callers[1].told, service.given), (10, 29));
        // A demand is met from what is left.
        callers[1].demand = 30;
        service.answer(&mut callers[1], 2);
        assert_eq!((callers[1].told, service.given), (21, 40));
        // Of a pool that shrank everybody has one less with each answer, and one at last.
        service.credits = 2;
        callers[1].there = 3;
        for told in [20, 19, 18] {
            service.answer(&mut callers[1], 2);
            assert_eq!(callers[1].told, told);
        }
        callers[1].there = 0;
        callers[1].demand = 0;
        (0..20).for_each(|_| service.answer(&mut callers[0], 2));
        assert_eq!(callers[0].told, 1);
    }

    #[test]
    fn clients_are_a_caller_as_others() {
        let mut system = system();
        assert!(enters(&mut system, at(0), ENTRY, &asked(1, 0, 0.5)));
        assert_eq!(system.asks(at(0), ENTRY, &asked(2, 0, 0.5)), Verdict::Wait);
        assert_eq!(system.services[0].given, 1);
        assert_eq!(system.services[1].given, 0);
    }
}
