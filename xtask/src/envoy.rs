//! `cargo xtask envoy`: tidegate inside Envoy, by the configuration that docs/envoy.md shows.
//!
//! *Overload.* An emulated service gets three times what it can do: through Envoy alone, with Envoy's own adaptive
//! concurrency, and with tidegate inside; and, beside these, with tidegate in Envoy's place. A tenth is important. Each
//! time everything is started anew, and half of a capacity comes first.
//!
//! *Cost.* Before an nginx with a small file: what a request costs in processor time, of Envoy and of the sentry, and
//! how much longer it takes, as Envoy asks before and after.
//!
//! Envoy's program is in `ENVOY`, or in the path: it is no package of Debian's.

mod cost;
mod overload;
mod shown;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::args::Args;
use crate::bench::machine;
use crate::bench::report::median;
use crate::bench::stop::Scratch;
use crate::command::{self, find_program};

/// Envoy, and the sentry.
const PROXY_CORE: usize = 0;
/// The load, and the service, which mostly waits or serves a small file.
const OTHER_CORE: usize = 1;

/// One thing that must hold: in words with its bar, what was measured, and whether it held.
type Check = (String, String, bool);

/// Runs everything, prints what was found, and fails when a bar is missed.
///
/// # Errors
/// When a program is missing or does not do its part; a missed bar is an exit status of 1.
pub fn run(mut args: Args) -> Result<ExitCode> {
    let short = args.switch("--short");
    let runs: usize = args.option("--runs")?.unwrap_or(if short { 1 } else { 3 });
    args.finish()?;
    if runs == 0 {
        bail!("--runs 0 leaves nothing to judge");
    }
    if std::thread::available_parallelism()?.get() < 2 {
        bail!("this needs two cores: one for the proxies, one for service and load");
    }
    let envoy = std::env::var_os("ENVOY").map(PathBuf::from).or_else(|| find_program("envoy"));
    let envoy = envoy.context("Envoy is not on this machine; put its program in ENVOY")?;
    command::build_tidegate()?;
    let scratch = Scratch::new("envoy")?;
    for (name, value) in machine::facts() {
        println!("{name}: {value}");
    }
    let mut checks = overload::measure(&envoy, runs, short, scratch.path())?;
    checks.extend(cost::measure(&envoy, runs, short, scratch.path())?);
    println!("\n| what | found | |\n|---|---|---|");
    for (what, found, holds) in &checks {
        println!("| {what} | {found} | {} |", if *holds { "holds" } else { "**missed**" });
    }
    Ok(if checks.iter().all(|check| check.2) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The median of several runs, and all of them beside it.
fn told(values: &[f64], digits: usize) -> String {
    let all: Vec<String> = values.iter().map(|value| format!("{value:.digits$}")).collect();
    match values {
        [only] => format!("{only:.digits$}"),
        _ => format!("{:.digits$} ({})", median(values.iter().copied()).unwrap_or(f64::NAN), all.join(", ")),
    }
}
