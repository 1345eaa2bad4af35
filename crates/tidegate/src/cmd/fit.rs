//! `tidegate fit`: which known distributions a trace follows, and how well.

mod report;

use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate_workload::fit::TraceFit;
use tidegate_workload::parse_duration;

use super::replay::inputs::{Edge, Reading, UnitCost};
use super::replay::plan::{between, work_by_size};
use super::replay::put;
use report::Report;

/// Fit known distributions to the sizes and gaps of a trace, and measure how its rate varies.
///
/// Prints the fits, the best first, with their Kolmogorov-Smirnov distance from the data and their distance from the
/// best fit by Akaike's criterion. Ends with TOML for a scenario file.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The trace: time,count or time,size,... in columns, or an access log; plain or gzip
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    #[command(flatten)]
    reading: Reading,
    /// Column with the class of a request; it is not read as a size
    #[arg(long, value_name = "COLUMN")]
    class_column: Option<String>,
    /// Begin of the window: 2026-01-31 12:00, or a time after the start of the trace such as 2h
    #[arg(long, value_name = "TIME")]
    from: Option<Edge>,
    /// End of the window, in the same form
    #[arg(long, value_name = "TIME")]
    to: Option<Edge>,
    /// Shortest interval over which rates are computed; default 1s, or an interval of counts
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    stretch: Option<Duration>,
    /// Also fit the work of a request: TIME per unit of the only column, or COLUMN=TIME for one of several
    /// (repeated)
    #[arg(long, value_name = "[COLUMN=]TIME")]
    cost_per_unit: Vec<UnitCost>,
    /// Fixed work of a request, added to that of its sizes
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "cost_per_unit")]
    cost_base: Option<Duration>,
    /// Write the results as JSON; "-" writes them to standard output, and the rest to standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the command. Exit status 0 when it could read the trace, 2 when the trace or an option is invalid.
///
/// # Errors
/// When results cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let report = match args.fit() {
        Ok(fit) => Report::new(&args.trace, &fit),
        Err(error) => return Ok(super::bad_configuration(format!("{error:#}"))),
    };
    match &args.json {
        Some(path) if path == Path::new("-") => write!(stderr(), "{report}")?,
        _ => write!(stdout(), "{report}")?,
    }
    if let Some(path) = &args.json {
        put(path, &(serde_json::to_string_pretty(&report)? + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn fit(&self) -> Result<TraceFit> {
        let open = || self.reading.open(&self.trace, self.class_column.as_deref());
        let reader = open()?;
        let work = match self.cost_per_unit[..] {
            [] => None,
            _ => Some(work_by_size(&self.cost_per_unit, self.cost_base, &reader)?),
        };
        let first = || {
            let first = open()?.next().transpose()?;
            first.map(|entry| entry.at).context("there is nothing in the trace")
        };
        let window = between(self.from, self.to, first)?;
        let finest = self.stretch.or(self.reading.interval);
        let fit = TraceFit::of(reader, window, finest, |traced| work.as_ref().map(|work| work.expected(traced)))?;
        Ok(fit)
    }
}

#[cfg(test)]
mod tests;
