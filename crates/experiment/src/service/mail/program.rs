//! The mail service as a program of its own: mail made, started, its address known, stopped.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tidegate_testbed::pinned;

use super::settings::Settings;
use crate::scenario::{Mail, MailDatabase};

/// A running mail service. Dropping it ends it, and its database.
#[derive(Debug)]
pub(super) struct Program {
    child: Child,
    address: SocketAddr,
}

/// Why the mail service does not run.
#[derive(Debug, thiserror::Error)]
pub enum MailProgramError {
    /// It cannot be started.
    #[error(
        "cannot start {}: {error}; build it (cargo build --release -p tidegate-mail), or say where it is (--mail PATH)",
        path.display()
    )]
    Start {
        /// Where it was looked for.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A file or folder of its data.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It ended too soon.
    #[error("tidegate-mail {command} ended with {status}; see {}", log.display())]
    Ended {
        /// The beginning of its command line.
        command: &'static str,
        /// How.
        status: String,
        /// What it said.
        log: PathBuf,
    },
}

impl Program {
    /// Makes new mail and starts the service on it; its messages go to `mail.log` in `folder`.
    pub(super) fn start(
        program: &Path,
        folder: &Path,
        mail: &Mail,
        settings: &Settings,
        seed: u64,
    ) -> Result<Program, MailProgramError> {
        let file = |path: &Path| {
            let path = path.to_owned();
            move |error| MailProgramError::File { path, error }
        };
        fs::create_dir_all(folder).map_err(file(folder))?;
        let log = folder.join("mail.log");
        let output = File::options().create(true).append(true).open(&log).map_err(file(&log))?;
        let parameters = folder.join("parameters.toml");
        fs::write(&parameters, settings.parameters.to_string()).map_err(file(&parameters))?;
        let database = database(mail, folder);
        let command = |output: File| {
            let mut command = Command::new(program);
            command.stdin(Stdio::null()).stderr(output);
            command
        };
        let start = |error| MailProgramError::Start { path: program.to_owned(), error };
        let ended = |command, status: Option<ExitStatus>| MailProgramError::Ended {
            command,
            status: status.map_or("no status".to_owned(), |status| status.to_string()),
            log: log.clone(),
        };
        let copy = || output.try_clone().map_err(file(&log));

        let mut make = command(copy()?);
        make.arg("generate").args(["--database", &database]).args(options(mail, seed)).stdout(copy()?);
        let status = make.status().map_err(start)?;
        if !status.success() {
            return Err(ended("generate", Some(status)));
        }
        let mut serve = command(copy()?);
        serve.args(["--database", &database, "--listen", "127.0.0.1:0", "--class-header"]);
        serve.args(["--connections", &mail.connections.to_string(), "--backlog", BACKLOG]);
        if let Some(workers) = mail.workers {
            serve.args(["--workers", &workers.to_string()]);
        }
        serve.args(["--render-samples", &mail.render_samples.to_string()]).args(&settings.options);
        if settings.is_controlled {
            serve.arg("--parameters").arg(&parameters);
        }
        // It ends when this process does, however that happens: the pipe is closed then.
        serve.arg("--while-stdin").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn(&mut serve, mail.processors).map_err(start)?;
        match address(&mut child) {
            Some(address) => Ok(Program { child, address }),
            None => Err(ended("serve", child.wait().ok())),
        }
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it; a line of text when it did not end well.
    pub(super) fn stop(&mut self) -> Option<String> {
        let ended = |status: ExitStatus| (!status.success()).then(|| format!("the mail service ended with {status}"));
        if let Ok(Some(status)) = self.child.try_wait() {
            return ended(status);
        }
        // Only fails when it is gone already.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let give_up = Instant::now() + STOPS_WITHIN;
        while Instant::now() < give_up {
            if let Ok(Some(status)) = self.child.try_wait() {
                return ended(status);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(self.child.kill());
        drop(self.child.wait());
        Some(format!("the mail service did not end within {} s and was killed", STOPS_WITHIN.as_secs()))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts it on so many of the processors.
fn spawn(command: &mut Command, processors: Option<u32>) -> io::Result<Child> {
    let count = processors.map_or(usize::MAX, |count| count as usize);
    pinned(|all| &all[..count.min(all.len())], || command.spawn())
}

fn database(mail: &Mail, folder: &Path) -> String {
    match mail.database {
        MailDatabase::Mariadb => format!("mariadb:{}", folder.join("mariadb").display()),
        MailDatabase::Sqlite => format!("sqlite:{}", folder.join("mail.db").display()),
    }
}

fn options(mail: &Mail, seed: u64) -> Vec<String> {
    let options = [
        ("accounts", mail.accounts.to_string()),
        ("largest", mail.largest.to_string()),
        ("smallest", mail.smallest.to_string()),
        ("tail", mail.tail.to_string()),
        ("text-bytes", mail.text_bytes.to_string()),
        ("seed", seed.to_string()),
    ];
    options.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]).collect()
}

/// The address that it prints when it listens; none when it ends before.
fn address(child: &mut Child) -> Option<SocketAddr> {
    let output = child.stdout.take()?;
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    lines.filter_map(|line| line.split_once(" at http://")?.1.trim_end_matches('/').parse().ok()).next()
}

/// All users of a crowd may knock at once.
const BACKLOG: &str = "4096";

/// Requests under way are finished, then the database.
const STOPS_WITHIN: Duration = Duration::from_secs(60);
