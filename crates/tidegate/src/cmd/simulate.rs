//! `tidegate simulate`: runs scenarios in the simulator.

use std::process::ExitCode;

use anyhow::Result;
use tidegate_experiment::report::Mode;

use super::experiment::PlayArgs;

/// Run scenarios in the simulator, with sweeps over their parameters
///
/// The same as `experiment run` without --live. docs/scenarios.md describes scenario files. Exit status: 0 when every
/// check passed, 1 when one failed, 2 when a scenario is invalid.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    what: PlayArgs,
}

/// Runs the command.
///
/// # Errors
/// When results cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    args.what.run(Mode::Simulated, 1, None)
}
