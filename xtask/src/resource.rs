//! `cargo xtask resource`: the policy `resource` before a real service, in network namespaces that this makes.
//!
//! Apache with CGI scripts, unmodified, on core 0, with a nucleus; the sentry and the load on core 1, in namespaces of
//! their own. Needs root, `ip`, `tc`, `nft` and `apache2`. Of its core the service has so much that it saturates at the
//! paper's 375 requests per second: so the sentry and the load, which are on one core here, are never what is short.
//!
//! - V1: 20 % scripts; the request rate is up to 3 times what saturates the service, with and without.
//! - V2: a link of 100 Mbit/s (tbf) and a large file beside the mix.
//! - V3: a sudden load and what the two rates do.
//! - premium: a fifth of the load from a premium prefix, and a flood of connections from elsewhere.
//! - cost: a connection turned away by the kernel beside one that is answered by 503.

mod chart;
mod connections;
mod flood;
mod group;
mod load;
mod service;
mod space;
mod v1;
mod v2;
mod v3;
mod watch;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::args::Args;
use crate::bench::machine;
use crate::bench::service::Service;
use crate::bench::stop::Scratch;
use crate::command;
use crate::programs::PROGRAMS;
use group::Group;
use load::{Course, Mix, Steps};
use space::{Space, Spaces};

const SERVICE_CORE: usize = 0;
const OTHER_CORE: usize = 1;
/// What the service holds: its processes, and the connections that may wait to be accepted (Apache's ListenBacklog).
const HELD: u32 = 150 + 511;
/// Requests per second of the paper's mix that fill the service's share of its core: as in the paper.
const SATURATED: f64 = 375.0;
const NEEDS: &[&str] = &["apache2", "nft", "ip"];
const SENTRY_PORT: u16 = 8080;
const SERVICE_PORT: u16 = 8000;
const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9900);

/// What was asked for.
#[derive(Debug)]
struct Options {
    parts: Vec<String>,
    /// Seconds that a load settles, and seconds that count.
    settle: f64,
    seconds: f64,
    /// Of V1, multiples of what saturates the service.
    levels: Vec<f64>,
    /// Where figures and numbers go.
    out: Option<PathBuf>,
    verbose: bool,
    keep: bool,
}

/// One thing that must hold.
#[derive(Debug)]
struct Check {
    what: String,
    found: String,
    holds: bool,
}

/// Measures, prints tables, and fails when a bar is missed.
///
/// # Errors
/// When something is missing or does not do its part; a missed bar is an exit status of 1.
pub fn run(mut args: Args) -> Result<ExitCode> {
    let short = args.switch("--short");
    let parts = args.option::<String>("--only")?.unwrap_or_else(|| "V1,V2,V3,premium,cost".to_owned());
    let levels = args.option::<String>("--levels")?.unwrap_or_else(|| "0.8,1.2,1.5,2,3".to_owned());
    let options = Options {
        parts: parts.split(',').map(str::to_owned).collect(),
        settle: if short { 12.0 } else { 60.0 },
        seconds: if short { 6.0 } else { 15.0 },
        levels: levels.split(',').map(str::parse).collect::<Result<_, _>>().context("--levels wants numbers")?,
        out: args.option("--out")?,
        verbose: args.switch("--verbose"),
        keep: args.switch("--keep"),
    };
    args.finish()?;
    if let Some(out) = &options.out {
        fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    }
    if !rustix::process::geteuid().is_root() {
        if std::env::var("CI").as_deref() == Ok("true") {
            bail!("network namespaces need root");
        }
        println!("NOT RUN: network namespaces need root");
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(missing) = PROGRAMS.iter().find(|program| NEEDS.contains(&program.name) && !program.is_present()) {
        bail!("{} is missing (Debian package {}); run `cargo xtask programs`", missing.name, missing.package);
    }
    command::build_tidegate()?;
    let scratch = Scratch::new("resource")?;
    if options.keep {
        println!("everything stays in {}", scratch.keep().display());
    }
    let bench = Bench::new(&options, scratch.path())?;
    println!("{}; {}", machine::today(), bench.facts());
    let mut checks = Vec::new();
    for part in &options.parts {
        checks.extend(match part.as_str() {
            "V1" => bench.v1()?,
            "V2" => bench.v2()?,
            "V3" => bench.v3()?,
            "premium" => bench.premium()?,
            "cost" => bench.cost()?,
            other => bail!("--only {other}: there are V1, V2, V3, premium and cost"),
        });
    }
    println!("\n| what | found | |\n|---|---|---|");
    for Check { what, found, holds } in &checks {
        println!("| {what} | {found} | {} |", if *holds { "holds" } else { "**missed**" });
    }
    Ok(if checks.iter().all(|check| check.holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The service in its namespace. The order matters: what is started last goes first.
struct Bench<'a> {
    options: &'a Options,
    dir: &'a Path,
    _service: Service,
    group: Group,
    spaces: Spaces,
    /// Whether clients take compressed answers.
    compressed: AtomicBool,
    /// Of its core the service has this share; `None`: all of it.
    share: Option<f64>,
    /// Processor time of a file and of a script, seconds.
    costs: (f64, f64),
}

/// A sentry and the nucleus beside the service.
struct Guarded {
    sentry: Service,
    _nucleus: Nucleus,
}

/// A nucleus; ends when dropped.
struct Nucleus(std::process::Child);

impl Drop for Nucleus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl<'a> Bench<'a> {
    fn new(options: &'a Options, dir: &'a Path) -> Result<Self> {
        let spaces = Spaces::new()?;
        let group = Group::new(SERVICE_CORE)?;
        let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, SERVICE_PORT));
        let service = spaces.within(Space::Server, || service::start(SERVICE_CORE, listen, dir))?;
        group.take(service.pid())?;
        let mut bench = Bench {
            options,
            dir,
            _service: service,
            group,
            spaces,
            compressed: AtomicBool::new(true),
            share: None,
            costs: (0.0, 0.0),
        };
        bench.costs = (
            bench.weigh(Mix { files: 200.0, ..Mix::default() })?,
            bench.weigh(Mix { scripts: 40.0, ..Mix::default() })?,
        );
        // What a request costs depends on how busy the service is, so it is weighed again where it matters.
        bench.share = Some(SATURATED * bench.weigh(Mix::dynamic(0.8 * SATURATED))?);
        for _ in 0..2 {
            bench.group.bound(bench.share.filter(|share| *share < 1.0))?;
            bench.share = Some(SATURATED * bench.weigh(Mix::dynamic(0.8 * SATURATED))?);
        }
        bench.share = bench.share.filter(|share| *share < 1.0);
        bench.group.bound(bench.share)?;
        Ok(bench)
    }

    /// Processor time of a request, seconds.
    fn weigh(&self, mix: Mix) -> Result<f64> {
        let before = self.group.used()?;
        let course = self.load(Space::Others, SERVICE_PORT, &[(mix, 4.0)])?;
        let used = self.group.used()? - before;
        let answered = course.between(0.0, 4.0).all.answered * 4.0;
        Ok(used / answered.max(1.0))
    }

    fn facts(&self) -> String {
        let ((file, script), share) = (self.costs, self.share.unwrap_or(1.0));
        format!(
            "a file takes {:.2} ms of the processor, a script {:.2} ms; the service has {:.1} % of its core, which the \
             mix fills at {SATURATED:.0}/s",
            file * 1e3,
            script * 1e3,
            share * 1e2,
        )
    }

    fn load(&self, from: Space, port: u16, steps: Steps) -> Result<Course> {
        let to = SocketAddr::from((from.server(), port));
        self.spaces.within(from, || load::put(to, steps, self.compressed.load(Relaxed), OTHER_CORE, self.dir))
    }

    /// Keeps numbers where they were asked for.
    fn keep(&self, name: &str, numbers: &Value) -> Result<()> {
        let Some(out) = &self.options.out else { return Ok(()) };
        fs::write(out.join(name), serde_json::to_string_pretty(numbers)? + "\n")
            .with_context(|| format!("cannot write {name}"))
    }

    fn guard(&self, admission: &str, more: &str) -> Result<Guarded> {
        let key = self.dir.join("key");
        fs::write(&key, "a secret of this experiment only")?;
        let file = self.dir.join("tidegate.toml");
        fs::write(&file, configuration(&key, admission, more))?;
        let mut nucleus = Command::new(command::tidegate());
        let server = format!("127.0.0.1:{SERVICE_PORT}");
        nucleus.args([
            "nucleus",
            "--server",
            &server,
            "--to",
            "127.0.0.1:9901",
            "--cgroup",
            &self.group.name,
            "--key-file",
        ]);
        nucleus.arg(&key).stdin(std::process::Stdio::null()).stderr(fs::File::create(self.dir.join("nucleus.log"))?);
        let mut sentry = Command::new(command::tidegate());
        sentry.args(["run", "-c"]).arg(&file);
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, SENTRY_PORT));
        self.spaces.within(Space::Server, || {
            let sentry = Service::start("tidegate", sentry, OTHER_CORE, listen, self.dir)?;
            let nucleus = Nucleus(nucleus.spawn().context("cannot start the nucleus")?);
            Ok(Guarded { sentry, _nucleus: nucleus })
        })
    }

    /// The sentry's state of the application.
    fn state(&self) -> Result<Value> {
        self.spaces.within(Space::Server, || {
            let mut stream = admin()?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(b"GET /api/state HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
            let mut said = String::new();
            stream.read_to_string(&mut said)?;
            let body = said.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            let state: Value = serde_json::from_str(body).context("/api/state is not JSON")?;
            Ok(state["applications"][0].clone())
        })
    }

    /// Connections that the kernel turned away so far, and the rate that is let in.
    fn connections(&self) -> Result<(f64, Option<f64>)> {
        let state = self.state()?;
        let classes = state["connections"]["classes"].as_array().cloned().unwrap_or_default();
        let refused = classes.iter().filter_map(|class| class["refused"].as_f64()).sum();
        Ok((refused, state["connections"]["rate"].as_f64()))
    }
}

/// The admin API comes a moment after the sentry's own port.
fn admin() -> Result<TcpStream> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match TcpStream::connect(ADMIN) {
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            result => return result.context("the admin API does not listen"),
        }
    }
}

fn check(what: String, found: String, holds: bool) -> Check {
    Check { what, found, holds }
}

fn configuration(key: &Path, admission: &str, more: &str) -> String {
    format!(
        "[sentry]\nworkers = 1\n[admin]\nlisten = \"{ADMIN}\"\n[reports]\nlisten = \"127.0.0.1:9901\"\nkey_file = \"{}\"\n\
         when_silent = \"estimate\"\n[[application]]\nlisten = \"0.0.0.0:{SENTRY_PORT}\"\n\
         servers = [{{ address = \"127.0.0.1:{SERVICE_PORT}\", max_connections = {HELD} }}]\n\
         target = \"500ms\"\nadmission = {admission}\n{more}\n\
         [[application.request_type]]\nname = \"scripts\"\nmatch = [{{ dynamic = true }}]\n{}\n\
         [[application.request_type]]\nname = \"large\"\nmatch = [{{ path_prefix = \"/islarge\" }}]\n{}\n",
        key.display(),
        tags(admission, "cpu"),
        tags(admission, "nic_queue"),
    )
}

/// A tag, where the policy has its resource.
fn tags(admission: &str, resource: &str) -> String {
    let has = admission.contains(&format!("\"{resource}\"")) || !admission.contains("resources");
    if has && admission.contains("\"resource\"") { format!("tags = [\"{resource}\"]") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_of_the_policys_resources() {
        assert_eq!(tags(r#"{ policy = "resource", resources = [{ name = "cpu" }] }"#, "cpu"), "tags = [\"cpu\"]");
        assert_eq!(tags(r#"{ policy = "resource", resources = [{ name = "cpu" }] }"#, "nic_queue"), "");
        assert_eq!(tags(r#"{ policy = "threshold" }"#, "cpu"), "");
        assert_eq!(tags(r#"{ policy = "resource" }"#, "nic_queue"), "tags = [\"nic_queue\"]");
    }
}
