//! Who stands beside the sentry in `chaos`: a control plane that orders its servers, a second sentry that is its peer,
//! and relays by which what is said can come late.

use std::ffi::OsStr;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::Value;

use super::configuration::{self, Places, Servers};
use super::relay::Relay;
use super::site::{OTHER_CORE, SENTRY_CORE, signal};
use crate::bench::service::{Service, free_address};
use crate::command;
use crate::real::sentry;

/// What the control plane's target is at its first start, milliseconds; one more at each start after it.
const TARGET_MS: u64 = 500;
/// What makes the wall clock of a program another one than the machine's; Debian puts it below the architecture's name.
const FAKETIME: &str = "faketime/libfaketimeMT.so.1";

/// The processes beside the sentry, and where they are.
pub struct Company {
    dir: PathBuf,
    control: Option<Service>,
    control_admin: SocketAddr,
    control_address: SocketAddr,
    starts: u64,
    peer: Option<Service>,
    /// Where clients reach the peer.
    pub peer_address: SocketAddr,
    peer_admin: SocketAddr,
    /// Where nuclei report to the peer.
    pub peer_reports: SocketAddr,
    /// Where the sentry hears of the peer, and the peer of the sentry.
    pub ears: [SocketAddr; 2],
    /// The servers as sentries know them: the first is behind a relay.
    servers: Vec<SocketAddr>,
    /// Before the first server.
    pub before_server: Relay,
    /// Between nuclei and the sentry.
    pub before_reports: Relay,
    /// Between the sentry and the control plane.
    pub before_control: Relay,
}

impl Company {
    /// Starts relays and the control plane; the peer comes with [`bring`](Self::bring).
    ///
    /// # Errors
    /// When something cannot be started.
    pub fn start(dir: &Path, servers: &[SocketAddr], reports: SocketAddr) -> Result<Company> {
        ensure!(faketime().is_file(), "{} is not there (Debian package faketime)", faketime().display());
        let (control_address, control_admin) = (free_address()?, free_address()?);
        let before_server = Relay::of_connections(free_address()?, servers[0])?;
        let known = [&[before_server.address], &servers[1..]].concat();
        let mut company = Company {
            dir: dir.to_owned(),
            control: None,
            control_admin,
            control_address,
            starts: 0,
            peer: None,
            peer_address: free_address()?,
            peer_admin: free_address()?,
            peer_reports: free_datagrams()?,
            ears: [free_datagrams()?, free_datagrams()?],
            servers: known,
            before_server,
            before_reports: Relay::of_datagrams(reports)?,
            before_control: Relay::of_connections(free_address()?, control_address)?,
        };
        company.put_clocks(0)?;
        company.bring_control()?;
        Ok(company)
    }

    /// A server, as sentries know it.
    pub fn server(&self, at: usize) -> SocketAddr {
        self.servers[at]
    }

    /// Sees that the control plane and the peer run, and that nothing is late, and no clock another one.
    ///
    /// # Errors
    /// When they cannot be started.
    pub fn bring(&mut self) -> Result<()> {
        for relay in [&self.before_server, &self.before_reports, &self.before_control] {
            relay.lag(false);
        }
        self.put_clocks(0)?;
        self.bring_control()?;
        self.bring_peer()
    }

    fn bring_control(&mut self) -> Result<()> {
        if self.has_control() {
            return self.let_store_write(true);
        }
        self.control = None;
        self.starts += 1;
        let (listen, admin, target) = (self.control_address, self.control_admin, self.target_ms());
        let text = configuration::of_control(listen, admin, &self.servers, target);
        fs::write(self.dir.join("control.toml"), text)?;
        // With the signal ignored a file that may not be written is an error, as on a disk without room.
        let mut tidegate = self.with_clock("sh");
        tidegate.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(command::tidegate());
        tidegate.args(["control", "-c"]).arg(self.dir.join("control.toml"));
        self.control = Some(Service::start("control", tidegate, OTHER_CORE, admin, &self.dir)?);
        Ok(())
    }

    fn bring_peer(&mut self) -> Result<()> {
        if self.peer.is_some() {
            return Ok(());
        }
        let (listen, admin, reports) = (self.peer_address, self.peer_admin, self.peer_reports);
        let access_log = self.dir.join("peer-access.log");
        let places = Places { listen, admin, reports, access_log: &access_log };
        let ears = Some((self.ears[1], self.ears));
        let text = configuration::of_sentry(&places, &Servers::Own(&self.servers), ears, 0);
        fs::write(self.dir.join("peer.toml"), text)?;
        let mut tidegate = self.with_clock(command::tidegate());
        tidegate.args(["run", "-c"]).arg(self.dir.join("peer.toml"));
        self.peer = Some(Service::start("peer", tidegate, SENTRY_CORE, listen, &self.dir)?);
        Ok(())
    }

    /// The target that the control plane orders since its last start, milliseconds.
    pub fn target_ms(&self) -> u64 {
        TARGET_MS + self.starts - 1
    }

    /// The control plane's process, and the peer's.
    pub fn pids(&self) -> [Option<u32>; 2] {
        [&self.control, &self.peer].map(|process| process.as_ref().map(Service::pid))
    }

    /// Kills the control plane, as `kill -9` does.
    pub fn kill_control(&mut self) {
        kill(&mut self.control);
    }

    /// Kills the peer, as `kill -9` does.
    pub fn kill_peer(&mut self) {
        kill(&mut self.peer);
    }

    /// Whether the control plane still runs.
    pub fn has_control(&mut self) -> bool {
        self.control.as_mut().is_some_and(Service::is_running)
    }

    /// Puts the wall clocks of the control plane and the peer so many seconds before the machine's; within a second.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn put_clocks(&self, before: i64) -> Result<()> {
        // Never half of it is read.
        fs::write(self.dir.join("clock.new"), format!("{before:+}\n"))?;
        Ok(fs::rename(self.dir.join("clock.new"), self.dir.join("clock"))?)
    }

    /// A program with a wall clock that can be put.
    fn with_clock(&self, program: impl AsRef<OsStr>) -> Command {
        let mut tidegate = Command::new(program);
        tidegate.env("LD_PRELOAD", faketime()).env("FAKETIME_TIMESTAMP_FILE", self.dir.join("clock"));
        // Read anew in each second: 1 would be in each other one, as it must be more than the difference of seconds.
        tidegate.env("FAKETIME_CACHE_DURATION", "0").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        tidegate
    }

    /// The number of the last record that the control plane wrote down.
    ///
    /// # Errors
    /// When it does not say.
    pub fn last_record(&self) -> Result<u64> {
        let mut last = 0;
        while let Some(next) = self.records_after(last)?.last() {
            last = next["number"].as_u64().context("a record has no number")?;
        }
        Ok(last)
    }

    /// Whether the control plane wrote down that a clock jumped, after a record of a number.
    ///
    /// # Errors
    /// When it does not say.
    pub fn has_noted_jump(&self, after: u64) -> Result<bool> {
        Ok(self.records_after(after)?.iter().any(|record| record["kind"] == "clock"))
    }

    /// What the control plane wrote down after a record of a number: a page of it.
    fn records_after(&self, number: u64) -> Result<Vec<Value>> {
        let mut page = self.control(&format!("audit?after={number}"))?;
        Ok(std::mem::take(page.as_array_mut().context("/api/audit is no list")?))
    }

    /// Whether the control plane can write its store: no file, else.
    ///
    /// # Errors
    /// When the system does not do it.
    pub fn let_store_write(&self, can_write: bool) -> Result<()> {
        let pid = self.pids()[0].and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let limit = Rlimit { current: (!can_write).then_some(0), maximum: None };
        prlimit(Some(pid.context("there is no control plane")?), Resource::Fsize, limit)?;
        Ok(())
    }

    /// All that the control plane says of itself, or what it wrote down: `state` or `audit`.
    ///
    /// # Errors
    /// When it does not.
    pub fn control(&self, what: &str) -> Result<Value> {
        let (status, body) = sentry::ask(self.control_admin, &format!("/api/{what}"))?;
        ensure!(status == 200, "the control plane answers /api/{what} with {status}");
        serde_json::from_str(&body).with_context(|| format!("/api/{what} is not JSON"))
    }

    /// All that the peer says of itself.
    ///
    /// # Errors
    /// When it does not.
    pub fn peer(&self) -> Result<Value> {
        sentry::state(self.peer_admin)
    }
}

fn kill(process: &mut Option<Service>) {
    if let Some(process) = process.take() {
        signal(process.pid(), Signal::KILL);
    }
}

fn faketime() -> PathBuf {
    Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH)).join(FAKETIME)
}

fn free_datagrams() -> Result<SocketAddr> {
    Ok(UdpSocket::bind(("127.0.0.1", 0))?.local_addr()?)
}
