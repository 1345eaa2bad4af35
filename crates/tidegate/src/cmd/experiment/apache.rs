//! `tidegate experiment apache`: what the Apache of a scenario serves, for load that is not ours.

use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use tidegate_experiment::built_in;
use tidegate_experiment::scenario::On;
use tidegate_experiment::service::Apache;
use tokio::signal::unix::{SignalKind, signal};

/// Serve what the Apache of a scenario serves, without a sentry, until told to end
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of a built-in scenario on Apache, or a TOML file
    #[arg(value_name = "ID|FILE")]
    scenario: String,
    /// Where it listens
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
}

/// Runs the command. Status 2 when the scenario makes no sense, or is not on Apache.
///
/// # Errors
/// When Apache does not serve.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let name = &args.scenario;
    let scenario = match built_in::find(name).map_err(anyhow::Error::from).and_then(|found| Ok(found.for_live()?)) {
        Ok(scenario) if matches!(scenario.on(), On::Apache { .. }) => scenario,
        Ok(_) => return Ok(super::super::bad_configuration(anyhow!("{name}: its [live] is not on \"apache\""))),
        Err(error) => return Ok(super::super::bad_configuration(format!("{error:#}"))),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let apache = Apache::start(&scenario, scenario.seed, Some(args.listen))?;
    writeln!(stdout(), "Apache serves {} at {}", scenario.id, apache.address())?;
    runtime.block_on(async {
        let mut told = signal(SignalKind::terminate())?;
        tokio::select! {
            _ = told.recv() => {}
            interrupted = tokio::signal::ctrl_c() => interrupted?,
        }
        Ok(ExitCode::SUCCESS)
    })
}
