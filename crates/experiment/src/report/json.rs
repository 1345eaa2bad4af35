//! The report as JSON: for programs that read on.

use serde::Serialize;
use tidegate_workload::{Course, Row};

use super::{ArmReport, ExperimentReport, RunReport};
use crate::measure::Check;

#[derive(Serialize)]
struct Experiment<'a> {
    id: &'a str,
    title: &'a str,
    source: &'a str,
    mode: &'static str,
    short: bool,
    duration_s: f64,
    pass: bool,
    arms: Vec<ArmView<'a>>,
}

#[derive(Serialize)]
struct ArmView<'a> {
    name: &'a str,
    pass: bool,
    runs: Vec<Run<'a>>,
}

#[derive(Serialize)]
struct Run<'a> {
    seed: u64,
    pass: bool,
    checks: &'a [Check],
    warnings: &'a [String],
    /// The whole run, by class (or load).
    totals: Vec<Group>,
    /// The course of the run, in columns.
    seconds: Vec<Columns>,
    notes: &'a [(f64, String)],
}

#[derive(Serialize)]
struct Group {
    name: String,
    #[serde(flatten)]
    row: Row,
}

/// One value per second and column.
#[derive(Serialize)]
struct Columns {
    name: String,
    offered: Vec<u64>,
    admitted: Vec<u64>,
    refused: Vec<u64>,
    failed: Vec<u64>,
    good: Vec<u64>,
    p50: Vec<Option<f64>>,
    p95: Vec<Option<f64>>,
}

pub(super) fn render(report: &ExperimentReport) -> String {
    let view = Experiment {
        id: &report.scenario.id,
        title: &report.scenario.title,
        source: &report.scenario.source,
        mode: report.mode.name(),
        short: report.short,
        duration_s: report.scenario.duration.as_secs_f64(),
        pass: report.pass(),
        arms: report.arms.iter().map(arm).collect(),
    };
    let text = serde_json::to_string_pretty(&view).expect("plain numbers and text can be written as JSON");
    on_one_line(&text) + "\n"
}

fn arm(arm: &ArmReport) -> ArmView<'_> {
    ArmView { name: &arm.name, pass: arm.pass(), runs: arm.runs.iter().map(run).collect() }
}

fn run(run: &RunReport) -> Run<'_> {
    let mut groups = run.outcome.groups();
    groups.push(("all".to_owned(), run.outcome.class(None)));
    Run {
        seed: run.seed,
        pass: run.pass(),
        checks: &run.checks,
        warnings: &run.outcome.warnings,
        totals: groups.iter().map(|(name, course)| Group { name: name.clone(), row: course.total().row() }).collect(),
        seconds: groups.into_iter().map(columns).collect(),
        notes: &run.outcome.notes,
    }
}

fn columns((name, course): (String, Course)) -> Columns {
    let rows: Vec<Row> = course.seconds().iter().map(|second| second.row()).collect();
    // A thousandth of a millisecond is more than anyone measures.
    let time = |time: Option<f64>| time.map(|time| (time * 1e6).round() / 1e6);
    Columns {
        name,
        offered: rows.iter().map(|row| row.offered).collect(),
        admitted: rows.iter().map(|row| row.admitted).collect(),
        refused: rows.iter().map(|row| row.refused).collect(),
        failed: rows.iter().map(|row| row.failed).collect(),
        good: rows.iter().map(|row| row.good).collect(),
        p50: rows.iter().map(|row| time(row.p50)).collect(),
        p95: rows.iter().map(|row| time(row.p95)).collect(),
    }
}

/// Puts each list of plain numbers on one line, or a run of 400 s would take thousands.
fn on_one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        out.push_str(line);
        let plain = |line: &&str| {
            let value = line.trim().trim_end_matches(',');
            value == "null" || value.parse::<f64>().is_ok()
        };
        if line.ends_with('[') && lines.peek().is_some_and(&plain) {
            while let Some(value) = lines.next_if(plain) {
                out.push_str(value.trim());
            }
            out.push_str(lines.next().unwrap_or_default().trim());
        }
        out.push('\n');
    }
    out.pop();
    out
}
