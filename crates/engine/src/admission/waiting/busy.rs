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
//! *Awkward cases.* While `k` is not known, the number of places is drawn from what is believed: that tries out what is
//! unknown, and only that. Large and small requests count by their cost, so that a mix that changes is not taken for
//! a server that does.
//!
//! *Source.* Ours; Thompson sampling for the draw.

use alloc::vec::Vec;

use crate::rng::Rng;

/// From one processor on, each step so much more; the last is 3,900.
const STEP: f64 = 1.12;
const GRID: usize = 74;
/// What is believed of a server that was never seen: so many processors, give or take a factor of five.
const FIRST_GUESS: f64 = 8.0;
const FIRST_SPREAD: f64 = 1.6;
/// What a window said is believed in the next one to this power.
const KEEP: f64 = 0.97;
/// The least that any number of processors is believed: it can come back within a few windows.
const FLOOR: f64 = -12.0;
/// A window ends after so many completions, or so many seconds.
const WINDOW: f64 = 150.0;
const WINDOW_LONGEST: f64 = 6.0;
/// Known to this factor (of e), the number is used as it is.
const KNOWN: f64 = 0.35;
/// The less surely it is known the more places: one too few costs answers, one too many only time.
const DOUBT: f64 = 0.7;
/// Levels of requests in service that are told apart: eighths below 1, quarters to 12 (an average over servers is no
/// whole number), then in steps.
const BELOW_ONE: usize = 8;
const QUARTERS: f64 = 4.0;
const SINGLE: f64 = 12.0;
const ABOVE: usize = BELOW_ONE + 44;
const LEVELS: usize = ABOVE + GRID;

/// What is made of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Processors of a server: as many as it may well have.
    pub(super) most: f64,
    /// How likely it has more than were in service already.
    pub(super) beyond: f64,
    /// Whether their number is known, or drawn.
    pub(super) is_known: bool,
}

/// What is believed of the processors of a server.
#[derive(Debug)]
pub(super) struct Busy {
    /// Logarithms of the prior over the grid.
    prior: Vec<f64>,
    /// By level.
    completed: Vec<f64>,
    seconds: Vec<f64>,
    /// Request-seconds by level: what was really in service there, on average.
    area: Vec<f64>,
    /// Completions in the window, and its seconds.
    total: f64,
    open: f64,
}

impl Busy {
    pub(super) fn new() -> Busy {
        Busy {
            prior: (0..GRID).map(first).collect(),
            completed: alloc::vec![0.0; LEVELS],
            seconds: alloc::vec![0.0; LEVELS],
            area: alloc::vec![0.0; LEVELS],
            total: 0.0,
            open: 0.0,
        }
    }

    /// `seconds` went by with so many requests in service at a server.
    pub(super) fn pass(&mut self, in_service: f64, seconds: f64) {
        if in_service > 0.0 {
            let level = level(in_service);
            self.seconds[level] += seconds;
            self.area[level] += seconds * in_service;
            self.open += seconds;
        }
    }

    /// One ended while so many were in service; it counts as `weight` of average cost.
    pub(super) fn complete(&mut self, in_service: f64, weight: f64) {
        self.completed[level(in_service)] += weight;
        self.total += weight;
    }

    /// How many processors a server has, and whether that is known: where it is not, the number is a draw from what is
    /// believed, without the lowest share `least` of it. `fullest`: the most in service of late. At the end of a
    /// window, what it said becomes what is believed.
    pub(super) fn look(&mut self, rng: &mut Rng, least: f64, fullest: f64) -> Look {
        let mut belief = self.belief();
        let most = belief.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if self.total >= WINDOW || self.open >= WINDOW_LONGEST {
            for (k, (prior, now)) in self.prior.iter_mut().zip(&belief).enumerate() {
                *prior = (KEEP * (now - most)).max(FLOOR) + (1.0 - KEEP) * first(k);
            }
            self.completed.fill(0.0);
            self.seconds.fill(0.0);
            self.area.fill(0.0);
            (self.total, self.open) = (0.0, 0.0);
        }
        belief.iter_mut().for_each(|belief| *belief = libm::exp(*belief - most));
        let sum: f64 = belief.iter().sum();
        let moment = |of: &dyn Fn(f64) -> f64| -> f64 {
            belief.iter().enumerate().map(|(k, share)| share * of(ln_processors(k))).sum::<f64>() / sum
        };
        let mean = moment(&|ln| ln);
        let spread = libm::sqrt(moment(&|ln| (ln - mean) * (ln - mean)));
        let beyond = moment(&|ln| f64::from(u8::from(ln > libm::log(fullest.max(1.0)))));
        if spread < KNOWN {
            return Look { beyond, most: libm::exp(mean + spread * DOUBT), is_known: true };
        }
        let mut left = (least + (1.0 - least) * rng.next_f64()) * sum;
        let drawn = belief.iter().position(|share| {
            left -= share;
            left <= 0.0
        });
        Look { beyond, most: libm::exp(ln_processors(drawn.unwrap_or(GRID - 1))), is_known: false }
    }

    /// How many were in service at a level, on average.
    fn in_service(&self, level: usize) -> f64 {
        // Who completes at a level was there, if only for an instant.
        if self.seconds[level] > 0.0 { self.area[level] / self.seconds[level] } else { 1.0 }
    }

    /// Logarithm of the posterior, without its constant.
    fn belief(&self) -> Vec<f64> {
        if self.total <= 0.0 {
            return self.prior.clone();
        }
        let used: Vec<(f64, f64, f64)> = (0..LEVELS)
            .filter(|&at| self.completed[at] > 0.0 || self.seconds[at] > 0.0)
            .map(|at| (self.in_service(at), self.completed[at], self.seconds[at]))
            .collect();
        let likelihood = |k: usize| {
            let processors = libm::exp(ln_processors(k));
            let (mut completed, mut work) = (0.0, 0.0);
            for &(level, count, seconds) in &used {
                let busy = level.min(processors);
                completed += count * libm::log(busy);
                work += seconds * busy;
            }
            if work > 0.0 { completed - self.total * libm::log(work) } else { 0.0 }
        };
        self.prior.iter().enumerate().map(|(k, prior)| prior + likelihood(k)).collect()
    }
}

fn ln_processors(k: usize) -> f64 {
    k as f64 * libm::log(STEP)
}

/// Logarithm of what is believed of a server that was never seen.
fn first(k: usize) -> f64 {
    let away = (ln_processors(k) - libm::log(FIRST_GUESS)) / FIRST_SPREAD;
    -0.5 * away * away
}

/// Where so many in service at a server, on average over the servers, are counted.
fn level(in_service: f64) -> usize {
    let at = if in_service < 1.0 {
        in_service * BELOW_ONE as f64
    } else if in_service < SINGLE {
        BELOW_ONE as f64 + (in_service - 1.0) * QUARTERS
    } else {
        ABOVE as f64 + libm::log(in_service / SINGLE) / libm::log(STEP)
    };
    (libm::floor(at + 1e-9) as usize).min(LEVELS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server of `processors`, each completion of 40 ms, with as many in service as `places` says and a little noise.
    fn learn(processors: f64, seconds: f64) -> f64 {
        let (mut busy, mut rng) = (Busy::new(), Rng::new(7));
        let (mut now, mut places, mut next) = (0.0, FIRST_GUESS, 0.0);
        // A place more than there are processors.
        while now < seconds {
            let in_service = (places * (0.5 + 0.5 * rng.next_f64())).max(1.0);
            let rate = in_service.min(processors) / 0.04;
            let gap = -libm::log(1.0 - rng.next_f64()) / rate;
            busy.pass(in_service, gap);
            busy.complete(in_service, 1.0);
            now += gap;
            if now >= next {
                (places, next) = (busy.look(&mut rng, 0.0, 1.0).most + 0.6, now + 0.5);
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
        let belief = busy.belief();
        // Whether four are served side by side or one after the other: it looks the same.
        let said = |k: usize| belief[k] - first(k);
        assert!((said(0) - said(GRID - 1)).abs() < 1e-6, "{} {}", said(0), said(GRID - 1));
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
            busy.look(&mut rng, 0.0, 1.0);
        }
        let places = busy.look(&mut rng, 0.0, 1.0).most + 0.6;
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
