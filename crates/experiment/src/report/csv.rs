//! Every second of every run, one line each.

use std::fmt::{Arguments, Write};

use super::{ExperimentReport, RunReport};

/// What came of the requests of each class, load and type that arrived in a second.
pub(super) fn render(report: &ExperimentReport) -> String {
    lines(report, "group,second,offered,admitted,refused,failed,good,p50_s,p95_s", |run, line| {
        for (group, course) in run.outcome.groups() {
            for (second, counted) in course.seconds().iter().enumerate() {
                let row = counted.row();
                let time = |time: Option<f64>| time.map_or(String::new(), |time| format!("{time:.6}"));
                let (p50, p95) = (time(row.p50), time(row.p95));
                line(format_args!(
                    "{group},{second},{},{},{},{},{},{p50},{p95}",
                    row.offered, row.admitted, row.refused, row.failed, row.good
                ));
            }
        }
    })
}

/// What response-time controllers did.
pub(super) fn controls(report: &ExperimentReport) -> String {
    lines(report, "second,request,class,rate,percentile_s,quality", |run, line| {
        for at in &run.outcome.controls {
            let number = |number: Option<f64>| number.map_or(String::new(), |number| format!("{number:.4}"));
            let (rate, percentile) = (number(at.rate), number(at.percentile));
            line(format_args!("{},{},{},{rate},{percentile},{:.4}", at.second, at.request, at.class, at.quality));
        }
    })
}

/// How many servers each class had.
pub(super) fn partitions(report: &ExperimentReport) -> String {
    lines(report, "second,class,servers", |run, line| {
        for (second, sizes) in run.outcome.partitions.iter().enumerate() {
            for (class, servers) in report.scenario.classes.iter().zip(sizes) {
                line(format_args!("{second},{},{servers}", class.name));
            }
        }
    })
}

/// What servers and sentries each application had.
pub(super) fn provisioned(report: &ExperimentReport) -> String {
    lines(report, "second,application,servers,sentries,ceiling_s,sentry_cpu,sentry_spread", |run, line| {
        for application in &run.outcome.provisioned {
            for (second, had) in application.seconds.iter().enumerate() {
                line(format_args!(
                    "{second},{},{},{},{},{:.4},{:.4}",
                    application.name, had.servers, had.sentries, had.ceiling, had.sentry_cpu, had.sentry_spread
                ));
            }
        }
    })
}

/// What became of new connections.
pub(super) fn connections(report: &ExperimentReport) -> String {
    lines(report, "second,turned_away,change_s", |run, line| {
        for at in &run.outcome.connections {
            let change = at.change.map_or(String::new(), |change| format!("{change:.7}"));
            line(format_args!("{},{},{change}", at.second, at.turned_away));
        }
    })
}

/// A head, and what `of_run` gives for each run, with its arm and seed before it.
fn lines(
    report: &ExperimentReport,
    columns: &str,
    of_run: impl Fn(&RunReport, &mut dyn FnMut(Arguments<'_>)),
) -> String {
    let mut text = format!("arm,seed,{columns}\n");
    for arm in &report.arms {
        for run in &arm.runs {
            of_run(run, &mut |line| {
                // Writing into a string cannot fail.
                let _ = writeln!(text, "{},{},{line}", arm.name, run.seed);
            });
        }
    }
    text
}
