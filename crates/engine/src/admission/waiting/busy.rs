//! How many requests keep a server busy, learned while it runs.
//!
//! *Intuition.* To learn how many tills a shop has, watch how fast customers leave with few and with many inside: up to
//! the number of tills each one more makes it faster, beyond it none does.
//!
//! *Applied.* With `n` requests in service a server of `k` processors completes `min(n, k) / S` per second. In a window
//! in which `c_n` completed while `n` were in service, for the time `t_n`, the likelihood of `k` with `S` solved for is
//!
//! ```text
//! ln L(k) = sum c_n ln min(n, k) - C ln sum t_n min(n, k)        C = sum c_n
//! ```
//!
//! `S` is free in each window, so a server that becomes slower or faster says nothing of `k`; and a window that saw one
//! `n` only says nothing at all, which is the truth. What a window says is the prior of the next, a little weaker.
//!
//! Counts are Poisson where costs are exponential. Where they differ less, requests end in waves, and times at the
//! server say more ([`Stays`]): of the two logarithms the mean is believed, weighed by how much times differ.
//!
//! *Awkward cases.* While `k` is not known, the number of places is a large one of those that are believed: one that is
//! too large is found out, one that is too small says nothing. A window in which something else happened may say
//! anything, so none is believed beyond a hundred to one. Large and small requests count by their cost, so that a mix
//! that changes is not taken for a server that does.
//!
//! *Source.* Ours.

use alloc::vec::Vec;

use super::history::History;
use super::knee::{KNEES, Knee, STEP, STEPS};
use super::stays::{Said, Stays};
use crate::time::Timestamp;

/// What a window said is believed in the next one to this power.
const KEEP: f64 = 0.98;
/// The least that any number of processors is believed: it can come back within a few windows.
const FLOOR: f64 = -12.0;
/// A window ends after so many completions, or so many seconds.
const WINDOW: f64 = 150.0;
const WINDOW_LONGEST: f64 = 6.0;
/// But not before so many stays: what was begun in it must have ended.
const WINDOW_STAYS: f64 = 2.0;
/// Known to this factor (of e), the number is used as it is.
const KNOWN: f64 = 0.35;
/// The less surely it is known the more places: one too few costs answers, one too many only time.
const DOUBT: f64 = 0.8;
/// Else this part of what is believed lies below what is taken for true. With more, unimportant requests have places
/// that are too many for long: of the most important class 0.89 was let in, in the worst of twenty runs, for 0.96.
const BELOW: f64 = 0.5;
/// And this part lies below what is tried for once, while more bring nothing.
const FEW: f64 = 0.2;
/// Levels of requests in service that are told apart: eighths below 1, quarters to 12 (an average over servers is no
/// whole number), then in steps.
const BELOW_ONE: usize = 8;
const QUARTERS: f64 = 4.0;
const SINGLE: f64 = 12.0;
const ABOVE: usize = BELOW_ONE + 44;
pub(super) const LEVELS: usize = ABOVE + STEPS;
/// What one window says is believed to this: a neighbour, a pause or a change of speed may have said it.
const CHANCE_OF_OTHERS: f64 = 0.01;
/// The variance of the logarithm of exponential times.
const EXPONENTIAL: f64 = 1.645;
/// How much times differ is seen over so many of them.
const SPREAD_MEMORY: f64 = 20.0;
/// Times that differ less say more than counts, and others less; in between both are believed in part.
const EVEN: f64 = 0.8;
const DOUBTFUL: f64 = 0.05;

/// What is made of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// How many are worth their time at a server: as many as well may be.
    pub(super) most: f64,
    /// As few as well may be.
    pub(super) least: f64,
    /// How likely it has more than were in service already.
    pub(super) beyond: f64,
    /// Whether their number is known.
    pub(super) is_known: bool,
}

/// What is believed of the processors of a server.
#[derive(Debug)]
pub(super) struct Busy {
    /// Logarithms of the prior over the knees.
    pub(super) prior: Vec<f64>,
    levels: Vec<Level>,
    /// Times of those that completed.
    pub(super) stays: Stays,
    /// How much these differ, whatever is in service: the variance of their logarithm.
    pub(super) spread: f64,
    /// Completions in the window, and its seconds.
    total: f64,
    open: f64,
}

/// What was seen while about so many were in service.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    completed: f64,
    seconds: f64,
    /// Request-seconds: what was really in service, on average.
    area: f64,
}

/// What is believed with what a window said, and how much times differ.
struct Belief {
    over: Vec<f64>,
    spread: f64,
}

impl Busy {
    /// See [`FLOOR`].
    pub(super) const LEAST_BELIEVED: f64 = FLOOR;

    pub(super) fn new() -> Busy {
        Busy {
            prior: Knee::all().map(Knee::first).collect(),
            levels: alloc::vec![Level::default(); LEVELS],
            stays: Stays::new(),
            spread: EXPONENTIAL,
            total: 0.0,
            open: 0.0,
        }
    }

    /// `seconds` went by with so many requests in service at a server.
    pub(super) fn pass(&mut self, in_service: f64, seconds: f64) {
        if in_service > 0.0 {
            let level = &mut self.levels[level(in_service)];
            level.seconds += seconds;
            level.area += seconds * in_service;
            self.open += seconds;
        }
    }

    /// One ended while so many were in service; it counts as `weight` of average cost.
    pub(super) fn complete(&mut self, in_service: f64, weight: f64) {
        self.levels[level(in_service)].completed += weight;
        self.total += weight;
    }

    /// One of `weight` times the average cost that began at a time took so long.
    pub(super) fn took(&mut self, began: Timestamp, seconds: f64, weight: f64) {
        self.stays.complete(began, seconds, weight);
    }

    /// A request is at its server for `stay` seconds.
    pub(super) fn tick(&mut self, now: Timestamp, stay: f64, servers: f64, history: &History) {
        self.stays.pass(now, stay, servers, history);
    }

    /// How many processors a server has, and whether that is known: where it is not, the number is one that it may well
    /// have. `fullest`: the most in service of late; `stay`: seconds of a request at a server. At the end of a window,
    /// what it said becomes what is believed.
    pub(super) fn look(&mut self, fullest: f64, stay: f64) -> Look {
        let Belief { over, spread } = self.belief();
        let greatest = greatest(&over);
        let shares: Vec<f64> = over.iter().map(|over| libm::exp(over - greatest)).collect();
        let is_over = self.total >= WINDOW || self.open >= WINDOW_LONGEST;
        if is_over && self.open >= WINDOW_STAYS * stay {
            self.turn(&over, greatest, spread);
        }
        let sum: f64 = shares.iter().sum();
        let moment = |of: &dyn Fn(f64) -> f64| -> f64 {
            Knee::all().zip(&shares).map(|(knee, share)| share * of(knee.ln_worth())).sum::<f64>() / sum
        };
        let mean = moment(&|ln| ln);
        let deviation = libm::sqrt(moment(&|ln| (ln - mean) * (ln - mean)));
        let beyond = moment(&|ln| f64::from(u8::from(ln > libm::log(fullest.max(1.0)))));
        if deviation < KNOWN {
            let most = libm::exp(mean + deviation * DOUBT);
            return Look { beyond, most, least: most, is_known: true };
        }
        let [least, most] = [FEW, BELOW].map(|below| libm::exp(quantile(&shares, sum * below)));
        Look { beyond, most, least, is_known: false }
    }

    /// A window ends.
    fn turn(&mut self, over: &[f64], greatest: f64, spread: f64) {
        for (knee, (prior, now)) in Knee::all().zip(self.prior.iter_mut().zip(over)) {
            *prior = (KEEP * (now - greatest)).max(FLOOR) + (1.0 - KEEP) * knee.first();
        }
        self.spread = spread;
        self.stays.clear();
        self.levels.fill(Level::default());
        (self.total, self.open) = (0.0, 0.0);
    }

    /// What is believed now, as if the window ended here: logarithms over the grid, without their constant, and how
    /// much times differ.
    pub(super) fn believed(&self) -> (Vec<f64>, f64) {
        let Belief { over, spread } = self.belief();
        (over, spread)
    }

    /// Logarithm of the posterior, without its constant.
    fn belief(&self) -> Belief {
        let counted = self.counted();
        let said = self.stays.say(Knee::all());
        let count = if said.is_some() { self.stays.count() } else { 0.0 };
        let said: Vec<Said> = said.map_or_else(|| alloc::vec![Said::default(); KNEES], Iterator::collect);
        let times: Vec<f64> = said.iter().map(|said| said.likelihood).collect();
        let least = said.iter().map(|said| said.variance).fold(f64::INFINITY, f64::min);
        let spread = (self.spread * SPREAD_MEMORY + least * count) / (SPREAD_MEMORY + count);
        // Which of the two is to be believed.
        let likely = 1.0 / (1.0 + libm::exp((spread - EVEN) / DOUBTFUL));
        let both = times.iter().zip(&counted).map(|(times, counted)| likely * times + (1.0 - likely) * counted);
        self.over_prior(&both.collect::<Vec<f64>>(), spread)
    }

    fn over_prior(&self, said: &[f64], spread: f64) -> Belief {
        let most = greatest(said);
        let sober = |said: f64| libm::log(CHANCE_OF_OTHERS + (1.0 - CHANCE_OF_OTHERS) * libm::exp(said - most));
        Belief { over: self.prior.iter().zip(said).map(|(prior, said)| prior + sober(*said)).collect(), spread }
    }

    /// What counts of completions say, as a logarithm of a likelihood.
    fn counted(&self) -> Vec<f64> {
        let is_used = |level: &&Level| level.completed > 0.0 || level.seconds > 0.0;
        let used: Vec<(f64, f64, f64)> = (self.levels.iter().filter(is_used))
            .map(|level| (libm::log(level.in_service()), level.completed, level.seconds))
            .collect();
        let likelihood = |knee: Knee| {
            let (mut completed, mut work) = (0.0, 0.0);
            for &(ln_in_service, count, seconds) in &used {
                let ln_busy = ln_in_service - knee.ln_crowd(ln_in_service);
                completed += count * ln_busy;
                work += seconds * libm::exp(ln_busy);
            }
            if work > 0.0 { completed - self.total * libm::log(work) } else { 0.0 }
        };
        Knee::all().map(likelihood).collect()
    }
}

impl Level {
    /// How many were in service, on average.
    fn in_service(&self) -> f64 {
        // Who completes at a level was there, if only for an instant.
        if self.seconds > 0.0 { self.area / self.seconds } else { 1.0 }
    }
}

fn greatest(of: &[f64]) -> f64 {
    of.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// So much of what is believed lies below: a logarithm of how many are worth their time.
fn quantile(shares: &[f64], below: f64) -> f64 {
    let mut worth: Vec<(f64, f64)> = Knee::all().map(Knee::ln_worth).zip(shares.iter().copied()).collect();
    worth.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut left = below;
    let found = worth.iter().find(|(_, share)| {
        left -= share;
        left <= 0.0
    });
    found.or(worth.last()).map_or(0.0, |(ln_worth, _)| *ln_worth)
}

/// Where so many in service at a server, on average over the servers, are counted.
pub(super) fn level(in_service: f64) -> usize {
    let at = if in_service < 1.0 {
        in_service * BELOW_ONE as f64
    } else if in_service < SINGLE {
        BELOW_ONE as f64 + (in_service - 1.0) * QUARTERS
    } else {
        ABOVE as f64 + libm::log(in_service / SINGLE) / libm::log(STEP)
    };
    ((at + 1e-9) as usize).min(LEVELS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// A server of `processors`, each completion of 40 ms, with as many in service as `places` says and a little noise.
    fn learn(processors: f64, seconds: f64) -> f64 {
        let (mut busy, mut rng) = (Busy::new(), Rng::new(7));
        let (mut now, mut places, mut next) = (0.0, 8.0, 0.0);
        // A place more than there are processors.
        while now < seconds {
            let in_service = (places * (0.5 + 0.5 * rng.next_f64())).max(1.0);
            let rate = in_service.min(processors) / 0.04;
            let gap = -libm::log(1.0 - rng.next_f64()) / rate;
            busy.pass(in_service, gap);
            busy.complete(in_service, 1.0);
            now += gap;
            if now >= next {
                (places, next) = (busy.look(1.0, 0.0).most + 0.6, now + 0.5);
            }
        }
        places
    }

    #[test]
    fn processors_are_found_from_nothing() {
        for processors in [1.0, 4.0, 64.0, 500.0] {
            let places = learn(processors, 60.0);
            assert!(places > 0.8 * processors && places < 1.5 * processors + 1.5, "{processors}: {places}");
        }
    }

    #[test]
    fn one_level_tells_nothing() {
        let mut busy = Busy::new();
        busy.pass(4.0, 1.0);
        (0..100).for_each(|_| busy.complete(4.0, 1.0));
        let belief = busy.belief().over;
        // Whether four are served side by side or one after the other: it looks the same.
        let said: Vec<f64> = Knee::all().zip(belief).map(|(knee, belief)| belief - knee.first()).collect();
        let (least, most) = (said.iter().copied().fold(f64::INFINITY, f64::min), greatest(&said));
        assert!(most - least < 1e-6, "{least} {most}");
    }

    #[test]
    fn three_servers_of_two_processors_are_found_whatever_is_in_flight() {
        let (mut busy, mut rng) = (Busy::new(), Rng::new(3));
        for at in 0..4000 {
            // Four to seven in flight, so never a whole number at each.
            let in_flight = f64::from(4 + at % 4);
            let seconds = -libm::log(1.0 - rng.next_f64()) * 0.04 / in_flight.min(6.0);
            busy.pass(in_flight / 3.0, seconds);
            busy.complete(in_flight / 3.0, 1.0);
            busy.look(1.0, 0.0);
        }
        let places = busy.look(1.0, 0.0).most + 0.6;
        assert!(places > 1.8 && places < 4.0, "{places}");
    }

    #[test]
    fn levels_grow_with_what_is_in_service() {
        let mut last = 0;
        for n in 1..40_000 {
            let at = level(f64::from(n) / 10.0);
            assert!(at >= last && at < LEVELS, "{n}");
            last = at;
        }
        assert!(level(1e9) < LEVELS && level(0.01) == 0 && level(1.34) < level(1.67));
    }
}
