//! `tidegate check`: validates a configuration file and prints it resolved.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use tidegate_sentry::Config;

/// Check a configuration file and print it complete, with every default. The output is itself a valid configuration.
/// Warnings go to standard error. Exit status 2 when the file is invalid.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The configuration file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print nothing but errors and warnings
    #[arg(short, long)]
    quiet: bool,
}

/// Checks the file.
///
/// # Errors
/// When the result cannot be printed.
pub fn run(args: &Args) -> Result<ExitCode> {
    let checked = match Config::load(&args.file) {
        Ok(checked) => checked,
        Err(errors) => return Ok(super::bad_configuration(errors)),
    };
    let source = args.file.display().to_string();
    for warning in &checked.warnings {
        eprintln!("warning: {}", warning.at(&source));
    }
    if !args.quiet {
        stdout().write_all(checked.config.to_toml().as_bytes()).context("cannot print the configuration")?;
    }
    Ok(ExitCode::SUCCESS)
}
