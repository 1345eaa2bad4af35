//! `cargo xtask dependencies`: `deny.toml` held against the crates that are used, without a network.
//!
//! Where a crate comes from and in how many versions is judged of all crates in Cargo.lock, also of those that only
//! another system compiles. Licences stand in the crates' own manifests, so they are judged of the crates that are on
//! this machine. The file is cargo-deny's: `cargo deny check` reads it too, and also knows the advisories.

pub mod licence;
pub mod lock;
mod policy;

use std::fs;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::args::Args;
use crate::command::{cargo, output};
use policy::{Package, Policy};

const POLICY: &str = "deny.toml";

/// Checks everything and says how much that was.
///
/// # Errors
/// When an argument is unknown or a crate breaks the policy.
pub fn run(args: Args) -> Result<ExitCode> {
    args.finish()?;
    check()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints each finding as `what; what to do`.
///
/// # Errors
/// When there is one, or a file cannot be read.
pub fn check() -> Result<()> {
    let text = fs::read_to_string(POLICY).with_context(|| format!("cannot read {POLICY}"))?;
    let policy = Policy::read(&text).with_context(|| format!("cannot use {POLICY}"))?;
    let locked = lock::read()?;
    let (packages, is_whole) = packages()?;
    let mut findings = policy.sources(&locked);
    findings.extend(policy.versions(&locked));
    findings.extend(policy.licences(&packages));
    findings.extend(policy.stale(&locked, is_whole.then_some(&packages)));
    for finding in &findings {
        println!("{POLICY}: {finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings; the policy is in {POLICY}", findings.len());
    }
    let unseen = locked.iter().filter(|one| !packages.iter().any(|package| package.is(one))).count();
    println!("dependencies: {} crates, the licences of {}", locked.len(), locked.len() - unseen);
    Ok(())
}

/// The crates whose manifests are here, and whether those are all: what only other systems compile need not be there.
fn packages() -> Result<(Vec<Package>, bool)> {
    let metadata = |more: &[&str]| {
        let mut command = cargo(["metadata", "--locked", "--offline", "--format-version", "1", "--all-features"]);
        output(command.args(more))
    };
    if let Ok(text) = metadata(&[]) {
        return Ok((read_packages(&text)?, true));
    }
    Ok((read_packages(&metadata(&["--filter-platform", &host()?])?)?, false))
}

fn read_packages(metadata: &str) -> Result<Vec<Package>> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata printed no JSON")?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let text = |package: &Value, key: &str| package[key].as_str().map(str::to_owned);
    let read = packages.iter().map(|package| {
        let name = text(package, "name").context("a package without a name")?;
        let version = text(package, "version").with_context(|| format!("{name} has no version"))?;
        Ok(Package { name, version, licence: text(package, "license") })
    });
    read.collect()
}

/// The triple of this machine.
///
/// # Errors
/// When rustc does not say.
pub fn host() -> Result<String> {
    let said = output(Command::new("rustc").arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say its host")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::lock::Locked;
    use super::*;

    #[test]
    fn metadata_is_read_with_and_without_a_licence() {
        let text = r#"{"packages":[{"name":"a","version":"1.0.0","license":"MIT"},
            {"name":"b","version":"2.0.0","license":null}]}"#;
        let packages = read_packages(text).unwrap();
        assert_eq!(packages[0].licence.as_deref(), Some("MIT"));
        assert_eq!(packages[1].licence, None);
        assert!(packages[1].is(&Locked { name: "b".into(), version: "2.0.0".into(), ..Locked::default() }));
        assert!(read_packages("{}").is_err() && read_packages("?").is_err());
    }
}
