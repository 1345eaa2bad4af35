//! The report as a table for people.

use std::fmt;

use crate::grpc;
use crate::report::{ClassReport, ErrorKind, Report};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.classes.iter().map(|c| c.class.chars().count()).max().unwrap_or(0).max(5);
        writeln!(
            f,
            "{:width$} {:>10} {:>10} {:>10} {:>8} {:>8} {:>10} {:>9} {:>9} {:>9} {:>9}",
            "class", "offered/s", "admitted/s", "goodput/s", "refused", "failed", "mean", "p50", "p95", "p99", "max"
        )?;
        let total = (self.classes.len() > 1).then_some(&self.total);
        for class in self.classes.iter().chain(total) {
            row(f, width, class)?;
        }
        notes(f, self)
    }
}

fn row(f: &mut fmt::Formatter<'_>, width: usize, c: &ClassReport) -> fmt::Result {
    let share = |n: u64| if c.offered == 0 { "-".to_owned() } else { percent(n as f64 / c.offered as f64) };
    let time = |s: f64| if c.latency.count == 0 { "-".to_owned() } else { seconds(s) };
    let (l, failed) = (&c.latency, c.errors_total() + c.other + c.not_sent.total() + c.unfinished);
    writeln!(
        f,
        "{:width$} {:>10.1} {:>10.1} {:>10.1} {:>8} {:>8} {:>10} {:>9} {:>9} {:>9} {:>9}",
        c.class,
        c.offered_per_s,
        c.admitted_per_s,
        c.goodput_per_s,
        share(c.refused),
        share(failed),
        time(l.mean),
        time(l.p50),
        time(l.p95),
        time(l.p99),
        time(l.max)
    )
}

fn notes(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    let (total, generator) = (&report.total, &report.generator);
    writeln!(f, "\n{} requests in {}: {}", total.offered, seconds(report.sent_for), statuses(total))?;
    if let Some(target) = report.target {
        writeln!(f, "goodput counts answers within {}", seconds(target))?;
    }
    writeln!(
        f,
        "generator: {} late at p99, {} of a processor, {} connections opened, seed {}",
        seconds(generator.lateness.p99),
        percent(generator.cpu),
        generator.connections_opened,
        report.seed
    )?;
    report.warnings.iter().try_for_each(|warning| writeln!(f, "warning: {warning}"))
}

impl ErrorKind {
    /// The error in words.
    pub fn words(self) -> &'static str {
        match self {
            ErrorKind::Connect => "could not connect",
            ErrorKind::Timeout => "timed out",
            ErrorKind::Reset => "connection reset",
            ErrorKind::Closed => "connection closed early",
            ErrorKind::StreamReset => "stream reset",
            ErrorKind::StreamRefused => "stream refused",
            ErrorKind::GoneAway => "connection given up by the server (GOAWAY)",
            ErrorKind::Protocol => "answer was not HTTP",
            ErrorKind::LocalLimit => "no port or open file left here",
        }
    }
}

/// How many requests came to which end.
pub(crate) fn statuses(total: &ClassReport) -> String {
    let statuses = total.status.iter().map(|(status, n)| format!("{status} x {n}"));
    let calls = total.grpc_status.iter().map(|(status, n)| format!("{} x {n}", grpc::words(*status)));
    let errors = total.errors.iter().map(|(kind, n)| format!("{} x {n}", kind.words()));
    let given_up = (total.unfinished > 0).then(|| format!("given up at the stop x {}", total.unfinished));
    statuses.chain(calls).chain(errors).chain(given_up).collect::<Vec<_>>().join(", ")
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A duration with three digits or so, in the unit that suits it.
pub(crate) fn seconds(s: f64) -> String {
    if s < 1e-3 {
        format!("{:.0} us", s * 1e6)
    } else if s < 1.0 {
        format!("{:.1} ms", s * 1e3)
    } else {
        format!("{s:.2} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{GeneratorReport, Quantiles};

    #[test]
    fn a_table_says_it_all() {
        let latency = Quantiles { count: 90, mean: 0.05, p50: 0.04, p90: 0.1, p95: 0.2, p99: 1.5, max: 2.0 };
        let gold = ClassReport {
            class: "gold".into(),
            offered: 100,
            admitted: 90,
            refused: 5,
            offered_per_s: 10.0,
            status: [(200, 90), (503, 5)].into(),
            errors: [(ErrorKind::Timeout, 5)].into(),
            latency,
            ..ClassReport::default()
        };
        let report = Report {
            seed: 7,
            sent_for: 10.0,
            target: Some(0.5),
            stopped: false,
            classes: vec![gold.clone()],
            total: gold,
            generator: GeneratorReport::default(),
            warnings: vec!["look here".into()],
        };
        let text = report.to_string();
        for part in ["gold", "5.0 %", "200.0 ms", "1.50 s", "200 x 90, 503 x 5, timed out x 5", "warning: look here"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert_eq!(text.matches("gold").count(), 1, "one class needs no total:\n{text}");
    }
}
