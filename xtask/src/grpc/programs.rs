//! The programs in Go: the service, a client that tries again, and ghz, all of one module whose versions are kept in
//! `xtask/grpc/go.sum`. Built once; Go's own cache tells what is still good.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::{command, go};

/// To download and to build everything, on a slow machine.
const BUILD: Duration = Duration::from_secs(600);
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
        go::build("xtask/grpc", go, BUILD)?;
        Ok(Self { folder })
    }

    /// Where one of them is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
