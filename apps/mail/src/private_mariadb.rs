//! A MariaDB of the service's own: its data in a folder, on a port of loopback, for as long as the service runs.
//!
//! For trying things out, for experiments and for tests; a database that others use too is given as `mysql://...`.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::database::{Database, DatabaseError};

/// A running server. Dropping it stops the server; the data stays.
#[derive(Debug)]
pub struct PrivateMariaDb {
    child: Child,
    folder: PathBuf,
    port: u16,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum PrivateMariaDbError {
    /// A program is missing or cannot be started.
    #[error("cannot start {program}: {error}; install the Debian package mariadb-server")]
    Program {
        /// Its name.
        program: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// A file or folder cannot be used.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The server ended, or does not answer.
    #[error("MariaDB in {folder} did not start: {reason}; see {folder}/mariadb.log")]
    NotStarted {
        /// Its folder.
        folder: PathBuf,
        /// What is known.
        reason: String,
    },
}

impl PrivateMariaDb {
    /// Whether MariaDB is installed here.
    pub fn is_installed() -> bool {
        PROGRAMS_IN.iter().any(|dir| Path::new(dir).join("mariadbd").exists())
    }

    /// Starts a server on the data in `folder`, which is made when it is not there, and waits until it answers.
    /// Port 0 takes a free one.
    ///
    /// # Errors
    /// When MariaDB is not installed, the folder cannot be used, or the server does not answer within a minute.
    pub fn start(folder: &Path, port: u16) -> Result<PrivateMariaDb, PrivateMariaDbError> {
        let file = |path: &Path| {
            let path = path.to_owned();
            move |error| PrivateMariaDbError::File { path, error }
        };
        fs::create_dir_all(folder).map_err(file(folder))?;
        let folder = folder.canonicalize().map_err(file(folder))?;
        fs::create_dir_all(scratch(&folder)).map_err(file(&folder))?;
        let data = folder.join("data");
        if !data.join("mysql").exists() {
            install(&folder, &data)?;
        }
        let port = if port == 0 { free_port().map_err(file(&folder))? } else { port };
        let child = spawn(&folder, &data, port)?;
        let mut server = PrivateMariaDb { child, folder, port };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    /// How to reach its database.
    pub fn database(&self) -> Database {
        Database::MariaDb(self.url("mail"))
    }

    /// Its address for `--database`.
    pub fn url(&self, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{}/{database}", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends it at once, as a power cut would (SIGKILL), and waits until it is gone.
    pub fn kill(&mut self) {
        // Only fails when it is gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Stops it in its tracks (SIGSTOP): it takes connections and says nothing. Returns when every thread stands still.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let give_up = Instant::now() + STARTS_WITHIN;
        while !self.is_stopped() && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the system has stopped all threads: one that runs on another processor may go on for a while.
    fn is_stopped(&self) -> bool {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.child.id())) else { return true };
        threads.flatten().all(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) -> bool {
        kill_process(Pid::from_child(&self.child), signal).is_ok()
    }

    fn wait_until_it_answers(&mut self) -> Result<(), PrivateMariaDbError> {
        let give_up = Instant::now() + STARTS_WITHIN;
        let failed = |server: &Self, reason| PrivateMariaDbError::NotStarted { folder: server.folder.clone(), reason };
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(failed(self, format!("it ended with {status}")));
            }
            match self.make_database() {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() > give_up => return Err(failed(self, error.to_string())),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn make_database(&self) -> Result<(), DatabaseError> {
        let mut connection = Database::MariaDb(self.url("mysql")).connect(Duration::from_secs(5))?;
        connection.execute("CREATE DATABASE IF NOT EXISTS mail DEFAULT CHARACTER SET utf8mb4", &[]).map(drop)
    }
}

impl Drop for PrivateMariaDb {
    fn drop(&mut self) {
        let asked = !matches!(self.child.try_wait(), Ok(Some(_))) && self.signal(Signal::TERM);
        let give_up = Instant::now() + Duration::from_secs(20);
        while asked && Instant::now() < give_up {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.kill();
    }
}

/// Makes the server's own tables, with a `root` who needs no password; it listens on loopback only. Without waiting for
/// the disk, which takes seconds: what a power cut spoils now can be made again.
fn install(folder: &Path, data: &Path) -> Result<(), PrivateMariaDbError> {
    let mut command = program("mariadb-install-db");
    command.env("TMPDIR", scratch(folder));
    command.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
    command.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--debug-no-sync"]).args(as_root());
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| PrivateMariaDbError::Program { program: "mariadb-install-db", error })?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(PrivateMariaDbError::NotStarted { folder: folder.to_owned(), reason })
}

/// Temporary tables have a place of their own: a server that starts removes what lies where it puts its own.
fn scratch(folder: &Path) -> PathBuf {
    folder.join("tmp")
}

fn spawn(folder: &Path, data: &Path, port: u16) -> Result<Child, PrivateMariaDbError> {
    let path = folder.join("mariadb.log");
    let log = fs::OpenOptions::new().create(true).append(true).open(&path);
    let log = log.map_err(|error| PrivateMariaDbError::File { path, error })?;
    let mut command = program("mariadbd");
    command.env("TMPDIR", scratch(folder));
    command.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
    command.arg(format!("--socket={}", folder.join("mariadb.sock").display()));
    command.arg(format!("--pid-file={}", folder.join("mariadb.pid").display()));
    command.args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--innodb-buffer-pool-size=256M"]);
    command.arg(format!("--port={port}")).args(as_root());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().map_err(|error| PrivateMariaDbError::Program { program: "mariadbd", error })
}

fn program(name: &str) -> Command {
    let found = PROGRAMS_IN.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists());
    Command::new(found.unwrap_or_else(|| name.into()))
}

/// MariaDB refuses to run as root unless told so; then the data is root's.
fn as_root() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Where Debian and others put its programs.
const PROGRAMS_IN: [&str; 5] = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/libexec"];

/// Recovery after a kill included.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
