//! What times at the servers say of how many processors these have.
//!
//! *Intuition.* When the same errand takes twenty minutes whether ten or twenty people are in the shop, the tills were
//! not all taken yet; once each further customer makes it longer for everybody, they are.
//!
//! *Applied.* A server of `k` processors gives a request `min(1, k / n)` of one while `n` are in service. So of a
//! request of cost `c` that took `T` among `n` on average, `ln T / c - ln max(1, n / k)` is the same but for what costs
//! differ by. The `k` under which it differs least is the likeliest:
//!
//! ```text
//! ln L(k) = - C ln sigma(k)        sigma^2(k): the variance of ln T / c - ln max(1, n / k) over C requests
//! ```
//!
//! *Awkward cases.* Requests that all cost the same start and end together, so that counts of completions jump about;
//! their times do not. Where costs differ much, counts say more, and see those that are still in service; and long
//! requests are themselves why many are in service. How much they differ is seen from the times. All requests of an
//! instant share whatever befalls the servers then, so times are never believed to be the same to more than [`SAME`].
//! The first of many that end are the small ones: who began together is looked at together, when nearly all have ended,
//! and counts as having been among as many, or those that are there for long would see other numbers than the rest.

use alloc::vec::Vec;
use core::time::Duration;

use super::busy::{LEVELS, level};
use super::history::History;
use super::knee::Knee;
use crate::peers;
use crate::time::Timestamp;

/// Times differ by this part at least, whatever the costs: squared.
const SAME: f64 = 0.1 * 0.1;
/// Fewer say nothing of how much times differ.
const FEW: f64 = 8.0;

/// Requests that began within this part of a stay are a cohort.
const PART: f64 = 0.25;
/// A cohort is looked at when it is so many parts of a stay old.
const ENDED: usize = 14;
/// It lasts so long at least, seconds.
const SHORTEST: f64 = 0.002;

/// Times of requests, by how many were in service meanwhile.
#[derive(Debug)]
pub(super) struct Stays {
    /// Those that began of late, the latest last.
    young: [Cohort; ENDED + 1],
    /// All others in the window.
    levels: Vec<Level>,
    /// What the others were not told yet; `None` while there are none.
    untold: Option<Vec<peers::Times>>,
}

/// Those that began from a time on.
#[derive(Clone, Copy, Debug)]
struct Cohort {
    from: Timestamp,
    times: Times,
}

/// Of some requests: their number, and the sums of the logarithms of their times over cost, and of the squares of
/// these.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    count: f64,
    ln: f64,
    square: f64,
}

/// Those among about so many.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// Sum of the logarithms of how many.
    ln_in_service: f64,
    times: Times,
}

/// What times say of a number of processors.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    /// The logarithm of the likelihood, without its constant.
    pub(super) likelihood: f64,
    /// How much times differ, under so many: the variance of their logarithm.
    pub(super) variance: f64,
}

impl Stays {
    pub(super) fn new() -> Stays {
        let none = Cohort { from: Timestamp::ZERO, times: Times::default() };
        Stays { young: [none; ENDED + 1], levels: alloc::vec![Level::default(); LEVELS], untold: None }
    }

    /// One of `weight` times the average cost that began at a time took so long.
    pub(super) fn complete(&mut self, began: Timestamp, seconds: f64, weight: f64) {
        let time = seconds / weight;
        if !(time.is_finite() && time > 0.0) {
            return;
        }
        let ln = libm::log(time);
        // Who began long ago counts among the oldest.
        let cohort = self.young.iter().rposition(|cohort| cohort.from <= began).unwrap_or(0);
        self.young[cohort].times.add(&Times { count: 1.0, ln, square: ln * ln });
    }

    /// A request is at its server for `stay` seconds: of who began long enough ago nearly all have ended.
    pub(super) fn pass(&mut self, now: Timestamp, stay: f64, servers: f64, history: &History) {
        let part = (PART * stay).max(SHORTEST);
        if now.seconds_since(self.young[ENDED].from) < part {
            return;
        }
        let oldest = self.young[0];
        // Those of a cohort were among as many for a stay, however long each was there: whoever is there for long sees
        // more change.
        let to = (oldest.from + Duration::from_secs_f64(part + stay)).min(now);
        let in_service = history.between(oldest.from, to, now) / servers;
        if in_service > 0.0 && oldest.times.count > 0.0 {
            self.levels[level(in_service)].add(in_service, &oldest.times);
            let Times { count, ln, square } = oldest.times;
            self.untold.iter_mut().for_each(|told| told.push(peers::Times { in_service, count, ln, square }));
        }
        self.young.rotate_left(1);
        self.young[ENDED] = Cohort { from: now, times: Times::default() };
    }

    /// What was seen here since that was told last, for the others before these servers.
    pub(super) fn tell(&mut self) -> Vec<peers::Times> {
        self.untold.get_or_insert_default().drain(..).collect()
    }

    /// What others saw.
    pub(super) fn hear(&mut self, times: &[peers::Times]) {
        for &peers::Times { in_service, count, ln, square } in times {
            self.levels[level(in_service)].add(in_service, &Times { count, ln, square });
        }
    }

    /// A window ends.
    pub(super) fn clear(&mut self) {
        self.levels.fill(Level::default());
    }

    /// What is said for each of these knees; nothing of too few requests.
    pub(super) fn say(&self, knees: impl Iterator<Item = Knee>) -> Option<impl Iterator<Item = Said>> {
        let used: Vec<Level> = self.levels.iter().copied().filter(|level| level.times.count > 0.0).collect();
        let mut all = Times::default();
        used.iter().for_each(|level| all.add(&level.times));
        let total = all.count;
        if total < FEW {
            return None;
        }
        Some(knees.map(move |knee| {
            let (mut mean, mut square) = (0.0, 0.0);
            for Level { ln_in_service, times } in &used {
                let crowd = knee.ln_crowd(ln_in_service / times.count);
                mean += times.ln - times.count * crowd;
                square += times.square - 2.0 * crowd * times.ln + times.count * crowd * crowd;
            }
            let variance = (square / total - (mean / total) * (mean / total)).max(0.0) + SAME;
            Said { likelihood: -0.5 * total * libm::log(variance), variance }
        }))
    }

    /// How many requests there are to judge by.
    pub(super) fn count(&self) -> f64 {
        self.levels.iter().map(|level| level.times.count).sum()
    }
}

impl Level {
    fn add(&mut self, in_service: f64, times: &Times) {
        self.ln_in_service += times.count * libm::log(in_service);
        self.times.add(times);
    }
}

impl Times {
    fn add(&mut self, other: &Times) {
        self.count += other.count;
        self.ln += other.ln;
        self.square += other.square;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Times at a server of eight processors among 4, 8, 12, ..., 32, of costs that `cost` draws; the likeliest of 2,
    /// 4, 8, 16, and how much times differ then.
    fn likeliest(mut cost: impl FnMut(&mut Rng) -> f64) -> (usize, f64) {
        let (mut stays, mut history, mut rng) = (Stays::new(), History::new(), Rng::new(5));
        let ms = |ms: u32| Timestamp::from_millis(u64::from(ms));
        for at in (10..20_000).step_by(10) {
            let in_service = f64::from(4 + 4 * (at / 2000 % 8));
            history.pass(ms(at), in_service, 0.01, 0.2);
            // Within what is a period of one number of places, so that the mean is exact.
            if at % 2000 > 100 && at % 2000 < 1500 {
                stays.complete(ms(at), cost(&mut rng) * (in_service / 8.0).max(1.0), 1.0);
            }
            stays.pass(ms(at), 0.2, 1.0, &history);
        }
        let said = stays.say((1..5).map(|k| Knee::sharp(f64::from(1 << k)))).expect("enough");
        let said: Vec<Said> = said.collect();
        let best = (0..4).max_by(|a, b| said[*a].likelihood.total_cmp(&said[*b].likelihood)).expect("four");
        (2 << best, said[best].variance)
    }

    #[test]
    fn processors_are_those_under_which_times_differ_least() {
        let (fixed, variance) = likeliest(|_| 0.04);
        assert!(fixed == 8 && variance < 0.05, "{fixed} {variance}");
        let (even, variance) = likeliest(|rng| 0.04 * libm::exp(rng.next_f64() - 0.5));
        assert!(even == 8 && variance < 0.2, "{even} {variance}");
        let (exponential, variance) = likeliest(|rng| -0.04 * libm::log(1.0 - rng.next_f64()));
        assert!(exponential == 8 && (1.2..2.2).contains(&variance), "{exponential} {variance}");
    }

    #[test]
    fn one_number_in_service_says_nothing_and_a_few_requests_neither() {
        let (mut stays, mut history) = (Stays::new(), History::new());
        let mut pass = |stays: &mut Stays, to: u64| {
            for ms in to - 1000..to {
                history.pass(Timestamp::from_millis(ms), 4.0, 0.001, 0.05);
                stays.pass(Timestamp::from_millis(ms), 0.05, 1.0, &history);
            }
        };
        pass(&mut stays, 1100);
        (0..7).for_each(|_| stays.complete(Timestamp::from_millis(1090), 0.1, 1.0));
        pass(&mut stays, 2100);
        assert!(stays.say([Knee::sharp(1.0)].into_iter()).is_none() && stays.count() == 7.0);
        (0..20).for_each(|at| stays.complete(Timestamp::from_millis(2090), 0.1 + f64::from(at), 1.0));
        pass(&mut stays, 3100);
        let said: Vec<Said> = stays.say([Knee::sharp(1.0), Knee::sharp(20.0)].into_iter()).expect("enough").collect();
        assert!((said[0].likelihood - said[1].likelihood).abs() < 1e-6, "{said:?}");
    }
}
