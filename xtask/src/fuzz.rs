//! `cargo xtask fuzz`: the fuzz targets under `fuzz/`, on stable Rust.
//!
//! With cargo-fuzz they are fuzzed; without it the same targets replay their corpus as plain tests.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::args::Args;
use crate::command::{cargo, output, run as run_command};
use crate::steps::Steps;

const MANIFEST: &str = "fuzz/Cargo.toml";

/// Fuzzes one target, or each in turn.
///
/// # Errors
/// When there is no such target or no `fuzz/`; a finding is a failed step.
pub fn run(mut args: Args) -> Result<ExitCode> {
    let wanted = args.positional();
    let seconds = args.option::<u32>("--seconds")?.unwrap_or(30);
    args.finish()?;
    let manifest = fs::read_to_string(MANIFEST).with_context(|| format!("cannot read {MANIFEST}"))?;
    let targets = choose(targets(&manifest)?, wanted.as_deref())?;
    let mut steps = Steps::default();
    if has_cargo_fuzz() {
        for target in &targets {
            steps.run(&format!("fuzz {target} for {seconds} s"), || fuzz(target, seconds));
        }
    } else {
        println!("cargo-fuzz is not installed (cargo install cargo-fuzz; it needs g++): replaying the corpus instead");
        steps.run("fuzz targets, replayed", replay);
    }
    Ok(steps.finish())
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
