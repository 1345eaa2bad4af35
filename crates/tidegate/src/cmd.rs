//! The subcommands of `tidegate`, one file each.

mod check;
mod confine;
mod control;
mod demo;
mod emulate;
mod experiment;
mod fit;
mod key;
mod load;
mod nucleus;
mod operator;
mod police;
mod profile;
mod replay;
mod run;
mod simulate;
mod top;
mod tournament;
mod upgrade;

use std::process::ExitCode;

use anyhow::Result;
use tracing_subscriber::filter::LevelFilter;

use crate::log;

/// The subcommands of `tidegate`.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Protect a service.
    Run(run::Args),
    Upgrade(upgrade::Args),
    /// Check a configuration file and print what it means.
    Check(check::Args),
    Load(load::Args),
    Top(top::Args),
    Nucleus(nucleus::Args),
    #[command(hide = true)]
    Police(police::Args),
    Control(control::Args),
    Operator(operator::Args),
    Key(key::Args),
    Emulate(emulate::Args),
    Demo(demo::Args),
    Simulate(simulate::Args),
    Experiment(experiment::Args),
    Fit(fit::Args),
    Profile(profile::Args),
    Replay(Box<replay::Args>),
    Tournament(tournament::Args),
}

impl Command {
    /// The default level of the log: `INFO` for commands that run a service, `WARN` for commands that compute a figure.
    pub fn log_level(&self) -> LevelFilter {
        match self {
            Command::Run(_) | Command::Nucleus(_) | Command::Control(_) | Command::Operator(_) => LevelFilter::INFO,
            _ => LevelFilter::WARN,
        }
    }

    /// Runs the command.
    ///
    /// # Errors
    /// When it failed while running.
    pub fn run(self) -> Result<ExitCode> {
        match self {
            Command::Run(args) => run::run(args),
            Command::Upgrade(args) => upgrade::run(&args),
            Command::Check(args) => check::run(&args),
            Command::Load(args) => load::run(args),
            Command::Top(args) => top::run(args),
            Command::Nucleus(args) => nucleus::run(args),
            Command::Police(police::Args {}) => police::run(),
            Command::Control(args) => control::run(&args),
            Command::Operator(args) => operator::run(args),
            Command::Key(args) => key::run(&args),
            Command::Emulate(args) => emulate::run(&args),
            Command::Demo(args) => demo::run(args),
            Command::Simulate(args) => simulate::run(&args),
            Command::Experiment(args) => experiment::run(args),
            Command::Fit(args) => fit::run(&args),
            Command::Profile(args) => profile::run(&args),
            Command::Replay(args) => replay::run(&args),
            Command::Tournament(args) => tournament::run(&args),
        }
    }
}

/// Prints the configuration error and returns the exit status for it, 2.
fn bad_configuration(message: impl std::fmt::Display) -> ExitCode {
    log::complain(message);
    ExitCode::from(2)
}
