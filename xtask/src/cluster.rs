//! `cargo xtask cluster`: tidegate's control plane, and a sentry without one, on a real API server of Kubernetes.
//!
//! | file | question |
//! |---|---|
//! | `program.rs` | how the program that is Kubernetes comes to be |
//! | `machinery.rs` | how it runs: etcd, API server, controllers |
//! | `api.rs` | what is asked of it |
//! | `kubelet.rs`, `volumes.rs` | who makes processes of pods, and what these find mounted |
//! | `home.rs`, `member.rs` | what stands in a namespace, and tidegate's programs there |
//! | `manifests.rs`, `scaling.rs`, `rights.rs`, `election.rs`, `away.rs`, `pods.rs`, `policies.rs` | the checks |
//!
//! There is neither a node nor a container: pods are processes, at addresses of a network of the run's own.

mod api;
mod away;
mod election;
mod home;
mod kubelet;
mod machinery;
mod manifests;
mod member;
mod pods;
mod policies;
mod program;
mod rights;
mod scaling;
mod volumes;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::args::Args;
use crate::bench::machine;
use crate::bench::stop::Scratch;
use crate::checks::{self, Check};
use crate::command::{cargo, find_program, run as run_command, target};
use crate::endure::network;
use crate::programs;

use home::Cluster;
use machinery::Machinery;
use program::Program;

/// What is checked, by name.
type Part = (&'static str, fn(&mut Cluster) -> Result<Vec<Check>>);

const PARTS: &[Part] = &[
    ("manifests", manifests::check),
    ("tests", manifests::check_tests),
    ("scaling", scaling::check),
    ("rights", rights::check),
    ("election", election::check),
    ("away", away::check),
    ("pods", pods::check),
    ("policies", policies::check),
];
/// Rows of [`programs::PROGRAMS`] without which it cannot run.
pub const NEEDS: &[&str] = &["curl", "go", "ip", "openssl"];

/// Runs one, or checks against one.
///
/// # Errors
/// When a program is missing or does not start; what does not hold is an exit status of 1.
pub fn run(mut args: Args) -> Result<ExitCode> {
    let what = args.positional().context("one of up, check and build must be said; see `cargo xtask --help`")?;
    let only: Option<String> = args.option("--only")?;
    let inside = args.switch("--inside");
    args.finish()?;
    programs::require(NEEDS)?;
    match what.as_str() {
        "build" => Program::build().map(|_| ExitCode::SUCCESS),
        "up" => up(),
        "check" if inside => check(only.as_deref()),
        "check" => {
            parts(only.as_deref())?;
            Program::build()?;
            run_command(&mut cargo(["build", "--locked", "-p", "tidegate", "--features", "kubernetes"]))?;
            manifests::build_tests()?;
            network::again_inside()
        }
        other => bail!("there is no `cluster {other}`: it is up, check or build"),
    }
}

/// Runs it until this program is told to stop.
fn up() -> Result<ExitCode> {
    let program = Program::build()?;
    let scratch = Scratch::new("cluster")?;
    let mut machinery = Machinery::start(&program, scratch.path())?;
    println!("Kubernetes {} runs until Ctrl-C\n\n{}", program.kubernetes, machinery.describe());
    loop {
        if let Some(why) = machinery.ended() {
            bail!(why);
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}

fn parts(only: Option<&str>) -> Result<Vec<&'static Part>> {
    let chosen: Vec<_> = PARTS.iter().filter(|part| only.is_none_or(|only| part.0 == only)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = PARTS.iter().map(|part| part.0).collect();
        bail!("--only names no part: they are {}", names.join(", "));
    }
    Ok(chosen)
}

fn check(only: Option<&str>) -> Result<ExitCode> {
    network::raise()?;
    let ip = find_program("ip").unwrap_or_else(|| "ip".into());
    run_command(Command::new(ip).args(["address", "add", kubelet::NETWORK, "dev", "lo"]))?;
    let (program, scratch) = (Program::build()?, Scratch::new("cluster")?);
    for (name, fact) in machine::facts() {
        println!("{name}: {fact}");
    }
    println!("Kubernetes {}, etcd {}", program.kubernetes, program.etcd);
    let machinery = Machinery::start(&program, scratch.path())?;
    println!("ready after {:.1} s", machinery.took.as_secs_f64());
    let mut cluster = Cluster::new(machinery, scratch.path())?;
    let mut checks = Vec::new();
    for (name, part) in parts(only)? {
        let began = Instant::now();
        // The others say something all the same.
        let found = part(&mut cluster);
        println!("{name}: {:.0} s", began.elapsed().as_secs_f64());
        checks.extend(found.unwrap_or_else(|error| vec![((*name).to_owned(), format!("{error:#}"), false)]));
    }
    drop(cluster);
    if checks.iter().any(|check| !check.2) {
        println!("what was logged is in {}", keep_logs(scratch.path())?.display());
    }
    Ok(checks::tell(&checks))
}

/// Copies what was logged to a folder that stays, where it is of the last run that missed something.
fn keep_logs(dir: &Path) -> Result<PathBuf> {
    let kept = target().join("cluster/logs");
    let _none_yet = fs::remove_dir_all(&kept);
    let is_folder = |path: &PathBuf| path.is_dir() && !path.ends_with("etcd");
    let folders: Vec<_> = fs::read_dir(dir)?.flatten().map(|entry| entry.path()).filter(is_folder).collect();
    for from in folders.iter().map(PathBuf::as_path).chain([dir]) {
        let to = kept.join(from.strip_prefix(dir)?);
        fs::create_dir_all(&to)?;
        for entry in fs::read_dir(from)?.flatten().filter(|entry| entry.path().extension() == Some("log".as_ref())) {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_named_or_all_are_meant() {
        assert_eq!(parts(None).unwrap().len(), PARTS.len());
        assert_eq!(parts(Some("rights")).unwrap()[0].0, "rights");
        assert!(parts(Some("none")).unwrap_err().to_string().contains("manifests, tests"));
    }
}
