//! The processes of an endurance run: servers, a nucleus beside each, a sentry, and load.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::bench::service::{Service, free_address};
use crate::command;
use crate::real::sentry;

/// Where the sentry runs; servers and load have the other core.
const SENTRY_CORE: usize = 0;
const OTHER_CORE: usize = 1;

/// How many servers there are.
pub const SERVERS: usize = 4;

/// Everything that runs.
pub struct Site {
    dir: PathBuf,
    sentry: Service,
    admin: SocketAddr,
    reports: SocketAddr,
    servers: Vec<Server>,
    /// Where the access log goes.
    pub access_log: PathBuf,
}

/// A server with its nucleus; either may be away.
struct Server {
    address: SocketAddr,
    process: Option<Service>,
    nucleus: Option<Child>,
}

impl Site {
    /// Starts everything.
    ///
    /// # Errors
    /// When something cannot be started.
    pub fn start(dir: &Path) -> Result<Site> {
        let (listen, admin) = (free_address()?, free_address()?);
        let reports = UdpSocket::bind(("127.0.0.1", 0))?.local_addr()?;
        fs::write(dir.join("key"), "0123456789abcdef0123456789abcdef")?;
        let addresses: Vec<SocketAddr> = (0..SERVERS).map(|_| free_address()).collect::<Result<_>>()?;
        let servers = addresses.iter().map(|&address| Server { address, process: None, nucleus: None }).collect();
        let access_log = dir.join("access.log");
        let text = configuration(listen, admin, reports, &addresses, &access_log, 0);
        fs::write(dir.join("sentry.toml"), text)?;
        let mut tidegate = Command::new(command::tidegate());
        tidegate.args(["run", "-c"]).arg(dir.join("sentry.toml"));
        let sentry = Service::start("sentry", tidegate, SENTRY_CORE, listen, dir)?;
        let mut site = Site { dir: dir.to_owned(), sentry, admin, reports, servers, access_log };
        (0..SERVERS).try_for_each(|at| site.bring(at))?;
        Ok(site)
    }

    /// The sentry's process.
    pub fn pid(&self) -> u32 {
        self.sentry.pid()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.sentry.address
    }

    /// Where its access log goes while all is well.
    pub fn own_log(&self) -> PathBuf {
        self.dir.join("access.log")
    }

    /// A server's port.
    pub fn port(&self, at: usize) -> u16 {
        self.servers[at].address.port()
    }

    /// Where nuclei report.
    pub fn reports(&self) -> SocketAddr {
        self.reports
    }

    /// A server's process, and its nucleus's.
    pub fn pids(&self, at: usize) -> [Option<u32>; 2] {
        let server = &self.servers[at];
        [server.process.as_ref().map(Service::pid), server.nucleus.as_ref().map(Child::id)]
    }

    /// Sees that a server and its nucleus run.
    ///
    /// # Errors
    /// When they cannot be started.
    pub fn bring(&mut self, at: usize) -> Result<()> {
        let server = &mut self.servers[at];
        let address = server.address.to_string();
        if server.process.is_none() {
            let mut tidegate = Command::new(command::tidegate());
            tidegate.args(["emulate", "--listen", &address, "--cores", "1", "--service", "5ms"]);
            let name = format!("server-{at}");
            server.process = Some(Service::start(&name, tidegate, OTHER_CORE, server.address, &self.dir)?);
        }
        if server.nucleus.is_none() {
            let mut tidegate = Command::new(command::tidegate());
            tidegate.args(["nucleus", "--server", &address, "--to", &self.reports.to_string(), "--key-file"]);
            tidegate.arg(self.dir.join("key")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            server.nucleus = Some(tidegate.spawn().context("cannot start a nucleus")?);
        }
        Ok(())
    }

    /// Ends a server and its nucleus, in good order or by `kill -9`.
    pub fn end(&mut self, at: usize, kill: bool) {
        let pids = self.pids(at);
        if kill {
            pids.into_iter().flatten().for_each(|pid| signal(pid, Signal::KILL));
        }
        let server = &mut self.servers[at];
        server.process = None;
        if let Some(mut nucleus) = server.nucleus.take() {
            signal(nucleus.id(), Signal::KILL);
            let _ended = nucleus.wait();
        }
    }

    /// Puts another configuration in force: the same, but for a class's guarantee.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn reload(&mut self, number: usize) -> Result<()> {
        let addresses: Vec<SocketAddr> = self.servers.iter().map(|server| server.address).collect();
        let text =
            configuration(self.sentry.address, self.admin, self.reports, &addresses, &self.access_log, number % 10);
        self.write(&text)
    }

    /// Puts any text in the place of the configuration.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, text: &str) -> Result<()> {
        fs::write(self.dir.join("sentry.toml"), text)?;
        signal(self.pid(), Signal::HUP);
        Ok(())
    }

    /// One server goes, and the one that went before comes back.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn change_servers(&mut self, number: usize) -> Result<()> {
        self.bring((number + SERVERS - 1) % SERVERS)?;
        self.end(number % SERVERS, number.is_multiple_of(2));
        Ok(())
    }

    /// Puts load: a tenth of it is of the better class.
    ///
    /// # Errors
    /// When the generator cannot be started.
    pub fn load(&self, rate: f64, seconds: u64) -> Result<Load> {
        let file = self.dir.join("load.json");
        let url = format!("http://{}/", self.sentry.address);
        let class = |name: &str, share: f64| format!("name={name},path=/{name},rate={:.0}/s,timeout=5s", rate * share);
        let mut tidegate = Command::new(command::tidegate());
        tidegate.args(["load", "--to", &url, "--duration", &format!("{seconds}s"), "--target", "500ms", "--json"]);
        tidegate.arg(&file).args(["--class", &class("gold", 0.1), "--class", &class("low", 0.9)]);
        tidegate.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Load { child: tidegate.spawn().context("cannot start the load")?, file })
    }

    /// Requests in flight and waiting.
    ///
    /// # Errors
    /// When the sentry does not say.
    pub fn busy(&self) -> Result<u64> {
        sentry::busy(&self.state()?)
    }

    /// All that the sentry says of itself.
    ///
    /// # Errors
    /// When it does not.
    pub fn state(&self) -> Result<Value> {
        sentry::state(self.admin)
    }

    /// Whether it says that it is well, and counted no panic.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn is_healthy(&self) -> Result<bool> {
        let (status, _) = sentry::ask(self.admin, "/healthz")?;
        let (_, metrics) = sentry::ask(self.admin, "/metrics")?;
        let panics = metrics.lines().filter(|line| line.starts_with("tidegate_worker_panics"));
        Ok(status == 200 && panics.into_iter().all(|line| line.ends_with(" 0")))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        (0..SERVERS).for_each(|at| self.end(at, true));
    }
}

/// Load that is being put.
pub struct Load {
    child: Child,
    file: PathBuf,
}

impl Load {
    /// Its report, when it is over.
    ///
    /// # Errors
    /// When it failed.
    pub fn wait(mut self) -> Result<Value> {
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the load ended with {status}");
        }
        let text = fs::read_to_string(&self.file).context("the load left no report")?;
        serde_json::from_str(&text).context("the load's report is not JSON")
    }
}

/// Sends a signal; to one that is gone it is none.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _gone = kill_process(pid, signal);
    }
}

fn configuration(
    listen: SocketAddr,
    admin: SocketAddr,
    reports: SocketAddr,
    servers: &[SocketAddr],
    access_log: &Path,
    guarantee: usize,
) -> String {
    let servers: Vec<String> = servers.iter().map(|address| format!("\"{address}\"")).collect();
    format!(
        "access_log = \"{}\"\n[sentry]\nworkers = 1\n[admin]\nlisten = \"{admin}\"\n\
         [reports]\nlisten = \"{reports}\"\nkey_file = \"key\"\n\
         [[application]]\nname = \"soak\"\nlisten = \"{listen}\"\nservers = [{}]\ntarget = \"500ms\"\n\
         health = {{ interval = \"500ms\" }}\n\
         [[application.class]]\nname = \"gold\"\nmin_rate = \"{guarantee}/s\"\nmatch = {{ path = \"/gold\" }}\n\
         [[application.class]]\nname = \"low\"\n",
        access_log.display(),
        servers.join(", ")
    )
}
