//! `tidegate emulate`: one server of the testbed as a process of its own.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use tidegate_testbed::{EmulatedServer, ServerSpec};
use tokio::signal::unix::{SignalKind, signal};

/// Run one server of the testbed, for experiments: it prints its address and serves until SIGTERM
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What it serves, as JSON
    #[arg(long, value_name = "FILE")]
    spec: PathBuf,
}

/// Runs until it is told to stop. Exit status 2 when the specification makes no sense.
///
/// # Errors
/// When it cannot listen.
pub fn run(args: &Args) -> Result<ExitCode> {
    let spec = match read(&args.spec) {
        Ok(spec) => spec,
        Err(error) => return Ok(super::bad_configuration(format!("{error:#}"))),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let server = EmulatedServer::start(spec).await?;
        writeln!(stdout(), "{}", server.address())?;
        stdout().flush()?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn read(file: &Path) -> Result<ServerSpec> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{}: cannot be read", file.display()))?;
    let spec: ServerSpec = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
    spec.validate()?;
    Ok(spec)
}
