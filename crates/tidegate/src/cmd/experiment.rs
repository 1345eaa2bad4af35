//! `tidegate experiment`: scenario files, simulated or with real HTTP, and whether they show what they must.

mod agree;
mod page;
mod play;
#[cfg(test)]
mod tests;

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use tidegate_sim::Played;
use tidegate_testbed::report::{ExperimentReport, Mode};
use tidegate_workload::scenario::Scenario;

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
}

/// What to run, and how.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Names of built-in scenarios, such as C1, or TOML files
    #[arg(required = true, value_name = "ID|FILE")]
    scenarios: Vec<String>,
    /// Real HTTP, through a real sentry to emulated servers, instead of the simulator
    #[arg(long)]
    live: bool,
    /// The short form: the same rates in less time, without the checks that need more
    #[arg(long)]
    short: bool,
    /// Only these arms
    #[arg(long = "arm", value_name = "NAME")]
    arms: Vec<String>,
    /// Seed of the first run; default: the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Runs of each arm, with seeds that count upwards
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Simulations at the same time; default: one per processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// Folder for the results; of several scenarios, each gets a folder in it
    #[arg(long, value_name = "DIR", default_value = "target/experiments")]
    out: PathBuf,
}

/// The scenarios that the program brings along, so that it needs no other file.
const BUILT_IN: [(&str, &str); 7] = [
    ("c1.toml", include_str!("../../../../scenarios/c1.toml")),
    ("c3.toml", include_str!("../../../../scenarios/c3.toml")),
    ("c5.toml", include_str!("../../../../scenarios/c5.toml")),
    ("c6.toml", include_str!("../../../../scenarios/c6.toml")),
    ("o1.toml", include_str!("../../../../scenarios/o1.toml")),
    ("o2.toml", include_str!("../../../../scenarios/o2.toml")),
    ("o3.toml", include_str!("../../../../scenarios/o3.toml")),
];

/// Runs the command.
///
/// # Errors
/// When sockets or threads cannot be had, or results cannot be written.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.what {
        What::List => list().map(|()| ExitCode::SUCCESS),
        What::Run(args) => args.run(),
        What::Report(args) => page::run(&args),
        What::Agree(args) => agree::run(&args),
    }
}

fn list() -> Result<()> {
    for (file, text) in BUILT_IN {
        let scenario = Scenario::parse(text, file)?;
        let arms: Vec<&str> = scenario.arms.iter().map(|arm| arm.name.as_str()).collect();
        writeln!(stdout(), "{:<4} {}", scenario.id, scenario.title)?;
        let source = if scenario.source.is_empty() { String::new() } else { format!("after {}; ", scenario.source) };
        writeln!(stdout(), "     {source}arms: {}", arms.join(", "))?;
    }
    Ok(())
}

impl RunArgs {
    fn run(&self) -> Result<ExitCode> {
        // All are read before the first runs: a slip in the last must not cost the time of the others.
        let scenarios: Result<Vec<Scenario>> = self.scenarios.iter().map(|name| self.prepare(name)).collect();
        let scenarios = match scenarios {
            Ok(scenarios) => scenarios,
            Err(error) => {
                eprintln!("{error:#}");
                return Ok(ExitCode::from(2));
            }
        };
        let mut pass = true;
        for scenario in scenarios {
            let folder = self.out.join(folder_of(&scenario, self.live));
            let report = self.play(scenario)?;
            write!(stdout(), "{}", report.text())?;
            let files = report.write(&folder)?;
            let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            writeln!(stdout(), "written: {}\n", names.join(", "))?;
            pass &= report.pass();
        }
        let file = page::write(&self.out, None)?;
        writeln!(stdout(), "all on one page: {}", file.display())?;
        Ok(if pass { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The scenario as it is to be run. Its policies are tried too, so that nothing fails halfway for a wrong key.
    fn prepare(&self, name: &str) -> Result<Scenario> {
        let mut scenario = find(name)?;
        if self.short {
            scenario = scenario.shortened();
        }
        if !self.arms.is_empty() {
            let known: Vec<String> = scenario.arms.iter().map(|arm| arm.name.clone()).collect();
            if let Some(unknown) = self.arms.iter().find(|arm| !known.contains(arm)) {
                return Err(anyhow!("{name}: there is no arm \"{unknown}\"; its arms are {}", known.join(", ")));
            }
            scenario.arms.retain(|arm| self.arms.contains(&arm.name));
        }
        for arm in &scenario.arms {
            Played::new(&scenario, arm).with_context(|| name.to_owned())?;
        }
        Ok(scenario)
    }

    fn play(&self, scenario: Scenario) -> Result<ExperimentReport> {
        let first = self.seed.unwrap_or(scenario.seed);
        let seeds: Vec<u64> = (0..self.seeds).map(|n| first.wrapping_add(n)).collect();
        let mode = if self.live { Mode::Live } else { Mode::Simulated };
        let arms = match mode {
            Mode::Live => play::live(&scenario, &seeds)?,
            Mode::Simulated => play::simulate(&scenario, &seeds, self.jobs())?,
        };
        Ok(ExperimentReport { scenario, mode, short: self.short, arms })
    }

    fn jobs(&self) -> usize {
        jobs(self.jobs)
    }
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
