//! Report of a run with users: by request type and by group, as numbers and as a table.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::report::{ClassReport, GeneratorReport};
use crate::table::{percent, seconds, statuses};

/// The result of a run of users. All durations are seconds, all rates per second of the time in which they asked.
///
/// Response times count from the instant at which the user asks, connecting included, to the last byte.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsersReport {
    /// Seed of the run.
    pub seed: u64,
    /// How long users began requests, seconds.
    pub sent_for: f64,
    /// Response time within which an answer is goodput, seconds.
    pub target: Option<f64>,
    /// Whether the run was stopped before its end.
    pub stopped: bool,
    /// The most users there were.
    pub users: u32,
    /// Number of sessions that were begun.
    pub sessions: u64,
    /// Sessions that ended because a request was refused, failed or timed out.
    pub sessions_broken: u64,
    /// Results by request type, in the order of the file; `class` is its name.
    pub requests: Vec<ClassReport>,
    /// Results by group of users, in the order of the file; `class` is its name.
    pub groups: Vec<ClassReport>,
    /// Sums over all request types.
    pub total: ClassReport,
    /// Users that were there, by second.
    pub active: Vec<u32>,
    /// How the generator itself did. `lateness` is how much later than meant users went on after thinking.
    pub generator: GeneratorReport,
    /// Reasons not to trust the figures, in words. Empty when all is well.
    pub warnings: Vec<String>,
}

impl UsersReport {
    /// The results of a request type.
    pub fn request(&self, name: &str) -> Option<&ClassReport> {
        self.requests.iter().find(|request| request.class == name)
    }

    /// What to say of a generator that was too late for its figures to be judged; see [`GeneratorReport::disturbance`].
    pub fn disturbance(&self) -> Option<String> {
        self.generator.disturbance()
    }
}

impl fmt::Display for UsersReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: &[ClassReport] = if self.groups.len() > 1 { &self.groups } else { &[] };
        let rows = || self.requests.iter().chain(groups).chain([&self.total]);
        let width = rows().map(|row| row.class.chars().count()).max().unwrap_or(0);
        head(f, width, "request")?;
        self.requests.iter().try_for_each(|request| row(f, width, request))?;
        if !groups.is_empty() {
            head(f, width, "users")?;
            groups.iter().try_for_each(|group| row(f, width, group))?;
        }
        row(f, width, &self.total)?;
        let total = &self.total;
        writeln!(f, "\n{} requests in {}: {}", total.offered, seconds(self.sent_for), statuses(total))?;
        writeln!(
            f,
            "{} users at most, {} sessions, {} of them broken off by a refusal or failure",
            self.users, self.sessions, self.sessions_broken
        )?;
        if let Some(target) = self.target {
            writeln!(f, "goodput counts answers within {}: {:.1}/s", seconds(target), total.goodput_per_s)?;
        }
        let generator = &self.generator;
        writeln!(
            f,
            "generator: {} late at p99, {} of a processor, {} connections opened, seed {}",
            seconds(generator.lateness.p99),
            percent(generator.cpu),
            generator.connections_opened,
            self.seed
        )?;
        self.warnings.iter().try_for_each(|warning| writeln!(f, "warning: {warning}"))
    }
}

fn head(f: &mut fmt::Formatter<'_>, width: usize, what: &str) -> fmt::Result {
    writeln!(
        f,
        "{what:width$} {:>9} {:>10} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "asked/s", "admitted/s", "refused", "failed", "mean", "p50", "p90", "p95", "p99", "max"
    )
}

fn row(f: &mut fmt::Formatter<'_>, width: usize, c: &ClassReport) -> fmt::Result {
    let share = |n: u64| if c.offered == 0 { "-".to_owned() } else { percent(n as f64 / c.offered as f64) };
    let time = |s: f64| if c.latency.count == 0 { "-".to_owned() } else { seconds(s) };
    let (l, failed) = (&c.latency, c.errors_total() + c.other + c.unfinished);
    writeln!(
        f,
        "{:width$} {:>9.1} {:>10.1} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        c.class,
        c.offered_per_s,
        c.admitted_per_s,
        share(c.refused),
        share(failed),
        time(l.mean),
        time(l.p50),
        time(l.p90),
        time(l.p95),
        time(l.p99),
        time(l.max)
    )
}
