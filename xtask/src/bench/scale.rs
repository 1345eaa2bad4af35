//! `cargo xtask bench scale`: what a request costs, and what the program needs, when there is much of something: rules,
//! servers, applications, connections, reloads.
//!
//! As in `bench proxy` the proxy has one worker pinned to core 0, load and origin share core 1, and 1 kB is passed on
//! kept connections; the policy is the default. Each setting is a process of its own in each round, and is started,
//! left alone, warmed up and loaded in turn; ratios are taken to the plain setting in the same round. What a setting
//! costs beside requests, such as checks of 10,000 servers, is measured while nobody asks, and shown with and without.

mod setting;
mod table;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::contender::Contender;
use super::figure::Figure;
use super::idle::{self, Idle};
use super::load::{self, CONNECTIONS, Counted, Load, Shape};
use super::origin::start_wide_origin;
use super::proxy::{LOAD_CORE, PROXY_CORE, contenders, ensure_two_cores, facts};
use super::report::Report;
use super::service::{Service, free_address};
use super::stop::Scratch;
use super::{proc_fs, record_folder};
use crate::args::{Args, all_known};
use setting::{SETTINGS, Setting};

/// What is asked for.
const PATH: &str = "/1k";
/// Descriptors that the setting with the most connections needs, in any one process.
const OPEN_FILES: u64 = 20_000;
/// Until checks have found everything up and estimates have settled.
const SETTLE: Duration = Duration::from_secs(3);
/// How long it is left alone: two rounds of checks, which begin all at once.
const REST: Duration = Duration::from_secs(4);
/// From one reload to the next, where there are any.
const RELOADS: Duration = Duration::from_millis(500);
/// Requests that may be refused or lost where there are many connections, as a share: of thousands that are opened at
/// once a few are opened by the second or third try only, which is later than wrk waits for an answer.
const LOST_AT_MOST: f64 = 0.001;

/// What was asked for.
struct Options {
    short: bool,
    rounds: usize,
    seconds: f64,
    only: Option<Vec<String>>,
    record: Option<PathBuf>,
}

/// One setting in one round.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// From the start until it listens.
    start_ms: f64,
    /// Its memory, before anybody asked.
    pss: u64,
    /// Share of a core while nobody asks.
    at_rest: f64,
    /// CPU time while it is asked.
    cpu_us: f64,
    /// For how long it was.
    seconds: f64,
    counted: Counted,
}

/// One setting, in all rounds.
struct Row {
    setting: &'static Setting,
    samples: Vec<Sample>,
}

/// Runs the comparison and writes its report.
///
/// # Errors
/// When a program is missing, or refuses a setting.
pub fn run(args: Args) -> Result<Vec<Figure>> {
    let options = Options::take(args)?;
    ensure_two_cores()?;
    idle::raise_file_limit(OPEN_FILES)?;
    let ours = contenders(Some(&["tidegate".to_owned()]), options.short)?;
    let program = ours.first().and_then(Contender::program).context("there is no tidegate to measure")?;
    let scratch = Scratch::new("scale")?;
    let origin = start_wide_origin(LOAD_CORE, scratch.path())?;
    let mut rows: Vec<_> = SETTINGS
        .iter()
        .filter(|setting| options.wants(setting))
        .map(|setting| Row { setting, samples: Vec::new() })
        .collect();
    for round in 0..options.rounds {
        for row in &mut rows {
            let sample = sample(row.setting, &options, &program, origin.address, scratch.path());
            let sample = sample.with_context(|| format!("in the setting `{}`", row.setting.name))?;
            println!("round {}: {:20} {sample}", round + 1, row.setting.name);
            row.samples.push(sample);
        }
    }
    let report = Report {
        name: "scale",
        title: "Many rules, servers, applications, connections and reloads",
        method: method(&options),
        facts: facts(&ours),
        figures: table::figures(&rows),
        sections: vec![table::section(&rows)],
        ..Report::default()
    };
    report.publish(options.record.as_deref())
}

impl Options {
    fn take(mut args: Args) -> Result<Self> {
        let short = args.switch("--short");
        let (rounds, seconds) = if short { (1, 2.0) } else { (5, 4.0) };
        let options = Self {
            short,
            rounds: args.option("--rounds")?.unwrap_or(rounds),
            seconds: args.option("--seconds")?.unwrap_or(seconds),
            only: args.list("--only")?,
            record: record_folder(&mut args)?,
        };
        args.finish()?;
        let known: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
        all_known("setting", options.only.as_deref(), &known)?;
        if !(1..=100).contains(&options.rounds) || !(1.0..=600.0).contains(&options.seconds) {
            bail!("--rounds must be from 1 to 100, and --seconds from 1 to 600");
        }
        Ok(options)
    }

    /// The plain one always: ratios are taken to it.
    fn wants(&self, setting: &Setting) -> bool {
        let is_first = setting.name == SETTINGS[0].name;
        is_first || self.only.as_ref().is_none_or(|only| only.iter().any(|name| name == setting.name))
    }
}

fn sample(setting: &Setting, options: &Options, program: &Path, origin: SocketAddr, dir: &Path) -> Result<Sample> {
    let (service, start) = start(setting, program, origin, dir)?;
    let status = service.status(PATH)?;
    ensure!(status == 200, "it answers {status}, not 200");
    thread::sleep(SETTLE);
    let pss = proc_fs::memory(service.pid())?.pss;
    let before = proc_fs::cpu_micros(service.pid())?;
    let began = Instant::now();
    thread::sleep(REST);
    let at_rest = (proc_fs::cpu_micros(service.pid())? - before) / 1e6 / began.elapsed().as_secs_f64();
    let idle = Idle::open(service.address, PATH, setting.idle)?;
    let load = Load { path: PATH, shape: Shape::KeepAlive, connections: setting.connections };
    load::put(&service, load, setting.warm_up, LOAD_CORE, dir)?;
    let before = proc_fs::cpu_micros(service.pid())?;
    let began = Instant::now();
    let counted = reloading(setting, service.pid(), || load::put(&service, load, options.seconds, LOAD_CORE, dir))?;
    let seconds = began.elapsed().as_secs_f64();
    let cpu_us = proc_fs::cpu_micros(service.pid())? - before;
    let open = idle.still_open();
    ensure!(open == setting.idle, "{} of {} idle connections were closed", setting.idle - open, setting.idle);
    let lost = counted.refused + counted.socket_errors;
    let borne = if setting.connections > CONNECTIONS { LOST_AT_MOST * counted.responses as f64 } else { 0.0 };
    let is_well = counted.responses > 0 && lost as f64 <= borne;
    ensure!(is_well, "{lost} of {} requests were refused or lost", counted.responses);
    Ok(Sample { start_ms: start.as_secs_f64() * 1e3, pss, at_rest, cpu_us, seconds, counted })
}

fn start(setting: &Setting, program: &Path, origin: SocketAddr, dir: &Path) -> Result<(Service, Duration)> {
    let (listen, admin) = (free_address()?, free_address()?);
    let file = dir.join(format!("{}.toml", setting.name));
    std::fs::write(&file, setting.configuration(listen, admin, origin)?)?;
    let mut command = Command::new(program);
    command.args(["run", "-c"]).arg(&file).current_dir(dir);
    let began = Instant::now();
    let service = Service::start(setting.name, command, PROXY_CORE, listen, dir)?;
    Ok((service, began.elapsed()))
}

/// What `put` gives, the process told to read its configuration again all the while where the setting says so.
fn reloading(setting: &Setting, pid: u32, put: impl FnOnce() -> Result<Counted>) -> Result<Counted> {
    if !setting.reloads {
        return put();
    }
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("it has no process")?;
    let (done, is_done) = mpsc::sync_channel::<()>(1);
    let reloads = thread::spawn(move || -> Result<()> {
        while is_done.recv_timeout(RELOADS) == Err(RecvTimeoutError::Timeout) {
            kill_process(pid, Signal::HUP)?;
        }
        Ok(())
    });
    let counted = put();
    drop(done);
    reloads.join().ok().context("the thread that reloads panicked")??;
    counted
}

fn method(options: &Options) -> String {
    format!(
        "{rounds} rounds, in each of which every setting is started anew, settles for {settle} s, is left alone for {rest} s, \
         is warmed up and is then loaded for {seconds:.0} s. One worker on core {PROXY_CORE}; wrk (one thread, kept \
         connections, 1 kB) and the origin (nginx, at every address of 127.0.0.0/8 where there are many servers) share \
         core {LOAD_CORE}. The policy is the default. Medians, in brackets the \
         range. CPU is the user and system time of the process per response; ratios are taken to the first setting in \
         the same round, also without what it takes at rest. Start is from the start of the process until it listens, \
         PSS and what it takes at rest are from before the first request. Run again with `cargo xtask bench \
         scale{short} --rounds {rounds} --seconds {seconds} --record`, on a machine that does nothing else.{built}",
        rounds = options.rounds,
        settle = SETTLE.as_secs(),
        rest = REST.as_secs(),
        seconds = options.seconds,
        short = if options.short { " --short" } else { "" },
        built = if options.short { " Built as checks build it, without optimisation at link time." } else { "" },
    )
}
