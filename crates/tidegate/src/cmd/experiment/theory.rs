//! `tidegate experiment theory`: does the simulator give what queueing theory says?

use std::io::{Write, stdout};
use std::process::ExitCode;

use anyhow::Result;
use tidegate_sim::theory;

/// Compare the simulator with queues that have closed-form solutions
///
/// Prints a Markdown table. Exit status: 0 when every theoretical value lies in the 99 % confidence interval of its
/// run.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Seed of the first model; each model has its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Approximate number of requests per model
    #[arg(long, value_name = "N", default_value_t = 2_000_000, value_parser = clap::value_parser!(u32).range(10_000..))]
    requests: u32,
}

/// Runs the command.
///
/// # Errors
/// When the table cannot be printed.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let rows = theory::table(args.seed, args.requests)?;
    let mut out = stdout();
    writeln!(out, "| model | what | theory | simulated | 99 % interval | |")?;
    writeln!(out, "|---|---|---:|---:|---:|---|")?;
    for row in &rows {
        let verdict = if row.agrees() { "inside" } else { "OUTSIDE" };
        let half_width = 100.0 * row.precision();
        let (model, what, theory, simulated) = (&row.model, row.what, row.theory, row.simulated);
        writeln!(out, "| {model} | {what} | {theory:.6} | {simulated:.6} | +-{half_width:.2} % | {verdict} |")?;
    }
    Ok(if rows.iter().all(theory::Row::agrees) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
