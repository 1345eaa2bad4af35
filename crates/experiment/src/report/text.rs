//! The report for a terminal.

use std::fmt::Write;

use tidegate_workload::{Course, Second};

use super::{ArmReport, ExperimentReport, RunReport};
use crate::measure::Check;
use crate::scenario::Mark;

pub(super) fn render(report: &ExperimentReport) -> String {
    let scenario = &report.scenario;
    let mut text = format!("{}: {}\n", scenario.id, scenario.title);
    if !scenario.source.is_empty() {
        text += &format!("after {}\n", scenario.source);
    }
    let short = if report.short { ", short form" } else { "" };
    text += &format!("{}{short}, {} s of load\n", report.mode.name(), scenario.duration.as_secs_f64());
    for arm in &report.arms {
        text += &format!("\n== {} ==\n", arm.name);
        text += &table(report, arm);
        text += &checks(arm);
        text += &warnings(arm);
    }
    text += &verdict(report);
    text
}

/// The whole run in numbers; of several runs, their means.
fn table(report: &ExperimentReport, arm: &ArmReport) -> String {
    let header = ["", "offered/s", "admitted/s", "refused/s", "failed/s", "good/s", "admitted", "p50", "p90", "p95"];
    let mut lines = vec![header.map(str::to_owned)];
    let groups = |run: &RunReport| {
        let mut groups = run.outcome.groups();
        groups.push(("all".to_owned(), run.outcome.class(None)));
        groups
    };
    let per_run: Vec<Vec<(String, Course)>> = arm.runs.iter().map(groups).collect();
    let Some(first) = per_run.first() else { return String::new() };
    let seconds = report.scenario.duration.as_secs_f64();
    for (at, (name, _)) in first.iter().enumerate() {
        let sums: Vec<Second> = per_run.iter().map(|groups| groups[at].1.total()).collect();
        let mean = |value: &dyn Fn(&Second) -> f64| sums.iter().map(value).sum::<f64>() / sums.len() as f64;
        let rate = |count: &dyn Fn(&Second) -> u64| format!("{:.1}", mean(&|sum| count(sum) as f64) / seconds);
        let time = |q| milliseconds(mean(&|sum| sum.responses.quantile(q).unwrap_or(f64::NAN)));
        let offered = mean(&|sum| sum.offered as f64);
        lines.push([
            name.clone(),
            rate(&|sum| sum.offered),
            rate(&|sum| sum.admitted()),
            rate(&|sum| sum.refused),
            rate(&|sum| sum.failed),
            rate(&|sum| sum.good),
            format!("{:.1} %", 100.0 * mean(&|sum| sum.admitted() as f64) / offered.max(1.0)),
            time(0.50),
            time(0.90),
            time(0.95),
        ]);
    }
    aligned(&lines)
}

/// Each check with what was measured: of several runs, the range, and how many passed or, where any did, failed.
fn checks(arm: &ArmReport) -> String {
    let Some(first) = arm.runs.first().filter(|run| !run.checks.is_empty()) else { return String::new() };
    let mut text = String::new();
    for at in 0..first.checks.len() {
        let all: Vec<&Check> = arm.runs.iter().map(|run| &run.checks[at]).collect();
        let passed = all.iter().filter(|check| check.pass).count();
        let (word, count) = if passed == all.len() { ("PASS", passed) } else { ("FAIL", all.len() - passed) };
        let check = all[0];
        let times = if all.len() > 1 { format!(" in {count} of {}", all.len()) } else { String::new() };
        let mark = check.mark.map_or_else(String::new, |mark| format!("[{mark}] "));
        let (subject, metric, over, bound) = (&check.subject, check.metric, check.over, &check.bound);
        // Writing into a string cannot fail.
        let _ = writeln!(
            text,
            "{word}{times}  {mark}{}: {metric} of {subject} over {over} is {} (wanted {bound})",
            check.what,
            measured(&all)
        );
    }
    text
}

fn measured(checks: &[&Check]) -> String {
    let values: Vec<f64> = checks.iter().filter_map(|check| check.measured).collect();
    if values.len() < checks.len() {
        return "nothing: there was nothing to measure".to_owned();
    }
    let (least, most) =
        (values.iter().copied().fold(f64::MAX, f64::min), values.iter().copied().fold(f64::MIN, f64::max));
    if let Some([low, high]) = checks.first().and_then(|check| check.interval) {
        let mean = digits(values.iter().sum::<f64>() / values.len() as f64);
        let (low, high, least, most) = (digits(low), digits(high), digits(least), digits(most));
        return format!("{least}..{most}, {mean} on the mean, {low}..{high} with 95 % confidence,");
    }
    if values.len() == 1 { digits(least) } else { format!("{}..{}", digits(least), digits(most)) }
}

fn digits(value: f64) -> String {
    if value >= 100.0 { format!("{value:.1}") } else { format!("{value:.4}") }
}

fn warnings(arm: &ArmReport) -> String {
    let line = |run: &RunReport| {
        let seed = run.seed;
        run.outcome
            .warnings
            .iter()
            .map(move |warning| format!("warning (seed {seed}): {warning}\n"))
            .collect::<String>()
    };
    arm.runs.iter().map(line).collect()
}

fn verdict(report: &ExperimentReport) -> String {
    let runs = || report.arms.iter().flat_map(|arm| &arm.runs);
    let all = runs().map(|run| run.checks.len()).sum::<usize>();
    let failed = runs().flat_map(|run| &run.checks).filter(|check| !check.pass).count();
    let marks = marks(report);
    match failed {
        0 => format!("\n{} PASS: {all} checks{marks}\n", report.scenario.id),
        _ => format!("\n{} FAIL: {failed} of {all} checks missed{marks}\n", report.scenario.id),
    }
}

/// How many checks are evidence of what, of the first runs; nothing where no check says.
fn marks(report: &ExperimentReport) -> String {
    let checks = || report.arms.iter().filter_map(|arm| arm.runs.first()).flat_map(|run| &run.checks);
    let count = |mark: Mark| checks().filter(|check| check.mark == Some(mark)).count();
    if checks().all(|check| check.mark.is_none()) {
        return String::new();
    }
    let (paper, ours, finding) = (count(Mark::Paper), count(Mark::Ours), count(Mark::Finding));
    format!("; {paper} as the paper, {ours} ours beyond it, {finding} known misses")
}

fn milliseconds(seconds: f64) -> String {
    if seconds.is_nan() { "-".to_owned() } else { format!("{:.0} ms", seconds * 1e3) }
}

/// Columns, the first to the left, the others to the right.
fn aligned<const N: usize>(lines: &[[String; N]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let cell = |(column, text): (usize, &String)| match column {
        0 => format!("{text:<0$}", widths[0]),
        _ => format!("  {text:>0$}", widths[column]),
    };
    lines.iter().map(|line| line.iter().enumerate().map(cell).collect::<String>() + "\n").collect()
}
