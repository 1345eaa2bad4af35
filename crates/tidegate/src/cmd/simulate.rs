//! `tidegate simulate`: runs scenarios in the simulator, or looks for what brings them down for good.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use tidegate_experiment::report::Mode;
use tidegate_workload::parse_duration;

use super::experiment::PlayArgs;

/// Run scenarios in the simulator, with sweeps over their parameters
///
/// The same as `experiment run` without --live. docs/scenarios.md describes scenario files. Exit status: 0 when every
/// check passed, 1 when one failed, 2 when a scenario is invalid.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    what: PlayArgs,
    /// In place of the checks: look for rushes, slow servers and outages after which an arm does not come back when
    /// they are over. The load is the scenario's as it is at its beginning. Exit status: 1 when one was found
    #[arg(long)]
    find_metastable: bool,
    /// With --find-metastable: how long after it an arm must have come back, 20 s at least
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration, requires = "find_metastable")]
    recovers: Duration,
}

/// Runs the command.
///
/// # Errors
/// When results cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.find_metastable {
        return args.what.find_metastable(args.recovers);
    }
    args.what.run(Mode::Simulated, 1, None)
}
