//! `cargo xtask resource`: the policy `resource` before a real service, in network namespaces that this makes.
//!
//! Apache with CGI scripts, unmodified, on core 0, with a nucleus; the sentry and the load on core 1, each in namespaces
//! of their own. Needs root, `ip`, `tc`, `nft` and `apache2`. What is shown:
//!
//! - V1: 20 % scripts; the request rate is 0.8, 1.5, 2 and 3 times what saturates the service, with and without.
//! - V2: a link of 100 Mbit/s (tbf) and a large file beside the mix.
//! - V3: a sudden load and what the two rates do.
//! - premium: a fifth of the load from a premium prefix, and a flood of connections from elsewhere.
//! - cost: a connection turned away by the kernel beside one that is answered by 503.

mod flood;
mod load;
mod service;
mod space;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::args::Args;
use crate::bench::service::Service;
use crate::bench::stop::Scratch;
use crate::bench::{machine, proc_fs};
use crate::command;
use crate::programs::PROGRAMS;
use load::{Mix, Run};
use space::{Group, Space, Spaces};

const SERVICE_CORE: usize = 0;
const OTHER_CORE: usize = 1;
const NEEDS: &[&str] = &["apache2", "nft"];
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
    keep: bool,
}

/// One thing that must hold.
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
    let options = Options {
        parts: parts.split(',').map(str::to_owned).collect(),
        settle: if short { 12.0 } else { 20.0 },
        seconds: if short { 6.0 } else { 15.0 },
        keep: args.switch("--keep"),
    };
    args.finish()?;
    if !rustix::process::geteuid().is_root() {
        bail!("network namespaces need root; run it as root, or leave it to CI");
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
    service: Service,
    group: Group,
    spaces: Spaces,
    /// Processor time of a file and of a script, seconds.
    costs: (f64, f64),
}

/// A sentry and the nucleus beside the service.
struct Guarded {
    _sentry: Service,
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
        let mut bench = Bench { options, dir, service, group, spaces, costs: (0.0, 0.0) };
        bench.costs = (
            bench.weigh(Mix { files: 100.0, ..Mix::default() })?,
            bench.weigh(Mix { scripts: 20.0, ..Mix::default() })?,
        );
        Ok(bench)
    }

    /// Processor time of a request, seconds.
    fn weigh(&self, mix: Mix) -> Result<f64> {
        let before = proc_fs::cpu_micros_with_ended(self.service.pid())?;
        let run = self.load(Space::Others, SERVICE_PORT, mix, 5.0)?;
        let used = proc_fs::cpu_micros_with_ended(self.service.pid())? - before;
        Ok(used / 1e6 / (run.all.admitted * 5.0).max(1.0))
    }

    /// The rate that fills the service's core.
    fn saturation(&self) -> f64 {
        let (file, script) = self.costs;
        1.0 / (0.8 * file + 0.2 * script)
    }

    fn facts(&self) -> String {
        let (file, script) = self.costs;
        format!(
            "a file takes {:.2} ms of the processor, a script {:.2} ms: saturated at {:.0}/s",
            file * 1e3,
            script * 1e3,
            self.saturation()
        )
    }

    fn load(&self, from: Space, port: u16, mix: Mix, seconds: f64) -> Result<Run> {
        let to = SocketAddr::from((from.server(), port));
        self.spaces.within(from, || load::put(to, mix, seconds, "10s", OTHER_CORE, self.dir))
    }

    /// A load that settles, and then counts.
    fn settled(&self, port: u16, mix: Mix) -> Result<Run> {
        self.load(Space::Others, port, mix, self.options.settle)?;
        self.load(Space::Others, port, mix, self.options.seconds)
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
            Ok(Guarded { _sentry: sentry, _nucleus: nucleus })
        })
    }

    /// The sentry's state of the application.
    fn state(&self) -> Result<Value> {
        self.spaces.within(Space::Server, || {
            let mut stream = TcpStream::connect(ADMIN).context("the admin API does not listen")?;
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

    fn v1(&self) -> Result<Vec<Check>> {
        let saturation = self.saturation();
        println!("\n── V1\n| rate | | answered/s | mean | scripts/s | SYNs turned away |\n|---|---|---|---|---|---|");
        let levels = [0.8, 1.5, 2.0, 3.0];
        let mut alone = Vec::new();
        for level in levels {
            let run = self.settled(SERVICE_PORT, Mix::dynamic(level * saturation))?;
            row(level, "alone", &run, None);
            alone.push(run);
            thread::sleep(Duration::from_secs(5));
        }
        let guarded = self.guard(r#"{ policy = "resource", resources = [{ name = "cpu" }] }"#, "")?;
        let (mut with, mut turned) = (Vec::new(), Vec::new());
        for level in levels {
            self.load(Space::Others, SENTRY_PORT, Mix::dynamic(level * saturation), self.options.settle)?;
            let before = self.connections()?.0;
            let run = self.load(Space::Others, SENTRY_PORT, Mix::dynamic(level * saturation), self.options.seconds)?;
            thread::sleep(Duration::from_secs(1));
            turned.push(self.connections()?.0 - before);
            row(level, "resource", &run, turned.last().copied());
            with.push(run);
        }
        drop(guarded);
        let mut checks = Vec::new();
        for at in [2, 3] {
            let (alone, with) = (alone[at].all, with[at].all);
            let (more, faster) = (with.admitted / alone.admitted, alone.mean / with.mean);
            let level = levels[at];
            checks.push(check(
                format!("V1 at {level} times: at least 40 % more answered"),
                format!("{more:.2} times"),
                more >= 1.4,
            ));
            checks.push(check(
                format!("V1 at {level} times: mean response time a tenth"),
                format!("1/{faster:.0}"),
                faster >= 10.0,
            ));
        }
        let scripts = with[1].scripts;
        checks.push(check(
            "V1 at 1.5 times: scripts are limited".into(),
            format!("{:.0} of {:.0}/s", scripts.admitted, scripts.offered),
            scripts.refused > 0.0,
        ));
        let quiet = turned[0] + turned[1];
        checks.push(check(
            "V1 up to 1.5 times: the SYN policer turns nobody away".into(),
            format!("{quiet:.0}"),
            quiet == 0.0,
        ));
        checks.push(check("V1 at 3 times: it does".into(), format!("{:.0}", turned[3]), turned[3] > 0.0));
        Ok(checks)
    }

    fn v2(&self) -> Result<Vec<Check>> {
        self.spaces.bound(Space::Others, "100mbit")?;
        let mix = |large| Mix { files: (0.5 / self.costs.0).min(300.0), scripts: 0.0, large };
        println!(
            "\n── V2\n| large files | | mix answered/s | mean | large answered/s | mean |\n|---|---|---|---|---|---|"
        );
        let mut checks = Vec::new();
        for large in [50.0, 80.0] {
            let alone = self.settled(SERVICE_PORT, mix(large))?;
            thread::sleep(Duration::from_secs(5));
            let guarded = self.guard(r#"{ policy = "resource", resources = [{ name = "nic_queue" }] }"#, "")?;
            let with = self.settled(SENTRY_PORT, mix(large))?;
            drop(guarded);
            for (name, run) in [("alone", &alone), ("resource", &with)] {
                let (files, big) = (run.files, run.large);
                println!(
                    "| {large}/s | {name} | {:.0} of {:.0} | {:.0} ms | {:.0} | {:.0} ms |",
                    files.admitted,
                    files.offered,
                    files.mean * 1e3,
                    big.admitted,
                    big.mean * 1e3
                );
            }
            let kept = with.files.admitted / with.files.offered;
            checks.push(check(
                format!("V2 at {large}/s: the mix keeps 95 % (paper: 96, 95)"),
                format!("{:.1} %", kept * 1e2),
                kept >= 0.95,
            ));
            if large > 60.0 {
                let faster = alone.files.mean / with.files.mean;
                checks.push(check(
                    "V2 at 80/s: the mix is answered ten times as fast (paper: 118)".into(),
                    format!("{faster:.0} times"),
                    faster >= 10.0,
                ));
            }
        }
        Ok(checks)
    }

    fn v3(&self) -> Result<Vec<Check>> {
        let saturation = self.saturation();
        let (low, high) = (0.8 * saturation, 2.27 * saturation);
        let scripts = (0.2 * low * 1.2).max(10.0);
        let admission = format!(
            r#"{{ policy = "resource", syn = {{ initial_rate = {:.0} }}, resources = [{{ name = "cpu", control = {{ initial_rate = {scripts:.0} }} }}] }}"#,
            2.67 * saturation
        );
        let guarded = self.guard(&admission, "")?;
        println!(
            "\n── V3: {low:.0}/s, for 20 s {high:.0}/s, {low:.0}/s\n| second | rate of connections | rate of scripts |\n|---|---|---|"
        );
        let mut curves = Vec::new();
        thread::scope(|scope| -> Result<()> {
            let load = scope.spawn(|| -> Result<()> {
                for (rate, seconds) in [(low, 10.0), (high, 20.0), (low, 30.0)] {
                    self.load(Space::Others, SENTRY_PORT, Mix::dynamic(rate), seconds)?;
                }
                Ok(())
            });
            let begin = std::time::Instant::now();
            while !load.is_finished() {
                let state = self.state()?;
                let rate = |name: &str| {
                    let states = state["policy"]["resources"].as_array()?;
                    states.iter().find(|state| state["resource"] == name)?["rate"].as_f64()
                };
                let now = (begin.elapsed().as_secs_f64(), rate("syn").unwrap_or(0.0), rate("cpu").unwrap_or(0.0));
                println!("| {:.0} | {:.1} | {:.1} |", now.0, now.1, now.2);
                curves.push(now);
                thread::sleep(Duration::from_secs(1));
            }
            load.join().unwrap_or_else(|_| bail!("the load panicked"))
        })?;
        drop(guarded);
        let within = |from: f64, to: f64| curves.iter().filter(move |at| at.0 >= from && at.0 < to);
        let least = within(10.0, 32.0).map(|at| at.1).fold(f64::INFINITY, f64::min);
        let last = curves.last().map_or(0.0, |at| at.1);
        let pairs = || curves.windows(2).map(|pair| pair[0].2 - pair[1].2);
        let (fell, rose) = (pairs().fold(0.0, f64::max), -pairs().fold(0.0, f64::min));
        Ok(vec![
            check(
                "V3: the rate of connections falls below the demand".into(),
                format!("{least:.0} of {high:.0}"),
                least < high,
            ),
            check("V3: and recovers to more than the demand".into(), format!("{last:.0} of {low:.0}"), last > low),
            check("V3: that of scripts falls by 2 a sample at most".into(), format!("{fell:.1}"), fell <= 2.0 * 1.5),
            check("V3: and rises faster".into(), format!("{rose:.1}"), rose > fell),
        ])
    }

    /// A flood beside the load: each prefix has its part, so that the premium clients do not feel it.
    fn premium(&self) -> Result<Vec<Check>> {
        let rate = 0.6 * self.saturation();
        let syn = "syn_policing = { required = true, class = [{ name = \"premium\", network = \"10.77.1.0/24\", share = 1 }] }";
        let admission = format!(
            r#"{{ policy = "resource", syn = {{ initial_rate = {rate:.0}, max_rate = {rate:.0} }}, resources = [{{ name = "cpu" }}] }}"#
        );
        let guarded = self.guard(&admission, syn)?;
        thread::sleep(Duration::from_secs(2));
        let seconds = self.options.seconds;
        let (premium, flood) = thread::scope(|scope| {
            let flood = scope.spawn(|| {
                let to = SocketAddr::from((Space::Others.server(), SENTRY_PORT));
                self.spaces.within(Space::Others, || flood::flood(to, (5_000.0 * seconds) as u32, 5_000.0))
            });
            let premium = self.load(Space::Premium, SENTRY_PORT, Mix::dynamic(0.2 * rate), seconds - 1.0);
            (premium, flood.join().unwrap_or_else(|_| bail!("the flood panicked")))
        });
        let (premium, _) = (premium?, flood?);
        thread::sleep(Duration::from_secs(1));
        let turned = self.connections()?.0;
        drop(guarded);
        let kept = premium.all.admitted / premium.all.offered;
        println!(
            "\n── premium: {:.1} of {:.1}/s answered in {:.0} ms beside a flood of 5000/s",
            premium.all.admitted,
            premium.all.offered,
            premium.all.mean * 1e3
        );
        Ok(vec![
            check(
                "premium: at least 95 % answered beside the flood".into(),
                format!("{:.1} %", kept * 1e2),
                kept >= 0.95,
            ),
            check("premium: the flood is turned away".into(), format!("{turned:.0} SYNs"), turned > 1000.0),
        ])
    }

    /// What a refusal costs: processor time of both ends together, less what the sender's own calls cost.
    fn cost(&self) -> Result<Vec<Check>> {
        let to = SocketAddr::from((Space::Others.server(), SENTRY_PORT));
        let attempts = 40_000;
        let send = |count| self.spaces.within(Space::Others, || flood::flood(to, count, 1e6));
        let closed = r#"{ policy = "resource", syn = { initial_rate = 1, min_rate = 1, max_rate = 1 } }"#;
        let guarded = self.guard(closed, "syn_policing = { required = true }")?;
        thread::sleep(Duration::from_secs(2));
        send(1_000)?;
        let dropped = send(attempts)?;
        drop(guarded);
        // The same calls, whose SYNs do not leave: what they cost in any case.
        self.spaces.within(Space::Others, || {
            nft(&format!(
                "table ip floor {{ chain out {{ type filter hook output priority 0; tcp dport {SENTRY_PORT} drop; }} }}"
            ))
        })?;
        let floor = send(attempts)?;
        self.spaces.within(Space::Others, || nft("delete table ip floor"))?;
        let refusing = self.guard(r#"{ policy = "threshold", fixed = 0.0 }"#, "")?;
        let before = proc_fs::cpu_micros(refusing._sentry.pid())?;
        let run = self.load(Space::Others, SENTRY_PORT, Mix { files: 1_500.0, ..Mix::default() }, 10.0)?;
        let answered =
            (proc_fs::cpu_micros(refusing._sentry.pid())? - before) / 1e6 / (run.all.refused * 10.0).max(1.0);
        drop(refusing);
        let (syn, ratio) = (dropped - floor, answered / (dropped - floor).max(1e-9));
        println!(
            "\n── cost: a dropped SYN {:.2} us (sender and receiver {:.2}, sender's calls {:.2}); a 503 on a new connection {:.1} us of the sentry's process",
            syn * 1e6,
            dropped * 1e6,
            floor * 1e6,
            answered * 1e6
        );
        Ok(vec![check(
            "cost: a connection turned away costs at most 1/15 of a 503".into(),
            format!("1/{ratio:.0}"),
            ratio >= 15.0,
        )])
    }
}

fn configuration(key: &Path, admission: &str, more: &str) -> String {
    format!(
        "[sentry]\nworkers = 1\n[admin]\nlisten = \"{ADMIN}\"\n[reports]\nlisten = \"127.0.0.1:9901\"\nkey_file = \"{}\"\n\
         when_silent = \"estimate\"\n[[application]]\nlisten = \"0.0.0.0:{SENTRY_PORT}\"\nservers = \"127.0.0.1:{SERVICE_PORT}\"\n\
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

fn nft(rules: &str) -> Result<()> {
    let nft = command::find_program("nft").context("nft is missing (Debian package nftables)")?;
    command::run(Command::new(nft).arg(rules))
}

fn row(level: f64, name: &str, run: &Run, turned: Option<f64>) {
    let turned = turned.map_or(String::new(), |turned| format!("{turned:.0}"));
    println!(
        "| {level} ({:.0}/s) | {name} | {:.0} | {:.0} ms | {:.0} of {:.0} | {turned} |",
        run.all.offered,
        run.all.admitted,
        run.all.mean * 1e3,
        run.scripts.admitted,
        run.scripts.offered
    );
}

fn check(what: String, found: String, holds: bool) -> Check {
    Check { what, found, holds }
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
