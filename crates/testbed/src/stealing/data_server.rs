//! The data server: memcached, the application's software and the nucleus, each a process.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tidegate_wire::KeyError;
use tidegate_workload::scenario::{Scenario, Stealing};

use crate::live;
use crate::memcached::Client;
use crate::spec::{LookUps, ServerSpec};

/// Who does not start or stop within this does not.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// Three processes. Dropping it ends them.
#[derive(Debug)]
pub(super) struct DataServer {
    nucleus: Option<Process>,
    application: Process,
    memcached: Process,
    application_at: SocketAddr,
    memcached_at: SocketAddr,
}

/// Why the data server does not run.
#[derive(Debug, thiserror::Error)]
pub enum DataServerError {
    /// A program cannot be started.
    #[error("cannot start {program}: {error}; on Debian memcached is in the package memcached")]
    Start {
        /// Which.
        program: String,
        /// What the system said.
        error: io::Error,
    },
    /// A program ended too soon, or says nothing.
    #[error("{program} does not answer; see {}", log.display())]
    Silent {
        /// Which.
        program: &'static str,
        /// What it said.
        log: PathBuf,
    },
    /// A file of its.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl DataServer {
    /// Starts memcached, fills it, and starts the application's software beside it.
    pub(super) fn start(
        scenario: &Scenario,
        stealing: &Stealing,
        seed: u64,
        program: &Path,
        folder: &Path,
    ) -> Result<DataServer, DataServerError> {
        let file = |path: PathBuf| move |error| DataServerError::File { path, error };
        fs::create_dir_all(folder).map_err(file(folder.to_owned()))?;
        let key = folder.join("key");
        fs::write(&key, format!("one experiment's secret {seed} {}\n", std::process::id())).map_err(file(key))?;
        let (memcached, memcached_at) = memcached(stealing, folder)?;
        let spec = ServerSpec {
            name: "data-server".to_owned(),
            look_ups: Some(LookUps { memcached: memcached_at, count: stealing.look_ups, keys: stealing.keys }),
            computes: true,
            ..live::server(scenario, seed.wrapping_add(500))
        };
        let spec_file = folder.join("application.json");
        let text = serde_json::to_string(&spec).map_err(|error| io::Error::other(error.to_string()));
        text.and_then(|text| fs::write(&spec_file, text)).map_err(file(spec_file.clone()))?;
        let mut command = Command::new(program);
        command.arg("emulate").arg("--spec").arg(&spec_file).stdout(Stdio::piped());
        let mut application = Process::start("application", command, folder)?;
        let application_at = application.first_line().and_then(|line| line.trim().rsplit(' ').next()?.parse().ok());
        let silent = || DataServerError::Silent { program: "the application", log: folder.join("application.log") };
        let application_at = application_at.ok_or_else(silent)?;
        Ok(DataServer { nucleus: None, application, memcached, application_at, memcached_at })
    }

    /// Starts the nucleus, which reports to a sentry at `to`.
    pub(super) fn start_nucleus(
        &mut self,
        program: &Path,
        folder: &Path,
        to: SocketAddr,
    ) -> Result<(), DataServerError> {
        let pid_file = |name: &str, process: &Process| {
            let path = folder.join(format!("{name}.pid"));
            fs::write(&path, process.0.id().to_string()).map_err(|error| DataServerError::File { path, error })
        };
        pid_file("memcached", &self.memcached)?;
        pid_file("application", &self.application)?;
        let text = format!(
            "server = \"{}\"\nto = [\"{to}\"]\nkey_file = \"key\"\n[isolation]\nstate_file = \"isolation.json\"\n\
             data = {{ pid_file = \"memcached.pid\" }}\napplication = {{ pid_file = \"application.pid\" }}\n",
            self.application_at
        );
        let path = folder.join("nucleus.toml");
        fs::write(&path, text).map_err(|error| DataServerError::File { path: path.clone(), error })?;
        let mut command = Command::new(program);
        command.arg("nucleus").arg("-c").arg(&path);
        self.nucleus = Some(Process::start("nucleus", command, folder)?);
        Ok(())
    }

    /// Where the application's software listens.
    pub(super) fn application(&self) -> SocketAddr {
        self.application_at
    }

    /// Where memcached listens.
    pub(super) fn memcached(&self) -> SocketAddr {
        self.memcached_at
    }

    /// Ends all; what did not end well, in words.
    pub(super) fn stop(&mut self) -> Vec<String> {
        let nucleus = self.nucleus.as_mut().and_then(|nucleus| nucleus.stop("the nucleus"));
        let rest = [self.application.stop("the application"), self.memcached.stop("memcached")];
        nucleus.into_iter().chain(rest.into_iter().flatten()).collect()
    }
}

fn memcached(stealing: &Stealing, folder: &Path) -> Result<(Process, SocketAddr), DataServerError> {
    let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    let start = |error| DataServerError::Start { program: "memcached".to_owned(), error };
    let address = free.map_err(start)?;
    let mut command = Command::new("memcached");
    command.args(["-l", "127.0.0.1", "-p", &address.port().to_string(), "-U", "0", "-m", "64"]);
    command.args(["-t", &stealing.threads.to_string()]);
    if rustix::process::geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    let mut process = Process::start("memcached", command, folder)?;
    let give_up = Instant::now() + PATIENCE;
    loop {
        let filled = Client::connect(address).and_then(|mut client| client.fill(stealing.keys, stealing.value_bytes));
        match filled {
            Ok(()) => return Ok((process, address)),
            Err(_) if Instant::now() < give_up && process.runs() => std::thread::sleep(PAUSE),
            Err(_) => return Err(DataServerError::Silent { program: "memcached", log: folder.join("memcached.log") }),
        }
    }
}

/// A process, which ends with this.
#[derive(Debug)]
struct Process(Child);

impl Process {
    /// Its messages go to `NAME.log` in the folder.
    fn start(name: &str, mut command: Command, folder: &Path) -> Result<Process, DataServerError> {
        let path = folder.join(format!("{name}.log"));
        let log = File::create(&path).map_err(|error| DataServerError::File { path, error })?;
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).stderr(log).spawn();
        child.map(Process).map_err(|error| DataServerError::Start { program, error })
    }

    fn first_line(&mut self) -> Option<String> {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take()?).read_line(&mut line).ok().map(|_| line)
    }

    fn runs(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Asks it to end and waits; a line of text when it ended before, or did not.
    fn stop(&mut self, name: &str) -> Option<String> {
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
