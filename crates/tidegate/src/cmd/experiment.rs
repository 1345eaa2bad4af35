//! `tidegate experiment`: scenario files, simulated or with real HTTP, and whether they show what they must.

mod agree;
mod apache;
mod metastable;
mod mutate;
mod page;
mod play;
mod provision;
mod run;
#[cfg(test)]
mod tests;
mod theory;

use std::io::{Write, stdout};
use std::process::ExitCode;

use anyhow::Result;
use tidegate_experiment::built_in;
use tidegate_experiment::report::Mode;
use tidegate_experiment::scenario::{Scenario, ServerProtocol, Spoken};
use tidegate_loadgen::Protocol;

pub(super) use run::PlayArgs;

/// Rerun the papers' experiments, or your own, and check their expected results.
///
/// Exit status: 0 when every check passed, 1 when one failed, 2 when a scenario is invalid.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// List the scenarios that are built in
    List,
    /// Run scenarios
    Run(RunArgs),
    Report(page::Args),
    Agree(agree::Args),
    Mutate(mutate::Args),
    Provision(Box<provision::Args>),
    Theory(theory::Args),
    #[command(hide = true)]
    Apache(apache::Args),
}

/// Runs of each arm in the simulator, unless the command line says otherwise: enough for a mean to be judged.
const SEEDS: u64 = 10;

/// `experiment run`.
#[derive(Debug, clap::Args)]
struct RunArgs {
    #[command(flatten)]
    what: PlayArgs,
    /// Use real HTTP, through a real sentry to emulated servers, instead of the simulator
    #[arg(long)]
    live: bool,
    /// With --live: what clients speak, h1, h2 or grpc, in place of what the scenario says
    #[arg(long, value_name = "PROTOCOL", requires = "live")]
    protocol: Option<Protocol>,
    /// With --live: what the sentry speaks with servers, h1 or h2, in place of what the scenario says; default: h1,
    /// with --protocol grpc h2
    #[arg(long, value_name = "PROTOCOL", requires = "protocol")]
    servers: Option<ServerProtocol>,
}

/// Runs the command.
///
/// # Errors
/// When sockets or threads cannot be had, or results cannot be written.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.what {
        What::List => list().map(|()| ExitCode::SUCCESS),
        What::Run(args) => {
            let (mode, seeds) = if args.live { (Mode::Live, 1) } else { (Mode::Simulated, SEEDS) };
            let spoken = args.protocol.map(|protocol| Spoken { protocol, server_protocol: args.servers });
            args.what.run(mode, seeds, spoken)
        }
        What::Theory(args) => theory::run(&args),
        What::Report(args) => page::run(&args),
        What::Agree(args) => agree::run(&args),
        What::Mutate(args) => mutate::run(&args),
        What::Provision(args) => provision::run(&args),
        What::Apache(args) => apache::run(&args),
    }
}

fn list() -> Result<()> {
    for scenario in built_in::all()? {
        let arms: Vec<&str> = scenario.arms.iter().map(|arm| arm.name.as_str()).collect();
        writeln!(stdout(), "{:<10}{}", scenario.id, scenario.title)?;
        let source = if scenario.source.is_empty() { String::new() } else { format!("after {}; ", scenario.source) };
        writeln!(stdout(), "          {source}arms: {}", arms.join(", "))?;
    }
    Ok(())
}

/// Simulations at the same time.
pub(super) fn jobs(wanted: Option<u16>) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    wanted.map_or_else(processors, usize::from)
}

/// A simulation and a run with real HTTP can be shown side by side.
fn folder_of(scenario: &Scenario, live: bool) -> String {
    let id = &scenario.id;
    match scenario.spoken().protocol {
        _ if !live => id.clone(),
        Protocol::H1 => format!("{id}-live"),
        protocol => format!("{id}-live-{protocol}"),
    }
}
