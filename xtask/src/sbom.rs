//! `cargo xtask sbom`: what the program is made of, as CycloneDX 1.5: every crate in it with its version, licence,
//! features, and the hash that Cargo.lock has of it.
//!
//! Only what is linked: no tests, no build scripts and no macros, which write code but are not in the program. cargo
//! itself says what that is (`cargo tree`), for one system and the features that are asked for. The same sources give
//! the same bytes: no time and no random number, which the format leaves to us.

mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::args::Args;
use crate::command::{cargo, output, target};
use crate::dependencies::host;
use crate::dependencies::licence::spdx;
use crate::dependencies::lock::{self, Locked};
use tree::{Crate, Tree};

/// Writes the file and says where.
///
/// # Errors
/// When an argument is unknown, cargo cannot tell, or the file cannot be written.
pub fn run(mut args: Args) -> Result<ExitCode> {
    let features = args.option::<String>("--features")?.unwrap_or_default();
    let system = match args.option::<String>("--target")? {
        Some(system) => system,
        None => host()?,
    };
    let out = args.option::<PathBuf>("--out")?.unwrap_or_else(|| target().join("tidegate.cdx.json"));
    args.finish()?;
    let text = write(&system, &features)?;
    fs::write(&out, &text).with_context(|| format!("cannot write {}", out.display()))?;
    println!("{}", out.display());
    Ok(ExitCode::SUCCESS)
}

/// The whole file, for one system (a triple) and a list of features such as `otel,kubernetes`.
fn write(system: &str, features: &str) -> Result<String> {
    let mut command = cargo(["tree", "--locked", "--offline", "--package", "tidegate", "--edges"]);
    command.args(["normal,no-proc-macro", "--target", system, "--features", features]);
    command.args(["--prefix", "depth", "--charset", "ascii", "--format", tree::FORMAT]);
    let tree = Tree::read(&output(&mut command)?)?;
    let bill = bill(&tree, &lock::read()?, system, features)?;
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

/// The bill as JSON. The keys are those of the format; its text is at cyclonedx.org.
fn bill(tree: &Tree, locked: &[Locked], system: &str, features: &str) -> Result<Value> {
    let program = component(&tree.crates[0], locked, "application")?;
    let rest: Result<Vec<Value>> = tree.crates[1..].iter().map(|one| component(one, locked, "library")).collect();
    let mut components = rest?;
    components.sort_by_key(|one| one["bom-ref"].as_str().map(str::to_owned));
    let dependencies = tree.crates.iter().enumerate().map(|(at, one)| {
        let needs: BTreeSet<String> = tree.needs(at).map(|needed| reference(&tree.crates[needed])).collect();
        (reference(one), json!({ "ref": reference(one), "dependsOn": needs }))
    });
    let mut dependencies: Vec<(String, Value)> = dependencies.collect();
    dependencies.sort_by(|a, b| a.0.cmp(&b.0));
    let dependencies: Vec<Value> = dependencies.into_iter().map(|(_, value)| value).collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": program,
            "properties": [property("tidegate:target", system), property("tidegate:features", features)],
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// A crate as a component. One from a registry has its address there and the hash of its file.
fn component(one: &Crate, locked: &[Locked], kind: &str) -> Result<Value> {
    let entry = locked.iter().find(|locked| locked.name == one.name && locked.version == one.version);
    let entry = entry.with_context(|| format!("{} {} is not in Cargo.lock", one.name, one.version))?;
    let mut component = json!({
        "type": kind,
        "bom-ref": reference(one),
        "name": one.name,
        "version": one.version,
        "licenses": [{ "expression": spdx(&one.licence) }],
        "properties": [property("tidegate:crate-features", &one.features)],
    });
    if kind == "library" {
        component["scope"] = "required".into();
    }
    if !one.repository.is_empty() {
        component["externalReferences"] = json!([{ "type": "vcs", "url": one.repository }]);
    }
    if entry.source.is_some() {
        let hash = entry.checksum.as_deref();
        let hash = hash.with_context(|| format!("{} {} has no hash in Cargo.lock", one.name, one.version))?;
        component["purl"] = reference(one).into();
        component["hashes"] = json!([{ "alg": "SHA-256", "content": hash }]);
    }
    Ok(component)
}

/// What a crate is called within the bill; for one from the registry, its package URL. A `+` has a meaning in URLs.
fn reference(one: &Crate) -> String {
    format!("pkg:cargo/{}@{}", one.name, one.version.replace('+', "%2B"))
}

fn property(name: &str, value: &str) -> Value {
    json!({ "name": name, "value": value })
}

#[cfg(test)]
mod tests;
