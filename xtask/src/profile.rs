//! `cargo xtask profile`: what `tidegate profile` finds of a real service, beside what httperf finds.
//!
//! Apache with PHP from Debian's packages, unmodified, on core 0; the load on core 1, from one and the other in turns.
//! A script that computes: with a small file it would matter that httperf never sleeps and so need not be woken.
//!
//! httperf knows nothing of ours: its rate is stepped up by half until fewer are answered than asked, then the edge is
//! looked for by halves. The most that was answered per second, to the last reply, is the capacity.
//!
//! What both found is compared in processors: the capacity times what a request takes alone, each as the same program
//! measured it. Per second they cannot be compared everywhere: where the two cores are hyper-threads of one, httperf,
//! which never sleeps, makes each request dearer while it looks. CI probably met such a machine: 92 and 93 per second
//! of httperf around 146 of ours, at 7.4 ms alone. A service on one core that only computes fills one processor.

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
use crate::programs;

const SERVICE_CORE: usize = 0;
const LOAD_CORE: usize = 1;
/// Rows of [`programs::PROGRAMS`] without which it cannot run.
pub const NEEDS: &[&str] = &["apache2", "php", "httperf"];
/// How far the two may be apart: the median of several turns, and, in the short form, beyond what httperf found before
/// and after. Both bars are as they were when rates were compared. Others' programs take a part of the core that
/// changes; that must not fail a check.
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

/// What httperf found.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Searched {
    /// The most replies per second.
    capacity: f64,
    /// What a request takes at the first rate, where none meets another, seconds.
    cost: f64,
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
    programs::require(NEEDS)?;
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
    Ok(tell(&theirs, &ours, options.short))
}

/// Prints what was found, and judges it.
fn tell(theirs: &[Searched], ours: &[Profiled], is_short: bool) -> bool {
    let columns = theirs.len();
    let numbers: Vec<String> = (1..=columns).map(|run| run.to_string()).collect();
    println!("\n| per second | {} | median |\n|---|{}", numbers.join(" | "), "---:|".repeat(columns + 1));
    let row = |name: &str, values: &[f64], digits: usize| {
        let value = |at: usize| values.get(at).map_or_else(String::new, |value| format!("{value:.digits$}"));
        let cells: Vec<String> = (0..columns).map(value).collect();
        println!("| {name} | {} | {:.digits$} |", cells.join(" | "), median(values));
    };
    let searched = |of: fn(&Searched) -> f64| theirs.iter().map(of).collect::<Vec<_>>();
    let column = |of: fn(&Profiled) -> f64| ours.iter().map(of).collect::<Vec<_>>();
    row("httperf: capacity", &searched(|found| found.capacity), 1);
    row("alone, ms", &searched(|found| found.cost * 1e3), 2);
    let references = searched(|found| found.capacity * found.cost);
    row("processors", &references, 3);
    row("tidegate profile: capacity", &column(|found| found.capacity), 1);
    row("alone, ms", &column(|found| found.cost * 1e3), 2);
    let processors = column(|found| found.capacity * found.cost);
    row("processors", &processors, 3);
    row("knee", &column(|found| found.knee), 1);
    row("rate within the target", &column(|found| found.rate_in_target), 1);
    row("in flight within the target", &column(|found| found.within_target.unwrap_or(0) as f64), 0);
    row("in flight at the breaking point", &column(|found| found.most.unwrap_or(0) as f64), 0);
    let (is_near, apart) = if is_short {
        (is_between(median(&processors), &references, APART_SHORT), APART_SHORT)
    } else {
        (is_between(median(&processors), &[median(&references)], APART), APART)
    };
    let knees = ours.iter().all(|found| found.knee > 0.0 && found.knee <= found.capacity * (1.0 + apart));
    println!(
        "capacities in processors {:+.1} % apart (at most {:.0} %): {}",
        (median(&processors) / median(&references) - 1.0) * 1e2,
        apart * 1e2,
        if is_near { "holds" } else { "MISSED" }
    );
    println!("a knee, not beyond the capacity: {}", if knees { "holds" } else { "MISSED" });
    is_near && knees
}

/// What httperf finds.
fn independent(options: &Options, service: &Service) -> Result<Searched> {
    let put = |rate: f64| -> Result<httperf::Counted> {
        // With shorter ones the last reply's way counts too much.
        let seconds = options.step.max(2.0);
        let counted = httperf::put(service.address, PATH, rate, seconds, LOAD_CORE)?;
        println!("httperf: {rate:8.1}/s asked, {:8.1}/s answered, {} errors", counted.rate, counted.errors);
        Ok(counted)
    };
    let first = if options.short { FIRST_SHORT } else { FIRST };
    let (mut good, mut rate, mut best) = (0.0, first, 0.0_f64);
    // Cold processes, or a request that meets others, only make it longer.
    let mut cost = f64::INFINITY;
    for _ in 0..3 {
        cost = cost.min(put(first)?.reply);
    }
    loop {
        let answered = put(rate)?.rate;
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
        let answered = put(middle)?.rate;
        best = best.max(answered);
        if answered < KEPT * middle { rate = middle } else { good = middle }
    }
    Ok(Searched { capacity: best, cost })
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
    fn a_machine_on_which_httperf_makes_requests_dearer_is_no_miss_and_a_wrong_capacity_is() {
        let found = |capacity: f64, cost: f64| Profiled {
            capacity,
            rate_in_target: capacity,
            knee: capacity * 0.9,
            within_target: Some(50),
            most: Some(52),
            cost,
        };
        // The capacities that CI found; with such a cost httperf's fill one processor.
        let theirs = [(92.2, 10.8e-3), (93.0, 10.8e-3)].map(|(capacity, cost)| Searched { capacity, cost });
        assert!(tell(&theirs, &[found(146.0, 7.39e-3)], true));
        assert!(!tell(&theirs, &[found(146.0, 10.8e-3)], true));
        assert!(!tell(&theirs, &[found(92.0, 7.39e-3)], true));
    }
}
