//! An admission level over fine priorities, moved by the measured wait.
//!
//! *Intuition.* A ticket office with a line drawn through the list of customers. Every second it looks how long people
//! waited. If that was too long, the line moves up by as many names as make a twentieth of those let in; otherwise it
//! moves down by a hundredth.
//!
//! *Applied.* A request's priority is its class (the source's business priority) and one of `user_levels` levels
//! within it. Requests up to the admission level are admitted, others are refused; no request waits. A window ends
//! after `window` or `window_requests` arrivals. It counts arrivals by priority. If the mean wait in it was over
//! `threshold`, the next window is to let in `alpha` less than this one did, else `beta` of the arrivals more; the
//! new level is the last whose prefix sum of the counts does not exceed that.
//!
//! *Awkward cases.* The level must be found among whole priorities: with few arrivals a hundredth of them is less
//! than one request, and the line would never move down again; so at least one more is let in. A window without
//! arrivals opens everything. A window may have too few answers to judge by ([`LEAST_SAMPLES`]). Then the level
//! stays, and the answers count for the next window, unless nothing was admitted or nothing is in flight, which is no
//! overload. Recovery is slow by design: from half to all takes over a minute at the source's settings.
//!
//! *Applied here.* (1) The source measures the time in the server's own queue. It cannot be seen from outside
//! without an agent, so this policy takes the mean time of answers beyond their learned cost. On servers that share
//! their processors instead of queueing, that is more than 20 ms long before they are full: set `threshold` to what the
//! target allows. (2) The source hashes the user, anew every hour, so that a user's requests stand or fall together.
//! The engine knows no users: the level is drawn per request. (3) Upstream services do not learn the level; there are
//! none.
//!
//! *Source.* Zhou et al., *Overload control for scaling WeChat microservices* (SoCC 2018), sections 4.1 and 4.2 with
//! algorithm 2. The paper's numbers: 20 ms, 1 s or 2000 requests, 128 user levels, alpha 5 %, beta 1 %.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::{Admission, AdmissionPolicy, Arrival, Context, Ended, PolicyState, require};
use crate::decision::{End, Reason};
use crate::learned::Kept;
use crate::setup::{Setup, SetupError};
use crate::time::Timestamp;
use crate::units::Seconds;

/// Settings; the defaults are those of the source.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// A longer mean wait is overload.
    pub threshold: Seconds,
    /// Longest window.
    pub window: Seconds,
    /// Most arrivals in a window.
    pub window_requests: u32,
    /// Levels within a class.
    pub user_levels: u16,
    /// Share let in less after a window of overload.
    pub alpha: f64,
    /// Share of the arrivals let in more after any other window.
    pub beta: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            threshold: Seconds(0.020),
            window: Seconds(1.0),
            window_requests: 2000,
            user_levels: 128,
            alpha: 0.05,
            beta: 0.01,
        }
    }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let wrong = |holds, key, problem| require(holds, "dagor", key, problem);
        wrong((0.0001..=3600.0).contains(&self.threshold.0), "threshold", "must lie between 100us and 1h")?;
        wrong((0.1..=3600.0).contains(&self.window.0), "window", "must lie between 100ms and 1h")?;
        wrong(self.window_requests >= 1, "window_requests", "must be at least 1")?;
        wrong((1..=1024).contains(&self.user_levels), "user_levels", "must lie between 1 and 1024")?;
        wrong(self.alpha > 0.0 && self.alpha < 1.0, "alpha", "must lie between 0 and 1")?;
        wrong(self.beta > 0.0 && self.beta <= 1.0, "beta", "must be more than 0 and at most 1")?;
        let opens = f64::from(self.user_levels) * self.beta >= 1.0;
        wrong(opens, "user_levels", "times `beta` must be at least 1, or no step would ever open a level again")
    }

    pub(super) fn build(&self, setup: &Setup) -> Dagor {
        let levels = setup.classes.len() * usize::from(self.user_levels);
        Dagor {
            config: self.clone(),
            arrivals: alloc::vec![0; levels],
            arrived: 0,
            admitted: 0,
            level: levels - 1,
            wait: 0.0,
            samples: 0,
            closes: None,
        }
    }
}

/// Fewer answers say nothing about a mean.
const LEAST_SAMPLES: u32 = 10;

/// State of the policy `dagor`.
#[derive(Debug)]
pub struct Dagor {
    config: Config,
    /// Arrivals of the window by priority, the most important first.
    arrivals: Vec<u32>,
    arrived: u32,
    admitted: u32,
    /// The last priority that gets in.
    level: usize,
    /// Sum of waits, seconds.
    wait: f64,
    samples: u32,
    closes: Option<Timestamp>,
}

impl AdmissionPolicy for Dagor {
    fn on_arrival(&mut self, cx: &mut Context<'_>, arrival: &Arrival) -> Admission {
        let levels = usize::from(self.config.user_levels);
        let priority = arrival.request.class.index() * levels + cx.rng.below(levels);
        let passes = priority <= self.level;
        self.arrivals[priority] += 1;
        self.arrived += 1;
        self.admitted += u32::from(passes);
        if self.arrived >= self.config.window_requests {
            self.close(cx);
        }
        if passes { Admission::Admit } else { Admission::refuse(cx.load.refusal(Reason::Threshold)) }
    }

    fn on_outcome(&mut self, cx: &mut Context<'_>, ended: &Ended) {
        if ended.end == End::Failed {
            return;
        }
        self.wait += ended.service_time - cx.costs.estimate(&ended.request);
        self.samples += 1;
    }

    fn on_tick(&mut self, cx: &mut Context<'_>) {
        let closes = *self.closes.get_or_insert(cx.now + self.config.window.duration());
        if closes <= cx.now {
            self.close(cx);
        }
    }

    fn describe(&self, state: &mut PolicyState) {
        let levels = usize::from(self.config.user_levels);
        let share = (self.level % levels + 1) as f64 / levels as f64;
        state.threshold = Some(((self.level / levels) as u8, share));
        state.more.push(("mean_wait".into(), self.mean_wait()));
    }

    fn keep(&self, _now: Timestamp, kept: &mut Kept) {
        let levels = usize::from(self.config.user_levels);
        let share = (self.level % levels + 1) as f64 / levels as f64;
        kept.of_class_mut(self.level / levels).put("threshold", share);
    }

    fn recall(&mut self, _now: Timestamp, kept: &Kept) {
        let levels = usize::from(self.config.user_levels);
        let share = |class: usize| Some((class, kept.of_class(class).get("threshold")?));
        if let Some((class, share)) = (0..self.arrivals.len() / levels).find_map(share) {
            let within = libm::ceil(share.clamp(0.0, 1.0) * levels as f64 - 1e-9) as usize;
            self.level = class * levels + within.clamp(1, levels) - 1;
        }
    }
}

impl Dagor {
    fn close(&mut self, cx: &Context<'_>) {
        if let Some(overloaded) = self.verdict(cx) {
            self.level = self.next_level(overloaded);
            (self.wait, self.samples) = (0.0, 0);
        }
        self.arrivals.fill(0);
        (self.arrived, self.admitted) = (0, 0);
        self.closes = Some(cx.now + self.config.window.duration());
    }

    /// Whether the window was one of overload; `None`: nobody can tell.
    fn verdict(&self, cx: &Context<'_>) -> Option<bool> {
        let threshold = self.config.threshold.0;
        if cx.load.queueing_delay > threshold {
            return Some(true);
        }
        let quiet = self.admitted == 0 || cx.load.in_flight == 0;
        match self.samples {
            LEAST_SAMPLES.. => Some(self.mean_wait() > threshold),
            _ => quiet.then_some(false),
        }
    }

    fn mean_wait(&self) -> f64 {
        self.wait / f64::from(self.samples.max(1))
    }

    fn next_level(&self, overloaded: bool) -> usize {
        let admitted = f64::from(self.admitted);
        let wanted = match overloaded {
            true => admitted * (1.0 - self.config.alpha),
            false => admitted + (f64::from(self.arrived) * self.config.beta).max(1.0),
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
    use super::*;

    /// As after a window with these arrivals per priority, four levels in each of two classes.
    fn policy(arrivals: [u32; 8], level: usize) -> Dagor {
        let arrived = arrivals.iter().sum();
        let admitted = arrivals[..=level].iter().sum();
        let config = Config { user_levels: 4, ..Config::default() };
        let arrivals = arrivals.to_vec();
        Dagor { config, arrivals, arrived, admitted, level, wait: 0.0, samples: 0, closes: None }
    }

    #[test]
    fn overload_takes_away_what_makes_a_twentieth_of_those_let_in() {
        assert_eq!(policy([100; 8], 7).next_level(true), 6, "760 of 800");
        assert_eq!(policy([4; 8], 5).next_level(true), 4, "22.8 of 24");
        assert_eq!(policy([10, 0, 0, 0, 10, 0, 0, 0], 7).next_level(true), 3, "19: class 1 and no more");
        assert_eq!(policy([100; 8], 0).next_level(true), 0, "the first priority always gets in");
    }

    #[test]
    fn calm_adds_a_hundredth_of_the_arrivals_and_at_least_one() {
        assert_eq!(policy([1; 8], 3).next_level(false), 4, "one more");
        assert_eq!(policy([2; 8], 3).next_level(false), 3, "two do not fit into one");
        assert_eq!(policy([2, 2, 2, 2, 90, 90, 1, 1], 3).next_level(false), 3, "nor ninety into two");
        assert_eq!(policy([300, 300, 300, 300, 10, 10, 10, 500], 3).next_level(false), 4, "17 more");
        assert_eq!(policy([0; 8], 0).next_level(false), 7, "without arrivals all are let in");
    }

    #[test]
    fn the_mean_wait_decides_when_there_are_enough_answers() {
        use crate::admission::testing::{Bench, answered};
        let level = |bench: &Bench| bench.state().threshold.expect("it has a level");
        let mut bench = Bench::new(r#"{ "policy": "dagor", "threshold": "500ms" }"#);
        // Alone they take 10 ms; what they take beyond that is the wait.
        for _ in 0..100 {
            let ticket = bench.arrive(0).expect("it is idle");
            bench.advance(10);
            bench.complete(ticket, answered(10));
        }
        assert_eq!(level(&bench), (2, 1.0), "no wait");
        for round in 0..3 {
            let flying: Vec<_> = (0..200).filter_map(|i| bench.arrive(i % 3)).collect();
            bench.advance(900);
            flying.iter().for_each(|ticket| bench.complete(*ticket, answered(900)));
            bench.advance(100);
            assert!(flying.len() >= 150, "round {round}: {}", flying.len());
        }
        assert!(level(&bench) < (2, 1.0), "{:?}", level(&bench));
        bench.advance(2000);
        assert_eq!(level(&bench), (2, 1.0), "idle: open again");
    }
}
