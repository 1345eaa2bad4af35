//! The program that is a control plane of Kubernetes: etcd, its API server and its controllers, as a module in Go whose
//! versions are kept in `xtask/cluster/go.sum`.
//!
//! It takes some eight minutes of a processor to build, and 3 GB of Go's caches. So it is kept, with what it was built
//! from beside it; as long as that is the same, Go is not even asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::{command, go};

/// Of one core of a slow machine, with downloads.
const BUILD: Duration = Duration::from_secs(2400);
const FOLDER: &str = "xtask/cluster";
const SOURCES: [&str; 3] = ["main.go", "go.mod", "go.sum"];
/// Where the program is told its version: without it, it says that it has none.
const VERSION: &str = "k8s.io/component-base/version";

/// The program, and the version of Kubernetes that it is.
#[derive(Clone, Debug)]
pub struct Program {
    /// Where it lies.
    pub path: PathBuf,
    /// Such as `v1.36.3`.
    pub kubernetes: String,
    /// The version of etcd in it.
    pub etcd: String,
}

impl Program {
    /// Builds it, if it was not built from what is there now.
    ///
    /// # Errors
    /// When it does not build.
    pub fn build() -> Result<Self> {
        let (sources, folder) = (command::root().join(FOLDER), command::target().join("cluster"));
        let read = |name: &&str| fs::read_to_string(sources.join(name)).with_context(|| format!("{FOLDER}/{name}"));
        let texts = SOURCES.iter().map(read).collect::<Result<Vec<_>>>()?;
        let [kubernetes, etcd] =
            ["k8s.io/kubernetes", "go.etcd.io/etcd/server/v3"].map(|name| version(&texts[1], name));
        let program = Self { path: folder.join("control-plane"), kubernetes: kubernetes?, etcd: etcd? };
        let (built_from, record) = (texts.concat(), folder.join("built-from"));
        if is_built(&program.path, &record, &built_from) {
            return Ok(program);
        }
        println!("building a control plane of Kubernetes {}, once: this takes minutes", program.kubernetes);
        fs::create_dir_all(&folder)?;
        let _none_yet = fs::remove_file(&record);
        go::build(FOLDER, program.command()?, BUILD)?;
        fs::write(record, built_from)?;
        Ok(program)
    }

    fn command(&self) -> Result<Command> {
        let mut parts = self.kubernetes.trim_start_matches('v').split('.');
        let mut part = || parts.next().with_context(|| format!("{} is no version", self.kubernetes));
        let (major, minor) = (part()?, part()?);
        let said = [("gitVersion", self.kubernetes.as_str()), ("gitMajor", major), ("gitMinor", minor)];
        let said = said.into_iter().chain([("gitTreeState", "clean"), ("gitCommit", "none")]);
        let said: Vec<String> = said.map(|(name, value)| format!("-X {VERSION}.{name}={value}")).collect();
        let mut go = Command::new("go");
        // Without symbols, and without what debuggers read: half as large.
        go.args(["build", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags"]);
        go.arg(format!("-s -w {}", said.join(" "))).arg("-o").arg(&self.path).arg(".").env("CGO_ENABLED", "0");
        Ok(go)
    }
}

fn is_built(program: &Path, record: &Path, from: &str) -> bool {
    program.is_file() && fs::read_to_string(record).is_ok_and(|before| before == from)
}

/// The version of a module that a `go.mod` requires.
fn version(text: &str, module: &str) -> Result<String> {
    let of = |line: &str| line.trim().strip_prefix(module)?.strip_prefix(' ').map(str::to_owned);
    let found = text.lines().find_map(of).with_context(|| format!("{FOLDER}/go.mod requires no {module}"))?;
    Ok(found.split(' ').next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_the_module() {
        let text = "require (\n\tk8s.io/kubernetes v1.36.3\n\tk8s.io/kubernetes-not v9.9.9 // indirect\n)\n";
        assert_eq!(version(text, "k8s.io/kubernetes").unwrap(), "v1.36.3");
        assert!(version(text, "k8s.io/other").is_err());
        let program = Program { path: PathBuf::from("x"), kubernetes: "v1.36.3".to_owned(), etcd: "v3.6.8".to_owned() };
        let command = format!("{:?}", program.command().unwrap());
        assert!(command.contains("version.gitMinor=36 "), "{command}");
    }

    #[test]
    fn another_source_is_built_anew() {
        let folder = std::env::temp_dir().join(format!("tidegate-cluster-built-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (program, record) = (folder.join("program"), folder.join("built-from"));
        fs::write(&record, "a").unwrap();
        assert!(!is_built(&program, &record, "a"), "there is no program");
        fs::write(&program, "").unwrap();
        assert!(is_built(&program, &record, "a") && !is_built(&program, &record, "b"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
