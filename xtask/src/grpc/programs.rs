//! The programs in Go: the service, a client that tries again, and ghz, all of one module whose versions are kept in
//! `xtask/grpc/go.sum`. Built once; Go's own cache tells what is still good.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::bench::stop;
use crate::command;

/// To download and to build everything, on a slow machine.
const BUILD: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(100);
const GHZ: &str = "github.com/bojand/ghz/cmd/ghz";

/// Where the built programs lie.
#[derive(Debug)]
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Builds what is not built yet.
    ///
    /// # Errors
    /// When Go is missing or too old, a module cannot be downloaded, or it takes too long.
    pub fn build() -> Result<Self> {
        let folder = command::target().join("go");
        std::fs::create_dir_all(&folder)?;
        println!("building the programs in Go");
        let mut go = Command::new("go");
        go.arg("build").arg("-o").arg(&folder).args(["./service", "./client", GHZ]);
        go.current_dir(command::root().join("xtask/grpc")).env("GOFLAGS", "-mod=readonly").stdin(Stdio::null());
        let mut child = go.spawn().context("the service is written in Go (Debian package golang-go)")?;
        stop::remember(child.id());
        let deadline = Instant::now() + BUILD;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                stop::signal_tree(child.id(), Signal::KILL);
                child.wait()?;
                bail!("building xtask/grpc took longer than {} s", BUILD.as_secs());
            }
            thread::sleep(POLL);
        };
        stop::forget(child.id());
        if !status.success() {
            bail!("xtask/grpc does not build; it needs the Go of its go.mod, or one that may fetch it");
        }
        Ok(Self { folder })
    }

    /// Where one of them is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
