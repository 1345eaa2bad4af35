//! `tidegate upgrade`: a running sentry is replaced by its program as it is on the disk now.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use tidegate_sentry::upgrade::Call;

use crate::log;

/// Replace a running sentry by its program and configuration as they are on the disk now, without losing a connection.
///
/// The sentry starts the program again as it was started itself. The new process gets its sockets and what it learned;
/// when it is ready, the old one stops accepting, finishes what it has, and ends. If anything fails before that, the
/// old one serves on: then this command says why, and its exit status is 1.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The sentry's socket: `upgrade.socket` in its configuration, or `--upgrade-socket`
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
}

/// Where the unit in `deploy/systemd` has it.
pub(super) const SOCKET: &str = "/run/tidegate/upgrade.sock";

const EXAMPLES: &str = "Examples:
  tidegate upgrade
  tidegate upgrade --socket /run/shop/upgrade.sock
The signal SIGUSR2 asks for the same; what came of it is in the sentry's log.";

/// Asks for the upgrade and waits for what comes of it.
///
/// # Errors
/// When there is no successor.
pub fn run(args: &Args) -> Result<ExitCode> {
    let pid = Call::upgrade(&args.socket).map_err(|why| anyhow!("there is no successor: {why}"))?;
    log::announce(format_args!("process {pid} has taken over"));
    Ok(ExitCode::SUCCESS)
}
