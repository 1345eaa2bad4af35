//! What a sweep came to: a line for every combination and arm.

use std::fmt::Write as _;

use super::{ArmReport, ExperimentReport};

/// Keys and values of a combination.
pub type Settings = Vec<(String, String)>;

/// The settings in words.
pub fn settings(settings: &[(String, String)]) -> String {
    settings.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(", ")
}

/// A line of words for every combination and arm.
pub fn sweep_text(reports: &[(Settings, ExperimentReport)]) -> String {
    let Some((_, first)) = reports.first() else { return String::new() };
    let mut text = format!("{}: {} combinations\n", first.scenario.id, reports.len());
    for (settings, report) in reports {
        for arm in &report.arms {
            let words = Line::of(report, arm).words();
            let _ = writeln!(text, "{}, {}: {words}", self::settings(settings), arm.name);
        }
    }
    text
}

/// The same as a table.
pub fn sweep_csv(reports: &[(Settings, ExperimentReport)]) -> String {
    let keys: String =
        reports.first().into_iter().flat_map(|(first, _)| first).map(|(key, _)| quoted(key) + ",").collect();
    let mut csv = keys;
    csv += "arm,offered_per_s,admitted_per_s,refused_per_s,failed_per_s,good_per_s,p50_s,p95_s,checks_missed\n";
    for (settings, report) in reports {
        let values: String = settings.iter().map(|(_, value)| quoted(value) + ",").collect();
        for arm in &report.arms {
            let _ = writeln!(csv, "{values}{},{}", arm.name, Line::of(report, arm).csv());
        }
    }
    csv
}

/// Means over the runs of an arm.
struct Line {
    /// Offered, admitted, refused, failed, good, per second.
    rates: [f64; 5],
    /// Seconds; not a number when nothing was answered.
    p50: f64,
    p95: f64,
    missed: usize,
}

impl Line {
    fn of(report: &ExperimentReport, arm: &ArmReport) -> Line {
        let seconds = report.scenario.duration.as_secs_f64();
        let totals: Vec<_> = arm.runs.iter().map(|run| run.outcome.class(None).total()).collect();
        let runs = totals.len().max(1) as f64;
        let time =
            |q: f64| totals.iter().map(|total| total.responses.quantile(q).unwrap_or(f64::NAN)).sum::<f64>() / runs;
        let mut rates = [0.0; 5];
        for total in &totals {
            let counts = [total.offered, total.admitted(), total.refused, total.failed, total.good];
            rates.iter_mut().zip(counts).for_each(|(rate, count)| *rate += count as f64 / seconds / runs);
        }
        let missed = arm.runs.iter().flat_map(|run| &run.checks).filter(|check| !check.pass).count();
        Line { rates, p50: time(0.5), p95: time(0.95), missed }
    }

    fn words(&self) -> String {
        let [offered, admitted, refused, failed, good] = self.rates;
        let missed = if self.missed > 0 { format!("; {} checks missed", self.missed) } else { String::new() };
        format!(
            "offered {offered:.1}/s, admitted {admitted:.1}/s, refused {refused:.1}/s, failed {failed:.1}/s, good {good:.1}/s, \
             p95 {:.0} ms{missed}",
            self.p95 * 1e3
        )
    }

    fn csv(&self) -> String {
        let rates: Vec<String> = self.rates.iter().map(|rate| format!("{rate:.3}")).collect();
        let time = |seconds: f64| if seconds.is_nan() { String::new() } else { format!("{seconds:.6}") };
        format!("{},{},{},{}", rates.join(","), time(self.p50), time(self.p95), self.missed)
    }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
