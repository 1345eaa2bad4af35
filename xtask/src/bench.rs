//! `cargo xtask bench`: benchmarks by name. Results worth keeping go to `benches/results/`.

mod c2;
mod client;
pub mod contender;
mod control;
mod dashboard;
mod handshakes;
mod idle;
mod instructions;
mod latency;
pub mod load;
pub mod machine;
mod memory;
mod pace;
pub mod proc_fs;
mod proxy;
pub mod report;
pub mod service;
mod sim;
mod stage;
pub mod stop;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::args::Args;
use crate::command::{self, cargo, run as run_command};

struct Bench {
    name: &'static str,
    what: &'static str,
    run: fn(Args) -> Result<()>,
}

/// Every benchmark. To add one, add a row.
const BENCHES: &[Bench] = &[
    Bench { name: "engine", what: "decisions, estimators and buckets, in nanoseconds", run: engine },
    Bench { name: "stage", what: "an event through a stage beside a bare channel; the tower layer", run: stage::run },
    Bench { name: "proxy", what: "CPU per request beside nginx, haproxy and Envoy", run: proxy::run },
    Bench { name: "latency", what: "added latency at given rates beside nginx, haproxy and Envoy", run: latency::run },
    Bench {
        name: "instructions",
        what: "instructions for a request and a decision, held against a baseline",
        run: instructions::run,
    },
    Bench { name: "c2", what: "batch against threshold policing when everything is refused", run: c2::run },
    Bench { name: "handshakes", what: "a flood of TLS handshakes before a sentry", run: handshakes::run },
    Bench { name: "control", what: "a control plane with 1,000 sentries and 10,000 servers", run: control::run },
    Bench { name: "dashboard", what: "CPU time of five viewers at 10,000 requests/s", run: dashboard::run },
    Bench { name: "sim", what: "happenings per second in the simulator; --big: 100 million requests", run: sim::run },
    Bench {
        name: "simpy",
        what: "the simulator beside SimPy (Python 3 with venv and pip), in turns",
        run: sim::beside_simpy,
    },
];

/// Runs the benchmark that is named first, or lists them.
///
/// # Errors
/// When there is no such benchmark, or it fails.
pub fn run(mut args: Args) -> Result<ExitCode> {
    let Some(name) = args.positional() else {
        args.finish()?;
        for bench in BENCHES {
            println!("{:12} {}", bench.name, bench.what);
        }
        return Ok(ExitCode::SUCCESS);
    };
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == name) else {
        let names: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
        bail!("there is no benchmark `{name}`; there are: {}", names.join(", "));
    };
    (bench.run)(args)?;
    Ok(ExitCode::SUCCESS)
}

/// `--record`: where results are kept; `--out FOLDER` keeps them elsewhere.
fn record_folder(args: &mut Args) -> Result<Option<PathBuf>> {
    let record = args.switch("--record");
    let out = args.option::<PathBuf>("--out")?;
    Ok(out.or_else(|| record.then(|| command::root().join("benches/results"))))
}

fn engine(args: Args) -> Result<()> {
    of_package(args, "tidegate-engine")
}

/// The benchmark that a crate brings along.
fn of_package(mut args: Args, package: &str) -> Result<()> {
    let short = args.switch("--short");
    args.finish()?;
    let mut bench = cargo(["bench", "-p", package, "--locked"]);
    if short {
        bench.env("TIDEGATE_BENCH_SHORT", "1");
    }
    run_command(&mut bench)
}
