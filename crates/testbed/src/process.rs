//! Programs of a live run, each a process that ends with it.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Who does not start or stop within this does not.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at one that starts or stops.
pub const PAUSE: Duration = Duration::from_millis(10);

/// A process, which ends with this.
#[derive(Debug)]
pub struct Process(Child);

/// Why a program does not run.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It cannot be started.
    #[error("cannot start {program}: {error}")]
    Start {
        /// Name of the program.
        program: String,
        /// What the system said.
        error: io::Error,
    },
    /// A file of its.
    #[error("{}: {error}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

impl Process {
    /// Starts it; its messages go to `NAME.log` in the folder.
    ///
    /// # Errors
    /// When the log cannot be made, or the program not be started.
    pub fn start(name: &str, mut command: Command, folder: &Path) -> Result<Process, ProcessError> {
        let path = folder.join(format!("{name}.log"));
        let log = File::create(&path).map_err(|error| ProcessError::File { path, error })?;
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).stderr(log).spawn();
        child.map(Process).map_err(|error| ProcessError::Start { program, error })
    }

    /// Process number of the child.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// The first line it prints, where its output was kept.
    pub fn first_line(&mut self) -> Option<String> {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take()?).read_line(&mut line).ok().map(|_| line)
    }

    /// Whether it has not ended.
    pub fn runs(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Asks it to end and waits; a line of text when it ended before, or did not.
    pub fn stop(&mut self, name: &str) -> Option<String> {
        if !self.runs() {
            return Some(format!("{name} had ended before the run was over"));
        }
        // Only fails when it is gone already.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let give_up = Instant::now() + PATIENCE;
        while self.runs() {
            if Instant::now() >= give_up {
                drop(self.0.kill());
                drop(self.0.wait());
                return Some(format!("{name} did not end within {} s and was killed", PATIENCE.as_secs()));
            }
            std::thread::sleep(PAUSE);
        }
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.runs() {
            self.stop("it");
        }
    }
}
