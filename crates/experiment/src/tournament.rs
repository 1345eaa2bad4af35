//! The tournament: every policy in every arena, against what is possible there and against rivals with tuned knobs.
//!
//! | question | file |
//! |---|---|
//! | what is an arena, and what could be answered there? | `arena.rs` |
//! | which arenas are there? | `arenas.rs` |
//! | who takes part, with which knobs? | `contestants.rs` |
//! | what is a run worth? | `score.rs` |
//! | how is it written down? | `table.rs` |
//!
//! Knobs are chosen on training seeds, for each arena anew: a rival is as good as somebody could make it who knows the
//! arena, and who is told nothing must be as good. What is reported is judged on other seeds.

mod arena;
mod arenas;
mod contestants;
mod score;
mod table;

use serde::Serialize;
use tidegate_engine::SetupError;

pub use arena::{Arena, Ideal, Load};
pub use arenas::{drawn, known};
pub use contestants::{Contestant, DEFAULT, Knob, contestant};
pub use score::Score;

use crate::plan::in_parallel;

/// What is played.
#[derive(Clone, Debug)]
pub struct Tournament {
    /// Where.
    pub arenas: Vec<Arena>,
    /// Who, by names of admission policies.
    pub policies: Vec<String>,
    /// Seeds on which knobs are chosen.
    pub training: Vec<u64>,
    /// Seeds on which is judged.
    pub judging: Vec<u64>,
}

/// Why nothing was played.
#[derive(Debug, thiserror::Error)]
pub enum TournamentError {
    /// A policy is not in the table.
    #[error("there is no admission policy `{0}`: `tidegate check --help` and docs/policies.md list them")]
    Policy(String),
    /// A seed would be used for both.
    #[error("seed {0} is used to choose knobs and to judge: take others for one of the two")]
    Seeds(u64),
    /// The engine does not take an arena.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// By arena.
    pub arenas: Vec<ArenaResult>,
    /// By policy, over all arenas.
    pub summary: Vec<Summary>,
}

/// An arena's results.
#[derive(Clone, Debug, Serialize)]
pub struct ArenaResult {
    /// Its name.
    pub arena: String,
    /// By policy, in the order of [`Tournament::policies`].
    pub entries: Vec<Entry>,
}

/// A policy in an arena.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Which.
    pub policy: String,
    /// The setting that was best in training; empty where there is nothing to set.
    pub knob: String,
    /// On average over the judging seeds.
    #[serde(flatten)]
    pub score: Score,
    /// The least goodput with one of the seeds.
    pub worst: f64,
    /// What it has less than the best there, as goodput; 0 of the best.
    pub regret: f64,
}

/// A policy over all arenas.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Which.
    pub policy: String,
    /// Goodput: its median, and the least.
    pub median: f64,
    /// The same.
    pub least: f64,
    /// Regret: its mean, and the largest.
    pub mean_regret: f64,
    /// The same.
    pub largest_regret: f64,
    /// Median of the 95th percentiles, over the target.
    pub p95: f64,
    /// Arenas in which the target is missed.
    pub missed: usize,
}

impl Tournament {
    /// Plays it, `jobs` runs at a time, and calls `done` after each.
    ///
    /// # Errors
    /// When a policy is not there, or a seed is used twice.
    pub fn play(&self, jobs: usize, done: impl Fn() + Sync) -> Result<Results, TournamentError> {
        if let Some(seed) = self.judging.iter().find(|seed| self.training.contains(seed)) {
            return Err(TournamentError::Seeds(*seed));
        }
        let pairs: Vec<(&Arena, &String)> =
            self.arenas.iter().flat_map(|arena| self.policies.iter().map(move |policy| (arena, policy))).collect();
        let entries = in_parallel(&pairs, jobs, |(arena, policy)| self.entry(arena, policy, &done))?;
        let mut entries = entries.into_iter();
        let arena = |arena: &Arena| {
            let entries = entries.by_ref().take(self.policies.len()).collect();
            ArenaResult { arena: arena.name.clone(), entries: with_regret(entries) }
        };
        let arenas: Vec<ArenaResult> = self.arenas.iter().map(arena).collect();
        let summary = self.policies.iter().enumerate().map(|(at, policy)| summary(policy, at, &arenas)).collect();
        Ok(Results { arenas, summary })
    }

    /// How many runs there are.
    pub fn runs(&self) -> usize {
        let of = |arena: &Arena, policy: &String| {
            let knobs = contestant(policy, arena).map_or(1, |contestant| contestant.knobs.len());
            self.judging.len() + if knobs > 1 { knobs * self.training.len() } else { 0 }
        };
        self.arenas.iter().flat_map(|arena| self.policies.iter().map(move |policy| of(arena, policy))).sum()
    }

    fn entry(&self, arena: &Arena, policy: &str, done: &(impl Fn() + Sync)) -> Result<Entry, TournamentError> {
        let Some(Contestant { mut knobs, .. }) = contestant(policy, arena) else {
            return Err(TournamentError::Policy(policy.into()));
        };
        let ideal = arena.ideal();
        let play = |knob: &Knob, seeds: &[u64]| -> Result<Vec<Score>, TournamentError> {
            let world = arena.world(knob.policy.clone());
            let run = |seed: &u64| {
                let score = Score::of(arena, &ideal, &world.run(*seed)?);
                done();
                Ok(score)
            };
            seeds.iter().map(run).collect()
        };
        let mut best = (0, f64::NEG_INFINITY);
        if knobs.len() > 1 {
            for (at, knob) in knobs.iter().enumerate() {
                let value = value(&Score::mean(&play(knob, &self.training)?));
                if value > best.1 {
                    best = (at, value);
                }
            }
        }
        let knob = knobs.swap_remove(best.0);
        let scores = play(&knob, &self.judging)?;
        let worst = scores.iter().map(|score| score.goodput).fold(f64::INFINITY, f64::min);
        Ok(Entry { policy: policy.into(), knob: knob.text, score: Score::mean(&scores), worst, regret: 0.0 })
    }
}

impl Results {
    /// As tables in Markdown.
    pub fn to_text(&self) -> String {
        table::text(self)
    }
}

/// What somebody wants who tunes: goodput, if the target is held; else to come near it.
fn value(score: &Score) -> f64 {
    if score.holds() { score.goodput } else { -score.p95 }
}

/// What everybody has less than the best of those who hold the target; or of all, where nobody does.
fn with_regret(mut entries: Vec<Entry>) -> Vec<Entry> {
    let anybody_holds = entries.iter().any(|entry| entry.score.holds());
    let counts = entries.iter().filter(|entry| entry.score.holds() || !anybody_holds);
    let best = counts.map(|entry| entry.score.goodput).fold(f64::NEG_INFINITY, f64::max);
    entries.iter_mut().for_each(|entry| entry.regret = (best - entry.score.goodput).max(0.0));
    entries
}

fn summary(policy: &str, at: usize, arenas: &[ArenaResult]) -> Summary {
    let entries: Vec<&Entry> = arenas.iter().map(|arena| &arena.entries[at]).collect();
    let sorted = |of: fn(&Entry) -> f64| {
        let mut values: Vec<f64> = entries.iter().map(|entry| of(entry)).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let (goodput, regret, p95) =
        (sorted(|entry| entry.score.goodput), sorted(|entry| entry.regret), sorted(|entry| entry.score.p95));
    let median = |values: &[f64]| values.get(values.len() / 2).copied().unwrap_or(0.0);
    Summary {
        policy: policy.into(),
        median: median(&goodput),
        least: goodput.first().copied().unwrap_or(0.0),
        mean_regret: regret.iter().sum::<f64>() / regret.len().max(1) as f64,
        largest_regret: regret.last().copied().unwrap_or(0.0),
        p95: median(&p95),
        missed: entries.iter().filter(|entry| !entry.score.holds()).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(policies: &[&str], training: Vec<u64>) -> Tournament {
        let arena = Arena::four("2x", "0s:80/s, 4s:200/s", 12, 4);
        let policies = policies.iter().map(|policy| String::from(*policy)).collect();
        Tournament { arenas: vec![arena], policies, training, judging: vec![101, 102] }
    }

    #[test]
    fn a_tuned_limit_beats_none_at_all_and_knows_its_knob() {
        let tournament = short(&["none", "concurrency"], vec![1]);
        let results = tournament.play(2, || {}).expect("it can be played");
        let [none, tuned] = &results.arenas[0].entries[..] else { panic!("two policies") };
        assert!(tuned.score.goodput > 0.85 && tuned.score.holds() && !tuned.knob.is_empty(), "{tuned:?}");
        assert!(none.score.goodput < 0.5 && !none.score.holds() && none.regret > 0.3, "{none:?}");
        assert_eq!((results.summary[0].missed, results.summary[1].missed), (1, 0));
        let again = tournament.play(1, || {}).expect("it can be played");
        assert_eq!(serde_json::to_string(&again).ok(), serde_json::to_string(&results).ok(), "whatever the jobs");
        assert!(results.to_text().contains("| 2x |"), "{}", results.to_text());
    }

    #[test]
    fn who_is_unknown_and_seeds_that_are_used_twice_are_refused() {
        let unknown = short(&["nobody"], vec![1]).play(1, || {}).expect_err("there is no such policy");
        assert!(unknown.to_string().contains("nobody"));
        let twice = short(&["none"], vec![102]).play(1, || {}).expect_err("102 is for judging");
        assert!(twice.to_string().contains("102"));
    }
}
