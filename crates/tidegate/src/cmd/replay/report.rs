//! The comparison in figures: as a table, as CSV, as JSON.

use std::fmt::{self, Write};

use serde::Serialize;
use tidegate_workload::{Course, Responses};

use super::plan::Plan;
use super::tally::Tally;

/// The comparison.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The trace's file.
    pub trace: String,
    /// Its shape.
    pub shape: &'static str,
    /// The first request played, by the trace's calendar.
    pub first: String,
    /// The last.
    pub last: String,
    /// Requests in the window of the trace.
    pub requests_in_trace: u64,
    /// Lines that could not be read and were left out.
    pub lines_left_out: u64,
    /// What the number of requests was multiplied by.
    pub rate_scale: f64,
    /// How many times faster time went.
    pub speed: f64,
    /// Servers.
    pub servers: usize,
    /// Processors of each.
    pub cores: f64,
    /// Mean work of a request, seconds.
    pub mean_work_s: f64,
    /// Requests per second that the servers can do.
    pub capacity_per_s: f64,
    /// The busiest stretch of the trace, as it was played: work per second over processors.
    pub peak_load: f64,
    /// When it begins, by the trace's calendar.
    pub peak_at: String,
    /// Response time that 95 % of the admitted must keep, seconds.
    pub target_s: f64,
    /// Length of a stretch, seconds of the run.
    pub stretch_s: f64,
    /// Stretches, and of these those in which more work arrived than the servers can do; of the first run.
    pub stretches: usize,
    /// Of these those in overload.
    pub overloaded_stretches: usize,
    /// The seeds of the runs.
    pub seeds: Vec<u64>,
    /// The policies, in the order in which they were named.
    pub policies: Vec<PolicyReport>,
}

/// One policy.
#[derive(Debug, Serialize)]
pub struct PolicyReport {
    /// As it was named.
    pub policy: String,
    /// All classes together, then each, the most important first; all seeds together.
    pub groups: Vec<Group>,
    /// Goodput of all classes in each run, per second.
    pub goodput_per_s_by_seed: Vec<f64>,
}

/// A class, or all.
#[derive(Debug, Serialize)]
pub struct Group {
    /// Its name, `all` for all classes together.
    pub class: String,
    /// Over the whole run.
    pub whole: Figures,
    /// Over the stretches in which more work arrived than the servers can do; absent when there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_overload: Option<Figures>,
}

/// What came of some requests.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Requests that arrived.
    pub offered: u64,
    /// Of these answered before the client's time was up.
    pub admitted: u64,
    /// Of these refused.
    pub refused: u64,
    /// Of these neither.
    pub failed: u64,
    /// Requests per second that arrived.
    pub offered_per_s: f64,
    /// Requests per second that were answered within the target.
    pub goodput_per_s: f64,
    /// Refused of offered, 0 to 1.
    pub refused_share: f64,
    /// Median response time of the admitted, seconds.
    pub p50_s: Option<f64>,
    /// Its 95th percentile.
    pub p95_s: Option<f64>,
    /// Its 99th percentile.
    pub p99_s: Option<f64>,
}

impl Report {
    /// What came of the runs: for each policy, one tally for each seed.
    pub fn new(plan: &Plan, tallies: Vec<Vec<Tally>>) -> Report {
        let (scan, world) = (&plan.scan, &plan.world);
        let processors = plan.processors();
        let scale = plan.playback.rate * plan.playback.speed;
        let mean_work_s = scan.work / scan.requests.max(1) as f64;
        let first = tallies.first().and_then(|tallies| tallies.first());
        let counter = Counter { bin: world.stretch.as_secs_f64(), processors };
        let named = plan.policies.iter().zip(&tallies);
        Report {
            trace: plan.trace(),
            shape: scan.shape.name(),
            first: scan.first.to_string(),
            last: scan.last.to_string(),
            requests_in_trace: scan.requests,
            lines_left_out: scan.skipped,
            rate_scale: plan.playback.rate,
            speed: plan.playback.speed,
            servers: world.servers.len(),
            cores: plan.cores(),
            mean_work_s,
            capacity_per_s: processors / mean_work_s,
            peak_load: scan.peak_work * scale / processors,
            peak_at: scan.peak_at.to_string(),
            target_s: world.setup.sla.target(0.0).as_secs_f64(),
            stretch_s: counter.bin,
            stretches: first.map_or(0, |tally| tally.work.len()),
            overloaded_stretches: first.map_or(0, |tally| counter.overloaded(tally).filter(|over| *over).count()),
            seeds: plan.seeds.clone(),
            policies: named.map(|(policy, tallies)| counter.policy(plan, &policy.label, tallies)).collect(),
        }
    }

    /// One line for each policy and class.
    pub fn csv(&self) -> String {
        const HEAD: &str = "policy,class,when,offered,admitted,refused,failed,offered_per_s,goodput_per_s,refused_share,\
                            p50_s,p95_s,p99_s\n";
        let mut text = HEAD.to_owned();
        for policy in &self.policies {
            for group in &policy.groups {
                for (when, figures) in [("whole", Some(&group.whole)), ("overload", group.in_overload.as_ref())] {
                    let Some(f) = figures else { continue };
                    let time = |time: Option<f64>| time.map_or(String::new(), |time| format!("{time:.6}"));
                    let _ = writeln!(
                        text,
                        "{},{},{when},{},{},{},{},{:.3},{:.3},{:.6},{},{},{}",
                        quoted(&policy.policy),
                        quoted(&group.class),
                        f.offered,
                        f.admitted,
                        f.refused,
                        f.failed,
                        f.offered_per_s,
                        f.goodput_per_s,
                        f.refused_share,
                        time(f.p50_s),
                        time(f.p95_s),
                        time(f.p99_s)
                    );
                }
            }
        }
        text
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} requests, {} to {}", self.trace, self.requests_in_trace, self.first, self.last)?;
        if self.lines_left_out > 0 {
            writeln!(f, "left out: {} lines that could not be read", self.lines_left_out)?;
        }
        writeln!(
            f,
            "played {:.4} times as many, {} times as fast, by {} servers of {} processors",
            self.rate_scale, self.speed, self.servers, self.cores
        )?;
        writeln!(
            f,
            "capacity {:.1}/s at {:.2} ms of work each; peak {:.2} times that, at {}",
            self.capacity_per_s,
            self.mean_work_s * 1e3,
            self.peak_load,
            self.peak_at
        )?;
        writeln!(
            f,
            "overload in {} of {} stretches of {:.0} s; target: p95 of {:.0} ms; {} seed(s) from {}\n",
            self.overloaded_stretches,
            self.stretches,
            self.stretch_s,
            self.target_s * 1e3,
            self.seeds.len(),
            self.seeds.first().copied().unwrap_or_default()
        )?;
        self.table(f)
    }
}

impl Report {
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widest = |text: &dyn Fn(&PolicyReport) -> usize| self.policies.iter().map(text).max().unwrap_or(0);
        let first = widest(&|policy| policy.policy.chars().count()).max(6);
        let second = widest(&|policy| policy.groups.iter().map(|g| g.class.chars().count()).max().unwrap_or(0)).max(5);
        writeln!(f, "{:first$}  {:second$}  {:^45}  {:^45}", "", "", "whole run", "while overloaded")?;
        let columns = format!("{:>10} {:>10} {:>8} {:>5} {:>8}", "offered/s", "goodput/s", "refused", "fail", "p95 ms");
        writeln!(f, "{:first$}  {:second$}  {columns}  {columns}", "policy", "class")?;
        for policy in &self.policies {
            let mut name = policy.policy.as_str();
            for group in &policy.groups {
                let whole = group.whole.cells();
                let rush = group.in_overload.as_ref().map_or_else(String::new, Figures::cells);
                writeln!(f, "{}", format!("{name:first$}  {:second$}  {whole}  {rush}", group.class).trim_end())?;
                name = "";
            }
            if let [_, _, ..] = policy.goodput_per_s_by_seed[..] {
                let least = policy.goodput_per_s_by_seed.iter().copied().fold(f64::INFINITY, f64::min);
                let most = policy.goodput_per_s_by_seed.iter().copied().fold(0.0, f64::max);
                writeln!(f, "{:first$}  goodput of all, by seed: {least:.1} to {most:.1}/s", "")?;
            }
        }
        Ok(())
    }
}

impl Figures {
    fn cells(&self) -> String {
        let p95 = self.p95_s.map_or("-".to_owned(), |p95| format!("{:.0}", p95 * 1e3));
        let percent = |part: u64| if self.offered == 0 { 0.0 } else { 100.0 * part as f64 / self.offered as f64 };
        format!(
            "{:>10.1} {:>10.1} {:>7.1}% {:>4.1}% {p95:>8}",
            self.offered_per_s,
            self.goodput_per_s,
            percent(self.refused),
            percent(self.failed)
        )
    }
}

/// Adds up tallies.
struct Counter {
    bin: f64,
    processors: f64,
}

#[derive(Default)]
struct Sum {
    offered: u64,
    refused: u64,
    failed: u64,
    good: u64,
    responses: Responses,
    seconds: f64,
}

impl Counter {
    /// Of each stretch, whether more work arrived in it than can be done.
    fn overloaded<'t>(&'t self, tally: &'t Tally) -> impl Iterator<Item = bool> + 't {
        tally.work.iter().map(|work| *work > self.processors * self.bin)
    }

    fn policy(&self, plan: &Plan, name: &str, tallies: &[Tally]) -> PolicyReport {
        let classes = &plan.world.setup.classes;
        let all: Vec<usize> = (0..classes.len()).collect();
        let mut groups = vec![self.group("all", &all, tallies)];
        if classes.len() > 1 {
            groups.extend(all.iter().map(|&at| self.group(&classes[at].name, &[at], tallies)));
        }
        let goodput = |tally: &Tally| self.sum(&all, std::slice::from_ref(tally), false).figures().goodput_per_s;
        PolicyReport { policy: name.to_owned(), groups, goodput_per_s_by_seed: tallies.iter().map(goodput).collect() }
    }

    fn group(&self, name: &str, classes: &[usize], tallies: &[Tally]) -> Group {
        let rush = self.sum(classes, tallies, true);
        Group {
            class: name.to_owned(),
            whole: self.sum(classes, tallies, false).figures(),
            in_overload: (rush.seconds > 0.0).then(|| rush.figures()),
        }
    }

    /// Over all stretches, or those in overload only.
    fn sum(&self, classes: &[usize], tallies: &[Tally], in_overload: bool) -> Sum {
        let mut sum = Sum::default();
        for tally in tallies {
            let wanted: Vec<bool> = self.overloaded(tally).map(|over| over || !in_overload).collect();
            sum.seconds += match in_overload {
                true => wanted.iter().filter(|wanted| **wanted).count() as f64 * self.bin,
                false => tally.length.as_secs_f64(),
            };
            classes.iter().for_each(|&class| sum.add(&tally.classes[class], &wanted));
        }
        sum
    }
}

impl Sum {
    fn add(&mut self, course: &Course, wanted: &[bool]) {
        for (second, _) in course.seconds().iter().zip(wanted).filter(|(_, wanted)| **wanted) {
            self.offered += second.offered;
            self.refused += second.refused;
            self.failed += second.failed;
            self.good += second.good;
            self.responses.merge(&second.responses);
        }
    }

    fn figures(&self) -> Figures {
        let per_second = |count: u64| if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 };
        Figures {
            offered: self.offered,
            admitted: self.responses.count(),
            refused: self.refused,
            failed: self.failed,
            offered_per_s: per_second(self.offered),
            goodput_per_s: per_second(self.good),
            refused_share: if self.offered == 0 { 0.0 } else { self.refused as f64 / self.offered as f64 },
            p50_s: self.responses.quantile(0.50),
            p95_s: self.responses.quantile(0.95),
            p99_s: self.responses.quantile(0.99),
        }
    }
}

/// A field of CSV.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
