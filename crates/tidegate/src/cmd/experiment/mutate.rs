//! `tidegate experiment mutate`: whether the checks of scenarios can fail.

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use tidegate_experiment::built_in;
use tidegate_experiment::mutate::{Fate, mutate};
use tidegate_experiment::scenario::{Point, Space};
use tidegate_workload::parse_duration;

use super::jobs;

/// Spoil the policies of scenarios, in the simulator, and show whether their checks notice
///
/// Three times: with admission control off, with the plainest policies everywhere, and with the arms in each other's
/// places. Exit status: 0 when each time at least one check fails that holds otherwise, or nothing could be noticed, 1
/// when none does, 2 when a scenario is invalid.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Names of built-in scenarios, such as C1, or TOML files
    #[arg(required = true, value_name = "ID|FILE")]
    scenarios: Vec<String>,
    /// The short form of those that have one with checks, with all arms
    #[arg(long)]
    short: bool,
    /// Only their beginning, such as 200s; checks that reach beyond it end there
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    until: Option<Duration>,
    /// Seed; default: the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Simulations at the same time; default: one per processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let all: Result<Vec<Spoilable>> = args.scenarios.iter().map(|name| Spoilable::of(args, name)).collect();
    let all = match all {
        Ok(all) => all,
        Err(error) => return Ok(super::super::bad_configuration(format!("{error:#}"))),
    };
    let mut pass = true;
    for Spoilable { id, space, points, seed } in all {
        for (mutation, fate) in mutate(space.as_ref(), &points, seed, jobs(args.jobs))? {
            let (word, words) = match fate {
                Fate::DoesNotApply(why) => ("-   ", format!("does not apply: {}", mutation.reason(why))),
                Fate::Survived => ("FAIL", "no check notices it".to_owned()),
                Fate::Noticed(failed) => ("PASS", format!("noticed by {failed} checks")),
            };
            pass &= word != "FAIL";
            writeln!(stdout(), "{word}  {id}, {}: {words}", mutation.name())?;
        }
    }
    Ok(if pass { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A scenario that is about to be spoilt.
struct Spoilable {
    id: String,
    space: Option<Space>,
    points: Vec<Point>,
    seed: u64,
}

impl Spoilable {
    fn of(args: &Args, name: &str) -> Result<Spoilable> {
        let mut scenario = built_in::find(name)?.for_simulation();
        if args.short {
            // A single arm could not change places: the short form leaves out arms for the sake of real time. And of
            // a space some loads are enough to see that it fails.
            if let Some(short) = &mut scenario.short {
                short.arms.clear();
                short.every = short.every.map(|every| every * 3);
            }
            let short = scenario.shortened();
            if scenario.expects.is_empty() || !short.expects.is_empty() {
                scenario = short;
            }
        }
        if let Some(end) = args.until {
            scenario = scenario.until(end);
        }
        let seed = args.seed.unwrap_or(scenario.seed);
        Ok(Spoilable { id: scenario.id.clone(), space: scenario.space.clone(), points: scenario.points()?, seed })
    }
}
