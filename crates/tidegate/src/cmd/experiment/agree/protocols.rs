//! `tidegate experiment agree --protocol`: do experiments over HTTP/2 or gRPC show what they show over HTTP/1.1?
//!
//! Both runs of a seed have the same arrivals and the same servers. They take turns at being first, so that a machine
//! that warms up or gets busy favours neither.

use std::io::{Write, stderr, stdout};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use tidegate_experiment::built_in;
use tidegate_experiment::outcome::Outcome;
use tidegate_experiment::report::{ArmReport, ExperimentReport, Mode};
use tidegate_experiment::scenario::{Scenario, Spoken};
use tidegate_experiment::service::{self, Lab};
use tidegate_loadgen::Protocol;

use super::super::run::lab;
use super::super::{folder_of, play};
use super::Args;

/// What is accepted where the command line does not say.
const USUAL: f64 = 0.03;

/// A class that has less than this share of all is compared with this share: of a few requests more or less, nothing
/// follows.
const LEAST: f64 = 0.1;

/// A scenario both ways.
struct Pair {
    http1: Scenario,
    other: Scenario,
}

/// Runs the comparison.
///
/// # Errors
/// When sockets or threads cannot be had, or the table not be written.
pub(super) fn run(args: &Args, spoken: Spoken) -> Result<ExitCode> {
    let pairs: Result<Vec<Pair>> = args.scenarios.iter().map(|name| prepare(args, name, spoken)).collect();
    let pairs = match pairs {
        Ok(pairs) => pairs,
        Err(error) => return Ok(super::super::super::bad_configuration(format!("{error:#}"))),
    };
    let name = spoken.protocol;
    let mut table = format!(
        "| scenario | arm | class | goodput, h1 | {name} | {name} / h1 | admitted, h1 | {name} | {name} / h1 | |\n\
         |---|---|---|---:|---:|---:|---:|---:|---:|---|\n"
    );
    write!(stdout(), "{table}")?;
    let lab = lab(None, &args.out)?;
    let mut all_agree = true;
    for pair in &pairs {
        let (mut http1, mut other) = (Vec::new(), Vec::new());
        for at in 0..pair.http1.arms.len() {
            let (one, two) = both(pair, at, args, &lab)?;
            let (rows, agree) = compare(args, &pair.http1, &one, &two);
            all_agree &= agree;
            write!(stdout(), "{rows}")?;
            stdout().flush()?;
            table += &rows;
            http1.push(one);
            other.push(two);
        }
        write_report(args, &pair.http1, &folder_of(&pair.http1, true), http1)?;
        write_report(args, &pair.other, &folder_of(&pair.other, true), other)?;
    }
    let file = args.out.join(format!("agree-{name}.md"));
    std::fs::write(&file, &table).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(if all_agree { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn prepare(args: &Args, name: &str, spoken: Spoken) -> Result<Pair> {
    let mut scenario = built_in::find(name)?.for_live()?;
    let beyond = service::of(&scenario.on()).cannot_do(&scenario);
    ensure!(beyond.is_empty(), "{name}: only the simulator can do {}", beyond.join(", "));
    if args.short {
        scenario = scenario.shortened();
    }
    super::keep_comparable(&mut scenario, &args.arms, name)?;
    let say = |spoken| scenario.speaking(spoken).map_err(anyhow::Error::msg);
    Ok(Pair { http1: say(Spoken { protocol: Protocol::H1, server_protocol: None })?, other: say(spoken)? })
}

/// The runs of an arm, by HTTP/1.1 and by the other protocol.
fn both(pair: &Pair, arm: usize, args: &Args, lab: &Lab) -> Result<(ArmReport, ArmReport)> {
    let one = |scenario: &Scenario| Scenario { arms: vec![scenario.arms[arm].clone()], ..scenario.clone() };
    let (http1, other) = (one(&pair.http1), one(&pair.other));
    let play = |scenario: &Scenario, seed| play::live(scenario, &[seed], lab).map(|mut arms| arms.remove(0).runs);
    let (mut one, mut two) = (Vec::new(), Vec::new());
    let first = args.seed.unwrap_or(http1.seed);
    for at in 0..args.seeds.unwrap_or(1) {
        let seed = first.wrapping_add(at);
        if at % 2 == 0 {
            one.extend(play(&http1, seed)?);
            two.extend(play(&other, seed)?);
        } else {
            two.extend(play(&other, seed)?);
            one.extend(play(&http1, seed)?);
        }
    }
    let name = &pair.http1.arms[arm].name;
    Ok((ArmReport { name: name.clone(), runs: one }, ArmReport { name: name.clone(), runs: two }))
}

/// The rows of an arm, all classes together first, and whether all of them agree.
fn compare(args: &Args, scenario: &Scenario, http1: &ArmReport, other: &ArmReport) -> (String, bool) {
    let accepted = args.goodput.unwrap_or(USUAL);
    let all = [http1, other].map(|arm| rates(arm, scenario, None));
    let (mut rows, mut all_agree) = (String::new(), true);
    // Of a single class the same would be said twice.
    let classes: Vec<&str> = scenario.classes.iter().map(|class| class.name.as_str()).collect();
    let each = if classes.len() > 1 { &classes[..] } else { &[] };
    for class in std::iter::once(None).chain(each.iter().copied().map(Some)) {
        let [one, two] = [http1, other].map(|arm| rates(arm, scenario, class));
        let agrees = |at: usize| (two[at] - one[at]).abs() <= accepted * one[at].max(LEAST * all[0][at]);
        let agree = agrees(0) && agrees(1);
        all_agree &= agree;
        rows += &format!(
            "| {} | {} | {} | {:.1}/s | {:.1}/s | {:.3} | {:.1}/s | {:.1}/s | {:.3} | {} |\n",
            scenario.id,
            http1.name,
            class.unwrap_or("all"),
            one[0],
            two[0],
            two[0] / one[0],
            one[1],
            two[1],
            two[1] / one[1],
            if agree { "agree" } else { "DIFFER" }
        );
    }
    (rows, all_agree)
}

/// Goodput and admitted per second, over all runs.
fn rates(arm: &ArmReport, scenario: &Scenario, class: Option<&str>) -> [f64; 2] {
    let seconds = scenario.duration.as_secs_f64() * arm.runs.len() as f64;
    let totals = arm.runs.iter().map(|run| of(&run.outcome, class));
    totals.fold([0.0; 2], |sum, count| [sum[0] + count[0] as f64 / seconds, sum[1] + count[1] as f64 / seconds])
}

fn of(outcome: &Outcome, class: Option<&str>) -> [u64; 2] {
    let total = outcome.class(class).total();
    [total.good, total.admitted()]
}

/// Keeps the report; a generator that did not keep up is said as the commands of `cargo xtask test` look for it.
fn write_report(args: &Args, scenario: &Scenario, folder: &str, arms: Vec<ArmReport>) -> Result<()> {
    let runs = arms.iter().flat_map(|arm| &arm.runs);
    for warning in runs.flat_map(|run| &run.outcome.warnings) {
        writeln!(stderr(), "{folder}: warning: {warning}")?;
        if warning.starts_with("the generator was") {
            writeln!(stdout(), "disturbed: {warning}")?;
        }
    }
    let report = ExperimentReport { scenario: scenario.clone(), mode: Mode::Live, short: args.short, arms };
    report.write(&args.out.join(folder))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
    use tidegate_experiment::outcome::StreamOutcome;
    use tidegate_experiment::report::RunReport;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &[&str]) -> Args {
        Cli::try_parse_from([&["agree"], line].concat()).expect("good options").args
    }

    /// An arm that admitted so many of each class, all in time.
    fn arm(scenario: &Scenario, admitted: [u64; 3]) -> ArmReport {
        let stream = |(class, admitted): (&tidegate_experiment::scenario::Class, u64)| {
            let mut course = tidegate_workload::Course::default();
            (0..admitted).for_each(|_| course.answered(Duration::ZERO, Duration::ZERO, Duration::from_secs(1)));
            StreamOutcome { name: class.name.clone(), class: class.name.clone(), course }
        };
        let streams = scenario.classes.iter().zip(admitted).map(stream).collect();
        let outcome = Outcome { streams, ..Outcome::default() };
        ArmReport { name: "sentry".to_owned(), runs: vec![RunReport { seed: 1, outcome, checks: Vec::new() }] }
    }

    #[test]
    fn three_in_a_hundred_agree_and_a_handful_is_no_difference() {
        let scenario = built_in::find("C1").expect("it is built in");
        let args = args(&["C1", "--protocol", "h2"]);
        for (other, agrees) in [
            ([1000, 400, 20], true),
            ([1029, 400, 20], true),
            ([1031, 400, 20], false),
            ([1000, 413, 20], false),
            // Of a class that hardly gets in.
            ([1000, 400, 24], true),
            ([1000, 400, 25], false),
        ] {
            let (one, two) = (arm(&scenario, [1000, 400, 20]), arm(&scenario, other));
            let (rows, agree) = compare(&args, &scenario, &one, &two);
            assert_eq!((agree, rows.contains("DIFFER")), (agrees, !agrees), "{rows}");
            assert_eq!(rows.lines().count(), 4, "{rows}");
        }
    }

    #[test]
    fn what_a_service_does_not_speak_is_refused() {
        let spoken = |protocol| Spoken { protocol, server_protocol: None };
        let args = args(&["C1"]);
        let problem = |name, protocol| match prepare(&args, name, spoken(protocol)) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        assert_eq!(problem("C1", Protocol::Grpc), "");
        assert_eq!(problem("apache-3x", Protocol::H2), "");
        assert!(problem("apache-3x", Protocol::Grpc).contains("live.protocol is not \"grpc\""));
        assert!(problem("V1-flood", Protocol::H2).contains("live.protocol is only for"));
    }
}
