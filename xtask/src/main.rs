//! The project's own commands, run as `cargo xtask COMMAND`; the only scripts there are.
//!
//! | command | file | what it does |
//! |---|---|---|
//! | `ci` | `ci.rs` | everything that must hold before a commit |
//! | `test` | `suite.rs`, `suite/`, `watch.rs` | external programs (`programs.rs`), every test, the live checks |
//! | `programs` | `programs.rs` | the external programs alone |
//! | `tidy` | `tidy.rs`, `tidy/` | the rules of CONTRIBUTING.md, read from the source |
//! | `bench` | `bench.rs`, `bench/` | benchmarks, and the comparison with other proxies |
//! | `docs` | `docs.rs`, `docs/` | the documents as a site, links checked; the commands they show, run |
//! | `real` | `real.rs`, `real/` | hey and httperf at three times what Apache with PHP can do, behind the sentry |
//! | `grpc` | `grpc.rs`, `grpc/` | ghz and h2load at three times what a service in Go can do, behind the sentry |
//! | `cluster` | `cluster.rs`, `cluster/` | the control plane on a real API server of Kubernetes |
//! | `beside` | `beside.rs`, `beside/` | a proxy that asks tidegate, beside what it has itself against overload |
//! | `profile` | `profile.rs`, `profile/` | `tidegate profile` beside httperf, on Apache with PHP |
//! | `fuzz` | `fuzz.rs` | the fuzz targets, on stable |
//! | `soak`, `chaos` | `endure.rs`, `endure/` | a sentry for hours; through one fault after the other |
//! | `upgrade` | `upgrade.rs` | a sentry upgraded again and again under new connections, none of which may fail |
//! | `dependencies` | `dependencies.rs`, `dependencies/` | `deny.toml` held against the crates that are used |
//! | `sbom` | `sbom.rs`, `sbom/` | what the program is made of, as CycloneDX |
//! | `reproduce` | `reproduce.rs` | the program built twice, compared byte by byte |

#![deny(unsafe_code)]

mod apache;
mod args;
mod bench;
mod beside;
mod checks;
mod ci;
mod cluster;
mod command;
mod dependencies;
mod docs;
mod endure;
mod fuzz;
mod go;
mod grpc;
mod profile;
mod programs;
mod real;
mod reproduce;
mod sbom;
mod steps;
mod suite;
mod tidy;
mod upgrade;
mod watch;

use std::process::ExitCode;

use anyhow::{Result, bail};

use args::Args;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  ci                     fmt, clippy, tidy, tests and docs: what must hold before a commit
  test [--quick] [--only TEXT] [--strict] [--list]
                         install or list the programs tests need, run every test and live check;
                         --quick: only correctness tests that are not slow; --only: tests whose name has TEXT;
                         --strict: a measurement that could not be judged is a failure; --list: only their names
  programs               only install or list the programs tests need
  tidy [--bless]         check the rules of CONTRIBUTING.md; --bless rewrites xtask/ratchet.txt
  bench [NAME] [--short] run a benchmark; without NAME, list them
  bench all [--short] [--only NAME,NAME] [--against FILE] [--record]
                         every benchmark in one report, and what got worse or better since the last such report in
                         benches/results, or since FILE; one that fails does not stop the others
  bench latency [--short] [--rounds N] [--seconds N] [--only NAME,NAME] [--workers N] [--record]
                         what proxies add to the response time at given rates; --workers 2: only how many responses a
                         second they give, with one worker and with two
  bench scale [--short] [--rounds N] [--seconds N] [--only NAME,NAME] [--record]
                         what a request costs with many rules, servers, applications, connections and reloads
  bench instructions [--only ROW,ROW] [--record]
                         count instructions for a request, a decision and a simulated happening, and fail when one grew
                         by more than 5 % over benches/instructions.toml; --record: write that file anew
  docs [--bless] [--out FOLDER]
                         make the documents' site, in target/site; --bless: first what is generated in them
  docs --run [--only docs/PAGE.md]
                         run the commands that the documents show
  real [--short] [--seconds N] [--pairs N]
                         what hey and httperf find of the sentry before Apache with PHP, at three times its capacity
  grpc [--short] [--seconds N] [--build]
                         what ghz and h2load find of the sentry before a service in Go, at three times its capacity
  cluster up|check|build [--only NAME]
                         a control plane of Kubernetes on loopback, built once: run it until it is told to stop, or
                         check tidegate's own control plane on it; --only: one part of that
  beside PROXY [--short] [--runs N]
                         a proxy that asks tidegate (nginx, or envoy, whose program is in ENVOY) at three times what a
                         service can do, beside what it has itself against that; and what asking costs
  profile [--short] [--runs N] [--step SECONDS] [--out FOLDER]
                         what `tidegate profile` finds of Apache with PHP, and what httperf finds
  fuzz [TARGET] [--seconds N]
                         fuzz one target, or each in turn, for N seconds (default 30), with cargo-fuzz
  fuzz [TARGET] --executions N [--seed N] [--out FILE]
                         the same on stable: N mutants of the corpus for each target, and how many a second;
                         --out: a record in Markdown
  soak [--pieces N] [--seconds N] [--rate N] [--record FILE] [--short]
                         overload for N pieces of N seconds, with a reload and a change of servers in each; goes on
                         where the record ends, and judges whether memory, descriptors, latency and costs stay flat
  upgrade [--upgrades N] [--rate N] [--every-ms N] [--program FILE] [--restart] [--short]
                         upgrades of a sentry under an open loop of new connections, none of which may fail;
                         --restart: restarts in their place, which must show
  chaos [--seconds N] [--seed N] [--only FAULT] [--record FILE] [--short]
                         one fault of processes, disks, clocks or network after the other, for N seconds (default 600);
                         --only: always this one; a name that is none lists them all
  dependencies           check licences, sources and double versions of what we use, by deny.toml
  sbom [--features LIST] [--target TRIPLE] [--out FILE]
                         write what the program is made of, as CycloneDX, to target/tidegate.cdx.json
  reproduce [--profile NAME]
                         build the program (as it is installed) twice in different folders, and compare the bytes";

fn main() -> ExitCode {
    match command::forget_our_package().and_then(|()| run(Args::from_env())) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut args: Args) -> Result<ExitCode> {
    std::env::set_current_dir(command::root())?;
    let Some(command) = args.positional() else {
        bail!("no command given\n\n{USAGE}");
    };
    match command.as_str() {
        "ci" => ci::run(args),
        "test" => suite::run(args),
        "programs" => suite::run_programs(args),
        "tidy" => tidy::run(args),
        "bench" => bench::run(args),
        "docs" => docs::run(args),
        "real" => real::run(args),
        "cluster" => cluster::run(args),
        "beside" => beside::run(args),
        "grpc" => grpc::run(args),
        "profile" => profile::run(args),
        "fuzz" => fuzz::run(args),
        "soak" => endure::soak(args),
        "chaos" => endure::chaos(args),
        "upgrade" => upgrade::run(args),
        "dependencies" => dependencies::run(args),
        "sbom" => sbom::run(args),
        "reproduce" => reproduce::run(args),
        "help" => {
            println!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        other => bail!("there is no command `{other}`\n\n{USAGE}"),
    }
}
