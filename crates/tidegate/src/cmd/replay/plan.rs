//! What is to be run: the options, checked against the trace.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tidegate_engine::{ClassSetup, ServerSetup, Setup, Sla, Statistic};
use tidegate_sim::{Discipline, ServerModel, World};
use tidegate_workload::trace::{Instant, Playback, PlaybackOptions, Scan, Shape, TraceReader, Window};

use super::inputs::{ClassArg, Day, Edge, Membership, Reading, UnitCost};
use super::offers::{Classes, Offers, Work};
use super::tally::Tally;
use super::{Args, Policy};

/// Everything about the comparison. Whatever could be wrong with it has been found.
pub struct Plan {
    trace: PathBuf,
    reading: Reading,
    class_column: Option<String>,
    /// The policies that are compared.
    pub policies: Vec<Policy>,
    /// The seeds of the runs of each.
    pub seeds: Vec<u64>,
    /// What the window of the trace holds.
    pub scan: Scan,
    /// How the trace is played.
    pub playback: PlaybackOptions,
    /// The servers, of which each is as the first; the policy is put in for each run.
    pub world: World,
    work: Work,
    classes: Classes,
    tell_by: Option<usize>,
}

/// Stretches of a run at most: results stay small whatever the length of the trace.
const MOST_STRETCHES: u32 = 5000;

/// How many requests are played between two reports of progress.
const BATCH: u64 = 8192;

/// A run may last so long, seconds.
const LONGEST: f64 = 1e9;

/// Copies of a request at most: they are made at one time.
const MOST_COPIES: f64 = 1e6;

impl Plan {
    /// Checks the options and reads the trace once (twice for the day of its peak).
    ///
    /// # Errors
    /// What is wrong with them or with it.
    pub fn new(args: &Args) -> Result<Plan> {
        ensure!(
            (1e-6..=1e6).contains(&args.speed),
            "--speed {}: must be a number from 0.000001 to 1000000",
            args.speed
        );
        ensure!(!args.peak_over.is_zero(), "--peak-over must be more than 0");
        ensure!(!args.target.is_zero(), "--target must be more than 0");
        let open = || args.reading.open(&args.trace, args.class_column.as_deref());
        let reader = open()?;
        let work = work(args, &reader)?;
        let (names, classes) = classes(&args.classes, args.class_column.is_some(), reader.shape())?;
        let tell_by = args.tell_by.as_ref().map(|column| column_of(&reader, column, "--tell-by")).transpose()?;
        let look = |reader: TraceReader, window: Window| {
            Scan::of(reader, window, args.peak_over, args.reading.interval, |traced| work.expected(traced))
        };
        let window = window(args, || look(open()?, Window::default()))?;
        let scan = look(reader, window).with_context(|| "in the window asked for".to_owned())?;
        let rate = rate(args, &scan)?;
        let copies = scan.shape != Shape::Counts && rate > MOST_COPIES;
        ensure!(
            !copies,
            "every request {rate:.0} times over: that is no replay; choose fewer servers or a lower scale"
        );
        let playback = PlaybackOptions {
            window,
            rate,
            speed: args.speed,
            spread: args.spread,
            interval: args.reading.interval,
            seed: 0,
        };
        let length = scan.duration().as_secs_f64() / args.speed;
        ensure!(
            length < LONGEST,
            "the run would last {length:.0} s, more than thirty years: choose a part of the trace"
        );
        let bin = (scan.bin.as_secs_f64() / args.speed).max(length / f64::from(MOST_STRETCHES)).max(1e-3);
        Ok(Plan {
            trace: args.trace.clone(),
            reading: args.reading.clone(),
            class_column: args.class_column.clone(),
            policies: if args.policies.is_empty() { Policy::all() } else { args.policies.clone() },
            seeds: (0..args.seeds).map(|more| args.seed.wrapping_add(more)).collect(),
            scan,
            playback,
            world: world(args, names, Duration::from_secs_f64(bin))?,
            work,
            classes,
            tell_by,
        })
    }

    /// The trace's name.
    pub fn trace(&self) -> String {
        self.trace.display().to_string()
    }

    /// Requests of one run, about.
    pub fn expected(&self) -> f64 {
        self.scan.requests as f64 * self.playback.rate
    }

    /// Processors of a server.
    pub fn cores(&self) -> f64 {
        self.world.servers[0].cores
    }

    /// Processors of all servers.
    pub fn processors(&self) -> f64 {
        self.cores() * self.world.servers.len() as f64
    }

    /// Plays the trace under one policy, and tells now and then how many more requests it played.
    ///
    /// # Errors
    /// When the trace has an error where the first look ended before it, or has changed since.
    pub fn play(&self, policy: &Policy, seed: u64, progress: impl Fn(u64)) -> Result<Tally> {
        let mut world = self.world.clone();
        world.setup.admission = policy.config.clone();
        let reader = self.reading.open(&self.trace, self.class_column.as_deref())?;
        let playback = Playback::new(reader, PlaybackOptions { seed, ..self.playback });
        let offers = Offers::new(playback, self.trace(), &self.work, &self.classes, self.tell_by, seed);
        let (mut tally, mut played, mut broken) = (Tally::default(), 0, None);
        let sound = offers.map_while(|offer| offer.map_err(|error| broken = Some(error)).ok());
        let counted = sound.inspect(|offer| {
            tally.offered(offer, world.stretch);
            played += 1;
            if played % BATCH == 0 {
                progress(BATCH);
            }
        });
        let report = world.run_with(seed, counted).with_context(|| policy.label.clone())?;
        progress(played % BATCH);
        if let Some(error) = broken {
            return Err(anyhow!(error)).with_context(|| policy.label.clone());
        }
        tally.classes = report.courses;
        Ok(tally)
    }
}

fn world(args: &Args, classes: Vec<String>, stretch: Duration) -> Result<World> {
    let sla = Sla::constant(Statistic::P95, args.target).map_err(|error| anyhow!("--target: {error}"))?;
    let cores = f64::from(args.cores);
    let known = args.known_cores.then_some(cores);
    let server = |at: u16| ServerSetup { cores: known, ..ServerSetup::new(format!("server-{at}")) };
    let mut setup = Setup::simple("replay", sla, (0..args.servers).map(server));
    setup.classes = classes.into_iter().map(ClassSetup::new).collect();
    setup.check()?;
    let discipline = if args.discipline == "fifo" { Discipline::Fifo } else { Discipline::ProcessorSharing };
    let servers = vec![ServerModel::new(cores, discipline); usize::from(args.servers)];
    // Nothing arrives but the trace. No resource is measured: what a nucleus would see of them, no trace says.
    let world = World::new(setup, servers, Duration::ZERO);
    Ok(World { patience: args.timeout, stretch, by_answer: false, nuclei: false, ..world })
}

fn work(args: &Args, reader: &TraceReader) -> Result<Work> {
    if let Some(service) = args.service {
        return Ok(Work::Drawn(service.0));
    }
    let columns = reader.columns();
    ensure!(
        !args.cost_per_unit.is_empty(),
        "how much work is a request? Give --service, such as --service 20ms{}",
        match columns[..] {
            [] => String::new(),
            _ => format!(", or --cost-per-unit COLUMN=TIME for: {}", columns.join(", ")),
        }
    );
    work_by_size(&args.cost_per_unit, args.cost_base, reader)
}

/// What requests cost by their sizes.
///
/// # Errors
/// When there are no sizes, or no such.
pub fn work_by_size(costs: &[UnitCost], base: Option<Duration>, reader: &TraceReader) -> Result<Work> {
    let columns = reader.columns();
    ensure!(!columns.is_empty(), "--cost-per-unit: {} has no sizes; give --service", reader.file());
    let mut per_unit = vec![0.0; columns.len()];
    for cost in costs {
        let at = match &cost.column {
            Some(column) => column_of(reader, column, "--cost-per-unit")?,
            None if columns.len() == 1 => 0,
            None => bail!("--cost-per-unit: which of the columns {}? Write COLUMN=TIME", columns.join(", ")),
        };
        per_unit[at] = cost.time.as_secs_f64();
    }
    Ok(Work::BySize { per_unit, base: base.unwrap_or_default().as_secs_f64() })
}

fn column_of(reader: &TraceReader, column: &str, option: &str) -> Result<usize> {
    let columns = reader.columns();
    let known = columns.join(", ");
    let at = columns.iter().position(|known| known == column);
    at.with_context(|| {
        format!("{option}: there is no column of sizes \"{column}\" in {}; there is {known}", reader.file())
    })
}

/// The classes' names and how requests get theirs.
fn classes(given: &[ClassArg], by_column: bool, shape: Shape) -> Result<(Vec<String>, Classes)> {
    let names: Vec<String> = given.iter().map(|class| class.name.clone()).collect();
    ensure!(names.len() <= 255, "--class: at most 255 classes");
    for (at, name) in names.iter().enumerate() {
        ensure!(!names[..at].contains(name), "--class: {name} is given twice");
    }
    let rests = given.iter().filter(|class| class.what == Membership::Rest).count();
    if by_column {
        ensure!(!names.is_empty(), "--class-column: name its values with --class, the most important first");
        ensure!(rests == names.len(), "--class: with --class-column give only the names");
        return Ok((names.clone(), Classes::Named(names)));
    }
    if given.is_empty() {
        return Ok((vec!["all".to_owned()], Classes::Drawn(vec![1.0])));
    }
    ensure!(rests <= 1, "--class: only one class can be the rest; give the others a share or a /path");
    if given.iter().any(|class| matches!(class.what, Membership::Path(_))) {
        ensure!(shape == Shape::AccessLog, "--class NAME=/path needs an access log; this trace is {}", shape.name());
        let path = |class: &ClassArg| match &class.what {
            Membership::Path(path) => Ok(Some(path.clone())),
            Membership::Rest => Ok(None),
            Membership::Share(_) => Err(anyhow!("--class: give either shares or paths, not both")),
        };
        let paths: Vec<Option<String>> = given.iter().map(path).collect::<Result<_>>()?;
        let rest = paths.last().is_some_and(Option::is_none);
        ensure!(rest, "--class: add a last one without a path for what fits none, such as --class rest");
        return Ok((names, Classes::ByPath(paths)));
    }
    let share = |class: &ClassArg| if let Membership::Share(share) = class.what { share } else { 0.0 };
    let sum: f64 = given.iter().map(share).sum();
    ensure!(sum <= 1.0 + 1e-9, "--class: the shares add up to {sum}, more than 1");
    ensure!(rests == 1 || (sum - 1.0).abs() < 1e-9, "--class: the shares add up to {sum}; add a class without one");
    let mut reached = 0.0;
    let mut cumulated = |class: &ClassArg| {
        reached += if class.what == Membership::Rest { (1.0 - sum).max(0.0) } else { share(class) };
        reached
    };
    Ok((names, Classes::Drawn(given.iter().map(&mut cumulated).collect())))
}

fn window(args: &Args, look: impl Fn() -> Result<Scan, tidegate_workload::trace::TraceError>) -> Result<Window> {
    match args.day {
        Some(Day::Peak) => Ok(Window::day_of(look()?.peak_at)),
        Some(Day::Of(at)) => Ok(Window::day_of(at)),
        None => between(args.from, args.to, || Ok(look()?.first)),
    }
}

/// The window between two edges; `first` is the begin of the trace, asked for when an edge is relative to it.
///
/// # Errors
/// When the one does not lie before the other.
pub fn between(from: Option<Edge>, to: Option<Edge>, first: impl Fn() -> Result<Instant>) -> Result<Window> {
    let edge = |edge: Edge| match edge {
        Edge::At(at) => Ok(at),
        Edge::After(after) => first().map(|first| first.after(after)),
    };
    let window = Window { from: from.map(edge).transpose()?, to: to.map(edge).transpose()? };
    if let (Some(from), Some(to)) = (window.from, window.to) {
        ensure!(from < to, "--from {from} is not before --to {to}");
    }
    Ok(window)
}

/// What the number of requests is multiplied by.
fn rate(args: &Args, scan: &Scan) -> Result<f64> {
    let positive = |name: &str, value: f64| {
        ensure!(value.is_finite() && value > 0.0, "{name} {value}: must be a number above 0");
        Ok(value)
    };
    let Some(overload) = args.overload else { return positive("--rate-scale", args.rate_scale.unwrap_or(1.0)) };
    let processors = f64::from(args.servers) * f64::from(args.cores);
    let busiest = scan.peak_work * args.speed;
    ensure!(busiest > 0.0, "--overload: the trace's requests are no work, so that no number of them is too much");
    Ok(positive("--overload", overload)? * processors / busiest)
}
