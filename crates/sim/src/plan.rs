//! Many runs: every combination of a sweep, every arm and every seed, several at a time.
//!
//! Runs share nothing, so they scale with the processors; results come in the order of the plan, whoever is ready
//! first, so that the same plan gives the same bytes whatever `jobs` is.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_workload::outcome::{Check, Measure, Outcome};
use tidegate_workload::scenario::{Point, Scenario, ScenarioError};

use crate::scenario::{ArmError, Played};
use crate::site::SiteError;

/// What is to be run.
#[derive(Debug, Clone)]
pub struct Plan {
    points: Vec<Point>,
    seeds: Vec<u64>,
    /// Point, arm, seed: in the order of results.
    runs: Vec<(usize, usize, u64, Played)>,
}

/// One run of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedRun {
    /// Which of the sweep's combinations.
    pub point: usize,
    /// Which arm of the scenario.
    pub arm: usize,
    /// Its seed.
    pub seed: u64,
    /// What came of it.
    pub outcome: Outcome,
    /// Whether it shows what it must.
    pub checks: Vec<Check>,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A combination of the sweep makes no sense.
    #[error(transparent)]
    Sweep(#[from] ScenarioError),
    /// An arm makes no sense to the engine.
    #[error(transparent)]
    Arm(#[from] ArmError),
}

impl Plan {
    /// Every combination, arm and seed of a scenario. Everything is tried before the first run, so that a slip in the
    /// last does not cost the time of the others.
    ///
    /// # Errors
    /// When a combination or an arm makes no sense.
    pub fn new(scenario: &Scenario, seeds: &[u64]) -> Result<Plan, PlanError> {
        let points = scenario.points()?;
        let mut runs = Vec::new();
        for (at, point) in points.iter().enumerate() {
            for (number, arm) in point.scenario.arms.iter().enumerate() {
                let played = Played::new(&point.scenario, arm)?;
                runs.extend(seeds.iter().map(|&seed| (at, number, seed, played.clone())));
            }
        }
        Ok(Plan { points, seeds: seeds.to_vec(), runs })
    }

    /// The combinations; one without settings, where the scenario has no sweep.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The seeds of each arm.
    pub fn seeds(&self) -> &[u64] {
        &self.seeds
    }

    /// How many runs there are.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Plays all runs, `jobs` at a time, and calls `done` after each. Results are in the order of points, arms and
    /// seeds.
    ///
    /// # Errors
    /// The first that the engine does not take.
    pub fn play(&self, jobs: usize, done: impl Fn() + Sync) -> Result<Vec<PlannedRun>, SiteError> {
        in_parallel(&self.runs, jobs, |(point, arm, seed, played)| {
            let outcome = played.play(*seed)?;
            let scenario = &self.points[*point].scenario;
            let checks = Measure::new(scenario, &outcome).checks(&scenario.arms[*arm]);
            done();
            Ok(PlannedRun { point: *point, arm: *arm, seed: *seed, outcome, checks })
        })
        .into_iter()
        .collect()
    }
}

/// `work` on each item, `jobs` at a time (1 at least), with results in the order of the items.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], jobs: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    *results[at].lock().expect("nobody else has this result") = Some(work(item));
                }
            });
        }
    });
    let taken =
        |result: Mutex<Option<R>>| result.into_inner().expect("nobody panicked with it").expect("each was done");
    results.into_iter().map(taken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items_whatever_the_jobs() {
        let items: Vec<u64> = (0..100).collect();
        for jobs in [0, 1, 3, 200] {
            assert_eq!(in_parallel(&items, jobs, |item| item * 2), items.iter().map(|i| i * 2).collect::<Vec<_>>());
        }
        assert!(in_parallel(&[] as &[u64], 4, |item| *item).is_empty());
    }
}
