//! `cargo xtask bench latency`: what a proxy adds to the response time, from a fifth of what it can do to nearly all.
//!
//! Every proxy has one worker pinned to core 0, and passes 1 kB on kept connections, as in `bench proxy`; load and
//! origin share core 1. First wrk finds how many responses a second each can give at most. The least of these is what
//! rates are shares of, so that all are asked for the same. Then in each round everyone, the origin directly among
//! them, is asked at every rate by an open loop ([`mod@super::pace`] says why by that); what a proxy adds is the
//! difference to the origin at the same rate in the same round.
//!
//! Who does not answer as many as were asked for has a queue that grows for as long as one looks: its response times
//! say how long that was, and are left out.

mod table;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::contender::{Contender, Duty};
use super::figure::Figure;
use super::load::{self, CONNECTIONS, Load, Shape};
use super::origin::start_origin;
use super::pace::{self, Pace, Paced};
use super::proxy::{LOAD_CORE, PROXY_CORE, contenders, ensure_two_cores, facts};
use super::record_folder;
use super::report::{Report, median};
use super::service::Service;
use super::stop::Scratch;
use crate::args::Args;

/// Of the least saturation.
const SHARES: [f64; 4] = [0.20, 0.50, 0.80, 0.95];
/// Of the response times.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
/// The origin without a proxy, among the contenders.
const DIRECT: &str = "direct";
/// Who answers less than this share of what is asked for has not reached the rate.
const REACHED: f64 = 0.98;
const WARM_UP_SECONDS: f64 = 1.0;
const LOAD: Load = Load { path: pace::PATH, shape: Shape::KeepAlive, connections: CONNECTIONS };
const CORES: &[&[usize]] = &[&[PROXY_CORE], &[PROXY_CORE, LOAD_CORE]];

/// What was asked for.
struct Options {
    short: bool,
    rounds: usize,
    seconds: f64,
    only: Option<Vec<String>>,
    workers: Option<usize>,
    record: Option<PathBuf>,
}

/// Responses a second, one for each round.
struct Saturation {
    name: &'static str,
    rounds: Vec<f64>,
}

/// One contender at one rate, one for each round.
struct Row {
    name: &'static str,
    rounds: Vec<Round>,
}

/// What came of one round.
#[derive(Debug, Clone, PartialEq)]
struct Round {
    asked: f64,
    reached: f64,
    refused: u64,
    unanswered: u64,
    late_us: f64,
    /// As in [`QUANTILES`], microseconds.
    quantiles_us: [f64; 4],
}

/// All contenders at one rate.
struct Step {
    share: f64,
    rate: f64,
    rows: Vec<Row>,
}

/// Everything measured.
struct Measured {
    /// With one worker, and with two.
    saturation: Vec<(usize, Vec<Saturation>)>,
    steps: Vec<Step>,
}

/// Runs the comparison and writes its report.
///
/// # Errors
/// When a program is missing, or a proxy does not pass what it is asked for.
pub fn run(args: Args) -> Result<Vec<Figure>> {
    let options = Options::take(args)?;
    ensure_two_cores()?;
    let contenders = contenders(options.only.as_deref(), options.short)?;
    let contenders: Vec<_> = contenders.into_iter().filter(|it| it.duties.contains(&Duty::Pass)).collect();
    let scratch = Scratch::new("latency")?;
    let measured = measure(&options, &contenders, scratch.path())?;
    let report = Report {
        name: "latency",
        title: "Latency that proxies add, at given rates",
        method: method(&options),
        facts: facts(&contenders),
        figures: measured.figures(),
        sections: measured.sections(),
        ..Report::default()
    };
    report.publish(options.record.as_deref())
}

impl Options {
    fn take(mut args: Args) -> Result<Self> {
        let short = args.switch("--short");
        let (rounds, seconds) = if short { (2, 2.0) } else { (5, 5.0) };
        let options = Self {
            short,
            rounds: args.option("--rounds")?.unwrap_or(rounds),
            seconds: args.option("--seconds")?.unwrap_or(seconds),
            only: args.list("--only")?,
            workers: args.option("--workers")?,
            record: record_folder(&mut args)?,
        };
        args.finish()?;
        if !(1..=100).contains(&options.rounds) || !(1.0..=600.0).contains(&options.seconds) {
            bail!("--rounds must be from 1 to 100, and --seconds from 1 to 600");
        }
        if options.workers.is_some_and(|workers| !(1..=CORES.len()).contains(&workers)) {
            bail!("--workers must be 1 (latency), or 2 (only how many responses a second there are with 1 and with 2)");
        }
        Ok(options)
    }

    fn wants_workers(&self, workers: usize) -> bool {
        // Two say little without one.
        workers == 1 || self.workers.is_none_or(|wanted| wanted == workers)
    }
}

fn measure(options: &Options, contenders: &[Contender], dir: &Path) -> Result<Measured> {
    let (origin, _) = start_origin(LOAD_CORE, dir)?;
    let mut measured = Measured { saturation: Vec::new(), steps: Vec::new() };
    for cores in CORES.iter().filter(|cores| options.wants_workers(cores.len())) {
        let services = start(contenders, origin.address, cores, dir)?;
        let saturation = saturate(options, &services, cores.len(), dir)?;
        if cores.len() == 1 && options.workers != Some(2) {
            measured.steps = ask_all(options, &origin, &services, &saturation)?;
        }
        measured.saturation.push((cores.len(), saturation));
    }
    Ok(measured)
}

type Services = Vec<(&'static str, Service)>;

fn start(contenders: &[Contender], origin: SocketAddr, cores: &[usize], dir: &Path) -> Result<Services> {
    let start = |contender: &Contender| {
        let service = contender.start_on((Duty::Pass, Shape::KeepAlive), origin, cores, dir)?;
        let status = service.status(pace::PATH)?;
        if status != 200 {
            bail!("{} answers {status}, not 200; correct its configuration", contender.name);
        }
        Ok((contender.name, service))
    };
    contenders.iter().map(start).collect()
}

/// How many responses a second each gives to clients who ask again at once.
fn saturate(options: &Options, services: &Services, workers: usize, dir: &Path) -> Result<Vec<Saturation>> {
    println!("── saturation, {workers} worker{}", if workers == 1 { "" } else { "s" });
    for (_, service) in services {
        load::put(service, LOAD, WARM_UP_SECONDS, LOAD_CORE, dir)?;
    }
    let mut rows: Vec<_> = services.iter().map(|(name, _)| Saturation { name, rounds: Vec::new() }).collect();
    for round in 0..options.rounds {
        for turn in 0..services.len() {
            let at = (round + turn) % services.len();
            let (name, service) = &services[at];
            let counted = load::put(service, LOAD, options.seconds, LOAD_CORE, dir)?;
            if counted.responses == 0 || counted.refused > 0 {
                bail!("{name} refused {} of {} requests when it was saturated", counted.refused, counted.responses);
            }
            println!("round {}: {name:20} {:8.0} responses/s", round + 1, counted.per_second);
            rows[at].rounds.push(counted.per_second);
        }
    }
    Ok(rows)
}

/// Asks everyone at every rate in each round.
fn ask_all(options: &Options, origin: &Service, services: &Services, saturation: &[Saturation]) -> Result<Vec<Step>> {
    let least = saturation.iter().filter_map(|row| median(row.rounds.iter().copied())).min_by(f64::total_cmp);
    let least = least.context("nobody was saturated")?;
    let direct = (DIRECT, origin.address);
    let asked: Vec<_> =
        std::iter::once(direct).chain(services.iter().map(|(name, service)| (*name, service.address))).collect();
    let rows = || asked.iter().map(|(name, _)| Row { name, rounds: Vec::new() }).collect();
    let mut steps = SHARES.map(|share| Step { share, rate: (share * least).round(), rows: rows() });
    for round in 0..options.rounds {
        for (number, step) in steps.iter_mut().enumerate() {
            println!("── round {}: {:.0} requests/s", round + 1, step.rate);
            // All are asked at the same instants, which differ from round to round.
            let seed = (round * SHARES.len() + number) as u64;
            let pace = Pace { rate: step.rate, seconds: options.seconds, seed };
            for turn in 0..asked.len() {
                let at = (round + turn) % asked.len();
                let (name, address) = asked[at];
                let paced =
                    pace::put(address, pace, LOAD_CORE).with_context(|| format!("{name} at {}/s", step.rate))?;
                let round = Round::of(&paced);
                println!("{}", round.row(name));
                step.rows[at].rounds.push(round);
            }
        }
    }
    Ok(steps.into())
}

impl Round {
    fn of(paced: &Paced) -> Self {
        Self {
            asked: paced.asked,
            reached: paced.reached,
            refused: paced.refused,
            unanswered: paced.unanswered,
            late_us: paced.late_us,
            quantiles_us: QUANTILES.map(|(_, share)| paced.quantile(share)),
        }
    }

    /// Whether it answered what it was asked for.
    fn is_reached(&self) -> bool {
        self.reached >= REACHED * self.asked && self.refused == 0 && self.unanswered == 0
    }

    fn row(&self, name: &str) -> String {
        let [p50, .., p99, _] = self.quantiles_us;
        let verdict = if self.is_reached() { "" } else { ", not reached" };
        format!(
            "{name:20} {:8.0} of {:.0} responses/s, p50 {p50:.0} us, p99 {p99:.0} us, load late by {:.0} us{verdict}",
            self.reached, self.asked, self.late_us
        )
    }
}

fn method(options: &Options) -> String {
    format!(
        "{rounds} interleaved rounds of {seconds:.0} s. Each proxy has one worker on core {PROXY_CORE}; load ({CONNECTIONS} \
         kept connections) and the origin (nginx, a file of 1 kB) share core {LOAD_CORE}. Rates are shares of the least \
         saturation, which wrk measured first. At a given rate the load is an open loop of our own: requests are due at \
         instants of independent users (Poisson), the same for everyone, and response times count from these instants, \
         also for a request that waits for a connection. What a proxy adds is the difference between a percentile of its \
         response times and the one of the origin asked directly (`{DIRECT}`), in the same round at the same rate. \
         Medians, in brackets the range. Who answered less than {reached:.0} % of what was \
         asked for, in any round, has \"not reached\" the rate. Run again with `cargo xtask bench latency{short} --rounds \
         {rounds} --seconds {seconds} --record`, on a machine that does nothing else, Envoy's program in `ENVOY`.{built}",
        rounds = options.rounds,
        seconds = options.seconds,
        reached = REACHED * 100.0,
        short = if options.short { " --short" } else { "" },
        built =
            if options.short { " Ours is built as checks build it, without optimisation at link time." } else { "" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_reached_by_who_answers_nearly_all_of_it_well() {
        let round = |reached: f64, refused: u64, unanswered: u64| Round {
            asked: 1000.0,
            reached,
            refused,
            unanswered,
            late_us: 5.0,
            quantiles_us: [1.0; 4],
        };
        let cases = [
            (1000.0, 0, 0, true),
            (980.0, 0, 0, true),
            (979.0, 0, 0, false),
            (1000.0, 1, 0, false),
            (1000.0, 0, 1, false),
        ];
        for (reached, refused, unanswered, wanted) in cases {
            assert_eq!(round(reached, refused, unanswered).is_reached(), wanted, "{reached} {refused} {unanswered}");
        }
    }
}
