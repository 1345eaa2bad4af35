//! Runs of a scenario: simulated, several at a time, or with real HTTP, one after the other.

use std::io::{Write, stderr};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use tidegate_loadgen::Progress;
use tidegate_sim::Played;
use tidegate_testbed::report::{ArmReport, RunReport};
use tidegate_testbed::{LiveRun, MailRun, ProvisionRun, StealingRun};
use tidegate_workload::outcome::Outcome;
use tidegate_workload::scenario::{Arm, Scenario};
use tokio::sync::watch::Receiver;

/// Every arm with every seed, several at a time. The order of the results does not depend on who is ready first.
pub(super) fn simulate(scenario: &Scenario, seeds: &[u64], jobs: usize) -> Result<Vec<ArmReport>> {
    let tasks: Vec<(&Arm, u64)> =
        scenario.arms.iter().flat_map(|arm| seeds.iter().map(move |&seed| (arm, seed))).collect();
    let results: Mutex<Vec<Option<Result<RunReport>>>> = Mutex::new(tasks.iter().map(|_| None).collect());
    let (next, bar) = (AtomicUsize::new(0), bar(tasks.len() as u64, "{pos} of {len} runs"));
    bar.set_message(scenario.id.clone());
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(tasks.len()) {
            scope.spawn(|| {
                while let Some((at, (arm, seed))) = take(&next, &tasks) {
                    let result = simulate_one(scenario, arm, *seed);
                    results.lock().expect("no run panics while it holds the results")[at] = Some(result);
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let results = results.into_inner().expect("no run panics while it holds the results");
    let mut runs = results.into_iter().flatten();
    let mut arm = |arm: &Arm| {
        Ok(ArmReport { name: arm.name.clone(), runs: runs.by_ref().take(seeds.len()).collect::<Result<_>>()? })
    };
    scenario.arms.iter().map(&mut arm).collect()
}

fn take<'t, T>(next: &AtomicUsize, tasks: &'t [T]) -> Option<(usize, &'t T)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    tasks.get(at).map(|task| (at, task))
}

fn simulate_one(scenario: &Scenario, arm: &Arm, seed: u64) -> Result<RunReport> {
    let outcome = Played::new(scenario, arm)?.play(seed)?;
    Ok(RunReport::new(scenario, arm, seed, outcome))
}

/// The programs of a live run: that of the mail service, and where their data goes.
pub(super) struct Mail<'a> {
    pub(super) program: &'a Path,
    pub(super) folder: &'a Path,
}

/// Every arm with every seed, one after the other: they would take the processors from each other.
pub(super) fn live(scenario: &Scenario, seeds: &[u64], mail: &Mail<'_>) -> Result<Vec<ArmReport>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut arms = Vec::new();
    for arm in &scenario.arms {
        let mut runs = Vec::new();
        for &seed in seeds {
            let title = format!("{} {} seed {seed}", scenario.id, arm.name);
            let outcome = match (scenario.mail(), scenario.stealing()) {
                _ if scenario.control().is_some() => {
                    let program = std::env::current_exe()?;
                    let folder = mail.folder.join(&arm.name);
                    let run = ProvisionRun::start(scenario, arm, seed, &program, &folder);
                    let run = run.with_context(|| title.clone())?;
                    let progress = run.progress();
                    runtime.block_on(watch(run.wait(), progress, &title))?
                }
                (_, Some(_)) => {
                    let program = std::env::current_exe()?;
                    let run = StealingRun::start(scenario, arm, seed, &program, mail.folder);
                    let run = run.with_context(|| title.clone())?;
                    let progress = run.progress();
                    runtime.block_on(watch(run.wait(), progress, &title))?
                }
                (Some(_), _) => {
                    let run = MailRun::start(scenario, arm, seed, mail.program, mail.folder);
                    let run = run.with_context(|| title.clone())?;
                    let progress = run.progress();
                    runtime.block_on(watch(run.wait(), progress, &title))?
                }
                (None, None) => {
                    let run = LiveRun::start(scenario, arm, seed).with_context(|| title.clone())?;
                    let progress = run.progress();
                    runtime.block_on(watch(run.wait(), progress, &title))?
                }
            };
            runs.push(RunReport::new(scenario, arm, seed, outcome));
        }
        arms.push(ArmReport { name: arm.name.clone(), runs });
    }
    Ok(arms)
}

/// Shows a live run until it is over. Interrupted, the experiment is over: half a run shows nothing.
async fn watch<E: Into<anyhow::Error>>(
    run: impl Future<Output = Result<Outcome, E>>,
    mut progress: Receiver<Progress>,
    title: &str,
) -> Result<Outcome> {
    let bar = bar(progress.borrow().duration.as_secs(), "{pos} of {len} s");
    let mut done = std::pin::pin!(run);
    loop {
        tokio::select! {
            outcome = &mut done => {
                bar.finish_and_clear();
                return outcome.map_err(Into::into);
            }
            _ = tokio::signal::ctrl_c() => {
                bar.finish_and_clear();
                return Err(anyhow!("{title}: interrupted"));
            }
            Ok(()) = progress.changed() => show(&bar, title, &progress.borrow_and_update()),
        }
    }
}

fn show(bar: &ProgressBar, title: &str, progress: &Progress) {
    bar.set_position(progress.elapsed.as_secs());
    let class = |class: &tidegate_loadgen::ClassProgress| {
        format!("{} {:.0} of {:.0}/s", class.class, class.recent.admitted_per_s, class.recent.offered_per_s)
    };
    let classes: Vec<String> = progress.classes.iter().map(class).collect();
    let slowest = progress.classes.iter().filter_map(|class| class.recent.p95).fold(0.0, f64::max);
    bar.set_message(format!("{title}: {}; p95 {:.0} ms", classes.join(", "), slowest * 1e3));
}

fn bar(length: u64, count: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(&format!("{{elapsed:>4}} [{{bar:30}}] {count}  {{msg}}"));
    // Without a terminal the bar is silent; the reports say everything anyway.
    let _ = stderr().flush();
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
