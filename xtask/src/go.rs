//! Programs in Go that are built here. Go's own cache tells what is still good, and its folders are the user's.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::bench::stop;
use crate::command;

const POLL: Duration = Duration::from_millis(100);

/// Runs `go build` with these arguments in a folder of the checkout, for so long at most; as its `go.sum` says.
///
/// # Errors
/// When Go is missing or too old, a module cannot be downloaded, or it takes too long.
pub fn build(folder: &str, mut go: Command, most: Duration) -> Result<()> {
    go.current_dir(command::root().join(folder)).env("GOFLAGS", "-mod=readonly").stdin(Stdio::null());
    let mut child = go.spawn().with_context(|| format!("{folder} is written in Go (Debian package golang-go)"))?;
    stop::remember(child.id());
    let deadline = Instant::now() + most;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            stop::signal_tree(child.id(), Signal::KILL);
            child.wait()?;
            bail!("building {folder} took longer than {} s", most.as_secs());
        }
        thread::sleep(POLL);
    };
    stop::forget(child.id());
    if !status.success() {
        bail!("{folder} does not build; it needs the Go of its go.mod, or one that may fetch it");
    }
    Ok(())
}
