//! The data server: memcached, the application's software and the nucleus, each a process.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use tidegate_testbed::{LookUps, MemcachedClient, PATIENCE, PAUSE, Process, ProcessError, ServerSpec};
use tidegate_wire::KeyError;

use crate::scenario::{Scenario, Stealing};
use crate::service::emulated;

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
    /// Memcached.
    #[error("{0}; on Debian it is in the package memcached")]
    Memcached(ProcessError),
    /// Another program, or a file of it.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A program ended too soon, or says nothing.
    #[error("{program} does not answer; see {}", log.display())]
    Silent {
        /// Which.
        program: &'static str,
        /// What it said.
        log: PathBuf,
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
        let file = |path: PathBuf| move |error| ProcessError::File { path, error };
        fs::create_dir_all(folder).map_err(file(folder.to_owned()))?;
        let key = folder.join("key");
        fs::write(&key, format!("one experiment's secret {seed} {}\n", std::process::id())).map_err(file(key))?;
        let (memcached, memcached_at) = memcached(stealing, folder)?;
        let spec = ServerSpec {
            name: "data-server".to_owned(),
            look_ups: Some(LookUps { memcached: memcached_at, count: stealing.look_ups, keys: stealing.keys }),
            computes: true,
            ..emulated::server(scenario, seed.wrapping_add(500))
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
            fs::write(&path, process.id().to_string()).map_err(|error| ProcessError::File { path, error })
        };
        pid_file("memcached", &self.memcached)?;
        pid_file("application", &self.application)?;
        let text = format!(
            "server = \"{}\"\nto = [\"{to}\"]\nkey_file = \"key\"\n[isolation]\nstate_file = \"isolation.json\"\n\
             data = {{ pid_file = \"memcached.pid\" }}\napplication = {{ pid_file = \"application.pid\" }}\n",
            self.application_at
        );
        let path = folder.join("nucleus.toml");
        fs::write(&path, text).map_err(|error| ProcessError::File { path: path.clone(), error })?;
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
    let start = |error| ProcessError::Start { program: "memcached".to_owned(), error };
    let address = free.map_err(start)?;
    let mut command = Command::new("memcached");
    command.args(["-l", "127.0.0.1", "-p", &address.port().to_string(), "-U", "0", "-m", "64"]);
    command.args(["-t", &stealing.threads.to_string()]);
    if rustix::process::geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    let mut process = Process::start("memcached", command, folder).map_err(DataServerError::Memcached)?;
    let give_up = Instant::now() + PATIENCE;
    loop {
        let filled =
            MemcachedClient::connect(address).and_then(|mut client| client.fill(stealing.keys, stealing.value_bytes));
        match filled {
            Ok(()) => return Ok((process, address)),
            Err(_) if Instant::now() < give_up && process.runs() => std::thread::sleep(PAUSE),
            Err(_) => return Err(DataServerError::Silent { program: "memcached", log: folder.join("memcached.log") }),
        }
    }
}
