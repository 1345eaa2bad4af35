//! Every second of every run, one line each.

use std::fmt::Write;

use super::ExperimentReport;

/// What response-time controllers did in every second of every run.
pub(super) fn controls(report: &ExperimentReport) -> String {
    let mut text = String::from("arm,seed,second,request,class,rate,percentile_s,quality\n");
    for arm in &report.arms {
        for run in &arm.runs {
            for at in &run.outcome.controls {
                let number = |number: Option<f64>| number.map_or(String::new(), |number| format!("{number:.4}"));
                let (rate, percentile) = (number(at.rate), number(at.percentile));
                // Writing into a string cannot fail.
                let _ = writeln!(
                    text,
                    "{},{},{},{},{},{rate},{percentile},{:.4}",
                    arm.name, run.seed, at.second, at.request, at.class, at.quality
                );
            }
        }
    }
    text
}

pub(super) fn render(report: &ExperimentReport) -> String {
    let mut text = String::from("arm,seed,group,second,offered,admitted,refused,failed,good,p50_s,p95_s\n");
    for arm in &report.arms {
        for run in &arm.runs {
            for (group, course) in run.outcome.groups() {
                for (second, counted) in course.seconds().iter().enumerate() {
                    let row = counted.row();
                    let time = |time: Option<f64>| time.map_or(String::new(), |time| format!("{time:.6}"));
                    // Writing into a string cannot fail.
                    let _ = writeln!(
                        text,
                        "{},{},{group},{second},{},{},{},{},{},{},{}",
                        arm.name,
                        run.seed,
                        row.offered,
                        row.admitted,
                        row.refused,
                        row.failed,
                        row.good,
                        time(row.p50),
                        time(row.p95)
                    );
                }
            }
        }
    }
    text
}
