//! An admission level over fine priorities at every service, which callers heed before they send.
//!
//! *Intuition.* Offices with a line drawn through the list of customers, each its own. Who sends a customer on to
//! another office has heard, with the last answer from there, where the line is, and sends nobody who stands below it.
//!
//! *Applied.* A request's priority is its class and one of 128 levels of users within it, the same in all its calls, so
//! that they stand or fall together. A service lets in what is up to its level. A window ends after 1 s or 2000
//! arrivals. If what had the processors in it had waited more than 20 ms on average, the next window is to let in 5 %
//! less than this one did, else 1 % of the arrivals more; the new level is the last whose prefix sum of the arrivals by
//! priority does not exceed that. The level goes back with every answer, a refusal too. A caller refuses what is above
//! the level that it last heard of. Clients do not cooperate.
//!
//! *Awkward cases.* A service whose callers hold back what is above its level sees few arrivals there, those sent
//! before the level was heard of, and the search by prefix sums would open everything after the first calm window. The
//! source does not say what it does then. Here the level of such a service rises by one: 1/128 of a class, near the 1 %
//! that it is to be. (Breakwater's authors, who compared with this, move the level by 1 % of all levels in any case.)
//! With few arrivals a hundredth is less than one request; at least one more is let in. A window that let in something
//! of which nothing had the processors yet leaves the level. One without arrivals opens everything at the first
//! service, where nobody holds back.
//!
//! *Slow by design.* From twice what can be done it takes 14 s to come down to it, by 5 % a second, and longer until
//! the queue of these seconds is gone; recovery, by 1 % a second, takes a minute and more.
//!
//! *Applied here.* A service is one, however many servers it has; in the source each server has a level. The hash of
//! users does not change every hour. A class is the source's business priority: it has one for each kind of action.
//!
//! *Source.* Zhou et al., *Overload control for scaling WeChat microservices* (SoCC 2018); all numbers are the paper's,
//! as the engine's policy `dagor` has them, whose head says more of the level alone. Of the paper's text only the
//! abstract and what others write about it was to be had for this. Two versions by others were read: that of
//! Breakwater's authors (shenango/caladan) and that of Rajomon's (Jiali-Xing/dagor-grpc).

use std::time::Duration;

use tidegate_engine::Timestamp;

use super::{Asked, Cooperation, Hop, Stay, Turn, Verdict};
use crate::world::World;

/// A longer mean wait is overload, seconds.
const THRESHOLD: f64 = 0.020;
/// Longest window, and most arrivals in it.
const WINDOW: Duration = Duration::from_secs(1);
const WINDOW_REQUESTS: u32 = 2000;
/// Levels within a class.
const USER_LEVELS: usize = 128;
/// Let in less after overload, as a share of what was let in.
const ALPHA: f64 = 0.05;
/// Let in more after any other window, as a share of the arrivals.
const BETA: f64 = 0.01;

/// The system at work.
pub(super) struct Dagor {
    services: Vec<Service>,
    /// Of each service, what each other has last heard of its level: by caller.
    heard: Vec<Vec<usize>>,
}

/// What a service counts in a window.
struct Service {
    /// Arrivals by priority, the most important first.
    arrivals: Vec<u32>,
    arrived: u32,
    admitted: u32,
    /// The last priority that gets in.
    level: usize,
    /// Sum of waits, seconds.
    wait: f64,
    samples: u32,
    closes: Timestamp,
    /// Whether callers hold back what is above the level.
    is_spared: bool,
}

impl Dagor {
    pub(super) fn new(world: &World) -> Dagor {
        let (services, levels) = (world.tiers.len() + 1, world.setup.classes.len() * USER_LEVELS);
        Dagor {
            services: (0..services).map(|number| Service::new(levels, number > 0)).collect(),
            heard: vec![vec![levels - 1; services]; services],
        }
    }

    /// What an answer, or a refusal, tells the caller.
    fn tell(&mut self, hop: Hop) {
        if let Some(from) = hop.from {
            self.heard[hop.to][from] = self.services[hop.to].level;
        }
    }
}

impl Cooperation for Dagor {
    fn asks(&mut self, now: Timestamp, hop: Hop, asked: &Asked) -> Verdict {
        let priority = usize::from(asked.class) * USER_LEVELS + (asked.lot * USER_LEVELS as f64) as usize;
        if hop.from.is_some_and(|from| priority > self.heard[hop.to][from]) {
            return Verdict::Out;
        }
        if self.services[hop.to].takes(now, priority) {
            return Verdict::In;
        }
        self.tell(hop);
        Verdict::Out
    }

    fn processed(&mut self, _now: Timestamp, hop: Hop, _asked: &Asked, turn: &Turn) {
        let service = &mut self.services[hop.to];
        service.wait += turn.waited;
        service.samples += 1;
    }

    fn ended(&mut self, _now: Timestamp, hop: Hop, _asked: &Asked, _stay: &Stay) {
        self.tell(hop);
    }

    fn next_timeout(&self) -> Timestamp {
        self.services.iter().map(|service| service.closes).min().unwrap_or(Timestamp::MAX)
    }

    fn time_out(&mut self, now: Timestamp) {
        self.services.iter_mut().filter(|service| service.closes <= now).for_each(|service| service.close(now));
    }
}

impl Service {
    fn new(levels: usize, is_spared: bool) -> Service {
        Service {
            arrivals: vec![0; levels],
            arrived: 0,
            admitted: 0,
            level: levels - 1,
            wait: 0.0,
            samples: 0,
            closes: Timestamp::ZERO + WINDOW,
            is_spared,
        }
    }

    /// Counts an arrival and says whether it is let in.
    fn takes(&mut self, now: Timestamp, priority: usize) -> bool {
        let passes = priority <= self.level;
        self.arrivals[priority] += 1;
        self.arrived += 1;
        self.admitted += u32::from(passes);
        if self.arrived >= WINDOW_REQUESTS {
            self.close(now);
        }
        passes
    }

    fn close(&mut self, now: Timestamp) {
        if self.samples > 0 || self.admitted == 0 {
            self.level = self.next_level(self.wait > THRESHOLD * f64::from(self.samples));
            (self.wait, self.samples) = (0.0, 0);
        }
        self.arrivals.fill(0);
        (self.arrived, self.admitted) = (0, 0);
        self.closes = now + WINDOW;
    }

    fn next_level(&self, overloaded: bool) -> usize {
        if !overloaded && self.is_spared {
            return (self.level + 1).min(self.arrivals.len() - 1);
        }
        let admitted = f64::from(self.admitted);
        let wanted = match overloaded {
            true => admitted * (1.0 - ALPHA),
            false => admitted + (f64::from(self.arrived) * BETA).max(1.0),
        };
        let mut sum = 0.0;
        let fits = |count: &&u32| {
            sum += f64::from(**count);
            sum <= wanted
        };
        self.arrivals.iter().take_while(fits).count().saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ENTRY, INNER, answer, asked, enters, pass, world};
    use super::*;

    /// A window of the second service: 256 calls, one of each priority, of which those let in have waited so long.
    /// How many were let in.
    fn window(dagor: &mut Dagor, second: u64, waited: f64) -> usize {
        let at = Timestamp::from_millis(second * 1000 + 500);
        pass(dagor, at);
        let calls = (0..256u32).map(|i| asked(i, (i / 128) as u8, f64::from(i % 128) / 128.0));
        let flying: Vec<Asked> = calls.filter(|call| enters(dagor, at, INNER, call)).collect();
        flying.iter().for_each(|call| answer(dagor, at, INNER, call, waited));
        pass(dagor, Timestamp::from_millis(second * 1000 + 1000));
        flying.len()
    }

    #[test]
    fn overload_lowers_the_level_by_a_twentieth_of_what_was_let_in() {
        let mut dagor = Dagor::new(&world());
        let let_in: Vec<usize> = (0..4).map(|second| window(&mut dagor, second, 0.021)).collect();
        assert_eq!(let_in, [256, 243, 230, 218]);
    }

    #[test]
    fn a_mean_wait_of_just_the_threshold_is_none() {
        let mut dagor = Dagor::new(&world());
        let let_in: Vec<usize> = (0..3).map(|second| window(&mut dagor, second, 0.019)).collect();
        assert_eq!(let_in, [256; 3]);
    }

    #[test]
    fn calm_raises_it_by_a_hundredth_of_the_arrivals() {
        let mut service = Service::new(256, false);
        (service.level, service.closes) = (99, Timestamp::MAX);
        for priority in 0..256 {
            (0..3).for_each(|_| _ = service.takes(Timestamp::ZERO, priority));
        }
        service.samples = 1;
        service.close(Timestamp::ZERO);
        // A hundredth of 768 is 7.68: two priorities of three requests.
        assert_eq!(service.level, 101);
    }

    #[test]
    fn what_callers_hold_back_does_not_open_everything() {
        let mut dagor = Dagor::new(&world());
        (0..10).for_each(|second| _ = window(&mut dagor, second, 0.1));
        let level = dagor.services[1].level;
        let let_in: Vec<usize> = (10..13).map(|second| window(&mut dagor, second, 0.0)).collect();
        assert_eq!(dagor.services[1].level, level + 3);
        // The first call above the level is sent before the caller hears of it; it tells the caller.
        assert_eq!(let_in, [level + 1, level + 1, level + 2], "{level}");
    }

    #[test]
    fn a_caller_that_has_heard_of_the_level_refuses_before_it_sends() {
        let mut dagor = Dagor::new(&world());
        dagor.services[1].level = 99;
        let (high, low) = (asked(0, 0, 0.5), asked(1, 1, 0.5));
        let at = Timestamp::from_millis(1);
        assert!(!enters(&mut dagor, at, INNER, &low));
        assert_eq!(dagor.services[1].arrived, 1, "it was sent, and refused there");
        assert!(!enters(&mut dagor, at, INNER, &low));
        assert_eq!(dagor.services[1].arrived, 1, "the refusal told the caller");
        assert!(enters(&mut dagor, at, INNER, &high));
        // An answer tells it of a new level, too.
        dagor.services[1].level = 255;
        answer(&mut dagor, at, INNER, &high, 0.0);
        assert!(enters(&mut dagor, at, INNER, &low));
        // Clients know nothing.
        dagor.services[0].level = 99;
        (0..3).for_each(|number| assert!(!enters(&mut dagor, at, ENTRY, &asked(number, 1, 0.5))));
        assert_eq!(dagor.services[0].arrived, 3);
    }

    #[test]
    fn the_level_stays_within_bounds() {
        let mut dagor = Dagor::new(&world());
        (0..200).for_each(|second| _ = window(&mut dagor, second, 1.0));
        assert_eq!(dagor.services[1].level, 0, "the most important always get in");
        pass(&mut dagor, Timestamp::from_millis(201_000));
        let opened = (202..480).map(|second| window(&mut dagor, second, 0.0)).last();
        assert_eq!(opened, Some(256));
    }
}
