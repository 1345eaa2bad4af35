//! tidegate's programs in a namespace: control planes with the rights of the manifest, a sentry, and load.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::api::awaited;
use super::home::{Home, SOON};
use crate::bench::service::{free_address, tie};
use crate::bench::stop;
use crate::command;
use crate::real::sentry;

/// The program, as `cargo build` leaves it with the feature.
pub fn tidegate() -> PathBuf {
    command::target().join("debug/tidegate")
}

/// A running program of ours, killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    log: PathBuf,
}

/// A control plane.
#[derive(Debug)]
pub struct Member {
    running: Option<Running>,
    file: PathBuf,
    log: PathBuf,
    admin: SocketAddr,
    /// Where sentries reach it.
    pub listen: SocketAddr,
    /// Its pod's name.
    pub pod: String,
}

/// A sentry that has its servers from control planes, or follows the pods of a service.
#[derive(Debug)]
pub struct Sentry {
    running: Running,
    listen: SocketAddr,
    admin: SocketAddr,
    dir: PathBuf,
}

/// Load that is being put.
#[derive(Debug)]
pub struct Load {
    running: Running,
    file: PathBuf,
    ends: Instant,
}

impl Running {
    /// Starts it; what it says is added to a file.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(mut program: Command, log: &Path) -> Result<Self> {
        let output = File::options().create(true).append(true).open(log)?;
        program.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        tie(&mut program);
        let child = program.spawn().context("cannot start tidegate")?;
        stop::remember(child.id());
        Ok(Self { child, log: log.to_owned() })
    }

    /// What it, and who wrote there before it, have said.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
        stop::forget(self.child.id());
    }
}

impl Member {
    /// Writes its file: at least so many pods, and one of the manifest's pods to live in.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(home: &Home, number: usize, least: u32) -> Result<Self> {
        let (listen, admin) = (free_address()?, free_address()?);
        let file = home.dir.join(format!("control-{number}.toml"));
        fs::write(home.dir.join("key"), "the secret of the checks")?;
        let kubeconfig = home.kubeconfig.display();
        let text = format!(
            "listen = \"{listen}\"\nadmin = \"{admin}\"\nkey_file = \"key\"\nperiod = \"200ms\"\n\
             [kubernetes]\nkubeconfig = \"{kubeconfig}\"\nname = \"control-{number}\"\nlease = \"3s\"\n\
             [provider]\nkind = \"kubernetes\"\nkubeconfig = \"{kubeconfig}\"\nservers = 6\nsetup_time = \"1s\"\n\
             [provider.deployments.shop]\ndeployment = \"shop\"\nservice = \"shop-pods\"\nport = \"http\"\n\
             [provision]\npolicy = \"follow\"\nevery = \"500ms\"\nsmooth = \"2s\"\ntrend = \"6s\"\nhold = \"4s\"\n\
             [[application]]\nname = \"shop\"\ntarget = \"500ms\"\nmin_servers = {least}\nservice_time = \"50ms\"\n"
        );
        fs::write(&file, text)?;
        let log = home.dir.join(format!("control-{number}.log"));
        Ok(Self { running: None, file, log, admin, listen, pod: home.control_pods[number].clone() })
    }

    /// Starts it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&mut self) -> Result<()> {
        let mut program = Command::new(tidegate());
        program.args(["control", "-c"]).arg(&self.file).env("POD_NAME", &self.pod);
        self.running = Some(Running::start(program, &self.log)?);
        Ok(())
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// Stops it in good order.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&mut self) -> Result<()> {
        self.terminate()?;
        self.ended()
    }

    /// Tells it to end.
    ///
    /// # Errors
    /// When it does not run.
    pub fn terminate(&mut self) -> Result<()> {
        let running = self.running.as_ref().context("it does not run")?;
        Ok(kill_process(Pid::from_child(&running.child), Signal::TERM)?)
    }

    /// Waits until it has.
    ///
    /// # Errors
    /// When it does not.
    pub fn ended(&mut self) -> Result<()> {
        let running = self.running.as_mut().context("it does not run")?;
        awaited("a control plane ends", SOON, || Ok(running.child.try_wait()?))?;
        self.running = None;
        Ok(())
    }

    /// Whether it runs.
    pub fn is_running(&mut self) -> bool {
        self.running.as_mut().is_some_and(|running| matches!(running.child.try_wait(), Ok(None)))
    }

    /// What it says of itself: `status`, `state`, `plan`, `audit`; null, if it says nothing.
    pub fn ask(&self, what: &str) -> Value {
        let answer = sentry::ask(self.admin, &format!("/api/{what}"));
        answer.ok().and_then(|(_, body)| serde_json::from_str(&body).ok()).unwrap_or_default()
    }

    /// Whether it leads.
    pub fn leads(&self) -> bool {
        self.ask("status")["role"] == "leads"
    }

    /// All that it has written down.
    ///
    /// # Errors
    /// When it does not say.
    pub fn audit(&self) -> Result<Vec<Value>> {
        let mut all: Vec<Value> = Vec::new();
        loop {
            let after = all.last().map_or(0, |record| record["number"].as_u64().unwrap_or(0));
            let Value::Array(mut page) = self.ask(&format!("audit?after={after}")) else {
                bail!("it has no audit log")
            };
            if page.is_empty() {
                return Ok(all);
            }
            all.append(&mut page);
        }
    }

    /// How many lines it has logged.
    pub fn lines(&self) -> usize {
        fs::read_to_string(&self.log).unwrap_or_default().lines().count()
    }

    /// What it logged that was refused for want of a right.
    pub fn refusals(&self) -> Vec<String> {
        refusals(&fs::read_to_string(&self.log).unwrap_or_default())
    }
}

/// What was refused for want of a right, of what somebody logged.
pub fn refusals(log: &str) -> Vec<String> {
    log.lines().filter(|line| line.contains("orbidden")).map(str::to_owned).collect()
}

impl Sentry {
    /// Starts it, with all control planes that it may ask.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(home: &Home, members: &[Member]) -> Result<Self> {
        let connect: Vec<_> = members.iter().map(|member| format!("\"{}\"", member.listen)).collect();
        let control = format!("[control]\nconnect = [{}]\nkey_file = \"key\"\nname = \"one\"\n", connect.join(", "));
        Self::with(home, &control, "", &home.kubeconfig)
    }

    /// Starts it before the pods of `shop`, which it follows with the rights to which this file leads.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn following(home: &Home, kubeconfig: &Path) -> Result<Self> {
        Self::with(home, "", "servers = \"kubernetes:shop-pods:http\"\n", kubeconfig)
    }

    fn with(home: &Home, tables: &str, servers: &str, kubeconfig: &Path) -> Result<Self> {
        let (listen, admin) = (free_address()?, free_address()?);
        let text = format!(
            "[admin]\nlisten = \"{admin}\"\n[sentry]\nworkers = 1\n{tables}\
             [[application]]\nname = \"shop\"\nlisten = \"{listen}\"\ntarget = \"500ms\"\n{servers}"
        );
        let file = home.dir.join("sentry.toml");
        fs::write(&file, text)?;
        let mut program = Command::new(tidegate());
        program.args(["run", "-c"]).arg(&file).env("KUBECONFIG", kubeconfig);
        let running = Running::start(program, &home.dir.join("sentry.log"))?;
        Ok(Self { running, listen, admin, dir: home.dir.clone() })
    }

    /// What it logged that was refused for want of a right.
    pub fn refusals(&self) -> Vec<String> {
        refusals(&self.running.log())
    }

    /// The addresses of its servers; none, if it says nothing. Those that left are shown until the next change.
    pub fn servers(&self) -> Vec<String> {
        let state = sentry::state(self.admin).unwrap_or_default();
        let mut servers = state["applications"][0]["servers"].as_array().cloned().unwrap_or_default();
        servers.retain(|server| server["status"] != "draining");
        let address = |server: &Value| server["address"].as_str().unwrap_or_default().to_owned();
        servers.iter().map(address).collect()
    }

    /// Its servers as it shows them, and what it says of the control plane.
    pub fn describe(&self) -> String {
        let state = sentry::state(self.admin).unwrap_or_default();
        format!("{} {}", state["applications"][0]["servers"], state["control"])
    }

    /// The term of the orders in force, and whether it hears who gave them.
    pub fn term(&self) -> (u64, bool) {
        let control = &sentry::state(self.admin).unwrap_or_default()["control"];
        (control["term"].as_u64().unwrap_or(0), control["connected"] == true)
    }

    /// Puts load, requests a second; a pod does 20.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn load(&self, rate: u32, seconds: u64) -> Result<Load> {
        Load::start(self.listen, rate, seconds, &self.dir)
    }
}

/// What became of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answers {
    /// Requests.
    pub offered: u64,
    /// Answered by a pod.
    pub served: u64,
    /// Neither answered nor refused by the sentry.
    pub lost: u64,
}

impl Load {
    /// Puts requests a second on an address; files are in a folder.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(to: SocketAddr, rate: u32, seconds: u64, dir: &Path) -> Result<Self> {
        let file = dir.join(format!("load-{}.json", to.ip()));
        let _none_yet = fs::remove_file(&file);
        let mut program = Command::new(tidegate());
        program.args(["load", "--to", &format!("http://{to}/"), "--rate", &format!("{rate}/s")]);
        program.args(["--duration", &format!("{seconds}s"), "--timeout", "20s", "--seed", "1", "--json"]).arg(&file);
        let ends = Instant::now() + Duration::from_secs(seconds) + SOON;
        Ok(Self { running: Running::start(program, &dir.join("load.log"))?, file, ends })
    }

    /// Waits for its end, and gives what came of it.
    ///
    /// # Errors
    /// When it fails.
    pub fn finish(mut self) -> Result<Answers> {
        let left = self.ends.saturating_duration_since(Instant::now());
        let (status, _) = awaited("the load ends", left, || Ok(self.running.child.try_wait()?))?;
        ensure!(status.success(), "the load ended with {status}: {}", self.running.log());
        let report: Value = serde_json::from_str(&fs::read_to_string(&self.file)?)?;
        let total = &report["total"];
        let count = |name: &str| total[name].as_u64().with_context(|| format!("the load's report has no {name}"));
        let errors: u64 =
            total["errors"].as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum();
        let lost = errors + count("other")? + count("unfinished")?;
        Ok(Answers { offered: count("offered")?, served: count("admitted")?, lost })
    }
}

impl std::fmt::Display for Answers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} served, {} lost", self.served, self.offered, self.lost)
    }
}
