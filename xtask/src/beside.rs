//! `cargo xtask beside PROXY`: a proxy that asks tidegate, by the configuration that its page in docs shows.
//!
//! *Overload.* An emulated service gets three times what it can do: through the proxy alone, with what it has itself
//! for that, and with tidegate to ask; and, beside these, with tidegate in its place. A tenth is important. Each time
//! everything is started anew, and half of a capacity comes first.
//!
//! *Cost.* Before an nginx with a small file: what a request costs in processor time, of the proxy and of the sentry,
//! and how much longer it takes.
//!
//! Envoy's program is in `ENVOY`, or in the path: it is no package of Debian's.

mod cost;
mod overload;
mod proxy;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::args::Args;
use crate::bench::machine;
use crate::bench::report::median;
use crate::bench::stop::Scratch;
use crate::checks::{self, Check};
use crate::command;

/// The proxy, and the sentry.
const PROXY_CORE: usize = 0;
/// The load, and the service, which mostly waits or serves a small file.
const OTHER_CORE: usize = 1;

/// Runs everything, prints what was found, and fails when a bar is missed.
///
/// # Errors
/// When a program is missing or does not do its part; a missed bar is an exit status of 1.
pub fn run(mut args: Args) -> Result<ExitCode> {
    let short = args.switch("--short");
    let name = args.positional();
    let runs: usize = args.option("--runs")?.unwrap_or(if short { 1 } else { 3 });
    args.finish()?;
    if runs == 0 {
        bail!("--runs 0 leaves nothing to judge");
    }
    if std::thread::available_parallelism()?.get() < 2 {
        bail!("this needs two cores: one for the proxies, one for service and load");
    }
    let proxy = proxy::Proxy::named(&name.context("beside which proxy? write envoy, nginx or haproxy")?)?;
    command::build_tidegate()?;
    let scratch = Scratch::new("beside")?;
    for (name, value) in machine::facts() {
        println!("{name}: {value}");
    }
    let mut checks = overload::measure(&proxy, runs, short, scratch.path())?;
    checks.extend(cost::measure(&proxy, runs, short, scratch.path())?);
    Ok(checks::tell(&checks))
}

/// The median of several runs, and all of them beside it.
fn told(values: &[f64], digits: usize) -> String {
    let all: Vec<String> = values.iter().map(|value| format!("{value:.digits$}")).collect();
    match values {
        [only] => format!("{only:.digits$}"),
        _ => format!("{:.digits$} ({})", median(values.iter().copied()).unwrap_or(f64::NAN), all.join(", ")),
    }
}
