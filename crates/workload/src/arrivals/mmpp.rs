//! Markov-modulated Poisson: a chain of states, each with a rate of its own, in each of which the process stays for an
//! exponential time. Two states, calm and busy, make the bursts of measured traffic.
//!
//! *Source.* W. Fischer and K. Meier-Hellstern, *The Markov-modulated Poisson process (MMPP) cookbook* (1993).
//! *Awkward cases.* States last seconds while the profile counts arrivals, so the next arrival is looked for stretch by
//! stretch: to the end of the state or of the piece of the profile, whichever comes first. After a silence of many
//! sojourns the state is drawn anew from its long-run distribution instead of being followed through all of them.

use std::time::Duration;

use rand::RngExt;
use rand_distr::{Distribution as _, Exp1};
use serde::{Deserialize, Serialize};

use super::config::ProcessError;
use crate::Rng;
use crate::intern::Pool;
use crate::profile::Piece;
use crate::seconds::Seconds;

/// A chain of states, checked.
#[derive(Debug, PartialEq)]
pub struct Mmpp {
    pub(super) states: Vec<MmppState>,
    /// Row i: where it goes from state i, with which probability.
    pub(super) transitions: Vec<Vec<f64>>,
    /// Share of the time in each state, in the long run.
    shares: Vec<f64>,
    /// What the rate of the profile is multiplied by in each state; 1 on average over time.
    factors: Vec<f64>,
}

/// One state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MmppState {
    /// Rate in this state, relative to that of the others.
    pub rate: f64,
    /// Mean time it stays.
    #[serde(with = "sojourn")]
    pub sojourn: Duration,
}

static CHAINS: Pool<Mmpp> = Pool::new();

const MOST_STATES: usize = 64;

/// After a silence of this many mean sojourns the state is drawn anew.
const FORGOTTEN: f64 = 1000.0;

impl Mmpp {
    pub(super) fn new(
        states: Vec<MmppState>,
        transitions: Option<Vec<Vec<f64>>>,
    ) -> Result<&'static Mmpp, ProcessError> {
        let error = |place: String, problem| Err(ProcessError::Mmpp { place, problem });
        if states.is_empty() || states.len() > MOST_STATES {
            return error("states".to_owned(), "give 1 to 64 of them");
        }
        for (at, state) in states.iter().enumerate() {
            if !(state.rate.is_finite() && state.rate >= 0.0) {
                return error(format!("states[{at}]"), "its `rate` must be a finite number, 0 or more");
            }
            if state.sojourn < Duration::from_micros(1) {
                return error(format!("states[{at}]"), "its `sojourn` must be at least 1us");
            }
        }
        let transitions = match transitions {
            None => evenly(states.len()),
            Some(rows) => checked(rows, states.len())?,
        };
        let shares = long_run(&states, &transitions);
        let mean: f64 = states.iter().zip(&shares).map(|(state, share)| state.rate * share).sum();
        if mean <= 0.0 || !mean.is_finite() {
            return error("states".to_owned(), "at least one state must have a rate above 0");
        }
        let factors = states.iter().map(|state| state.rate / mean).collect();
        Ok(CHAINS.keep(Mmpp { states, transitions, shares, factors }))
    }

    /// The states, with their rates as they were given.
    pub fn states(&self) -> &[MmppState] {
        &self.states
    }

    /// The share of time that each state has in the long run.
    pub fn shares(&self) -> &[f64] {
        &self.shares
    }

    fn mean_sojourn(&self) -> f64 {
        self.states.iter().map(|state| state.sojourn.as_secs_f64()).sum::<f64>() / self.states.len() as f64
    }
}

/// Where a process is in its chain.
#[derive(Debug, Clone)]
pub(super) struct Modulation {
    chain: &'static Mmpp,
    state: usize,
    /// When it leaves the state, seconds since the start.
    until: f64,
}

impl Modulation {
    pub(super) fn start(chain: &'static Mmpp, rng: &mut Rng) -> Modulation {
        let mut modulation = Modulation { chain, state: 0, until: 0.0 };
        modulation.draw_anew(0.0, rng);
        modulation
    }

    /// Goes on by `gap` expected arrivals of the modulated process: moves `count`, which counts those of the profile
    /// from the start of the last of the `remaining` pieces.
    pub(super) fn go_on(&mut self, mut gap: f64, count: &mut f64, remaining: &mut Vec<Piece>, rng: &mut Rng) {
        while let Some(piece) = remaining.last() {
            let area = piece.area();
            if *count >= area {
                *count -= area;
                remaining.pop();
                continue;
            }
            let now = piece.instant_of(*count).max(piece.start);
            self.catch_up(now, rng);
            let end = area.min(piece.area_until(self.until)).max(*count);
            let stretch = (end - *count) * self.chain.factors[self.state];
            if gap < stretch {
                *count += gap / self.chain.factors[self.state];
                return;
            }
            gap -= stretch;
            *count = end;
            if end < area {
                self.leave(rng);
            }
        }
    }

    /// Makes the state the one at `now`.
    fn catch_up(&mut self, now: f64, rng: &mut Rng) {
        if now - self.until > FORGOTTEN * self.chain.mean_sojourn() {
            self.draw_anew(now, rng);
        }
        while self.until < now {
            self.leave(rng);
        }
    }

    fn leave(&mut self, rng: &mut Rng) {
        self.state = pick(&self.chain.transitions[self.state], rng);
        self.stay(self.until, rng);
    }

    fn draw_anew(&mut self, now: f64, rng: &mut Rng) {
        self.state = pick(&self.chain.shares, rng);
        self.stay(now, rng);
    }

    fn stay(&mut self, from: f64, rng: &mut Rng) {
        let unit: f64 = Exp1.sample(rng);
        self.until = from + unit * self.chain.states[self.state].sojourn.as_secs_f64();
    }
}

/// From each state to each other one with equal probability.
fn evenly(count: usize) -> Vec<Vec<f64>> {
    let chance = |from: usize, to: usize| match count {
        1 => 1.0,
        _ if from == to => 0.0,
        _ => 1.0 / (count - 1) as f64,
    };
    (0..count).map(|from| (0..count).map(|to| chance(from, to)).collect()).collect()
}

fn checked(mut rows: Vec<Vec<f64>>, count: usize) -> Result<Vec<Vec<f64>>, ProcessError> {
    let error = |place: String, problem| Err(ProcessError::Mmpp { place, problem });
    if rows.len() != count || rows.iter().any(|row| row.len() != count) {
        return error("transitions".to_owned(), "give one row for each state, with one probability for each state");
    }
    for (at, row) in rows.iter_mut().enumerate() {
        let sum: f64 = row.iter().sum();
        if row.iter().any(|chance| !(0.0..=1.0).contains(chance)) || (sum - 1.0).abs() > 1e-6 {
            return error(format!("transitions[{at}]"), "its probabilities must be 0 to 1 and add up to 1");
        }
        row.iter_mut().for_each(|chance| *chance /= sum);
    }
    match (0..count).all(|from| reaches_all(&rows, from)) {
        true => Ok(rows),
        false => error("transitions".to_owned(), "every state must lead to every other, if by way of others"),
    }
}

fn reaches_all(rows: &[Vec<f64>], from: usize) -> bool {
    let mut reached = vec![false; rows.len()];
    let mut open = vec![from];
    while let Some(state) = open.pop() {
        if !std::mem::replace(&mut reached[state], true) {
            open.extend((0..rows.len()).filter(|&to| rows[state][to] > 0.0));
        }
    }
    reached.iter().all(|reached| *reached)
}

/// The share of time in each state. Half of every step stays where it is: that changes no share and makes a chain
/// converge that goes round in a circle.
fn long_run(states: &[MmppState], transitions: &[Vec<f64>]) -> Vec<f64> {
    let count = states.len();
    let mut visits = vec![1.0 / count as f64; count];
    for _ in 0..100_000 {
        let step = |to: usize| {
            visits[to] / 2.0 + (0..count).map(|from| visits[from] * transitions[from][to]).sum::<f64>() / 2.0
        };
        let next: Vec<f64> = (0..count).map(step).collect();
        let moved: f64 = next.iter().zip(&visits).map(|(a, b)| (a - b).abs()).sum();
        visits = next;
        if moved < 1e-15 {
            break;
        }
    }
    let times: Vec<f64> = visits.iter().zip(states).map(|(v, state)| v * state.sojourn.as_secs_f64()).collect();
    let sum: f64 = times.iter().sum();
    times.into_iter().map(|time| time / sum).collect()
}

fn pick(chances: &[f64], rng: &mut Rng) -> usize {
    let mut left: f64 = rng.random();
    for (at, chance) in chances.iter().enumerate() {
        left -= chance;
        if left < 0.0 {
            return at;
        }
    }
    // Rounding: the last that can be.
    chances.iter().rposition(|chance| *chance > 0.0).unwrap_or(0)
}

/// Durations as text, so that they read back exactly.
mod sojourn {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::Seconds;

    pub(super) fn serialize<S: Serializer>(sojourn: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(sojourn.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let seconds = Seconds::deserialize(deserializer)?.0;
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| D::Error::custom(format!("{seconds} is no duration: give 0 s or more")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(rate: f64, seconds: f64) -> MmppState {
        MmppState { rate, sojourn: Duration::from_secs_f64(seconds) }
    }

    #[test]
    fn shares_of_time_in_the_long_run() {
        let two = Mmpp::new(vec![state(1.0, 3.0), state(5.0, 1.0)], None).unwrap();
        assert!((two.shares()[0] - 0.75).abs() < 1e-9);
        assert!((two.factors[1] - 2.5).abs() < 1e-9);
        let circle = vec![vec![0.0, 1.0, 0.0], vec![0.0, 0.0, 1.0], vec![1.0, 0.0, 0.0]];
        let three = Mmpp::new(vec![state(1.0, 1.0), state(1.0, 2.0), state(1.0, 5.0)], Some(circle)).unwrap();
        assert!(three.shares().iter().zip([0.125, 0.25, 0.625]).all(|(a, b)| (a - b).abs() < 1e-9));
    }

    #[test]
    fn transitions_that_make_no_sense() {
        let states = || vec![state(1.0, 1.0), state(2.0, 1.0)];
        for (rows, part) in [
            (vec![vec![0.0, 1.0]], "one row for each state"),
            (vec![vec![0.0, 0.5], vec![1.0, 0.0]], "transitions[0]"),
            (vec![vec![1.0, 0.0], vec![1.0, 0.0]], "lead to every other"),
        ] {
            let said = Mmpp::new(states(), Some(rows)).unwrap_err().to_string();
            assert!(said.contains(part), "{said}");
        }
    }
}
