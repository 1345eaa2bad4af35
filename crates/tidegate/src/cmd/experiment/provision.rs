//! `tidegate experiment provision`: provisioning policies side by side on days of a trace.

use std::io::{Write, stdout};
use std::iter::Sum;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde::Deserialize;
use tidegate_engine::{ServerSetup, Setup, Sla, Statistic, Timestamp};
use tidegate_experiment::plan::in_parallel;
use tidegate_provision::{
    ApplicationSetup, CpuTargetConfig, FollowConfig, Pool, Posts, ProvisionConfig, SentryRule, Site,
};
use tidegate_sim::{Discipline, Manner, ServerModel, SiteReport, SiteWorld, Stream, Url, World};
use tidegate_workload::Course;
use tidegate_workload::trace::{Instant, TraceReader, What};
use tidegate_workload::{ArrivalProcess, Profile, Rate, ServiceTime, parse_duration};

use super::super::replay::inputs::{Day, Reading};
use super::super::replay::policy::inline_table;
use super::jobs;

/// Compare provisioning by offered load with an autoscaler that keeps CPU use at a target, on days of a trace
///
/// Both have the same sentry in front. Prints a Markdown table of server hours, refused requests, and minutes whose
/// 95th percentile is above the target: each as the mean over the seeds with its range. The last rows sum up all
/// days.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Trace of counts: time,count; plain or gzip
    trace: PathBuf,
    /// A day, such as 1998-06-30; repeat for several
    #[arg(long = "day", value_name = "DATE", required = true)]
    days: Vec<Day>,
    /// Begin at this time of the day
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
    from: Duration,
    /// Length of the part of the day
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, default_value = "24h")]
    length: Duration,
    /// Number of earlier days that the forecaster knows
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=60))]
    history: u32,
    /// Multiply the number of requests
    #[arg(long, value_name = "X", default_value_t = 0.05)]
    rate_scale: f64,
    /// Mean work of a request, exponentially distributed
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "100ms")]
    service: Duration,
    /// Response-time target for 95 % of the admitted requests
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1s")]
    target: Duration,
    /// Time from the request for a server until it serves
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "60s")]
    setup_time: Duration,
    /// Servers in the pool
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    servers: u32,
    /// Settings of tidegate's policy, such as "{ safety = 2 }"; repeat to compare several
    #[arg(long = "follow", value_name = "TABLE", value_parser = follow, default_value = "{}")]
    follow: Vec<FollowConfig>,
    #[command(flatten)]
    reading: Reading,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs of each policy, with consecutive seeds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Simulations at the same time; default: one per processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
}

/// Both sides ask and report at this period, the autoscaler's.
const PERIOD: Duration = Duration::from_secs(15);
const DAY: Duration = Duration::from_secs(86_400);
const MINUTE: usize = 60;

/// What came of a run.
#[derive(Default)]
struct Row {
    server_hours: f64,
    offered: u64,
    refused: u64,
    minutes: u32,
    minutes_over: u32,
}

/// A stretch of the trace: instants since its begin, and rates from then on.
struct Stretch {
    name: String,
    rates: Vec<(Duration, f64)>,
    past: Vec<(Timestamp, f64)>,
    origin: Duration,
}

/// Runs the command. Status 2 when what was asked for makes no sense.
///
/// # Errors
/// When the trace cannot be read, or the table not be printed.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    if !(args.rate_scale.is_finite() && args.rate_scale > 0.0) {
        return Ok(super::super::bad_configuration("--rate-scale must be a finite number above 0"));
    }
    let policies = args.policies();
    let stretches = args.days.iter().map(|day| args.stretch(*day)).collect::<Result<Vec<_>>>()?;
    let mut tasks = Vec::new();
    for stretch in &stretches {
        for (_, policy) in &policies {
            let world = args.world(stretch, policy)?;
            tasks.extend((0..args.seeds).map(|seed| (world.clone(), args.seed.wrapping_add(seed))));
        }
    }
    let target = args.target.as_secs_f64();
    let rows = in_parallel(&tasks, jobs(args.jobs), |(world, seed)| world.run(*seed).map(|r| row(&r, target)))?;
    let mut out = stdout();
    writeln!(out, "| day | policy | requests | server hours | refused, % | minutes over the target |")?;
    writeln!(out, "|---|---|---:|---:|---:|---:|")?;
    let seeds = args.seeds as usize;
    let names = stretches.iter().flat_map(|stretch| policies.iter().map(|(name, _)| (&stretch.name, name)));
    for ((day, policy), rows) in names.zip(rows.chunks(seeds)) {
        print_row(&mut out, day, policy, rows)?;
    }
    for (at, (policy, _)) in policies.iter().enumerate() {
        // Per seed, all days together.
        let of_seed = |seed: usize| rows.chunks(seeds).skip(at).step_by(policies.len()).map(|rows| &rows[seed]).sum();
        print_row(&mut out, "all", policy, &(0..seeds).map(of_seed).collect::<Vec<Row>>())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_row(out: &mut impl Write, day: &str, policy: &str, rows: &[Row]) -> std::io::Result<()> {
    let offered = rows.iter().map(|row| row.offered).sum::<u64>() / rows.len() as u64;
    let hours = spread(rows, 1, |row| row.server_hours);
    let refused = spread(rows, 3, |row| 100.0 * row.refused as f64 / row.offered.max(1) as f64);
    let over = spread(rows, 1, |row| f64::from(row.minutes_over));
    let minutes = rows[0].minutes;
    writeln!(out, "| {day} | {policy} | {offered} | {hours} | {refused} | {over} of {minutes} |")
}

impl<'a> Sum<&'a Row> for Row {
    fn sum<I: Iterator<Item = &'a Row>>(rows: I) -> Row {
        rows.fold(Row::default(), |sum, row| Row {
            server_hours: sum.server_hours + row.server_hours,
            offered: sum.offered + row.offered,
            refused: sum.refused + row.refused,
            minutes: sum.minutes + row.minutes,
            minutes_over: sum.minutes_over + row.minutes_over,
        })
    }
}

fn follow(text: &str) -> Result<FollowConfig, String> {
    FollowConfig::deserialize(inline_table(text)?).map_err(|error| error.message().trim().to_owned())
}

/// Mean, least and most.
fn spread(rows: &[Row], digits: usize, of: impl Fn(&Row) -> f64) -> String {
    let values: Vec<f64> = rows.iter().map(of).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let (least, most) = values.iter().fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(*v), b.max(*v)));
    format!("{mean:.digits$} ({least:.digits$} to {most:.digits$})")
}

fn row(report: &SiteReport, target: f64) -> Row {
    let mut course = Course::default();
    report.reports[0].iter().for_each(|sentry| sentry.courses.iter().for_each(|part| course.add(part)));
    let total = course.total();
    let p95 = |minute: usize| {
        let at = |minute: usize| Duration::from_secs((minute * MINUTE) as u64);
        course.span(at(minute), at(minute + 1)).responses.quantile(0.95)
    };
    let minutes = course.seconds().len().div_ceil(MINUTE);
    let measured: Vec<f64> = (0..minutes).filter_map(p95).collect();
    Row {
        server_hours: report.server_seconds / 3600.0,
        offered: total.offered,
        refused: total.refused + total.failed,
        minutes: measured.len() as u32,
        minutes_over: measured.iter().filter(|p95| **p95 > target).count() as u32,
    }
}

impl Args {
    /// Ours first, by the number of its settings where there are several, then the autoscaler.
    fn policies(&self) -> Vec<(String, ProvisionConfig)> {
        let name = |at: usize| if self.follow.len() == 1 { "tidegate".into() } else { format!("tidegate {}", at + 1) };
        let ours =
            self.follow.iter().enumerate().map(|(at, config)| (name(at), ProvisionConfig::Follow(config.clone())));
        ours.chain([("CPU 70 %".into(), ProvisionConfig::CpuTarget(CpuTargetConfig::default()))]).collect()
    }

    /// Reads one day of the trace, and the days before it.
    fn stretch(&self, day: Day) -> Result<Stretch> {
        let Day::Of(day) = day else { return Err(anyhow!("--day peak: give dates, such as 1998-06-30")) };
        let begin = day.day().after(self.from);
        let end = begin.after(self.length);
        let known_from = Instant::from_nanos(begin.as_nanos() - (DAY * self.history).as_nanos() as i64);
        let counts = self.counts(&self.trace, known_from, end)?;
        ensure!(counts.len() > 1, "{}: nothing between {known_from} and {end}", self.trace.display());
        let interval = self.reading.interval.unwrap_or_else(|| counts[1].0.since(counts[0].0));
        let rate = |count: u64| count as f64 * self.rate_scale / interval.as_secs_f64();
        let split = counts.partition_point(|(at, _)| *at < begin);
        ensure!(split < counts.len(), "{}: nothing on that day", self.trace.display());
        let past = counts[..split]
            .iter()
            .map(|(at, count)| (Timestamp::ZERO + at.since(known_from) + interval, rate(*count)))
            .collect();
        let rates = counts[split..].iter().map(|(at, count)| (at.since(begin), rate(*count))).collect();
        let name = self.days_name(day);
        Ok(Stretch { name, rates, past, origin: begin.since(known_from) })
    }

    fn days_name(&self, day: Instant) -> String {
        let text = day.day().to_string();
        text.split([' ', 'T']).next().unwrap_or(&text).to_owned()
    }

    fn counts(&self, trace: &Path, from: Instant, to: Instant) -> Result<Vec<(Instant, u64)>> {
        let reader: TraceReader = self.reading.open(trace, None)?;
        let mut counts = Vec::new();
        for entry in reader {
            let entry = entry?;
            let What::Count(count) = entry.what else {
                return Err(anyhow!("{}: requests one by one; a trace of counts is needed", trace.display()));
            };
            if entry.at >= to {
                break;
            }
            if entry.at >= from {
                counts.push((entry.at, count));
            }
        }
        Ok(counts)
    }

    fn world(&self, stretch: &Stretch, policy: &ProvisionConfig) -> Result<SiteWorld> {
        let sla = Sla::constant(Statistic::P95, self.target)?;
        let servers =
            (0..self.servers).map(|at| ServerSetup { cores: Some(1.0), ..ServerSetup::new(format!("s{at}")) });
        let setup = Setup::simple("trace", sla.clone(), servers);
        let models = vec![ServerModel::new(1.0, Discipline::ProcessorSharing); self.servers as usize];
        let mut world = World::new(setup, models, self.length);
        world.by_answer = false;
        world.patience = Duration::from_secs(30);
        let service = ServiceTime::exponential(self.service.as_secs_f64())?;
        world.streams = vec![Stream {
            class: 0,
            profile: profile(&stretch.rates).context("the trace makes no profile")?,
            process: ArrivalProcess::Poisson,
            urls: (0..10).map(|key| Url::new(key, service)).collect(),
            retry: None,
            manner: Manner::default(),
        }];
        // Both begin with what the first minute needs.
        let first = stretch.rates[0].1 * self.service.as_secs_f64() / 0.7;
        let application = ApplicationSetup {
            name: "trace".to_owned(),
            sla,
            revenues: vec![1.0],
            min_servers: 1,
            max_servers: self.servers,
            servers: (first.ceil() as u32).clamp(1, self.servers),
            max_sentries: 1,
            replica: None,
        };
        let site = Site {
            servers: self.servers,
            pool: Pool { setup_time: self.setup_time, ..Pool::default() },
            applications: vec![application],
            policy: policy.clone(),
            sentries: SentryRule::default(),
            posts: Posts::default(),
        };
        let past = vec![stretch.past.clone()];
        Ok(SiteWorld { site, worlds: vec![world], every: PERIOD, past, origin: stretch.origin })
    }
}

fn profile(rates: &[(Duration, f64)]) -> Result<Profile> {
    let mut builder = Profile::builder();
    for (at, rate) in rates {
        builder = builder.step(*at, Rate::new(*rate).context("a rate that is no number")?);
    }
    Ok(builder.build()?)
}
