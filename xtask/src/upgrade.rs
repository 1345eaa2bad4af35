//! `cargo xtask upgrade`: a sentry is upgraded again and again, with 2, 1 and 4 workers in turn, under an open loop of
//! new connections, one request each, far beyond what its servers can do.
//!
//! First the same load without an upgrade is measured, then with upgrades. A single request that fails is a failure:
//! refused by the system, reset, or without a whole answer. (503 is an answer.) What is admitted, how long it takes,
//! and what the sentry knows before and after each upgrade are compared. `--restart` restarts it instead, which must
//! show. With `--before PROGRAM`, an older version, the sentry becomes the one and the other in turn.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::Value;

use crate::args::Args;
use crate::bench::machine;
use crate::bench::service::free_address;
use crate::bench::stop::{self, Scratch};
use crate::command;
use crate::real::sentry::{ask, state};

/// How long things may take to come and go.
const PATIENCE: Duration = Duration::from_secs(60);
/// Workers of the processes, in turn.
const WORKERS: [usize; 3] = [1, 4, 2];
/// A limit that moves by more than this factor at an upgrade was not handed over: on one core estimates move as well.
const CONTINUOUS: f64 = 2.0;
/// What upgrades may make of the 95th percentile, and of what is admitted.
const SLOWER: f64 = 1.25;

/// A server, and a sentry in front of it.
struct Site {
    dir: PathBuf,
    /// For all but the sentry.
    program: PathBuf,
    /// The sentry's, in turn.
    versions: Vec<PathBuf>,
    listen: SocketAddr,
    admin: SocketAddr,
    server: SocketAddr,
    /// Who serves.
    pid: u32,
    children: Vec<Child>,
}

/// What a load saw.
struct Seen {
    sent: u64,
    failed: u64,
    errors: Value,
    admitted: f64,
    p95: f64,
    /// How late the generator was, seconds.
    late: f64,
}

/// Runs it.
///
/// # Errors
/// When a process cannot be started or asked. What was lost is an exit status of 1.
pub fn run(mut args: Args) -> Result<ExitCode> {
    let short = args.switch("--short");
    let restart = args.switch("--restart");
    let upgrades: usize = args.option("--upgrades")?.unwrap_or(if short { 6 } else { 50 });
    let rate: u64 = args.option("--rate")?.unwrap_or(if short { 500 } else { 10_000 });
    let every = Duration::from_millis(args.option("--every-ms")?.unwrap_or(1000));
    let program: Option<PathBuf> = args.option("--program")?;
    let before: Option<PathBuf> = args.option("--before")?;
    args.finish()?;
    let program = match program {
        Some(program) => program,
        None => {
            command::build_tidegate()?;
            command::tidegate()
        }
    };
    let scratch = Scratch::new("upgrade")?;
    let mut site = Site::start(scratch.path(), &program, before.as_deref())?;
    println!("{} on {:?}", machine::today(), machine::facts());
    let seconds = (every * upgrades as u32).as_secs() + 4;
    // What is learned in the first seconds is no measure of anything.
    site.load(rate, 5)?.seen()?;
    let calm = site.load(rate, seconds.min(20))?.seen()?;
    calm.tell("without upgrades");
    let load = site.load(rate, seconds)?;
    let (mut moved, mut done) = (1.0f64, 0);
    let begun = Instant::now();
    for number in 0..upgrades {
        let due = begun + Duration::from_secs(1) + every * number as u32;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        site.configure(WORKERS[number % WORKERS.len()])?;
        site.install(number + 1)?;
        let before = site.limit()?;
        if restart {
            site.restart()?
        } else {
            site.upgrade()?
        };
        let after = site.limit()?;
        moved = moved.max(before / after).max(after / before);
        done += 1;
    }
    let busy = load.seen()?;
    busy.tell(if restart { "with restarts" } else { "with upgrades" });
    println!("{done} of {upgrades} done; the estimate of processors moved by a factor of {moved:.2} at most");
    Ok(judge(&calm, &busy, moved, short))
}

fn judge(calm: &Seen, busy: &Seen, moved: f64, short: bool) -> ExitCode {
    let mut failed = Vec::new();
    if busy.failed > 0 {
        failed.push(format!("{} requests failed: {}", busy.failed, busy.errors));
    }
    // Short runs are for machines that do other things as well.
    if !short && moved > CONTINUOUS {
        failed.push(format!("limits are not continuous: a factor of {moved:.2}"));
    }
    if !short && busy.p95 > calm.p95 * SLOWER {
        failed.push(format!("p95 of {:.0} ms was {:.0} ms without upgrades", busy.p95 * 1e3, calm.p95 * 1e3));
    }
    if !short && busy.admitted * SLOWER < calm.admitted {
        failed.push(format!("{:.0}/s admitted, {:.0}/s without upgrades", busy.admitted, calm.admitted));
    }
    failed.iter().for_each(|what| println!("FAILED: {what}"));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Site {
    fn start(dir: &Path, program: &Path, before: Option<&Path>) -> Result<Site> {
        let (listen, admin, server) = (free_address()?, free_address()?, free_address()?);
        let (dir, program) = (dir.to_owned(), std::path::absolute(program)?);
        let versions = before.into_iter().chain([&*program]).map(std::path::absolute).collect::<Result<_, _>>()?;
        let mut site = Site { dir, program, versions, listen, admin, server, pid: 0, children: Vec::new() };
        let arguments = ["emulate", "--listen", &server.to_string(), "--service", "2ms", "--seed", "1"];
        let emulated = site.program.clone();
        site.spawn("server", &emulated, &arguments)?;
        site.configure(2)?;
        site.install(0)?;
        site.serve()?;
        Ok(site)
    }

    /// Whoever starts the sentry's program from now on gets another version, where there are two.
    fn install(&self, number: usize) -> Result<()> {
        let next = self.dir.join("next");
        symlink(&self.versions[number % self.versions.len()], &next)?;
        Ok(fs::rename(next, self.installed())?)
    }

    fn installed(&self) -> PathBuf {
        self.dir.join("tidegate")
    }

    fn spawn(&mut self, name: &str, program: &Path, arguments: &[&str]) -> Result<u32> {
        let log = fs::File::options().create(true).append(true).open(self.dir.join(name))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let pid = child.id();
        stop::remember(pid);
        self.children.push(child);
        Ok(pid)
    }

    fn configure(&self, workers: usize) -> Result<()> {
        let Site { listen, admin, server, dir, .. } = self;
        let socket = dir.join("upgrade.sock");
        let text = format!(
            "[sentry]\nworkers = {workers}\ndrain = \"10s\"\n[admin]\nlisten = \"{admin}\"\n\
             [upgrade]\nsocket = \"{}\"\nspread = \"1s\"\n\
             [[application]]\nname = \"shop\"\nlisten = \"{listen}\"\nservers = \"{server}\"\ntarget = \"500ms\"\n",
            socket.display()
        );
        fs::write(dir.join("next.toml"), text)?;
        fs::rename(dir.join("next.toml"), dir.join("sentry.toml"))?;
        Ok(())
    }

    fn serve(&mut self) -> Result<()> {
        let file = self.dir.join("sentry.toml");
        self.pid = self.spawn("sentry", &self.installed(), &["run", "-c", &file.display().to_string()])?;
        let deadline = Instant::now() + PATIENCE;
        while ask(self.admin, "/readyz").map_or(true, |(status, _)| status != 200) {
            if Instant::now() > deadline {
                bail!("the sentry does not start:\n{}", fs::read_to_string(self.dir.join("sentry"))?);
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn upgrade(&mut self) -> Result<()> {
        let socket = self.dir.join("upgrade.sock");
        let mut command = Command::new(&self.program);
        let done = command.args(["upgrade", "--socket"]).arg(socket).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let pid = said.split_whitespace().nth(1).and_then(|pid| pid.parse().ok());
        match pid.filter(|_| done.status.success()) {
            Some(pid) => {
                stop::remember(pid);
                self.pid = pid;
                Ok(())
            }
            None => bail!("no upgrade: {said}"),
        }
    }

    /// As one does it who has nothing better.
    fn restart(&mut self) -> Result<()> {
        signal(self.pid, Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while self.children.iter_mut().any(|child| child.id() == self.pid && matches!(child.try_wait(), Ok(None))) {
            if Instant::now() > deadline {
                bail!("the sentry does not end");
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.serve()
    }

    /// What the servers are thought to have.
    fn limit(&self) -> Result<f64> {
        let state = state(self.admin)?;
        state["applications"][0]["processors"].as_f64().context("no processors in the state")
    }

    fn load(&self, rate: u64, seconds: u64) -> Result<Load> {
        let json = self.dir.join("load.json");
        let mut command = Command::new(&self.program);
        command.args(["load", "--close", "--to", &format!("http://{}/", self.listen), "--timeout", "10s"]);
        command.args(["--rate", &format!("{rate}/s"), "--duration", &format!("{seconds}s"), "--connections", "8192"]);
        command.arg("--json").arg(&json).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context("cannot start the load")?;
        stop::remember(child.id());
        Ok(Load { child, json })
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        signal(self.pid, Signal::KILL);
        for child in &mut self.children {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A load under way.
struct Load {
    child: Child,
    json: PathBuf,
}

impl Load {
    fn seen(mut self) -> Result<Seen> {
        self.child.wait()?;
        stop::forget(self.child.id());
        let result: Value = serde_json::from_str(&fs::read_to_string(&self.json)?)?;
        let all = &result["classes"][0];
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let errors = all["errors"].as_object().into_iter().flatten();
        let failed = errors.map(|(_, count)| number(count)).sum::<u64>() + number(&all["other"]);
        Ok(Seen {
            sent: number(&all["sent"]),
            failed: failed + number(&all["unfinished"]),
            errors: all["errors"].clone(),
            admitted: all["admitted_per_s"].as_f64().unwrap_or(0.0),
            p95: all["latency"]["p95"].as_f64().unwrap_or(0.0),
            late: result["generator"]["lateness"]["p99"].as_f64().unwrap_or(f64::NAN),
        })
    }
}

impl Seen {
    fn tell(&self, what: &str) {
        let Seen { sent, failed, admitted, p95, late, .. } = self;
        let p95 = p95 * 1e3;
        println!(
            "{what}: {sent} connections, {failed} failed; {admitted:.0}/s admitted, p95 {p95:.0} ms; late {late:.3} s"
        );
    }
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        // It may have ended already.
        let _ = rustix::process::kill_process(pid, signal);
    }
}
