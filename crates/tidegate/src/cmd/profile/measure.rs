//! The measurement: announced, run step by step, written down.

use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use tidegate_engine::units::format_duration;
use tidegate_experiment::report::{Curve, curves};
use tidegate_loadgen::capacity::{Bounds, Found, Loops, Step, Target, find};
use tidegate_workload::{Rate, parse_duration};

use super::file::{File, Measured};
use super::staircase::{self, Site};

/// Options of a measurement.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// What to measure: a URL, or name=URL; several are measured one after the other. With --data the first is an
    /// application server's
    #[arg(long, value_name = "[NAME=]URL")]
    to: Vec<String>,
    /// The 95th percentile that must be held: a time, or name=TIME for one of several --to; 500ms where nothing is said
    #[arg(long, value_name = "[NAME=]TIME")]
    target: Vec<String>,
    /// How long each step lasts
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5s")]
    step: Duration,
    /// Clients that wait for their answers (closed), rates (open), or both
    #[arg(long = "loop", value_name = "LOOP", default_value = "both")]
    loops: LoopArg,
    /// Requests in flight at most
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    most_in_flight: u32,
    /// Requests per second at most
    #[arg(long, value_name = "RATE", default_value = "10k/s")]
    most_rate: Rate,
    /// A header field for every request: "Name: value"
    #[arg(long = "header", value_name = "FIELD")]
    headers: Vec<String>,
    /// Seed of arrivals
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The profile file
    #[arg(long, value_name = "FILE", default_value = "profile.toml")]
    out: PathBuf,
    /// The plot; default: beside the profile, with the ending svg
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// The application's software on a data server: measure what it can lend
    #[arg(long, value_name = "URL", requires_all = ["load_to", "peak"])]
    data: Option<String>,
    /// With --data: where requests go that make work for the data tier, as many as each load level says
    #[arg(long, value_name = "URL")]
    load_to: Option<String>,
    /// With --data: what the data tier holds while it lends nothing
    #[arg(long, value_name = "RATE")]
    peak: Option<Rate>,
    /// With --data: load levels, shares of the peak
    #[arg(long, value_name = "SHARES", value_delimiter = ',', default_values_t = [0.2, 0.4, 0.6, 0.8])]
    levels: Vec<f64>,
    /// With --data: listen here for the data server's nucleus, and have it divide the cores in every way
    #[arg(long, value_name = "ADDR", requires_all = ["server", "key_file"])]
    nucleus: Option<SocketAddr>,
    /// With --nucleus: the server's name, as the nucleus has it
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// With --nucleus: the file with the shared secret
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum LoopArg {
    Both,
    Closed,
    Open,
}

/// Runs the measurement.
///
/// # Errors
/// When something could not be measured, or written.
pub(super) fn run(args: &Args, cores: Option<u32>) -> Result<ExitCode> {
    let prepared = args.prepare(cores);
    let (targets, bounds, site) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return Ok(super::super::bad_configuration(format!("{error:#}"))),
    };
    eprint!("{}", announcement(&targets, &bounds, site.as_ref()));
    let mut types = Vec::new();
    for (target, held) in &targets {
        eprintln!("\n{}: {}\n{HEAD}", target.name, target.url);
        let bounds = Bounds { target: *held, ..bounds.clone() };
        let found = find(target, &bounds, |step| eprintln!("{}", line(step)))?;
        write!(stdout(), "{}", text(&found))?;
        types.push(found);
    }
    let (mut softscale, mut lending) = (None, Vec::new());
    if let Some(site) = &site {
        let n_app = types[0].max_conn.context("the application server needs a closed loop: leave out --loop open")?;
        lending = staircase::measure(site, &bounds)?;
        let profile = staircase::profile(n_app, site.peak, &lending);
        writeln!(stdout(), "n_app {n_app}")?;
        for step in &profile.steps {
            let cores = step.cores.map_or(String::new(), |cores| format!(", {cores} cores"));
            writeln!(stdout(), "below {:.0} % of the peak: n_data {}{cores}", step.below * 100.0, step.n_data)?;
        }
        softscale = Some(profile);
    }
    let svg = curves(&types.iter().map(curve).collect::<Vec<_>>());
    let file = File::new(Measured { step: bounds.step.as_secs_f64(), seed: bounds.seed, types, lending }, softscale);
    let plot = args.plot.clone().unwrap_or_else(|| args.out.with_extension("svg"));
    for (path, text) in [(&args.out, toml::to_string(&file)?), (&plot, svg.map_err(anyhow::Error::msg)?)] {
        std::fs::write(path, text).with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    writeln!(stdout(), "written: {}, {}", args.out.display(), plot.display())?;
    Ok(ExitCode::SUCCESS)
}

/// What is measured, each with the time that it must hold; how far to go; and what data servers lend.
type Prepared = (Vec<(Target, Duration)>, Bounds, Option<Site>);

impl Args {
    /// What is measured, each with the time that it must hold; how far to go; and what data servers lend.
    fn prepare(&self, cores: Option<u32>) -> Result<Prepared> {
        let targets: Vec<Target> = self.to.iter().map(|text| self.target_of(text)).collect::<Result<_>>()?;
        let (target, targets) = self.held(targets)?;
        ensure!(self.step >= Duration::from_millis(500), "--step: a step of less than 500ms shows nothing");
        let most_rate = self.most_rate.per_second();
        ensure!(most_rate > 0.0, "--most-rate: must be more than 0");
        let loops = match self.loops {
            LoopArg::Both => Loops::Both,
            LoopArg::Closed => Loops::Closed,
            LoopArg::Open => Loops::Open,
        };
        let (step, seed) = (self.step, self.seed);
        let bounds = Bounds { target, step, most_in_flight: self.most_in_flight, most_rate, seed, loops };
        let Some(data) = &self.data else { return Ok((targets, bounds, None)) };
        ensure!(
            loops != Loops::Open,
            "--data: what servers hold is found with clients that wait; leave out --loop open"
        );
        let mut levels = self.levels.clone();
        levels.sort_by(f64::total_cmp);
        levels.dedup();
        let good = levels.iter().all(|level| *level > 0.0 && *level < 1.0);
        ensure!(good && !levels.is_empty(), "--levels: shares of the peak are more than 0 and less than 1");
        let peak = self.peak.map_or(0.0, Rate::per_second);
        ensure!(peak > 0.0, "--peak: must be more than 0");
        let nucleus = match (self.nucleus, &self.server, &self.key_file) {
            (Some(listen), Some(server), Some(key_file)) => {
                let cores = cores.filter(|cores| *cores >= 2);
                let cores =
                    cores.context("--nucleus: give --cores, the data server's cores that are divided, 2 or more")?;
                Some(staircase::Nucleus { listen, server: server.clone(), key_file: key_file.clone(), cores })
            }
            _ => None,
        };
        let load_to = self.load_to.as_deref().unwrap_or_default();
        let (data, load) = (self.target_of(data)?, self.target_of(load_to)?);
        Ok((targets, bounds, Some(Site { data, load, peak, levels, nucleus })))
    }

    /// The time that holds where no other is given, and every kind with its own.
    fn held(&self, targets: Vec<Target>) -> Result<(Duration, Vec<(Target, Duration)>)> {
        let (mut general, mut named) = (TARGET, Vec::new());
        for text in &self.target {
            let (name, time) = text.split_once('=').map_or((None, text.as_str()), |(name, time)| (Some(name), time));
            let time = parse_duration(time).map_err(|problem| anyhow!("--target: {problem}"))?;
            ensure!(time > Duration::ZERO, "--target: must be more than 0");
            let Some(name) = name else {
                general = time;
                continue;
            };
            let known: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
            ensure!(known.contains(&name), "--target {text}: no --to has that name; there are {}", known.join(", "));
            named.push((name, time));
        }
        let own = |target: &Target| named.iter().rev().find(|(name, _)| *name == target.name).map(|(_, time)| *time);
        let with_time = |target: Target| {
            let time = own(&target).unwrap_or(general);
            (target, time)
        };
        Ok((general, targets.into_iter().map(with_time).collect()))
    }

    /// `URL`, or `name=URL`. A name has no colon and no slash.
    fn target_of(&self, text: &str) -> Result<Target> {
        let named = text.split_once('=').filter(|(name, _)| !name.contains([':', '/']));
        let (name, url) = named.unwrap_or(("all", text));
        let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let parsed: hyper::Uri = url.parse().with_context(|| format!("\"{text}\" is not a URL"))?;
        ensure!(parsed.scheme_str() == Some("http"), "\"{text}\": write http://host:port/path");
        let field = |field: &String| {
            let (name, value) =
                field.split_once(':').with_context(|| format!("--header \"{field}\": write Name: value"))?;
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        };
        let headers = self.headers.iter().map(field).collect::<Result<_>>()?;
        Ok(Target { name: name.to_owned(), url, headers })
    }
}

/// What will be sent where, before any of it is.
fn announcement(targets: &[(Target, Duration)], bounds: &Bounds, site: Option<&Site>) -> String {
    let Bounds { most_in_flight, most_rate, .. } = bounds;
    let step = format_duration(bounds.step);
    let mut text = format!(
        "in steps of {step}, up to {most_in_flight} requests in flight and {most_rate} requests/s, to the point at which \
         p95 is beyond the target; a step that is far beyond it is cut short. Nothing is sent but to\n"
    );
    for (target, held) in targets {
        text += &format!("  {} ({}, target {})\n", target.url, target.name, format_duration(*held));
    }
    if let Some(site) = site {
        let shares: Vec<String> = site.levels.iter().map(|level| format!("{:.0}", level * site.peak)).collect();
        text += &format!("  {} (a data server)\n", site.data.url);
        text += &format!("  {} (work for the data tier, {} requests/s)\n", site.load.url, shares.join(", "));
        if let Some(nucleus) = &site.nucleus {
            text += &format!("the nucleus of {} is told to divide {} cores\n", nucleus.server, nucleus.cores);
        }
    }
    text
}

/// What must be held where nothing is said.
const TARGET: Duration = Duration::from_millis(500);
const HEAD: &str = "   clients   offered/s  answered/s   failed      mean       p95";

fn line(step: &Step) -> String {
    let clients = step.in_flight.map_or("-".to_owned(), |clients| clients.to_string());
    let cut = if step.cut { "  cut short" } else { "" };
    let busy = if step.is_generators() { "  generator busy" } else { "" };
    format!(
        "{clients:>10} {:>11.1} {:>11.1} {:>6.1} % {:>9} {:>9}{cut}{busy}",
        step.offered,
        step.answered,
        step.failed * 100.0,
        ms(step.latency.mean),
        ms(step.latency.p95)
    )
}

/// Milliseconds, with parts of them where they are few.
fn ms(seconds: f64) -> String {
    let ms = seconds * 1e3;
    let digits = if ms < 1.0 { 2 } else { usize::from(ms < 10.0) };
    format!("{ms:.digits$} ms")
}

fn text(found: &Found) -> String {
    let most = match (found.max_conn, found.most) {
        (Some(within), _) if found.is_bound => {
            format!("{within} or more in flight within the target (the bound given)")
        }
        (Some(within), Some(most)) => format!("{within} in flight within the target, {most} at the breaking point"),
        _ => "no closed loop".to_owned(),
    };
    let bound = if found.rate_is_bound { " (the bound given, --most-rate)" } else { "" };
    let mut text = format!(
        "{}: capacity {:.1}/s, {:.1}/s within the target{bound}, {most}; knee at {:.1}/s with {}; alone {}; suggested \
         target {}\n",
        found.name,
        found.capacity,
        found.rate_in_target,
        found.knee.0,
        ms(found.knee.1),
        ms(found.cost),
        ms(found.suggested_target)
    );
    if found.is_generators {
        text += "the generator was the bottleneck where most was answered: the service may hold more. Measure from a machine \
                 of its own, or with a faster processor\n";
    }
    text
}

fn curve(found: &Found) -> Curve {
    // Of a number of clients that was tried twice the second time counts, as in the search.
    let is_last = |at: usize, step: &Step| {
        let later = || found.steps[at + 1..].iter().any(|later| later.in_flight == step.in_flight);
        step.in_flight.is_none() || !later()
    };
    let steps = found.steps.iter().enumerate().filter(|(at, step)| is_last(*at, step)).map(|(_, step)| step);
    // What was cut short had no time to show its rate.
    let mut steps: Vec<&Step> = steps.filter(|step| step.latency.count > 0 && !step.cut).collect();
    steps.sort_by(|a, b| a.in_flight.cmp(&b.in_flight).then(a.offered.total_cmp(&b.offered)));
    let points = |closed: bool| {
        let steps = steps.iter().filter(move |step| step.in_flight.is_some() == closed);
        steps.map(|step| (step.answered, step.latency.p95)).collect()
    };
    let clients = steps.iter().filter_map(|step| Some((f64::from(step.in_flight?), step.answered)));
    Curve {
        name: found.name.clone(),
        closed: points(true),
        open: points(false),
        clients: clients.collect(),
        target: found.target,
        knee: found.knee.0,
        capacity: found.capacity,
    }
}
