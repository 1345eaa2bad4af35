//! Progress of an experiment's runs on the terminal.

use std::io::{Write, stderr};

use anyhow::{Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use tidegate_experiment::plan;
use tidegate_experiment::report::ArmReport;
use tidegate_experiment::scenario::Scenario;
use tidegate_experiment::service::Lab;
use tidegate_loadgen::Progress;

/// Every arm with every seed in the simulator, several at a time.
pub(super) fn simulate(scenario: &Scenario, seeds: &[u64], jobs: usize) -> Result<Vec<ArmReport>> {
    let bar = bar((scenario.arms.len() * seeds.len()) as u64, "{pos} of {len} runs");
    bar.set_message(scenario.id.clone());
    let arms = plan::simulate(scenario, seeds, jobs, || bar.inc(1));
    bar.finish_and_clear();
    Ok(arms?)
}

/// Every arm with every seed on real HTTP. Interrupted, the experiment is over: half a run shows nothing.
pub(super) fn live(scenario: &Scenario, seeds: &[u64], lab: &Lab) -> Result<Vec<ArmReport>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let bar = bar(scenario.duration.as_secs(), "{pos} of {len} s");
    let arms = runtime.block_on(async {
        tokio::select! {
            arms = plan::live(scenario, seeds, lab, |title, progress| show(&bar, title, progress)) => Ok(arms?),
            _ = tokio::signal::ctrl_c() => Err(anyhow!("{}: interrupted", scenario.id)),
        }
    });
    bar.finish_and_clear();
    arms
}

fn show(bar: &ProgressBar, title: &str, progress: &Progress) {
    bar.set_length(progress.duration.as_secs());
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
