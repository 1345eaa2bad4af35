//! `tidegate experiment`: scenario files, simulated or with real HTTP, and whether they show what they must.

mod agree;
mod page;
mod play;
mod provision;
mod run;
mod space;
mod sweep;
#[cfg(test)]
mod tests;
mod theory;

use std::io::{Write, stdout};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use tidegate_experiment::report::Mode;
use tidegate_experiment::scenario::Scenario;

pub(super) use run::PlayArgs;

/// Rerun the papers' experiments, or your own, and check what they must show.
///
/// Exit status: 0 when every check passed, 1 when one was missed, 2 when a scenario makes no sense.
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
    Provision(Box<provision::Args>),
    Theory(theory::Args),
}

/// `experiment run`.
#[derive(Debug, clap::Args)]
struct RunArgs {
    #[command(flatten)]
    what: PlayArgs,
    /// Real HTTP, through a real sentry to emulated servers, instead of the simulator
    #[arg(long)]
    live: bool,
}

/// The scenarios that the program brings along, so that it needs no other file.
const BUILT_IN: [(&str, &str); 41] = [
    ("a1.toml", include_str!("../../../../scenarios/a1.toml")),
    ("a2.toml", include_str!("../../../../scenarios/a2.toml")),
    ("a3.toml", include_str!("../../../../scenarios/a3.toml")),
    ("a4.toml", include_str!("../../../../scenarios/a4.toml")),
    ("a5.toml", include_str!("../../../../scenarios/a5.toml")),
    ("baselines.toml", include_str!("../../../../scenarios/baselines.toml")),
    ("c1.toml", include_str!("../../../../scenarios/c1.toml")),
    ("c3.toml", include_str!("../../../../scenarios/c3.toml")),
    ("c4.toml", include_str!("../../../../scenarios/c4.toml")),
    ("c5.toml", include_str!("../../../../scenarios/c5.toml")),
    ("c5-apache.toml", include_str!("../../../../scenarios/c5-apache.toml")),
    ("c6.toml", include_str!("../../../../scenarios/c6.toml")),
    ("c6-apache.toml", include_str!("../../../../scenarios/c6-apache.toml")),
    ("c7.toml", include_str!("../../../../scenarios/c7.toml")),
    ("o1.toml", include_str!("../../../../scenarios/o1.toml")),
    ("o2.toml", include_str!("../../../../scenarios/o2.toml")),
    ("o3.toml", include_str!("../../../../scenarios/o3.toml")),
    ("s1.toml", include_str!("../../../../scenarios/s1.toml")),
    ("s11.toml", include_str!("../../../../scenarios/s11.toml")),
    ("s12.toml", include_str!("../../../../scenarios/s12.toml")),
    ("s2.toml", include_str!("../../../../scenarios/s2.toml")),
    ("s3.toml", include_str!("../../../../scenarios/s3.toml")),
    ("s4.toml", include_str!("../../../../scenarios/s4.toml")),
    ("s5.toml", include_str!("../../../../scenarios/s5.toml")),
    ("s6.toml", include_str!("../../../../scenarios/s6.toml")),
    ("s7.toml", include_str!("../../../../scenarios/s7.toml")),
    ("s8.toml", include_str!("../../../../scenarios/s8.toml")),
    ("s8b.toml", include_str!("../../../../scenarios/s8b.toml")),
    ("s9.toml", include_str!("../../../../scenarios/s9.toml")),
    ("s10.toml", include_str!("../../../../scenarios/s10.toml")),
    ("w1.toml", include_str!("../../../../scenarios/w1.toml")),
    ("w2.toml", include_str!("../../../../scenarios/w2.toml")),
    ("w3.toml", include_str!("../../../../scenarios/w3.toml")),
    ("w4.toml", include_str!("../../../../scenarios/w4.toml")),
    ("w5.toml", include_str!("../../../../scenarios/w5.toml")),
    ("w6.toml", include_str!("../../../../scenarios/w6.toml")),
    ("w7.toml", include_str!("../../../../scenarios/w7.toml")),
    ("w8.toml", include_str!("../../../../scenarios/w8.toml")),
    ("v1.toml", include_str!("../../../../scenarios/v1.toml")),
    ("v2.toml", include_str!("../../../../scenarios/v2.toml")),
    ("v3.toml", include_str!("../../../../scenarios/v3.toml")),
];

/// Runs the command.
///
/// # Errors
/// When sockets or threads cannot be had, or results cannot be written.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.what {
        What::List => list().map(|()| ExitCode::SUCCESS),
        What::Run(args) => args.what.run(if args.live { Mode::Live } else { Mode::Simulated }),
        What::Theory(args) => theory::run(&args),
        What::Report(args) => page::run(&args),
        What::Agree(args) => agree::run(&args),
        What::Provision(args) => provision::run(&args),
    }
}

fn list() -> Result<()> {
    for (file, text) in BUILT_IN {
        let scenario = Scenario::parse(text, file)?;
        let arms: Vec<&str> = scenario.arms.iter().map(|arm| arm.name.as_str()).collect();
        writeln!(stdout(), "{:<10}{}", scenario.id, scenario.title)?;
        let source = if scenario.source.is_empty() { String::new() } else { format!("after {}; ", scenario.source) };
        writeln!(stdout(), "          {source}arms: {}", arms.join(", "))?;
    }
    Ok(())
}

/// Simulations at the same time.
fn jobs(wanted: Option<u16>) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    wanted.map_or_else(processors, usize::from)
}

/// A simulation and a run with real HTTP can be shown side by side.
fn folder_of(scenario: &Scenario, live: bool) -> String {
    if live { format!("{}-live", scenario.id) } else { scenario.id.clone() }
}

/// A built-in scenario by its id, or a file.
fn find(name: &str) -> Result<Scenario> {
    let mut ids = Vec::new();
    for (file, text) in BUILT_IN {
        let scenario = Scenario::parse(text, file)?;
        if scenario.id.eq_ignore_ascii_case(name) {
            return Ok(scenario);
        }
        ids.push(scenario.id);
    }
    let path = Path::new(name);
    if path.extension().is_none() && !path.exists() {
        return Err(anyhow!("there is no scenario \"{name}\": built in are {}; else give a TOML file", ids.join(", ")));
    }
    Ok(Scenario::load(path)?)
}
