//! The workspace's test binaries, built once with every feature, and the tests in them.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{cargo, output};

/// The module whose tests are measurements.
const MEASUREMENTS: &str = "measurements";

/// What the workspace is built with for its tests: one set of features for everything, so that nothing is built twice.
pub const BUILD: &[&str] = &["--workspace", "--all-features", "--locked"];

/// One program full of tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary {
    /// The package it belongs to.
    pub package: String,
    /// What it tests, as arguments to `cargo test`.
    pub target: String,
    /// The file.
    pub program: PathBuf,
    /// The package's folder, where its tests run.
    pub folder: PathBuf,
}

/// Which promise a test makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It passes on any machine, however slow or busy.
    Correctness,
    /// It judges what a machine left alone can do.
    Measurement,
}

/// One test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Test {
    pub binary: Binary,
    /// Its path within the binary.
    pub name: String,
    pub kind: Kind,
}

impl Test {
    /// How it is named to people: the package, and its path there.
    pub fn title(&self) -> String {
        format!("{} {}", self.binary.package, self.name)
    }

    /// What runs it alone.
    pub fn by_hand(&self) -> String {
        let ignored = if self.kind == Kind::Measurement { " --ignored" } else { "" };
        let Binary { package, target, .. } = &self.binary;
        format!("cargo test --all-features -p {package} {target} -- --exact{ignored} {}", self.name)
    }
}

/// Builds every test binary, and lists their tests. Ignored tests that are no measurements are processes that other
/// tests start; they are left out.
///
/// # Errors
/// When something does not compile.
pub fn build() -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    for binary in binaries()? {
        let all = names(&binary, &[])?;
        let ignored = names(&binary, &["--ignored"])?;
        for name in all {
            let kind = kind_of(&name);
            if kind == Kind::Measurement || !ignored.contains(&name) {
                tests.push(Test { binary: binary.clone(), name, kind });
            }
        }
    }
    Ok(tests)
}

fn binaries() -> Result<Vec<Binary>> {
    let mut build = cargo(["test", "--no-run", "--message-format", "json-render-diagnostics"]);
    let built = build.args(BUILD).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let built = built.context("cannot start cargo")?;
    if !built.status.success() {
        bail!("the tests do not compile, see above");
    }
    let said = String::from_utf8_lossy(&built.stdout);
    said.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter_map(|message| test_binary(&message))
        .collect()
}

/// The test binary that one of cargo's messages announces.
fn test_binary(message: &Value) -> Option<Result<Binary>> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let program = message["executable"].as_str()?;
    Some(read_binary(message, program).with_context(|| format!("cargo does not say enough of {program}")))
}

fn read_binary(message: &Value, program: &str) -> Option<Binary> {
    let manifest = PathBuf::from(message["manifest_path"].as_str()?);
    let (kind, name) = (message["target"]["kind"][0].as_str()?, message["target"]["name"].as_str()?);
    let target = match kind {
        "test" | "bin" | "example" => format!("--{kind} {name}"),
        _ => "--lib".to_owned(),
    };
    // `path+file:///here/crates/engine#tidegate-engine@0.1.0`, or without the name where the folder has it.
    let after = message["package_id"].as_str()?.rsplit_once('#')?.1;
    let folder = manifest.parent()?.to_owned();
    let package = match after.split_once('@') {
        Some((package, _)) => package.to_owned(),
        None => folder.file_name()?.to_str()?.to_owned(),
    };
    Some(Binary { package, target, program: program.into(), folder })
}

fn names(binary: &Binary, which: &[&str]) -> Result<Vec<String>> {
    let mut list = Command::new(&binary.program);
    let listed = output(list.args(["--list", "--format", "terse"]).args(which).current_dir(&binary.folder))?;
    Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

fn kind_of(name: &str) -> Kind {
    let is_measurement = name.split("::").any(|part| part == MEASUREMENTS);
    if is_measurement { Kind::Measurement } else { Kind::Correctness }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_messages_name_test_binaries_and_others() {
        let read = |text: &str| test_binary(&serde_json::from_str(text).unwrap()).transpose().unwrap();
        let artifact = |id: &str, kind: &str, name: &str, test: bool| {
            format!(
                r#"{{ "reason": "compiler-artifact", "package_id": "{id}", "manifest_path": "/here/crates/engine/Cargo.toml",
                     "target": {{ "kind": ["{kind}"], "name": "{name}" }}, "profile": {{ "test": {test} }}, "executable": "/t/x" }}"#
            )
        };
        let of = |text: String| read(&text).map(|binary| (binary.package, binary.target));
        let id = "path+file:///here/crates/engine#tidegate-engine@0.1.0";
        assert_eq!(of(artifact(id, "test", "it", true)), Some(("tidegate-engine".into(), "--test it".into())));
        assert_eq!(of(artifact(id, "lib", "tidegate_engine", true)), Some(("tidegate-engine".into(), "--lib".into())));
        assert_eq!(of(artifact("path+file:///here/crates/engine#0.1.0", "lib", "e", true)).unwrap().0, "engine");
        assert_eq!(of(artifact(id, "bin", "tidegate", false)), None);
        assert_eq!(read(r#"{ "reason": "build-finished", "success": true }"#), None);
    }

    #[test]
    fn a_module_tells_the_kinds_apart() {
        assert_eq!(kind_of("measurements::load::half"), Kind::Measurement);
        assert_eq!(kind_of("load::tests::measurements::half"), Kind::Measurement);
        assert_eq!(kind_of("load::the_measurements_are_kept"), Kind::Correctness);
    }
}
