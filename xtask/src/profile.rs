//! `cargo xtask profile`: what `tidegate profile` finds of a real service, beside what httperf finds.
//!
//! Apache with PHP from Debian's packages, unmodified, on core 0; the load on core 1, from one and the other in turns.
//! A script that computes: with a small file it would matter that httperf never sleeps and so need not be woken.
//!
//! httperf knows nothing of ours: its rate is stepped up by half until fewer are answered than asked, then the edge is
//! looked for by halves. The most that was answered per second, to the last reply, is the capacity.

mod httperf;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use toml::Table;

use crate::apache::{self, SCRIPTS};
use crate::args::Args;
use crate::bench::machine;
use crate::bench::report;
use crate::bench::service::{Service, pin};
use crate::bench::stop::Scratch;
use crate::command;
use crate::programs::PROGRAMS;

const SERVICE_CORE: usize = 0;
const LOAD_CORE: usize = 1;
const NEEDS: &[&str] = &["apache2", "php", "httperf"];
/// How far the two may be apart: the median of several turns, and, in the short form, beyond what httperf found before
/// and after. Others' programs take a part of the core that changes; that must not fail a check.
const APART: f64 = 0.1;
const APART_SHORT: f64 = 0.25;
/// A service that answers so large a share of what is asked keeps up.
const KEPT: f64 = 0.95;

/// What is asked for, and what `tidegate profile` is to hold.
const NAME: &str = "script";
const PATH: &str = SCRIPTS[1].path;
const TARGET: &str = "500ms";
/// httperf's first rate, requests per second; the short form begins where any machine still follows.
const FIRST: f64 = 10.0;
const FIRST_SHORT: f64 = 30.0;

/// What was asked for.
struct Options {
    /// Times that `tidegate profile` runs; httperf runs once more in the short form.
    runs: usize,
    /// Seconds of a step, of both.
    step: f64,
    out: Option<PathBuf>,
    short: bool,
}

/// What one run of `tidegate profile` found of a kind.
#[derive(Debug, Clone, PartialEq)]
struct Profiled {
    capacity: f64,
    rate_in_target: f64,
    knee: f64,
    within_target: Option<i64>,
    most: Option<i64>,
    cost: f64,
}

/// Measures, prints a table, and fails when a bar is missed.
///
/// # Errors
/// When a program is missing or does not do its part; a missed bar is an exit status of 1.
pub fn run(args: Args) -> Result<ExitCode> {
    let options = Options::take(args)?;
    if std::thread::available_parallelism()?.get() < 2 {
        bail!("this needs two cores: one for the service, one for the load");
    }
    if let Some(missing) = PROGRAMS.iter().find(|program| NEEDS.contains(&program.name) && !program.is_present()) {
        bail!("{} is missing (Debian package {}); run `cargo xtask programs`", missing.name, missing.package);
    }
    command::build_tidegate()?;
    let scratch = Scratch::new("profile")?;
    let service = apache::start(SERVICE_CORE, scratch.path())?;
    let facts: Vec<String> = machine::facts().into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
    println!("{}", facts.join("; "));
    let holds = compare(&options, &service, scratch.path())?;
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Options {
    fn take(mut args: Args) -> Result<Self> {
        let short = args.switch("--short");
        let options = Self {
            runs: args.option("--runs")?.unwrap_or(if short { 1 } else { 3 }),
            step: args.option("--step")?.unwrap_or(if short { 1.0 } else { 3.0 }),
            out: args.option("--out")?,
            short,
        };
        args.finish()?;
        if options.runs == 0 || options.step < 0.5 {
            bail!("--runs is at least 1 and --step at least 0.5");
        }
        Ok(options)
    }
}

/// Both in turns; whether every bar is held.
fn compare(options: &Options, service: &Service, dir: &Path) -> Result<bool> {
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        theirs.push(independent(options, service)?);
        ours.push(profile(options, service, dir)?);
    }
    if options.short {
        theirs.push(independent(options, service)?);
    }
    println!("\n{}: http://{}{}, target {}, steps of {} s", NAME, service.address, PATH, TARGET, options.step);
    let columns = theirs.len();
    let numbers: Vec<String> = (1..=columns).map(|run| run.to_string()).collect();
    println!("\n| per second | {} | median |\n|---|{}", numbers.join(" | "), "---:|".repeat(columns + 1));
    let row = |name: &str, values: &[f64], digits: usize| {
        let value = |at: usize| values.get(at).map_or_else(String::new, |value| format!("{value:.digits$}"));
        let cells: Vec<String> = (0..columns).map(value).collect();
        println!("| {name} | {} | {:.digits$} |", cells.join(" | "), median(values));
    };
    row("httperf: capacity", &theirs, 1);
    let column = |of: fn(&Profiled) -> f64| ours.iter().map(of).collect::<Vec<_>>();
    let capacities = column(|found| found.capacity);
    row("tidegate profile: capacity", &capacities, 1);
    row("knee", &column(|found| found.knee), 1);
    row("rate within the target", &column(|found| found.rate_in_target), 1);
    row("in flight within the target", &column(|found| found.within_target.unwrap_or(0) as f64), 0);
    row("in flight at the breaking point", &column(|found| found.most.unwrap_or(0) as f64), 0);
    row("alone, ms", &column(|found| found.cost * 1e3), 2);
    let (is_near, apart) = if options.short {
        (is_between(median(&capacities), &theirs, APART_SHORT), APART_SHORT)
    } else {
        (is_between(median(&capacities), &[median(&theirs)], APART), APART)
    };
    let knees = ours.iter().all(|found| found.knee > 0.0 && found.knee <= found.capacity * (1.0 + apart));
    println!(
        "capacities {:+.1} % apart (at most {:.0} %): {}",
        (median(&capacities) / median(&theirs) - 1.0) * 1e2,
        apart * 1e2,
        if is_near { "holds" } else { "MISSED" }
    );
    println!("a knee, not beyond the capacity: {}", if knees { "holds" } else { "MISSED" });
    Ok(is_near && knees)
}

/// What httperf finds: the most replies per second.
fn independent(options: &Options, service: &Service) -> Result<f64> {
    let put = |rate: f64| -> Result<f64> {
        // With shorter ones the last reply's way counts too much.
        let seconds = options.step.max(2.0);
        let counted = httperf::put(service.address, PATH, rate, seconds, LOAD_CORE)?;
        println!("httperf: {rate:8.1}/s asked, {:8.1}/s answered, {} errors", counted.rate, counted.errors);
        Ok(counted.rate)
    };
    let first = if options.short { FIRST_SHORT } else { FIRST };
    let (mut good, mut rate, mut best) = (0.0, first, 0.0_f64);
    loop {
        let answered = put(rate)?;
        best = best.max(answered);
        if answered < KEPT * rate {
            break;
        }
        good = rate;
        rate *= 1.5;
        if rate > 1e6 {
            bail!("httperf does not fill {}", PATH);
        }
    }
    // Far beyond it a service does less: what it does just beyond it is its capacity.
    for _ in 0..if options.short { 2 } else { 4 } {
        let middle = (good + rate) / 2.0;
        let answered = put(middle)?;
        best = best.max(answered);
        if answered < KEPT * middle { rate = middle } else { good = middle }
    }
    Ok(best)
}

fn profile(options: &Options, service: &Service, dir: &Path) -> Result<Profiled> {
    let folder = options.out.as_deref().unwrap_or(dir);
    std::fs::create_dir_all(folder)?;
    let out = folder.join(format!("{}.toml", NAME));
    let mut tidegate = Command::new(command::tidegate());
    tidegate.args(["profile", "--to", &format!("{}=http://{}{}", NAME, service.address, PATH)]);
    tidegate.args(["--target", TARGET, "--step", &format!("{}ms", options.step * 1e3)]);
    if options.short {
        tidegate.args(["--loop", "closed"]);
    }
    tidegate.arg("--out").arg(&out);
    pin(&mut tidegate, LOAD_CORE);
    println!("{}", command::output(&mut tidegate)?);
    let text = std::fs::read_to_string(&out).with_context(|| format!("cannot read {}", out.display()))?;
    read(&text).with_context(|| format!("{} is no profile", out.display()))
}

fn read(text: &str) -> Result<Profiled> {
    let file: Table = text.parse()?;
    let kind = file.get("measured").and_then(|measured| measured.get("type")?.get(0));
    let kind = kind.context("it has no [[measured.type]]")?;
    let number = |value: Option<&toml::Value>| value.and_then(toml::Value::as_float);
    let of = |name: &str| number(kind.get(name)).with_context(|| format!("it has no number {name}"));
    Ok(Profiled {
        capacity: of("capacity")?,
        rate_in_target: of("rate_in_target")?,
        knee: number(kind.get("knee").and_then(|knee| knee.get(0))).context("it has no knee")?,
        within_target: kind.get("max_conn").and_then(toml::Value::as_integer),
        most: kind.get("most").and_then(toml::Value::as_integer),
        cost: of("cost")?,
    })
}

/// Whether a value is within the range of others, or so near to it.
fn is_between(value: f64, others: &[f64], apart: f64) -> bool {
    let least = others.iter().copied().fold(f64::INFINITY, f64::min);
    let most = others.iter().copied().fold(0.0, f64::max);
    value >= least * (1.0 - apart) && value <= most * (1.0 + apart)
}

fn median(values: &[f64]) -> f64 {
    report::median(values.iter().copied()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_read_and_what_is_missing_is_said() {
        let text = "target = \"500ms\"\n[[max_conn]]\nname = \"script\"\nwithin_target = 40.0\nmost = 64.0\n\
                    [measured]\nstep = 1.0\nseed = 1\n[[measured.type]]\nname = \"script\"\ncapacity = 101.5\n\
                    rate_in_target = 90.0\nmax_conn = 40\nmost = 64\nknee = [80.0, 0.02]\ncost = 0.01\n";
        let found = read(text).unwrap();
        assert_eq!((found.capacity, found.knee, found.within_target, found.most), (101.5, 80.0, Some(40), Some(64)));
        assert!(read("").unwrap_err().to_string().contains("measured.type"));
        assert!(read(&text.replace("capacity", "capacities")).unwrap_err().to_string().contains("capacity"));
    }

    #[test]
    fn bars_are_held_on_both_sides() {
        assert!(is_between(109.0, &[100.0], 0.1) && is_between(91.0, &[100.0], 0.1));
        assert!(!is_between(111.0, &[100.0], 0.1) && !is_between(89.0, &[100.0], 0.1));
        assert!(is_between(80.0, &[60.0, 100.0], 0.1) && !is_between(50.0, &[60.0, 100.0], 0.1));
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[1.0, 3.0]), median(&[])), (2.0, 2.0, 0.0));
    }

    #[test]
    fn every_need_is_in_the_table() {
        for name in NEEDS {
            assert!(PROGRAMS.iter().any(|program| program.name == *name), "{name}");
        }
    }
}
