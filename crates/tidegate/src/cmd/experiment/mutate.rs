//! `tidegate experiment mutate`: whether the checks of scenarios can fail.

use std::io::{Write, stdout};
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use tidegate_experiment::built_in;
use tidegate_experiment::mutate::{Fate, mutate};
use tidegate_experiment::scenario::Scenario;

use super::jobs;

/// Spoil the policies of scenarios, in the simulator, and show whether their checks notice
///
/// Three times: with admission control off, with the plainest policies everywhere, and with the arms in each other's
/// places. Exit status: 0 when at least one check failed each time, 1 when none did, 2 when a scenario is invalid.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Names of built-in scenarios, such as C1, or TOML files
    #[arg(required = true, value_name = "ID|FILE")]
    scenarios: Vec<String>,
    /// The short form of those that have one
    #[arg(long)]
    short: bool,
    /// Seed; default: the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Simulations at the same time; default: one per processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let points: Result<Vec<(String, Vec<Scenario>)>> = args.scenarios.iter().map(|name| points(args, name)).collect();
    let all = match points {
        Ok(all) => all,
        Err(error) => return Ok(super::super::bad_configuration(format!("{error:#}"))),
    };
    let mut pass = true;
    for (id, points) in all {
        let seed = args.seed.unwrap_or(points.first().map_or(1, |scenario| scenario.seed));
        for (mutation, fate) in mutate(&points, seed, jobs(args.jobs))? {
            let (word, words) = match (fate, mutation.exception(&id)) {
                (Fate::NothingToDo, None) => ("-   ", "there is nothing to spoil".to_owned()),
                (Fate::Noticed(missed), None) => ("PASS", format!("noticed by {missed} checks")),
                (Fate::Survived, Some(reason)) => ("-   ", format!("not noticed: {reason}")),
                (Fate::Survived, None) => ("FAIL", "no check notices it".to_owned()),
                (_, Some(_)) => ("FAIL", "noticed: take it off the list of exceptions".to_owned()),
            };
            pass &= word != "FAIL";
            writeln!(stdout(), "{word}  {id}, {}: {words}", mutation.name())?;
        }
    }
    Ok(if pass { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn points(args: &Args, name: &str) -> Result<(String, Vec<Scenario>)> {
    let mut scenario = built_in::find(name)?.for_simulation();
    if scenario.space.is_some() {
        return Err(anyhow!("{name}: is judged by its figure as a whole, and has no checks to notice anything"));
    }
    if args.short {
        scenario = scenario.shortened();
    }
    let points = scenario.points()?;
    Ok((scenario.id.clone(), points.into_iter().map(|point| point.scenario).collect()))
}
