//! `cargo xtask real`: the sentry before a real service, at three times what the service can do.
//!
//! Apache with PHP from Debian's packages, unmodified and without an agent, on core 0; on core 1 the sentry, started
//! with `tidegate run --listen … --to … --target …` and no more, and the load from hey and httperf, which are not ours.
//!
//! 1. What the service does alone: each script (what do they cost?), then the mix in a closed loop with more and more
//!    workers. The highest throughput is its capacity, whatever the response times: no sentry could have more.
//! 2. The overload, alone: three times that.
//! 3. The same through a sentry that has just started, and through one that has seen some seconds of half the capacity.
//! 4. The same from httperf, which counts every error and shows the head of every refusal.
//!
//! What must hold is in [`check`]; the whole of each run counts.

mod check;
mod core_use;
mod hey;
pub mod httperf;
mod measure;
mod report;
mod sentry;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::apache::{self, SCRIPTS};
use crate::args::Args;
use crate::bench::service::Service;
use crate::bench::stop::Scratch;
use crate::bench::{machine, proc_fs};
use crate::command;
use crate::programs::PROGRAMS;
use crate::watch;

use core_use::CoreUse;
use measure::{PerScript, Run, Weights};
use report::{Level, Protected, Report};
use sentry::Sentry;

const SERVICE_CORE: usize = 0;
const LOAD_CORE: usize = 1;
/// The part of a core that others may take of a short run.
const DISTURBED: f64 = 0.05;
/// Of capacity.
const OVERLOAD: f64 = 3.0;
/// Of capacity, while the sentry learns.
const WARM_UP: f64 = 0.5;
/// Workers that keep one script busy; enough to fill the core, few enough to start at once.
const ALONE_WORKERS: u32 = 4;
/// Between two requests of a worker when nothing protects the service, seconds: answers take that long there.
const UNPROTECTED_PERIOD: f64 = 2.0 * hey::PERIOD;
const NEEDS: &[&str] = &["apache2", "php", "hey", "httperf"];
const RECOVERY: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// A light request takes less unless others are served too; a few milliseconds on a quiet machine.
const PROMPT: Duration = Duration::from_millis(200);

/// What was asked for.
#[derive(Debug)]
struct Options {
    /// The target as it was typed, and in seconds.
    target: (String, f64),
    /// Seconds of each overload.
    seconds: f64,
    warm_up_seconds: f64,
    level_seconds: f64,
    /// Workers in all, for each closed loop on the mix.
    levels: &'static [u32],
    short: bool,
    keep: bool,
    record: bool,
}

/// Measures, prints the table, and fails when a bar is missed.
///
/// # Errors
/// When a program is missing or does not do its part; a missed bar is an exit status of 1.
pub fn run(args: Args) -> Result<ExitCode> {
    let options = Options::take(args)?;
    if std::thread::available_parallelism()?.get() < 2 {
        bail!("this needs two cores: one for the service, one for the sentry and the load");
    }
    if let Some(missing) = PROGRAMS.iter().find(|program| NEEDS.contains(&program.name) && !program.is_present()) {
        bail!("{} is missing (Debian package {}); run `cargo xtask programs`", missing.name, missing.package);
    }
    command::build_tidegate()?;
    let scratch = Scratch::new("real")?;
    if options.keep {
        println!("everything stays in {}", scratch.keep().display());
    }
    let report = measure(&options, scratch.path())?;
    println!("\n{}", report.markdown());
    if options.keep {
        report.write(&machine::today(), scratch.path())?;
    }
    if options.record {
        println!("written to {}", report.write(&machine::today(), &PathBuf::from("benches/results"))?.display());
    }
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Options {
    fn take(mut args: Args) -> Result<Self> {
        let short = args.switch("--short");
        let target = args.option("--target")?.unwrap_or_else(|| "500ms".to_owned());
        let options = Self {
            seconds: args.option("--seconds")?.unwrap_or(if short { 8.0 } else { 20.0 }),
            warm_up_seconds: if short { 4.0 } else { 10.0 },
            level_seconds: if short { 3.0 } else { 5.0 },
            levels: if short { &[8, 32] } else { &[4, 8, 16, 32, 64] },
            keep: args.switch("--keep"),
            record: args.switch("--record"),
            target: (target.clone(), seconds(&target)?),
            short,
        };
        args.finish()?;
        if options.seconds < 4.0 * hey::PERIOD {
            bail!("--seconds must be at least {}: the load needs one to build up", 4.0 * hey::PERIOD);
        }
        Ok(options)
    }
}

fn measure(options: &Options, dir: &Path) -> Result<Report> {
    let service = apache::start(SERVICE_CORE, dir)?;
    let bench = Bench { options, service, dir };
    let weights = bench.weigh()?;
    let levels = bench.alone(&weights)?;
    let best = levels.iter().max_by(|a, b| a.rate.total_cmp(&b.rate)).context("no level was measured")?.clone();
    let overload = best.rate * OVERLOAD;
    println!("── alone, {overload:.0}/s");
    let streams = hey::open(overload, UNPROTECTED_PERIOD);
    let unprotected = bench.load(bench.service.address, &streams, options.seconds)?;
    bench.recover()?;
    let cold = bench.protected("cold", overload, None)?;
    bench.recover()?;
    let warm = bench.protected("warm", overload, Some(best.rate * WARM_UP))?;
    if options.short {
        say_disturbance(&warm);
    }
    let again = if options.short { None } else { Some(bench.level(best.workers, &weights)?) };
    Ok(Report {
        facts: facts(),
        target: options.target.1,
        seconds: options.seconds,
        short: options.short,
        weights,
        levels,
        again,
        unprotected,
        cold,
        warm,
    })
}

/// A short run has no time to make up for what others took of its cores. Whoever runs it as a measurement makes it
/// anew.
fn say_disturbance(warm: &Protected) {
    let lost = warm.run.denied.max(warm.run.stolen);
    if lost > DISTURBED {
        println!("{}others took {:.0} % of a core", watch::SAID, lost * 1e2);
    }
}

/// The service, and how to load it.
struct Bench<'a> {
    options: &'a Options,
    service: Service,
    dir: &'a Path,
}

impl Bench<'_> {
    /// Each script alone: what a request costs, in processor time, which others on the machine do not change.
    fn weigh(&self) -> Result<Weights> {
        let mut rates: PerScript = Default::default();
        for (index, script) in SCRIPTS.iter().enumerate() {
            let mut workers = [0; SCRIPTS.len()];
            workers[index] = ALONE_WORKERS;
            let before = proc_fs::cpu_micros_with_ended(self.service.pid())?;
            let run = self.closed(&workers)?;
            let cost = (proc_fs::cpu_micros_with_ended(self.service.pid())? - before) / run.answered();
            rates[index] = 1e6 / cost;
            println!("{:6} alone: {:7.1} ms of processor time", script.name, cost / 1e3);
        }
        Ok(Weights::new(rates))
    }

    /// The mix in closed loops.
    fn alone(&self, weights: &Weights) -> Result<Vec<Level>> {
        self.options.levels.iter().map(|&workers| self.level(workers, weights)).collect()
    }

    fn level(&self, workers: u32, weights: &Weights) -> Result<Level> {
        let run = self.closed(&measure::workers_for_mix(workers, weights))?;
        let level = Level { workers, rate: weights.of_mix(run.admitted()), run };
        let denied = level.run.denied * 1e2;
        println!("{workers:2} workers:   {:7.1}/s of the mix; others took {denied:.0} % of the core", level.rate);
        Ok(level)
    }

    fn closed(&self, workers: &[u32]) -> Result<Run> {
        self.load(self.service.address, &hey::closed(workers), self.options.level_seconds)
    }

    /// Puts a load on an address, and sees what others took of the service's core.
    fn load(&self, address: SocketAddr, streams: &[hey::Stream], seconds: f64) -> Result<Run> {
        let core = CoreUse::start(self.service.pid())?;
        let (began, stolen) = (Instant::now(), proc_fs::stolen_micros(LOAD_CORE)?);
        let mut run = hey::put(address, streams, seconds, LOAD_CORE, self.dir)?;
        run.stolen = (proc_fs::stolen_micros(LOAD_CORE)? - stolen) / (began.elapsed().as_secs_f64() * 1e6);
        run.denied = core.finish()?;
        Ok(run)
    }

    /// Waits until the service has worked off what was left of an overload.
    fn recover(&self) -> Result<()> {
        let deadline = Instant::now() + RECOVERY;
        loop {
            let asked = Instant::now();
            self.service.status(SCRIPTS[0].path)?;
            if asked.elapsed() < PROMPT {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the service is still slow {} s after the overload", RECOVERY.as_secs());
            }
            thread::sleep(POLL);
        }
    }

    /// The overload through a sentry of its own, after a warm-up at a rate if there is one; httperf follows then.
    fn protected(&self, name: &str, overload: f64, warm_up: Option<f64>) -> Result<Protected> {
        println!("── through the sentry, {name}, {overload:.0}/s");
        let sentry = Sentry::start(self.service.address, &self.options.target.0, LOAD_CORE, self.dir)?;
        if let Some(rate) = warm_up {
            let streams = hey::open(rate, hey::PERIOD);
            self.load(sentry.address(), &streams, self.options.warm_up_seconds)?;
        }
        let streams = hey::open(overload, hey::PERIOD);
        let load = || self.load(sentry.address(), &streams, self.options.seconds);
        let (run, views) = sentry.watched(load)?;
        let seconds = self.options.seconds / 2.0;
        let heads = match warm_up {
            Some(_) => Some(httperf::put(sentry.address(), overload, seconds, LOAD_CORE, self.dir)?),
            None => None,
        };
        let (state, settled) = sentry.settle()?;
        Ok(Protected { run, views, heads, state, settled })
    }
}

fn facts() -> Vec<(String, String)> {
    let packages = ["apache2", "libapache2-mod-php", "hey", "httperf"];
    let format = "${Package} ${Version}, ";
    let versions = std::process::Command::new("dpkg-query").args(["-W", "-f", format]).args(packages).output();
    let versions = versions.map(|said| String::from_utf8_lossy(&said.stdout).trim_end_matches(", ").to_owned());
    let machine = machine::facts().into_iter().filter(|(name, _)| *name != "wrk");
    let machine = machine.map(|(name, value)| (name.to_owned(), value));
    machine.chain([("packages".to_owned(), versions.unwrap_or_else(|_| "unknown".to_owned()))]).collect()
}

/// `500ms` or `1.5s` in seconds.
fn seconds(text: &str) -> Result<f64> {
    let units = [("ms", 1e-3), ("s", 1.0)];
    let mut read = units.iter().filter_map(|(unit, factor)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        (number.is_finite() && number > 0.0).then_some(number * factor)
    });
    read.next().with_context(|| format!("--target: cannot read `{text}`; write a time such as 500ms or 1s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_times() {
        assert_eq!(seconds("500ms").unwrap(), 0.5);
        assert_eq!(seconds("1.5s").unwrap(), 1.5);
        for wrong in ["500", "ms", "-1s", "soon", "0s"] {
            assert!(seconds(wrong).unwrap_err().to_string().contains(wrong));
        }
    }

    #[test]
    fn every_need_is_in_the_table() {
        for name in NEEDS {
            assert!(PROGRAMS.iter().any(|program| program.name == *name), "{name}");
        }
    }
}
