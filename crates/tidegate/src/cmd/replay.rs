//! `tidegate replay`: compares policies on a recorded trace, in simulated time.

pub(super) mod inputs;
mod offers;
pub(super) mod plan;
pub(super) mod policy;
mod report;
mod tally;

use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use tidegate_experiment::plan::in_parallel;
use tidegate_workload::parse_duration;
use tidegate_workload::trace::Spread;

use inputs::{ClassArg, Day, UnitCost};
use plan::Plan;
use policy::Policy;
use report::Report;
use tally::Tally;

/// Compare policies on a trace: run the engine in simulated time, once for each policy, with the same arrivals.
///
/// A trace is `time,count` or `time,size,...` in columns, or an access log; plain or gzip; of any length. Exit status 0
/// when it ran, 2 when the trace or an option is invalid.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The trace
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// An admission policy to compare: a name, or with settings 'NAME:{key = value, ...}'; default: every policy
    #[arg(long = "policy", value_name = "POLICY")]
    policies: Vec<Policy>,
    /// Servers
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    servers: u16,
    /// Processors of each server
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    cores: u16,
    /// How a server shares its processors: ps (all requests at once) or fifo (in turn)
    #[arg(long, value_name = "NAME", default_value = "ps", value_parser = ["ps", "fifo"])]
    discipline: String,
    /// Give the engine the number of processors of a server instead of letting it learn the number
    #[arg(long)]
    known_cores: bool,
    /// Work of a request: '{ distribution = "lognormal", mean = "20ms", cv = 2 }', or "20ms" for an exponential one
    #[arg(long, value_name = "TIME|TABLE", conflicts_with = "cost_per_unit")]
    service: Option<inputs::Service>,
    /// Work of a request by its size: TIME per unit of the only column, or COLUMN=TIME for one of several
    /// (repeated)
    #[arg(long, value_name = "[COLUMN=]TIME")]
    cost_per_unit: Vec<UnitCost>,
    /// Fixed work of a request, added to that of its sizes
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "cost_per_unit")]
    cost_base: Option<Duration>,
    /// A class, most important first: NAME=SHARE assigns it at random, NAME=/path by the path in an access log,
    /// NAME alone is the rest, or with --class-column the value in that column
    #[arg(long = "class", value_name = "NAME[=SHARE|=/PATH]")]
    classes: Vec<ClassArg>,
    /// Column with the class of a request
    #[arg(long, value_name = "COLUMN")]
    class_column: Option<String>,
    /// Column whose magnitude (powers of two) takes the place of the URL in the engine's cost table
    #[arg(long, value_name = "COLUMN")]
    tell_by: Option<String>,
    /// Response-time target for 95 % of the admitted requests
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1s")]
    target: Duration,
    /// How long a client waits; a later answer counts as failed
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
    timeout: Duration,
    /// Multiply the number of requests so that the busiest interval offers this multiple of the servers' capacity
    #[arg(long, value_name = "X", conflicts_with = "rate_scale")]
    overload: Option<f64>,
    /// Multiply the number of requests by this factor
    #[arg(long, value_name = "X")]
    rate_scale: Option<f64>,
    /// Speed time up by this factor; rates grow by the same factor
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    speed: f64,
    /// Length of the interval over which the peak is determined
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1min")]
    peak_over: Duration,
    /// Only one day: its date, or "peak" for the day of the busiest interval
    #[arg(long, value_name = "DATE|peak", conflicts_with_all = ["from", "to"])]
    day: Option<Day>,
    /// Begin of the window: 2026-01-31 12:00, or a time after the start of the trace such as 2h
    #[arg(long, value_name = "TIME")]
    from: Option<inputs::Edge>,
    /// End of the window, in the same form
    #[arg(long, value_name = "TIME")]
    to: Option<inputs::Edge>,
    #[command(flatten)]
    reading: inputs::Reading,
    /// How the requests of an interval are spread over it: poisson or even
    #[arg(long, value_name = "NAME", default_value = "poisson")]
    spread: Spread,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs of each policy, with consecutive seeds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Simulations at the same time; default: one per processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// Write the results as JSON; "-" writes them to standard output, and the table to standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the table as CSV; "-" as with --json
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  tidegate replay day.csv.gz --day peak --service 20ms --servers 4 --overload 2 --class gold=0.2 --class rest
  tidegate replay access.log --service '{ distribution = \"lognormal\", mean = \"30ms\", cv = 2 }' --class shop=/shop --class rest
  tidegate replay tokens.csv --cost-per-unit in=50us --cost-per-unit out=5ms --tell-by in --policy none --policy 'concurrency:{ limit = 50 }'
More: docs/replay.md";

/// Runs the command.
///
/// # Errors
/// When results cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let jobs = args.jobs.map_or_else(processors, usize::from);
    let report = Plan::new(args).and_then(|plan| {
        let tallies = play_all(&plan, jobs)?;
        Ok(Report::new(&plan, tallies))
    });
    let report = match report {
        Ok(report) => report,
        Err(error) => return Ok(super::bad_configuration(format!("{error:#}"))),
    };
    // The files come last, each in one piece: a run that failed leaves nothing half written.
    let dash = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
    if dash(&args.json) || dash(&args.csv) {
        write!(stderr(), "{report}")?;
    } else {
        write!(stdout(), "{report}")?;
    }
    if let Some(path) = &args.json {
        put(path, &(serde_json::to_string_pretty(&report)? + "\n"))?;
    }
    if let Some(path) = &args.csv {
        put(path, &report.csv())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a file as a whole or not at all; `-` is standard output.
pub(super) fn put(path: &Path, text: &str) -> Result<()> {
    if path == Path::new("-") {
        return stdout().write_all(text.as_bytes()).context("cannot write the results");
    }
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    std::fs::write(&part, text)
        .and_then(|()| std::fs::rename(&part, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Every policy with every seed, several at a time; per policy the seeds in order, whoever is ready first.
fn play_all(plan: &Plan, jobs: usize) -> Result<Vec<Vec<Tally>>> {
    let tasks: Vec<(&Policy, u64)> =
        plan.policies.iter().flat_map(|policy| plan.seeds.iter().map(move |&seed| (policy, seed))).collect();
    let bar = bar((plan.expected() * tasks.len() as f64) as u64);
    let all = in_parallel(&tasks, jobs, |(policy, seed)| plan.play(policy, *seed, |requests| bar.inc(requests)));
    bar.finish_and_clear();
    let all = all?;
    let mut all = all.into_iter();
    Ok(plan.policies.iter().map(|_| all.by_ref().take(plan.seeds.len()).collect()).collect())
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn bar(length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{elapsed:>4} [{bar:30}] {human_pos} of {human_len} requests, {eta} left");
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests;
