//! `cargo xtask fuzz`: the fuzz targets under `fuzz/`, on stable Rust.
//!
//! With cargo-fuzz they are fuzzed for a time; without it the same targets replay their corpus and some mutants of it
//! as plain tests. With `--executions` each is fed as many mutants, by a program of ours that is optimised but keeps
//! its assertions and checks of overflow, on every processor.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::args::Args;
use crate::bench::machine;
use crate::command::{cargo, output, run as run_command, target};
use crate::steps::Steps;

const MANIFEST: &str = "fuzz/Cargo.toml";

/// Fuzzes one target, or each in turn.
///
/// # Errors
/// When there is no such target or no `fuzz/`; a finding is a failed step.
pub fn run(mut args: Args) -> Result<ExitCode> {
    let wanted = args.positional();
    let executions = args.option::<u64>("--executions")?;
    let seconds = args.option::<u32>("--seconds")?.unwrap_or(30);
    let seed = args.option::<u64>("--seed")?;
    let out = args.option::<PathBuf>("--out")?;
    args.finish()?;
    let manifest = fs::read_to_string(MANIFEST).with_context(|| format!("cannot read {MANIFEST}"))?;
    let targets = choose(targets(&manifest)?, wanted.as_deref())?;
    let mut steps = Steps::default();
    if let Some(executions) = executions {
        feed(&mut steps, &targets, &Campaign { executions, seed }, out.as_deref())?;
    } else if has_cargo_fuzz() {
        for target in &targets {
            steps.run(&format!("fuzz {target} for {seconds} s"), || fuzz(target, seconds));
        }
    } else {
        println!("cargo-fuzz is not installed (cargo install cargo-fuzz; it needs g++): replaying the corpus instead");
        steps.run("fuzz targets, replayed", replay);
    }
    Ok(steps.finish())
}

/// How many mutants each target is fed, and of which seed; of a new one when none is said.
struct Campaign {
    executions: u64,
    seed: Option<u64>,
}

/// Feeds each target its mutants, prints how many a second that were, and writes the record.
fn feed(steps: &mut Steps, targets: &[String], campaign: &Campaign, out: Option<&Path>) -> Result<()> {
    let built = target().join("fuzz");
    steps.run("build", || {
        let mut build = cargo(["build", "--release", "--locked", "-p", "tidegate-fuzz", "--bins", "--target-dir"]);
        build.arg(&built).env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
        run_command(build.env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true"))
    });
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut runs = Vec::new();
    for target in targets {
        steps.run(&format!("{} mutants for {target}", campaign.executions), || {
            let mut program = std::process::Command::new(built.join("release").join(target));
            program.args(["--executions", &campaign.executions.to_string(), "--jobs", &jobs.to_string()]);
            if let Some(seed) = campaign.seed {
                program.env("TIDEGATE_SEED", seed.to_string());
            }
            let run = Run::read(&output(&mut program)?)?;
            println!("{}", run.row());
            runs.push(run);
            Ok(())
        });
    }
    if let Some(out) = out {
        fs::write(out, record(&runs)).with_context(|| format!("cannot write {}", out.display()))?;
    }
    Ok(())
}

/// What a target's program says at its end.
struct Run {
    target: String,
    executions: u64,
    seed: u64,
    seconds: f64,
    jobs: u64,
}

impl Run {
    fn read(line: &str) -> Result<Self> {
        let said: Value = serde_json::from_str(line).with_context(|| format!("the target said `{line}`"))?;
        let number = |name: &str| said[name].as_u64().with_context(|| format!("the target did not say its {name}"));
        Ok(Self {
            target: said["target"].as_str().context("the target did not say its name")?.to_owned(),
            executions: number("executions")?,
            seed: number("seed")?,
            seconds: said["seconds"].as_f64().context("the target did not say its time")?,
            jobs: number("jobs")?,
        })
    }

    fn row(&self) -> String {
        let Self { target, executions, seed, seconds, jobs } = self;
        // A clock that stood still divides by nothing.
        let each_second = *executions as f64 / seconds.max(1e-9);
        format!("| {target} | {executions} | {seconds:.1} | {each_second:.0} | {jobs} | {seed} |")
    }
}

/// The record: what was run, where, and what came of it. A target with a finding has no row: its step failed.
fn record(runs: &[Run]) -> String {
    let mut text = String::from("| | |\n|---|---|\n");
    for (name, value) in machine::facts().into_iter().filter(|(name, _)| *name != "wrk") {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {name} | {value} |");
    }
    text.push_str("\n| target | mutants | seconds | a second | threads | seed |\n|---|--:|--:|--:|--:|--:|\n");
    runs.iter().for_each(|run| text.push_str(&(run.row() + "\n")));
    text
}

/// Replays the committed corpus of every target as plain tests; `cargo xtask test` does the same.
fn replay() -> Result<()> {
    run_command(&mut cargo(["test", "-p", "tidegate-fuzz", "--locked"]))
}

fn fuzz(target: &str, seconds: u32) -> Result<()> {
    // New inputs go to a directory of their own, so that the committed corpus changes only by hand.
    let (work, corpus) = (format!("fuzz/corpus-work/{target}"), format!("fuzz/corpus/{target}"));
    fs::create_dir_all(&work)?;
    let mut command = cargo(["fuzz", "run", "-s", "none", target, &work]);
    if Path::new(&corpus).is_dir() {
        command.arg(&corpus);
    }
    run_command(command.arg("--").arg(format!("-max_total_time={seconds}")))
}

fn has_cargo_fuzz() -> bool {
    output(&mut cargo(["fuzz", "--version"])).is_ok()
}

fn targets(manifest: &str) -> Result<Vec<String>> {
    let table: toml::Table = manifest.parse().with_context(|| format!("cannot read {MANIFEST}"))?;
    let bins = table.get("bin").and_then(toml::Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let names = bins.iter().filter_map(|bin| bin.get("name")?.as_str());
    Ok(names.map(str::to_owned).collect())
}

fn choose(all: Vec<String>, wanted: Option<&str>) -> Result<Vec<String>> {
    match wanted {
        Some(name) if !all.iter().any(|target| target == name) => {
            bail!("there is no fuzz target `{name}`; there are: {}", all.join(", "))
        }
        Some(name) => Ok(vec![name.to_owned()]),
        None => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_target_says_becomes_a_row() {
        let said = r#"{"target":"gate","executions":1000,"seed":18446744073709551615,"seconds":0.5,"jobs":2}"#;
        let run = Run::read(said).unwrap();
        assert_eq!(run.row(), "| gate | 1000 | 0.5 | 2000 | 2 | 18446744073709551615 |");
        let record = record(&[run]);
        assert!(record.contains("| commit | ") && record.ends_with("| 18446744073709551615 |\n"), "{record}");
        assert!(Run::read("").is_err() && Run::read("{}").is_err());
    }

    #[test]
    fn targets_are_the_binaries_of_the_manifest() {
        let manifest = "[package]\nname = 'f'\n[[bin]]\nname = 'gate'\n[[bin]]\nname = 'config'\n";
        let all = targets(manifest).unwrap();
        assert_eq!(all, ["gate", "config"]);
        assert_eq!(choose(all.clone(), None).unwrap(), all);
        assert_eq!(choose(all.clone(), Some("gate")).unwrap(), ["gate"]);
        let error = choose(all, Some("gaet")).unwrap_err().to_string();
        assert!(error.contains("gaet") && error.contains("config"), "{error}");
    }
}
