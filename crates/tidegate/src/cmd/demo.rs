//! `tidegate demo`: the main job in a minute, on real HTTP, with nothing else installed.
//!
//! Three emulated servers of 60 requests per second each, and a flash crowd of five times that, once straight at the
//! servers and once through a sentry. Everything happens in this process and on loopback.

use std::io::{IsTerminal, Write, stderr};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate_loadgen::{ClassReport, LoadRun, Plan, Progress, Report, Stream};
use tidegate_sentry::config::{Checked, Config};
use tidegate_sentry::{Process, ProcessError};
use tidegate_testbed::{EmulatedCluster, ServerSpec, ThreadedCluster};
use tidegate_workload::{Profile, Rate, ServiceTime};

/// Show a flash crowd at an overloaded service, without and with a sentry.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Keep the sentry, the servers and a moderate load running afterwards, until Ctrl-C
    #[arg(long)]
    stay: bool,
    /// Run for a third of the time: enough to see the effect, too short for the figures to settle
    #[arg(long)]
    short: bool,
    /// Exit with 1 unless the sentry kept the target, answered gold and kept the servers busy
    #[arg(long)]
    check: bool,
    /// Address of the admin API while the sentry runs
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    admin: String,
    /// Seed of arrivals and service times
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const SERVERS: usize = 3;
/// Requests per second that one server completes.
const SERVER_RATE: f64 = 60.0;
const TARGET: Duration = Duration::from_secs(1);
/// How long a visitor waits.
const PATIENCE: Duration = Duration::from_secs(5);
/// Name, path, calm rate and flash rate of each class, most important first. The calm is half the capacity, the flash
/// five times it.
const CLASSES: [(&str, &str, f64, f64); 3] =
    [("gold", "/gold", 15.0, 90.0), ("silver", "/silver", 30.0, 210.0), ("bronze", "/bronze", 45.0, 600.0)];

/// Runs the demo.
///
/// # Errors
/// When sockets or threads cannot be had.
pub fn run(args: Args) -> Result<ExitCode> {
    introduce();
    let without = arm(&args, "without tidegate", false)?;
    let with = arm(&args, "with tidegate", true)?;
    println!("\n{}", table(&without, &with));
    let failed = verdict(&with, args.short);
    for line in &failed {
        println!("missed: {line}");
    }
    if args.stay {
        stay(&args)?;
    }
    Ok(if args.check && !failed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn introduce() {
    let flash: f64 = CLASSES.iter().map(|class| class.3).sum();
    let capacity = SERVERS as f64 * SERVER_RATE;
    println!("{SERVERS} emulated servers, {SERVER_RATE} requests/s each; target: p95 within {TARGET:?}.");
    println!(
        "A calm at half their capacity, then a flash crowd of {flash}/s: {:.0} times what they can serve.",
        flash / capacity
    );
    println!("Visitors give up after {PATIENCE:?}. All of it is real HTTP on loopback.\n");
}

/// What one arm measured.
struct Measured {
    calm: Report,
    flash: Report,
}

/// Runs calm and flash, straight at fresh servers or through a sentry in front of them.
fn arm(args: &Args, title: &str, through_sentry: bool) -> Result<Measured> {
    let cluster = servers(args.seed)?;
    let servers: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    let sentry = if through_sentry { Some(sentry(&servers, &args.admin)?) } else { None };
    let to = match &sentry {
        Some(sentry) => {
            let (service, admin) = addresses(sentry)?;
            println!("{title}: watch it at http://{admin}/");
            vec![service.to_string()]
        }
        None => servers,
    };
    let (calm, flash) = if args.short { (2, 6) } else { (6, 20) };
    let calm = load(&format!("{title}: calm "), &to, Duration::from_secs(calm), args.seed, |class| class.2)?;
    let flash = load(&format!("{title}: flash"), &to, Duration::from_secs(flash), args.seed + 1, |class| class.3)?;
    if let Some(sentry) = sentry {
        sentry.shutdown(Duration::from_secs(2));
    }
    Ok(Measured { calm, flash })
}

fn servers(seed: u64) -> Result<ThreadedCluster> {
    let service = ServiceTime::lognormal(1.0 / SERVER_RATE, 0.5)?;
    let spec = ServerSpec { seed, ..ServerSpec::new(service, 1024) };
    EmulatedCluster::start_on_thread(SERVERS, spec).context("cannot start the emulated servers")
}

/// The configuration that an operator would write for these three classes.
fn sentry(servers: &[String], admin: &str) -> Result<Process> {
    let list = servers.iter().map(|address| format!("{address:?}")).collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "[admin]\nlisten = {admin:?}\n\n[[application]]\nname = \"demo\"\nlisten = \"127.0.0.1:0\"\n\
         target = \"{}ms\"\nservers = [{list}]\n",
        TARGET.as_millis()
    );
    for (at, (name, path, ..)) in CLASSES.iter().enumerate() {
        text.push_str(&format!("\n[[application.class]]\nname = {name:?}\n"));
        if at + 1 < CLASSES.len() {
            text.push_str(&format!("match = [{{ path_prefix = {path:?} }}]\n"));
        }
    }
    let Checked { mut config, .. } = Config::parse(&text, "demo.toml".as_ref())?;
    config.sentry.workers = 1;
    Process::start(config, None).map_err(|error| match error {
        ProcessError::Admin { address, source } => anyhow::Error::new(source)
            .context(format!("the admin API cannot listen on {address}; give another address with --admin")),
        error => anyhow::Error::new(error).context("cannot start the sentry"),
    })
}

/// Where the sentry's service and its admin API are.
fn addresses(sentry: &Process) -> Result<(SocketAddr, SocketAddr)> {
    let service = sentry.sentry().addresses("demo").first().copied().context("the sentry listens nowhere")?;
    Ok((service, sentry.admin_address().context("the demo needs an admin address")?))
}

type Class = (&'static str, &'static str, f64, f64);

fn load(title: &str, to: &[String], duration: Duration, seed: u64, rate: fn(&Class) -> f64) -> Result<Report> {
    let mut streams = Vec::new();
    for class in &CLASSES {
        let per_second = Rate::new(rate(class)).context("a rate of the demo is out of range")?;
        let mut stream = Stream::new(class.0, Profile::constant(per_second)).timeout(PATIENCE);
        for address in to {
            stream = stream.url(&format!("http://{address}{}", class.1), 1.0)?;
        }
        streams.push(stream);
    }
    let plan = Plan { seed, target: Some(TARGET), connections: 8192, ..Plan::new(streams, duration) };
    let run = LoadRun::start(plan)?;
    show(title, &run);
    Ok(run.join()?)
}

/// Shows a run as it goes: one line that is written over on a terminal, one line every few seconds elsewhere.
fn show(title: &str, run: &LoadRun) {
    let mut progress = run.progress();
    let live = stderr().is_terminal();
    let every = Duration::from_millis(if live { 200 } else { 2000 });
    let mut shown = Duration::ZERO;
    let wait = tokio::runtime::Builder::new_current_thread().build();
    let Ok(wait) = wait else { return };
    while wait.block_on(progress.changed()).is_ok() {
        let now = progress.borrow_and_update().clone();
        if now.elapsed >= shown + every || now.finished {
            shown = now.elapsed;
            let end = if live { "\r" } else { "\n" };
            let _ = write!(stderr(), "{title} {}{end}", line(&now));
            let _ = stderr().flush();
        }
        if now.finished {
            break;
        }
    }
    if live {
        let _ = writeln!(stderr());
    }
}

fn line(now: &Progress) -> String {
    let sum =
        |what: fn(&tidegate_loadgen::Recent) -> f64| now.classes.iter().map(|class| what(&class.recent)).sum::<f64>();
    let p95 = now.classes.iter().filter_map(|class| class.recent.p95).fold(0.0, f64::max);
    let waiting: u64 = now.classes.iter().map(|class| class.in_flight).sum();
    format!(
        "{:4.0} s  offered {:4.0}/s  answered {:4.0}/s  refused {:4.0}/s  failed {:4.0}/s  p95 {:5.0} ms  waiting {:5} ",
        now.elapsed.as_secs_f64(),
        sum(|r| r.offered_per_s),
        sum(|r| r.admitted_per_s),
        sum(|r| r.refused_per_s),
        sum(|r| r.failed_per_s),
        p95 * 1e3,
        waiting,
    )
}

fn table(without: &Measured, with: &Measured) -> String {
    let mut rows = vec![[String::from("during the flash crowd"), "without".into(), "with tidegate".into()]];
    let mut row = |name: &str, value: &dyn Fn(&Report) -> String| {
        rows.push([name.to_owned(), value(&without.flash), value(&with.flash)]);
    };
    row("offered", &|r| format!("{:.0}/s", r.total.offered_per_s));
    row("answered within the target (goodput)", &|r| format!("{:.0}/s", r.total.goodput_per_s));
    row("  share of the servers' capacity", &|r| percent(r.total.goodput_per_s / (SERVERS as f64 * SERVER_RATE)));
    row("p50 of those who were not refused", &|r| millis(r.total.waiting.p50));
    row("p95 of those who were not refused", &|r| millis(r.total.waiting.p95));
    for (at, class) in CLASSES.iter().enumerate() {
        row(&format!("{} answered within the target", class.0), &|r| percent(good_share(&r.classes[at])));
    }
    row("refused, with an explanation", &|r| format!("{:.0}/s", r.total.refused_by_sentry as f64 / r.sent_for));
    row("a refusal takes (p95)", &|r| {
        if r.total.refused > 0 { millis(r.total.refusal_latency.p95) } else { "-".into() }
    });
    row("gave up or failed", &|r| format!("{:.0}/s", r.total.errors_total() as f64 / r.sent_for));
    rows.push([
        "in the calm before: p95".into(),
        millis(without.calm.total.latency.p95),
        millis(with.calm.total.latency.p95),
    ]);
    let lines = rows.iter().map(|[name, a, b]| format!("{name:<40} {a:>12} {b:>14}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// What the run with the sentry should have shown and did not. A short run is judged by bounds that a busy machine does
/// not break.
fn verdict(with: &Measured, short: bool) -> Vec<String> {
    let (gold_least, used_least, most) = if short { (0.90, 0.75, TARGET * 3 / 2) } else { (0.98, 0.90, TARGET) };
    let flash = &with.flash;
    let mut missed = Vec::new();
    let mut must = |holds: bool, what: String| {
        if !holds {
            missed.push(what);
        }
    };
    let p95 = flash.total.latency.p95;
    must(p95 <= most.as_secs_f64(), format!("p95 of admitted is {} (at most {most:?})", millis(p95)));
    let gold = flash.classes[0].admitted_share();
    must(gold >= gold_least, format!("{} of gold was answered (at least {})", percent(gold), percent(gold_least)));
    let capacity = SERVERS as f64 * SERVER_RATE;
    let used = flash.total.goodput_per_s / capacity;
    must(
        used >= used_least,
        format!("goodput is {} of the capacity (at least {})", percent(used), percent(used_least)),
    );
    missed
}

/// Keeps servers, sentry and a load at twice the capacity running, for a look around.
fn stay(args: &Args) -> Result<()> {
    let cluster = servers(args.seed)?;
    let servers: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    let sentry = sentry(&servers, &args.admin)?;
    let (service, admin) = addresses(&sentry)?;
    println!("\nStaying: http://{service}/gold is the service; Ctrl-C ends it (it ends by itself after an hour).");
    println!("Its dashboard: http://{admin}/");
    load("staying", &[service.to_string()], Duration::from_secs(3600), args.seed, |class| class.3 * 0.4)?;
    Ok(())
}

fn good_share(class: &ClassReport) -> f64 {
    class.good as f64 / class.offered.max(1) as f64
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn millis(seconds: f64) -> String {
    format!("{:.0} ms", seconds * 1e3)
}
