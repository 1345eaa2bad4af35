//! `cargo xtask bench`: benchmarks by name. Results worth keeping go to `benches/results/`.

mod all;
mod c2;
mod client;
pub mod contender;
mod control;
mod dashboard;
mod figure;
mod handshakes;
mod idle;
mod instructions;
mod latency;
pub mod load;
pub mod machine;
mod memory;
pub mod origin;
mod pace;
pub mod proc_fs;
mod proxy;
pub mod report;
mod scale;
pub mod service;
mod sim;
mod stage;
pub mod stop;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::args::Args;
use crate::command::{self, cargo, output};
use figure::Figure;

struct Bench {
    name: &'static str,
    what: &'static str,
    /// Whether it takes `--short`.
    has_short: bool,
    /// Prints what it found, and gives it for `bench all` to compare.
    run: fn(Args) -> Result<Vec<Figure>>,
}

const fn bench(name: &'static str, run: fn(Args) -> Result<Vec<Figure>>, what: &'static str) -> Bench {
    Bench { name, what, has_short: true, run }
}

/// Every benchmark. To add one, add a row.
const BENCHES: &[Bench] = &[
    bench("engine", engine, "decisions, estimators and buckets, in nanoseconds"),
    bench("stage", stage::run, "an event through a stage beside a bare channel; the tower layer"),
    bench("proxy", proxy::run, "CPU per request beside nginx, haproxy and Envoy"),
    bench("latency", latency::run, "added latency at given rates beside nginx, haproxy and Envoy"),
    bench("scale", scale::run, "CPU per request with many rules, servers, applications, connections and reloads"),
    Bench {
        has_short: false,
        ..bench("instructions", instructions::run, "instructions for a request and a decision, held against a baseline")
    },
    bench("c2", c2::run, "batch against threshold policing when everything is refused"),
    bench("handshakes", handshakes::run, "a flood of TLS handshakes before a sentry"),
    bench("control", control::run, "a control plane with 1,000 sentries and 10,000 servers"),
    bench("dashboard", dashboard::run, "CPU time of five viewers at 10,000 requests/s"),
    bench("sim", sim::run, "happenings per second in the simulator; --big: 100 million requests"),
    bench("simpy", sim::beside_simpy, "the simulator beside SimPy (Python 3 with venv and pip), in turns"),
    bench(all::NAME, all::run, "all of these in one report, compared with the last such report"),
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

fn engine(mut args: Args) -> Result<Vec<Figure>> {
    let short = args.switch("--short");
    args.finish()?;
    let said = of_engine(short)?;
    println!("{said}");
    Ok(figure::timed(&said))
}

/// What the benchmark says that the engine brings along.
fn of_engine(short: bool) -> Result<String> {
    let mut bench = cargo(["bench", "-p", "tidegate-engine", "--locked"]);
    if short {
        bench.env("TIDEGATE_BENCH_SHORT", "1");
    }
    output(&mut bench).context("the engine's benchmark")
}
