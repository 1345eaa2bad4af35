//! A load generator as a process: its output in a file, pinned to a core, and ended in bounded time.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::bench::service::pin;
use crate::bench::stop;

const POLL: Duration = Duration::from_millis(20);

/// One generator, killed when dropped before its end.
pub struct Process {
    name: &'static str,
    child: Child,
    file: PathBuf,
}

impl Process {
    /// Starts it on one core; what it prints goes to `file`, what it complains of nowhere.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(name: &'static str, mut command: Command, core: usize, file: PathBuf) -> Result<Self> {
        let output = File::create(&file).with_context(|| format!("cannot write {}", file.display()))?;
        command.stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
        pin(&mut command, core);
        let child = command.spawn().with_context(|| format!("{name} puts the load; run `cargo xtask programs`"))?;
        stop::remember(child.id());
        Ok(Self { name, child, file })
    }

    /// Waits for its end, and gives what it printed.
    ///
    /// # Errors
    /// When it fails, or has not ended by the deadline.
    pub fn finish(&mut self, deadline: Instant) -> Result<String> {
        let name = self.name;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                bail!("{name} does not end; is the service stuck?");
            }
            thread::sleep(POLL);
        };
        stop::forget(self.child.id());
        if !status.success() {
            bail!("{name} ended with {status}");
        }
        fs::read_to_string(&self.file).with_context(|| format!("{name}'s output is gone"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            stop::signal_tree(self.child.id(), Signal::KILL);
            let _ended = self.child.wait();
            stop::forget(self.child.id());
        }
    }
}
