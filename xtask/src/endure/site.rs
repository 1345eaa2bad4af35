//! The processes of an endurance run: servers, a nucleus beside each, a sentry with or without company, and load.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::company::Company;
use super::configuration::{self, Places, Servers};
use super::well;
use crate::bench::service::{Service, free_address};
use crate::command;
use crate::real::sentry;

/// Where the sentry runs; servers and load have the other core.
pub const SENTRY_CORE: usize = 0;
/// Where servers and the control plane run.
pub const OTHER_CORE: usize = 1;

/// How many servers there are.
pub const SERVERS: usize = 4;
/// Share of the load that the peer gets, where there is one.
const AT_PEER: f64 = 0.1;

/// How long it may take until the sentry has its first orders.
const START: Duration = Duration::from_secs(20);
/// Between two looks at what is waited for.
const POLL: Duration = Duration::from_millis(50);

/// Everything that runs.
pub struct Site {
    dir: PathBuf,
    sentry: Service,
    admin: SocketAddr,
    reports: SocketAddr,
    servers: Vec<Server>,
    /// Where the access log goes.
    pub access_log: PathBuf,
    company: Option<Company>,
}

/// A server with its nucleus; either may be away.
struct Server {
    address: SocketAddr,
    process: Option<Service>,
    nucleus: Option<Child>,
}

impl Site {
    /// Starts a sentry that knows its servers and is alone before them.
    ///
    /// # Errors
    /// When something cannot be started.
    pub fn start(dir: &Path) -> Result<Site> {
        Site::with(dir, |_, _, _| Ok(None))
    }

    /// Starts a sentry with a control plane, a peer and relays.
    ///
    /// # Errors
    /// When something cannot be started, or the sentry is not told its servers.
    pub fn start_with_company(dir: &Path) -> Result<Site> {
        let site = Site::with(dir, |dir, servers, reports| Company::start(dir, servers, reports).map(Some))?;
        match well::awaited(START, || well::has_orders(&site))? {
            None => Ok(site),
            Some(problem) => bail!("the sentry has no orders: {problem}"),
        }
    }

    fn with(
        dir: &Path,
        company: impl FnOnce(&Path, &[SocketAddr], SocketAddr) -> Result<Option<Company>>,
    ) -> Result<Site> {
        let (listen, admin) = (free_address()?, free_address()?);
        let reports = UdpSocket::bind(("127.0.0.1", 0))?.local_addr()?;
        fs::write(dir.join("key"), "0123456789abcdef0123456789abcdef")?;
        let addresses: Vec<SocketAddr> = (0..SERVERS).map(|_| free_address()).collect::<Result<_>>()?;
        let company = company(dir, &addresses, reports)?;
        let servers = addresses.iter().map(|&address| Server { address, process: None, nucleus: None }).collect();
        let access_log = dir.join("access.log");
        let places = Places { listen, admin, reports, access_log: &access_log };
        let text = own_configuration(&places, &addresses, company.as_ref(), 0);
        fs::write(dir.join("sentry.toml"), text)?;
        let mut tidegate = Command::new(command::tidegate());
        tidegate.args(["run", "-c"]).arg(dir.join("sentry.toml"));
        let sentry = Service::start("sentry", tidegate, SENTRY_CORE, listen, dir)?;
        let mut site = Site { dir: dir.to_owned(), sentry, admin, reports, servers, access_log, company };
        site.bring_all()?;
        Ok(site)
    }

    /// Sees that everything runs.
    ///
    /// # Errors
    /// When something cannot be started.
    pub fn bring_all(&mut self) -> Result<()> {
        (0..SERVERS).try_for_each(|at| self.bring(at))?;
        self.company.as_mut().map_or(Ok(()), Company::bring)
    }

    /// Who stands beside the sentry.
    ///
    /// # Errors
    /// When it is alone.
    pub fn company(&self) -> Result<&Company> {
        self.company.as_ref().context("the sentry is alone")
    }

    /// Who stands beside the sentry.
    ///
    /// # Errors
    /// When it is alone.
    pub fn company_mut(&mut self) -> Result<&mut Company> {
        self.company.as_mut().context("the sentry is alone")
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

    /// A server, as sentries know it.
    fn server(&self, at: usize) -> SocketAddr {
        self.company.as_ref().map_or(self.servers[at].address, |company| company.server(at))
    }

    /// A server's port, as sentries know it.
    pub fn port(&self, at: usize) -> u16 {
        self.server(at).port()
    }

    /// Where nuclei report.
    pub fn reports(&self) -> SocketAddr {
        self.company.as_ref().map_or(self.reports, |company| company.before_reports.address)
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
        let (known, to) = (self.server(at).to_string(), self.reports());
        let peer = self.company.as_ref().map(|company| company.peer_reports);
        let server = &mut self.servers[at];
        if server.process.is_none() {
            let mut tidegate = Command::new(command::tidegate());
            tidegate.args(["emulate", "--listen", &server.address.to_string(), "--cores", "1", "--service", "5ms"]);
            let name = format!("server-{at}");
            server.process = Some(Service::start(&name, tidegate, OTHER_CORE, server.address, &self.dir)?);
        }
        if server.nucleus.is_none() {
            let mut tidegate = Command::new(command::tidegate());
            // Sentries may know the server as a relay's address; the nucleus looks at the server itself.
            let service = server.address.port().to_string();
            tidegate.args(["nucleus", "--server", &known, "--service", &service, "--key-file"]);
            tidegate.arg(self.dir.join("key"));
            for to in [Some(to), peer].into_iter().flatten() {
                tidegate.args(["--to", &to.to_string()]);
            }
            tidegate.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
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
        let (listen, admin, reports) = (self.sentry.address, self.admin, self.reports);
        let places = Places { listen, admin, reports, access_log: &self.access_log };
        self.write(&own_configuration(&places, &addresses, self.company.as_ref(), number % 10))
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

    /// Puts load; where there is a peer, a part of it there.
    ///
    /// # Errors
    /// When a generator cannot be started.
    pub fn load(&self, rate: f64, seconds: u64) -> Result<Loads> {
        let Some(company) = &self.company else {
            return Ok(Loads(vec![self.load_one("load", self.sentry.address, rate, seconds)?]));
        };
        let own = self.load_one("load", self.sentry.address, rate * (1.0 - AT_PEER), seconds)?;
        Ok(Loads(vec![own, self.load_one("peer-load", company.peer_address, rate * AT_PEER, seconds)?]))
    }

    /// A tenth of it is of the better class.
    fn load_one(&self, name: &str, to: SocketAddr, rate: f64, seconds: u64) -> Result<Load> {
        let file = self.dir.join(format!("{name}.json"));
        let url = format!("http://{to}/");
        let class = |name: &str, share: f64| format!("name={name},path=/{name},rate={:.0}/s,timeout=5s", rate * share);
        let mut tidegate = Command::new(command::tidegate());
        tidegate.args(["load", "--to", &url, "--duration", &format!("{seconds}s"), "--target", "500ms", "--json"]);
        tidegate.arg(&file).args(["--class", &class("gold", 0.1), "--class", &class("low", 0.9)]);
        tidegate.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Load { child: tidegate.spawn().context("cannot start the load")?, file })
    }

    /// Requests in flight and waiting, at the peer, too.
    ///
    /// # Errors
    /// When a sentry does not say.
    pub fn busy(&self) -> Result<u64> {
        let peer = self.company.as_ref().map_or(Ok(0), |company| sentry::busy(&company.peer()?))?;
        Ok(sentry::busy(&self.state()?)? + peer)
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
        // First who would give orders about those that go.
        self.company = None;
        (0..SERVERS).for_each(|at| self.end(at, true));
    }
}

/// Load that is being put, to each sentry.
pub struct Loads(Vec<Load>);

impl Loads {
    /// The reports, when it is over.
    ///
    /// # Errors
    /// When one failed.
    pub fn wait(self) -> Result<Vec<Value>> {
        // All are waited for, whatever came of the first.
        let all: Vec<Result<Value>> = self.0.into_iter().map(Load::wait).collect();
        all.into_iter().collect()
    }
}

struct Load {
    child: Child,
    file: PathBuf,
}

impl Load {
    /// Its report, when it is over.
    ///
    /// # Errors
    /// When it failed.
    fn wait(mut self) -> Result<Value> {
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

fn own_configuration(places: &Places, servers: &[SocketAddr], company: Option<&Company>, guarantee: usize) -> String {
    let ears = company.map(|company| (company.ears[0], company.ears));
    let servers = company.map_or(Servers::Own(servers), |company| Servers::Ordered(company.before_control.address));
    configuration::of_sentry(places, &servers, ears, guarantee)
}

/// Waits until something holds, for a time at most; whether it came to that.
///
/// # Errors
/// Those of the condition.
pub fn until(most: Duration, mut condition: impl FnMut() -> Result<bool>) -> Result<bool> {
    let deadline = Instant::now() + most;
    loop {
        if condition()? {
            return Ok(true);
        }
        if Instant::now() > deadline {
            return Ok(false);
        }
        std::thread::sleep(POLL);
    }
}
