//! The release build, made while tests wait for something: at the lowest priority, so that it takes only what is left.
//!
//! It is the only build without optional features, so its warnings are looked at, too: code that is dead without one.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::command::target;

/// A command that runs meanwhile; ended when this is dropped.
#[derive(Debug)]
pub struct Background {
    child: Child,
    /// What it says.
    log: PathBuf,
}

impl Background {
    /// Starts the release build of the program; what it says goes into a file.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn release_build() -> Result<Self> {
        let folder = target().join("tests");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let log = folder.join("release-build.log");
        let said = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new("nice");
        build.args(["-n", "19"]).arg(cargo).args(["build", "--quiet", "--release", "--locked", "-p", "tidegate"]);
        let child = build.stdin(Stdio::null()).stderr(said).spawn().context("cannot start the release build")?;
        Ok(Self { child, log })
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it did not end well, or gave a warning.
    pub fn join(mut self) -> Result<()> {
        let status = self.child.wait()?;
        let said = fs::read_to_string(&self.log).with_context(|| format!("cannot read {}", self.log.display()))?;
        print!("{said}");
        if !status.success() {
            bail!("the release build ended with {status}");
        }
        if said.lines().any(|line| line.starts_with("warning")) {
            bail!("the release build, without optional features, gives warnings");
        }
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It has ended, or nobody waits for it any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
