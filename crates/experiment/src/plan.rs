//! The runs of an experiment: every arm with every seed, simulated several at a time, or with real HTTP one after the
//! other.
//!
//! Simulated runs share nothing, so they scale with the processors; results come in the order of arms and seeds,
//! whoever is ready first, so that the same scenario gives the same bytes whatever `jobs` is.

use std::borrow::Cow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tidegate_loadgen::Progress;
use tidegate_sim::SiteError;

use crate::configure::{self, ArmError};
use crate::measure::{Check, Measure, judge};
use crate::outcome::Outcome;
use crate::report::{ArmReport, RunReport};
use crate::scenario::{Arm, Scenario};
use crate::service::{self, Lab, Played, Running, ServiceError};

/// Why a simulation gave nothing.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SimulateError {
    /// An arm makes no sense to the engine.
    #[error(transparent)]
    Arm(#[from] ArmError),
    /// A world makes no sense to the simulator.
    #[error(transparent)]
    World(#[from] SiteError),
}

/// A live run gave nothing.
#[derive(Debug, thiserror::Error)]
#[error("{title}")]
pub struct LiveError {
    /// Which: scenario, arm and seed.
    pub title: String,
    /// Why.
    pub source: ServiceError,
}

/// Simulates every arm with every seed, `jobs` at a time, and calls `done` after each run.
///
/// # Errors
/// When the engine or the simulator does not take an arm.
pub fn simulate(
    scenario: &Scenario,
    seeds: &[u64],
    jobs: usize,
    done: impl Fn() + Sync,
) -> Result<Vec<ArmReport>, SimulateError> {
    let runs: Vec<(&Arm, u64)> =
        scenario.arms.iter().flat_map(|arm| seeds.iter().map(move |&seed| (arm, seed))).collect();
    let outcomes = in_parallel(&runs, jobs, |&(arm, seed)| {
        let outcome = Played::new(scenario, arm)?.play(seed)?;
        done();
        Ok::<_, SimulateError>(outcome)
    })?;
    Ok(reports(scenario, seeds, outcomes, true))
}

/// Plays every arm of a scenario's live form with every seed, one after the other: they would take the processors from
/// each other. `watch` is told which run is under way and how it goes, ten times a second.
///
/// # Errors
/// When a run cannot be started, or its load not be sent.
pub async fn live(
    scenario: &Scenario,
    seeds: &[u64],
    lab: &Lab,
    mut watch: impl FnMut(&str, &Progress),
) -> Result<Vec<ArmReport>, LiveError> {
    let service = service::of(&scenario.on());
    let mut outcomes = Vec::new();
    for arm in &scenario.arms {
        for &seed in seeds {
            let title = format!("{} {} seed {seed}", scenario.id, arm.name);
            let failed = |source| LiveError { title: title.clone(), source };
            let played = configure::in_arm(scenario, arm).map_err(|error| failed(error.into()))?;
            let run = service.start(&played, arm, seed, lab).map_err(failed)?;
            outcomes.push(until_done(run, |progress| watch(&title, progress)).await.map_err(failed)?);
        }
    }
    Ok(reports(scenario, seeds, outcomes, false))
}

/// Measures what came of all runs: by arm, then by seed. Arms may be compared, so all are measured at the end.
pub(crate) fn reports(scenario: &Scenario, seeds: &[u64], outcomes: Vec<Outcome>, simulated: bool) -> Vec<ArmReport> {
    let checks = |at: usize| {
        let arm = &scenario.arms[at / seeds.len()];
        // It was played, so what it sets makes sense.
        let played = scenario.for_arm(arm).unwrap_or(Cow::Borrowed(scenario));
        let runs = outcomes.chunks(seeds.len()).map(|runs| &runs[at % seeds.len()]);
        let others: Vec<(&str, &Outcome)> = scenario.arms.iter().map(|arm| arm.name.as_str()).zip(runs).collect();
        Measure::new(&played, &outcomes[at]).beside(&others).checks(arm)
    };
    let mut checks: Vec<Vec<Check>> = (0..outcomes.len()).map(checks).collect();
    for (arm, runs) in scenario.arms.iter().zip(checks.chunks_mut(seeds.len().max(1))) {
        judge(arm.expectations(scenario), runs, simulated);
    }
    let mut runs = outcomes.into_iter().zip(checks).zip(seeds.iter().cycle());
    let run = |((outcome, checks), seed): ((Outcome, Vec<Check>), &u64)| RunReport { seed: *seed, outcome, checks };
    let arm = |arm: &Arm| {
        let runs = runs.by_ref().take(seeds.len()).map(run).collect();
        ArmReport { name: arm.name.clone(), runs }
    };
    scenario.arms.iter().map(arm).collect()
}

async fn until_done(run: Box<dyn Running>, mut watch: impl FnMut(&Progress)) -> Result<Outcome, ServiceError> {
    let mut progress = run.progress();
    let mut done = run.wait();
    loop {
        tokio::select! {
            outcome = &mut done => return outcome,
            Ok(()) = progress.changed() => watch(&progress.borrow_and_update()),
        }
    }
}

/// `work` on each item, `jobs` at a time (1 at least), with results in the order of the items. After an error nothing
/// more begins.
///
/// # Errors
/// The first in the order of the items, of those that were worked on.
pub fn in_parallel<T: Sync, R: Send, E: Send>(
    items: &[T],
    jobs: usize,
    work: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let results: Vec<Mutex<Option<Result<R, E>>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    let result = work(item);
                    stop.fetch_or(result.is_err(), Ordering::Relaxed);
                    *results[at].lock().expect("nobody else has this result") = Some(result);
                }
            });
        }
    });
    // What was not begun comes after an error.
    results.into_iter().map_while(|result| result.into_inner().expect("nobody panicked with it")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items_whatever_the_jobs() {
        let items: Vec<u64> = (0..100).collect();
        for jobs in [0, 1, 3, 200] {
            let doubled = in_parallel(&items, jobs, |item| Ok::<_, ()>(item * 2));
            assert_eq!(doubled, Ok(items.iter().map(|i| i * 2).collect::<Vec<_>>()));
        }
        assert_eq!(in_parallel(&[] as &[u64], 4, |item| Ok::<_, ()>(*item)), Ok(vec![]));
    }

    #[test]
    fn after_an_error_nothing_more_begins() {
        let begun = AtomicUsize::new(0);
        let items: Vec<u64> = (0..100).collect();
        let result = in_parallel(&items, 1, |item| {
            begun.fetch_add(1, Ordering::Relaxed);
            if *item == 7 { Err("seven") } else { Ok(*item) }
        });
        assert_eq!((result, begun.load(Ordering::Relaxed)), (Err("seven"), 8));
    }
}
