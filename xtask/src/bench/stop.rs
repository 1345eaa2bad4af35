//! Nothing is left behind: on SIGINT or SIGTERM every process started here is killed and the directory removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::proc_fs;

/// What must go when this program is told to stop.
struct Leftovers {
    processes: Vec<u32>,
    directory: Option<PathBuf>,
}

static LEFTOVERS: Mutex<Leftovers> = Mutex::new(Leftovers { processes: Vec::new(), directory: None });

/// A directory for configurations and logs, removed when dropped or when this program is told to stop.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes the directory and starts to listen for the signals.
    ///
    /// # Errors
    /// When the directory or the signal handler cannot be made.
    pub fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        with_leftovers(|left| left.directory = Some(path.clone()));
        let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot handle signals")?;
        thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                clear();
                std::process::exit(128 + signal);
            }
        });
        Ok(Self { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        clear();
    }
}

/// Remembers a process to be killed when this program is told to stop.
pub fn remember(pid: u32) {
    with_leftovers(|left| left.processes.push(pid));
}

/// Forgets a process that has ended.
pub fn forget(pid: u32) {
    with_leftovers(|left| left.processes.retain(|known| *known != pid));
}

/// Sends a signal to a process and its children; one that has ended is no error.
pub fn signal_tree(pid: u32, signal: Signal) {
    for pid in proc_fs::tree(pid) {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = raw {
            let _already_ended = kill_process(pid, signal);
        }
    }
}

fn clear() {
    with_leftovers(|left| {
        for pid in left.processes.drain(..) {
            signal_tree(pid, Signal::KILL);
        }
        if let Some(directory) = left.directory.take()
            && let Err(error) = fs::remove_dir_all(&directory)
        {
            eprintln!("warning: cannot remove {}: {error}", directory.display());
        }
    });
}

fn with_leftovers(change: impl FnOnce(&mut Leftovers)) {
    let mut leftovers = LEFTOVERS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    change(&mut leftovers);
}
