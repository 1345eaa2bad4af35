//! `tidegate experiment agree`: does the simulator say what real HTTP shows?

mod protocols;

use std::io::{Write, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use tidegate_experiment::built_in;
use tidegate_experiment::outcome::Outcome;
use tidegate_experiment::report::{ArmReport, ExperimentReport, Mode};
use tidegate_experiment::scenario::{Arm, Scenario, ServerProtocol, Spoken};
use tidegate_loadgen::Protocol;

use super::run::lab;
use super::{folder_of, jobs, play};

/// Compare the simulator with real HTTP: the same scenarios, run both ways Prints a Markdown table of goodput and of
/// the 95th percentile of the response times of admitted requests. Exit status: 0 when all agree, 1 when one does
/// not, 2 when a scenario is invalid. Each arm runs in real time; baselines that refuse nothing are left out. With
/// --protocol, real HTTP is compared with itself: HTTP/1.1 with another protocol, goodput and admitted by class.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Names of built-in scenarios, or TOML files
    #[arg(value_name = "ID|FILE", default_values = ["C1", "C5", "O1", "O2", "O3"])]
    scenarios: Vec<String>,
    /// The short form: the same rates in less time
    #[arg(long)]
    short: bool,
    /// Seed of the live run and of the first simulated run; default: the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Number of simulated runs, whose mean is compared; with --protocol, of runs by each protocol; default: 8, with
    /// --protocol 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// Compare HTTP/1.1 with this protocol of the clients, h2 or grpc; h1 shows how far two runs of the same differ
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<Protocol>,
    /// With --protocol: what the sentry then speaks with servers, h1 or h2; default: h1, with grpc h2
    #[arg(long, value_name = "PROTOCOL", requires = "protocol")]
    servers: Option<ServerProtocol>,
    /// Relative difference of goodput that is accepted, with --protocol also of what is admitted of a class; default:
    /// 0.05, with --protocol 0.03
    #[arg(long, value_name = "SHARE")]
    goodput: Option<f64>,
    /// Relative difference of the 95th percentile that is accepted
    #[arg(long, value_name = "SHARE", default_value_t = 0.15)]
    p95: f64,
    /// Compare only these arms
    #[arg(long = "arm", value_name = "NAME")]
    arms: Vec<String>,
    /// Folder for the table and for the reports of both kinds of runs
    #[arg(long, value_name = "DIR", default_value = "target/experiments")]
    out: PathBuf,
}

/// What is compared of a run.
#[derive(Debug, Clone, Copy)]
struct Figures {
    /// Answers within the target per second.
    goodput: f64,
    /// 95th percentile of the response times of the admitted, seconds.
    p95: f64,
}

/// Runs the command.
///
/// # Errors
/// When sockets or threads cannot be had, or the table not be written.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(protocol) = args.protocol {
        return protocols::run(args, Spoken { protocol, server_protocol: args.servers });
    }
    let scenarios: Result<Vec<Scenario>> = args.scenarios.iter().map(|name| args.prepare(name)).collect();
    let scenarios = match scenarios {
        Ok(scenarios) => scenarios,
        Err(error) => return Ok(super::super::bad_configuration(format!("{error:#}"))),
    };
    let mut table = String::from(
        "| scenario | arm | goodput, simulated | live | live / simulated | p95, simulated | live | live / simulated | |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---|\n",
    );
    write!(stdout(), "{table}")?;
    let mut all_agree = true;
    let lab = lab(None, &args.out)?;
    for scenario in &scenarios {
        let (mut simulated, mut live) = (Vec::new(), Vec::new());
        for arm in &scenario.arms {
            let one = Scenario { arms: vec![arm.clone()], ..scenario.clone() };
            simulated.extend(play::simulate(&one, &args.seeds(scenario), jobs(None))?);
            live.extend(play::live(&one, &args.seeds(scenario)[..1], &lab)?);
            let (row, agrees) = args.compare(&one, simulated.last(), live.last());
            all_agree &= agrees;
            write!(stdout(), "{row}")?;
            stdout().flush()?;
            table += &row;
        }
        args.write(scenario, Mode::Simulated, simulated)?;
        args.write(scenario, Mode::Live, live)?;
    }
    let file = args.out.join("agree.md");
    std::fs::write(&file, &table).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(if all_agree { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Args {
    fn prepare(&self, name: &str) -> Result<Scenario> {
        let mut scenario = built_in::find(name)?;
        if self.short {
            scenario = scenario.shortened();
        }
        keep_comparable(&mut scenario, &self.arms, name)?;
        Ok(scenario)
    }

    fn seeds(&self, scenario: &Scenario) -> Vec<u64> {
        let first = self.seed.unwrap_or(scenario.seed);
        (0..self.seeds.unwrap_or(8)).map(|n| first.wrapping_add(n)).collect()
    }

    /// A row of the table, and whether both ways agree.
    fn compare(&self, one: &Scenario, simulated: Option<&ArmReport>, live: Option<&ArmReport>) -> (String, bool) {
        let (simulated, live) = (mean(simulated, one), mean(live, one));
        let (goodput, p95) = (live.goodput / simulated.goodput, live.p95 / simulated.p95);
        let agrees = (goodput - 1.0).abs() <= self.goodput.unwrap_or(0.05) && (p95 - 1.0).abs() <= self.p95;
        let row = format!(
            "| {} | {} | {:.1}/s | {:.1}/s | {goodput:.3} | {:.0} ms | {:.0} ms | {p95:.3} | {} |\n",
            one.id,
            one.arms[0].name,
            simulated.goodput,
            live.goodput,
            simulated.p95 * 1e3,
            live.p95 * 1e3,
            if agrees { "agree" } else { "DIFFER" }
        );
        (row, agrees)
    }

    /// Keeps the reports too; what a live run warns of, or misses, is said at once.
    fn write(&self, scenario: &Scenario, mode: Mode, arms: Vec<ArmReport>) -> Result<()> {
        let report = ExperimentReport { scenario: scenario.clone(), mode, short: self.short, arms };
        let worth_saying = |line: &&str| line.starts_with("FAIL") || line.starts_with("warning");
        for line in report.text().lines().filter(worth_saying) {
            writeln!(stderr(), "{} {}: {line}", scenario.id, mode.name())?;
        }
        report.write(&self.out.join(folder_of(scenario, mode == Mode::Live)))?;
        Ok(())
    }
}

/// Leaves out arms that refuse nothing, and those that are not among `wanted`.
fn keep_comparable(scenario: &mut Scenario, wanted: &[String], name: &str) -> Result<()> {
    let refuses = |arm: &Arm| arm.admission.get("policy").and_then(|policy| policy.as_str()) != Some("none");
    scenario.arms.retain(|arm| refuses(arm) && (wanted.is_empty() || wanted.contains(&arm.name)));
    anyhow::ensure!(!scenario.arms.is_empty(), "{name}: no arm refuses anything, so there is nothing to compare");
    Ok(())
}

/// Over all runs of the arm.
fn mean(arm: Option<&ArmReport>, scenario: &Scenario) -> Figures {
    let runs = arm.map_or(&[][..], |arm| &arm.runs);
    let each: Vec<Figures> = runs.iter().map(|run| figures(&run.outcome, scenario)).collect();
    let mean = |value: fn(&Figures) -> f64| each.iter().map(value).sum::<f64>() / each.len() as f64;
    Figures { goodput: mean(|f| f.goodput), p95: mean(|f| f.p95) }
}

fn figures(outcome: &Outcome, scenario: &Scenario) -> Figures {
    let total = outcome.class(None).total();
    Figures {
        goodput: total.good as f64 / scenario.duration.as_secs_f64(),
        p95: total.responses.quantile(0.95).unwrap_or(f64::NAN),
    }
}
