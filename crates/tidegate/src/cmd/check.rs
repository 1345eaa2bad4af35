//! `tidegate check`: validates a configuration file and prints it resolved.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use tidegate_sentry::Config;
use tidegate_sentry::names::look_up;

/// Check a configuration file and print it complete, with every default and secrets hidden. With --show-secrets the
/// output is always itself a valid configuration. Warnings, and where names lead, go to standard error. Exit
/// status 2 when the file is invalid.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The configuration file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print nothing but errors and warnings
    #[arg(short, long)]
    quiet: bool,
    /// Print the admin token, too
    #[arg(long)]
    show_secrets: bool,
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
    resolve(&checked.config, args.quiet);
    if !args.quiet {
        let config = &checked.config;
        let text = if args.show_secrets { config.to_toml() } else { config.to_masked_toml() };
        stdout().write_all(text.as_bytes()).context("cannot print the configuration")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Says where names of servers and of other sentries lead from here. One that leads nowhere is no mistake: it may do so
/// later, or elsewhere.
fn resolve(config: &Config, quiet: bool) {
    match look_up(config) {
        Ok(names) => {
            for (name, found) in names {
                match found {
                    Ok(_) if quiet => {}
                    Ok(addresses) => {
                        let all: Vec<_> = addresses.iter().map(ToString::to_string).collect();
                        eprintln!("note: {name} is {}", all.join(", "));
                    }
                    Err(why) => eprintln!("warning: {name} has no addresses for now: {why}"),
                }
            }
        }
        Err(error) => eprintln!("warning: names cannot be looked up: {error}"),
    }
}
